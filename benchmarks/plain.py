"""The plain loops in C that rates and costs are compared with."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

import dobrushin as db

_HERE = Path(__file__).parent


def gibbs_update(model: db.Ising | db.Potts, sweeps: int, runs: int = 3) -> float | None:
    """Nanoseconds for one update of a model, best of several runs; None without a C compiler that works."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model"
        _write(model, file)
        return _first(_run_c("gibbs", file, sweeps, runs))


def bit_plane(runs: int = 20) -> float | None:
    """Nanoseconds for one plane of random bits of 2048 chains with four neighbours each; None likewise."""
    return _first(_run_c("planes", runs))


def sum_entry(kept: int, summed: int, new: int, runs: int = 20) -> list[float] | None:
    """Nanoseconds for an entry of a sum, for 8 streamed bytes, and for a multiplication and addition; None likewise."""
    return _run_c("sums", kept, summed, new, runs)


def _first(numbers: list[float] | None) -> float | None:
    return None if numbers is None else numbers[0]


def _run_c(name: str, *arguments: object) -> list[float] | None:
    """The numbers that a program prints."""
    compiler = next(filter(shutil.which, (os.environ.get("CC", "cc"), "gcc", "clang")), None)
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / name
        if subprocess.run([compiler, "-O3", "-march=native", "-o", program, _HERE / f"{name}.c", "-lm"]).returncode:
            return None
        command = [program, *map(str, arguments)]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [float(word) for word in printed.split()]


def _write(model: db.Ising | db.Potts, path: Path) -> None:
    """The model in the form that gibbs.c reads."""
    ising = isinstance(model, db.Ising)
    unary = model.fields if ising else model.unaries
    couplings = model.couplings
    sizes = np.array([model.n_variables, 0 if ising else unary.shape[1], couplings.nnz], dtype=np.int64)
    with path.open("wb") as file:
        for array, kind in (
            (sizes, np.int64),
            (couplings.indptr, np.int32),
            (couplings.indices, np.int32),
            (couplings.data, np.float64),
            (unary, np.float64),
        ):
            file.write(np.ascontiguousarray(array, dtype=kind).tobytes())
