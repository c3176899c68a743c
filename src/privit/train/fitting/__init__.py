"""Fitting: stand-ins by least squares, and plans by measured loss."""
