"""``python -m dobrushin.verify answer.proof [model-file] [--replay all|N]``."""

import argparse
import sys

from dobrushin.verify import verify


def main() -> int:
    """Check a file, print the verdict, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m dobrushin.verify", description="Check a proof.")
    parser.add_argument("proof", help="the file")
    parser.add_argument("model", nargs="?", help="a model file (.uai, .npz or a folder) to compare the factors with")
    parser.add_argument("--replay", metavar="all|N", help="how many blocks of chains to draw again")
    options = parser.parse_args()
    replay = int(options.replay) if (options.replay or "").isdecimal() else options.replay
    try:
        verdict = verify(options.proof, options.model, replay)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    code = sys.stdout.encoding or "ascii"
    print(str(verdict).encode(code, "backslashreplace").decode(code))
    return verdict.exit_code


if __name__ == "__main__":
    sys.exit(main())
