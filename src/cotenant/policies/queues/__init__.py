"""Who waits: lines of waiting jobs, and which of those that are alike needs to be looked at."""
