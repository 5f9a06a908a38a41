"""Published experiments, re-created, and a tournament of policies; ``base`` holds the contract."""
