"""The command line: thin, each verb calls one function that Python users call too."""

from privit.cli.main import main

__all__ = ["main"]
