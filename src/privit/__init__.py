"""Vision transformers that fit a private-inference budget, and the server and client that run them."""

__version__ = "0.1.0"
