"""The command line: verbs named as the stages. Imports nothing heavy until a verb runs."""

from __future__ import annotations


def main() -> None:
    """Entry point of the `dobrushin` command."""
    from dobrushin.cli.app import app

    app()
