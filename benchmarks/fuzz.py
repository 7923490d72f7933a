"""Readers against broken files: `python benchmarks/fuzz.py --cases 100000 --format uai`.

Each case is a file made by a grammar or a real one (of `DOBRUSHIN_DATA`, where that is set), most of them damaged. A
reader must answer with a model that agrees with a slow and literal reading of the same bytes, or with a `FormatError`
of one sentence, in time and within the memory that it was given.
"""

from __future__ import annotations

import argparse
import collections
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import fuzz_io

# Address space that a run may take: far more than any case is allowed, far less than a header can promise.
_MEMORY = 8 * 2**30


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--format", choices=["all", *fuzz_io.EXTENSIONS], default="all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first case, to repeat one")
    parser.add_argument("--keep", type=Path, help="folder for the files that a reader got wrong")
    arguments = parser.parse_args()
    _limit_memory()
    wrong = 0
    for kind in fuzz_io.EXTENSIONS if arguments.format == "all" else [arguments.format]:
        wrong += run(kind, arguments)
    return 1 if wrong else 0


def run(kind: str, arguments: argparse.Namespace) -> int:
    """All cases of one format; returns how many went wrong."""
    counts: collections.Counter[str] = collections.Counter()
    seeds, start, slowest = fuzz_io.seeds(kind), time.perf_counter(), 0.0
    with tempfile.TemporaryDirectory() as folder:
        for k in range(arguments.first, arguments.first + arguments.cases):
            data, extension, must_fail = fuzz_io.case(kind, arguments.seed, k, seeds)
            before = time.perf_counter()
            verdict = fuzz_io.judge(kind, data, f"{folder}/case{extension}", must_fail)
            slowest = max(slowest, time.perf_counter() - before)
            counts[verdict if verdict in ("read", "refused") else "wrong"] += 1
            if verdict not in ("read", "refused"):
                print(f"{kind} case {k}: {verdict}", flush=True)
                if arguments.keep:
                    arguments.keep.mkdir(parents=True, exist_ok=True)
                    (arguments.keep / f"{k}{extension}").write_bytes(data)
    seconds = time.perf_counter() - start
    print(
        f"{kind}: {arguments.cases} cases, {counts['read']} read, {counts['refused']} refused, "
        f"{counts['wrong']} wrong; {seconds:.0f} s, the slowest case {1000 * slowest:.0f} ms",
        flush=True,
    )
    return counts["wrong"]


def _limit_memory() -> None:
    try:
        import resource
    except ImportError:  # not on this system
        return
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))


if __name__ == "__main__":
    sys.exit(main())
