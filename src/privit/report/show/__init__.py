"""Showing: the parts of a report, each from cells."""
