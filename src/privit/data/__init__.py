"""Data: pictures with labels by name, preprocessing, architectures by name; free of torch and engine."""
