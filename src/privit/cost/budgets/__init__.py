"""Budgets: what plans cost in one unit, and the best plan for an amount of it."""
