"""Boolean circuits of the nonlinearities: one description that evaluates, counts and garbles."""
