"""``python -m dobrushin.verify answer.proof [model-file] [--replay all|N]``."""

from __future__ import annotations

import sys

from dobrushin.verify import verify

_USAGE = "usage: python -m dobrushin.verify PROOF [MODEL] [--replay all|N]"


def main(arguments: list[str]) -> int:
    """Check a file, print the verdict, and return the exit code."""
    replay: int | str | None = None
    if "--replay" in arguments:
        at = arguments.index("--replay")
        value = arguments[at + 1] if at + 1 < len(arguments) else ""
        arguments = arguments[:at] + arguments[at + 2 :]
        if value != "all" and not (value.isdecimal() and int(value) > 0):
            print(_USAGE, file=sys.stderr)
            return 2
        replay = value if value == "all" else int(value)
    if not 1 <= len(arguments) <= 2 or arguments[0].startswith("-"):
        print(_USAGE, file=sys.stderr)
        return 2
    try:
        verdict = verify(arguments[0], arguments[1] if len(arguments) == 2 else None, replay)
    except OSError as error:
        print(f"{error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    print(verdict)
    return verdict.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
