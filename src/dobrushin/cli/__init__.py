"""The command line. A verb's libraries are imported only when it runs, so that help is fast."""

from __future__ import annotations

import io
import os
import sys


def main() -> None:
    """Run the command line `dobrushin`."""
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
