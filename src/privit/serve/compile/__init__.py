"""Compiling: the model as a program of the engine, and what that program makes the parties do."""
