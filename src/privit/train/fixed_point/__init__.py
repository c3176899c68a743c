"""Fixed point: whether the engine can hold a model's values, and what to do where it cannot."""
