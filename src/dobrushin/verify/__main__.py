"""``python -m dobrushin.verify answer.proof [model-file] [--replay all|N]``."""

import argparse
import sys

from dobrushin.verify import MEMORY_LIMIT, TIME_LIMIT, verify_proof


def main() -> int:
    """Check a file, print the verdict, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m dobrushin.verify", description="Check a proof."
    )
    parser.add_argument("proof", help="the proof file")
    about = "a model file (.uai, .bif, .npz or a folder) to compare the factors with"
    parser.add_argument("model", nargs="?", help=about)
    parser.add_argument("--replay", metavar="all|N", help="blocks of chains to draw again")
    add = parser.add_argument
    add("--time-limit", type=float, default=TIME_LIMIT, metavar="SECONDS", help="default: 60")
    add("--memory-limit", type=float, default=MEMORY_LIMIT, metavar="BYTES", help="default: 2^30")
    options = parser.parse_args()
    replay = int(options.replay) if (options.replay or "").isdecimal() else options.replay
    limits = options.time_limit, options.memory_limit
    try:
        verdict = verify_proof(options.proof, options.model, replay, *limits)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    code = sys.stdout.encoding or "ascii"
    print(str(verdict).encode(code, "backslashreplace").decode(code))
    return verdict.exit_code


if __name__ == "__main__":
    sys.exit(main())
