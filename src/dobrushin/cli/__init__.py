"""The command line: verbs named as the stages. Imports nothing heavy until a verb runs."""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point of the `dobrushin` command."""
    try:
        from dobrushin.cli.app import app

        app()
    except KeyboardInterrupt:  # before the verb began, or while it ended
        print("Interrupted.", file=sys.stderr)
        sys.exit(130)
