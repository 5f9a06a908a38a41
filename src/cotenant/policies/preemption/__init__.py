"""Who gives way: victims, claims, and devices emptied for whoever has the better right to them."""
