"""Measure what is promised about models of any size, and print it beside the promise.

usage: python benchmarks/scale.py [--parts grid stored sizes targets] [--edges 1e7] [--folder PATH]

Parts are functions in `PARTS`; each gives rows: those with a requirement are judged, the others are figures. Times are
of whole calls with compiled kernels, the median of some. Memory is the peak of a fresh process, the interpreter and the
libraries included.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from rich.table import Table

import dobrushin as db
from measure import Row, print_verdict, promises, seconds, wide_console

_SIDE = 31_623
_REPEATS = 15
_SECONDS, _BYTES, _SAME = 2.0, 10**9, 2.0
# Rows of the grid in a chunk of edges.
_CHUNK = 100
_COUNTS = (1, 4, 16, 64, 256)


def main() -> None:
    """Run the parts and print the table."""
    parser = argparse.ArgumentParser(description="Measure models of any size.")
    parser.add_argument("--parts", nargs="+", choices=tuple(PARTS), default=tuple(PARTS), help="default: all")
    parser.add_argument("--edges", type=float, default=1e7, help="edges of the largest model on disk (1e8 for all)")
    parser.add_argument("--folder", type=Path, help="keep models on disk here, and use those that are there")
    parser.add_argument("--probe", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.probe:
        probe(options.probe)
        return
    console = wide_console()
    rows = []
    with console.status("measuring"):
        for part in options.parts:
            rows += list(PARTS[part](options))
    console.print(promises("Any size", [row for row in rows if row.required]))
    if figures := [row for row in rows if not row.required]:
        table = Table(title="Beside", title_justify="left")
        for heading in ("what", "measured"):
            table.add_column(heading)
        for row in figures:
            table.add_row(row.name, row.measured)
        console.print(table)
    print_verdict(console, rows)


def hashed(numbers: np.ndarray) -> np.ndarray:
    """Couplings that look uniform on [0, 0.25), by a hash of the edge (the end of SplitMix64)."""
    x = numbers.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return 0.25 * 2.0**-53 * ((x ^ (x >> np.uint64(31))) >> np.uint64(11)).astype(np.float64)


def implicit(side: int) -> db.LocalModel:
    """A grid that is never made."""
    return db.Ising.grid(side, side, couplings=hashed)  # type: ignore[return-value]


def centre(side: int) -> int:
    """The site in the middle."""
    return side * (side // 2) + side // 2


def ask(model: db.LocalModel, targets: list[int], seed: int) -> db.Estimate:
    """What is asked everywhere: within 0.01 at confidence 0.99."""
    return db.estimate(model, targets, tolerance=0.01, confidence=0.99, seed=seed)


def times(model: db.LocalModel, targets: list[int], repeats: int = _REPEATS) -> tuple[float, float]:
    """Median and slowest time of some answers, in seconds; kernels are compiled before."""
    ask(model, targets, 0)
    found = [seconds(lambda seed=seed: ask(model, targets, seed)) for seed in range(repeats)]
    return float(np.median(found)), max(found)


# -- memory, each in a process of its own ---------------------------------------------------------------------------


def peak(question: dict[str, object]) -> int | None:
    """Peak memory in bytes of a fresh process that answers; None where the system does not tell."""
    command = [sys.executable, __file__, "--probe", json.dumps(question)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found = json.loads(done.stdout.splitlines()[-1])
    return None if found is None else int(found)


def probe(text: str) -> None:
    """Answer, and print the peak."""
    question = json.loads(text)
    if question["what"] == "build":
        build(Path(question["folder"]), question["side"])
    else:
        folder, side = question.get("folder"), question["side"]
        ask(db.open_model(folder) if folder else implicit(side), [centre(side)], 0)
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    print(json.dumps(next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), None)))


def _megabytes(size: int | None) -> str:
    return "unknown" if size is None else f"{size / 1e6:.0f} MB"


# -- parts ---------------------------------------------------------------------------------------------------------


def grid(options: argparse.Namespace) -> Iterator[Row]:
    """One site of a grid of a billion spins that is never made."""
    del options
    median, slowest = times(implicit(_SIDE), [centre(_SIDE)])
    measured = f"{1e3 * median:.0f} ms, slowest {1e3 * slowest:.0f} ms; {_SECONDS / slowest:.0f}x less than allowed"
    name = f"Implicit Ising grid {_SIDE} x {_SIDE}, one site, 0.01 at 0.99"
    yield Row(name, measured, f"under {_SECONDS:g} s warm", slowest < _SECONDS)
    size = peak({"what": "ask", "side": _SIDE})
    yield Row(
        "  peak memory of a fresh process", _megabytes(size), "under 1 GB", None if size is None else size < _BYTES
    )


def stored(options: argparse.Namespace) -> Iterator[Row]:
    """The same on disk, of several sizes."""
    place = Path(tempfile.mkdtemp()) if options.folder is None else options.folder
    place.mkdir(parents=True, exist_ok=True)
    sizes = [edges for edges in (10**6, 10**7, 10**8) if edges <= options.edges] or [int(options.edges)]
    peaks = []
    try:
        for edges in sizes:
            side = round((edges / 2) ** 0.5)
            folder = place / f"grid{side}"
            name = f"On disk, {edges:.0e} edges"
            if not folder.exists():
                yield from _built(name, folder, side)
            begin: list[db.LocalModel] = []
            opening = seconds(lambda folder=folder, begin=begin: begin.append(db.open_model(folder)))
            median, slowest = times(begin[0], [centre(side)])
            measured = f"{1e3 * median:.0f} ms, slowest {1e3 * slowest:.0f} ms; opening {1e3 * opening:.1f} ms"
            yield Row(f"{name}: one site", measured, f"under {_SECONDS:g} s", slowest < _SECONDS)
            peaks.append(peak({"what": "ask", "side": side, "folder": str(folder)}))
    finally:
        if options.folder is None:
            shutil.rmtree(place, ignore_errors=True)
    known = [size for size in peaks if size is not None]
    words = ", ".join(f"{_megabytes(size)}" for size in peaks)
    ok = max(known) <= 1.25 * min(known) if len(known) == len(peaks) else None
    yield Row("  peak memory of fresh processes, by size", words, "the same within 1.25x", ok)


def _built(name: str, folder: Path, side: int) -> Iterator[Row]:
    """Time and memory of the streaming builder, beside those of the model."""
    needed, free = 60 * side * side * 2, shutil.disk_usage(folder.parent).free
    if needed > free:
        sys.exit(f"{folder.parent} has {free / 1e9:.0f} GB free; building there needs {needed / 1e9:.0f} GB.")
    sizes: list[int | None] = []
    took = seconds(lambda: sizes.append(peak({"what": "build", "side": side, "folder": str(folder)})))
    disk = sum(file.stat().st_size for file in folder.iterdir())
    share = "" if sizes[0] is None else f", {sizes[0] / disk:.2f}x the model's {disk / 1e9:.2f} GB"
    yield Row(f"{name}: building", f"{took:.1f} s, peak {_megabytes(sizes[0])}{share}", "", None)


def build(folder: Path, side: int) -> None:
    """A grid on disk, from chunks of edges."""

    def chunks() -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        for first in range(0, side, _CHUNK):
            site = np.arange(first * side, min(side, first + _CHUNK) * side)
            right, down = site[site % side < side - 1], site[site < side * (side - 1)]
            i, j = np.concatenate([right, down]), np.concatenate([right + 1, down + side])
            yield i, j, hashed(2 * i + (j > i + 1))

    db.io.build_folder(folder, side * side, chunks())


def sizes(options: argparse.Namespace) -> Iterator[Row]:
    """Time against the number of variables, with the same couplings around the target."""
    del options
    sides = (100, 1000, _SIDE)
    models = []
    for side in sides:
        # Numbered from the target on, so that the answers are the same work.
        shift, middle = side * (side - 1), centre(side)

        def local(edges: np.ndarray, side: int = side, shift: int = shift, middle: int = middle) -> np.ndarray:
            down = edges >= shift
            row, column = np.divmod(edges - down * shift, np.where(down, side, side - 1))
            row, column = row - middle // side, column - middle % side
            return hashed((row + 5000) * 2_000_003 + (column + 5000) * 2 + down)

        models.append((db.Ising.grid(side, side, couplings=local), [middle]))
        ask(*models[-1], 0)
    # In turn, so that other work on the machine slows all of them.
    found = [[seconds(lambda pair=pair, k=k: ask(*pair, k)) for pair in models] for k in range(5 * _REPEATS)]
    medians = np.median(found, axis=0).tolist()
    words = ", ".join(f"n = {side * side:.0e}: {1e3 * t:.1f} ms" for side, t in zip(sides, medians, strict=True))
    ratio = max(medians) / min(medians)
    yield Row("Implicit grids, one site", f"{ratio:.2f}x ({words})", f"flat within {_SAME:g}x", ratio <= _SAME)


def targets(options: argparse.Namespace) -> Iterator[Row]:
    """Time against the number of targets, all within the tolerance at once."""
    del options
    model, one = implicit(_SIDE), 0.0
    for count in _COUNTS:
        # Far enough apart to share nothing.
        sites = [centre(_SIDE) + 50 * (k - count // 2) for k in range(count)]
        median, _ = times(model, sites, repeats=5)
        one = one or median
        work = ask(model, sites, 0).plan
        steps = f"{len(work.scan)} steps x {work.chains} chains" if work.scan is not None else ""
        measured = f"{1e3 * median:.0f} ms, {median / one:.1f}x that of one; {steps}"
        yield Row(f"Implicit grid {_SIDE} x {_SIDE}, {count} targets", measured, "", None)


PARTS: dict[str, Callable[[argparse.Namespace], Iterator[Row]]] = {
    "grid": grid,
    "stored": stored,
    "sizes": sizes,
    "targets": targets,
}


if __name__ == "__main__":
    main()
