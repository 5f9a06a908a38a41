"""The same jobs for real and in the simulator, side by side: how far the simulator can be believed here."""
