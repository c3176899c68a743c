"""One figure a file; each gives a matplotlib figure from cells and touches no file."""
