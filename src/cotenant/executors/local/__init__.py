"""Real processes on this machine: a shepherd for each attempt, and the host that looks after them."""
