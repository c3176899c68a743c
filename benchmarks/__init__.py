"""Measurements that take too long, or vary too much, to be tests."""
