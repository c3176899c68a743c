"""The model in jax.numpy: the program's graph, evaluated in the clear or under MPC."""
