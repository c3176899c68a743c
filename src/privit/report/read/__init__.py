"""Reading: runs and sweeps on disk, as cells."""
