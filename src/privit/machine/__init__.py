"""What the machine under a process gives it."""
