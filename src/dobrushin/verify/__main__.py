"""Run the checker: ``python -m dobrushin.verify answer.proof [model-file] [--replay all|N]``."""

import argparse
import sys

from dobrushin.verify import MEMORY_LIMIT, TIME_LIMIT, verify_proof


def main() -> int:
    """Check a file, print the verdict, and return the exit code."""
    parser = argparse.ArgumentParser("python -m dobrushin.verify", description="Check a proof.")
    about = "a model file or a folder to compare the factors with"
    add = parser.add_argument
    add("proof", help="the proof file")
    add("model", nargs="?", help=about)
    add("--replay", metavar="all|N", help="how many blocks of chains to draw again")
    add(
        "--time-limit",
        type=float,
        default=TIME_LIMIT,
        metavar="SECONDS",
        help="of the check; default: 60",
    )
    add(
        "--memory-limit",
        type=float,
        default=MEMORY_LIMIT,
        metavar="BYTES",
        help="of the check; default: 2^30",
    )
    add(
        "--beta",
        type=float,
        default=1.0,
        help="inverse temperature, if the model file holds energies; default: 1",
    )
    options = vars(parser.parse_args())
    if (options["replay"] or "").isdecimal():
        options["replay"] = int(options["replay"])
    try:
        verdict = verify_proof(options.pop("proof"), **options)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    code = sys.stdout.encoding or "ascii"
    print(str(verdict).encode(code, "backslashreplace").decode(code))
    return verdict.exit_code


if __name__ == "__main__":
    sys.exit(main())
