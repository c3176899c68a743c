"""Comparing: fronts, and what they say about methods."""
