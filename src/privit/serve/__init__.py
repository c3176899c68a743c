"""Serving: jax and spu live here. Nothing of train/ is imported."""
