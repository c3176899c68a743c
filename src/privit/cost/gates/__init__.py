"""Gates: ReLUOps and AND counts of garbled circuits."""
