"""Training: torch lives here. Nothing of serve/ is imported."""
