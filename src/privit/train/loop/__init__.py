"""The one training loop of all stages, and what it is made of."""
