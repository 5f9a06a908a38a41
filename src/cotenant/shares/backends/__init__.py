"""What holds a job to its share: one interface, and each way of doing it with its honest enforcement table."""
