"""The command line: verbs named as the stages. Imports nothing heavy until a verb runs."""

from __future__ import annotations

import io
import os
import sys


def main() -> None:
    """Run the `dobrushin` command."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal without such letters as θ shows marks instead
        sys.stdout.reconfigure(errors="replace")
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
