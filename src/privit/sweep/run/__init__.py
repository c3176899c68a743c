"""Running: cells, the stages that they share, and what is left on disk for a report."""
