"""The command line: `warmlane serve`, `warmlane version`."""

from warmlane.cli.main import main

__all__ = ["main"]
