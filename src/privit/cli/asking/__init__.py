"""Asking privately from the shell: the verbs of a client, and what they show while it works."""
