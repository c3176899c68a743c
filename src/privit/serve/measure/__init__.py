"""Measuring: what a program really sends, how long it takes, and how often it is right."""
