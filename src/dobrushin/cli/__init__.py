"""The command line: verbs named as the stages. Imports nothing heavy until a verb runs."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Entry point of the `dobrushin` command."""
    try:
        from dobrushin.cli.app import app

        if os.environ.get("_DOBRUSHIN_COMPLETE") == "complete_bash":
            from dobrushin.cli.completion import answer_bash

            answer_bash(app, os.environ)
        app()
    except (KeyboardInterrupt, RuntimeError) as error:  # before the verb began, or while it ended
        # Python 3.11 turns an interrupt in the middle of a class statement into a RuntimeError.
        if not isinstance(error, KeyboardInterrupt) and not isinstance(error.__cause__, KeyboardInterrupt):
            raise
        print("Interrupted.", file=sys.stderr)
        sys.exit(130)
