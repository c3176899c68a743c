"""A local web page for one person: drop a picture, see the answer and what the server saw of it."""
