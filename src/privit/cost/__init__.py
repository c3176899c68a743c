"""Cost: what a nonlinearity costs, counted from circuits and measured on the engine."""
