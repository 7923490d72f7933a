"""``python -m dobrushin.verify answer.proof [model-file] [--replay all|N]``."""

from __future__ import annotations

import argparse
import sys

from dobrushin.verify import verify


def _blocks(text: str) -> int | str:
    if text != "all" and not (text.isdecimal() and int(text)):
        raise ValueError
    return text if text == "all" else int(text)


def main() -> int:
    """Check a file, print the verdict, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m dobrushin.verify", description="Check a proof.")
    parser.add_argument("proof", help="the file")
    parser.add_argument("model", nargs="?", help="a model file (.uai, .npz or a folder) to compare the factors with")
    parser.add_argument("--replay", type=_blocks, metavar="all|N", help="how many blocks of chains to draw again")
    options = parser.parse_args()
    try:
        verdict = verify(options.proof, options.model, options.replay)
    except OSError as error:
        parser.error(f"{error.filename}: {error.strerror}")
    code = sys.stdout.encoding or "ascii"
    print(str(verdict).encode(code, "backslashreplace").decode(code))
    return verdict.exit_code


if __name__ == "__main__":
    sys.exit(main())
