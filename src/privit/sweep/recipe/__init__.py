"""Recipes: what a TOML file asks for, or everything that is wrong with it, before anything starts."""
