"""Write proofs of certificates of scans: by Dobrushin's bound, and by runs of bounding sets."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import numpy as np

from dobrushin._coalescence.certificate import Coalescence
from dobrushin._coalescence.sets import choose_sets
from dobrushin._influence.known import KnownInfluence
from dobrushin._proof.archive import Arrays, plan_about, write_factors, write_file
from dobrushin._proof.part_of_model import PartOfModel, positions_of
from dobrushin._proof.writers import cycle_of, plan_draws
from dobrushin._variation import Variation, evaluate
from dobrushin.errors import ArgumentError

# A bound on a distance is rounded up by this share, and a limit by this much.
BOUND_MARGIN, _LIMIT_MARGIN = 1e-6, 1e-9
# How many times the error of a model the checker may count, at most, for the decimals of its file: it compares tables
# that are taken relative to their first entries, and several tables of one scope at once.
_MODEL_ERRORS = 8.0


def write_variation(certificate: Variation, path: str | os.PathLike[str]) -> None:
    """Write the proof of a bound; see `Variation.write_proof`."""
    source: Any = certificate._source
    scan, objective, problem = certificate._scan, certificate._objective, certificate._problem
    if scan.is_random:
        requirement = "one of a fixed scan: bounds on random scans are averages, which the checker cannot verify"
        raise ArgumentError("certificate", requirement, certificate)
    if source is None:
        requirement = "made in this process, of a model in memory (of a LocalModel, answers have proofs)"
        raise ArgumentError("certificate", requirement, certificate)
    arrays = Arrays()
    updated = scan._updates(source.n_variables)
    matrix = ""
    number: Any
    if isinstance(source, KnownInfluence):
        part = PartOfModel(source.model, {}, np.union1d(updated, objective.positions))
        part.write(arrays)
        about, positions, number = part.describe([]), part.positions, part.numbers
    else:
        rows = source.rows(updated)
        positions = np.unique(np.concatenate([updated, objective.positions, rows.columns.astype(np.int64)]))
        write_factors(arrays, positions)
        about = plan_about(source.n_variables, [str(source.labels[i]) for i in positions.tolist()], [])
        number = partial(np.searchsorted, positions)
        owner = np.repeat(updated, np.diff(rows.start))
        entries = [number(owner), number(rows.columns.astype(np.int64)), rows.values]
        caps = [number(updated), number(updated), rows.cap]
        triples = np.concatenate([np.stack(part, axis=1).astype(np.float64) for part in (entries, caps)])
        matrix = arrays.add("matrix", triples)
    errors = problem.numbering.spread(problem.error, 0.0)
    error = errors[positions]
    # The checker itself bounds the rounding of the model's numbers, by comparing them with a model file.
    error = np.where(error <= np.broadcast_to(source._error, source.n_variables)[positions], 0.0, error)
    initial = np.broadcast_to(np.asarray(problem.initial, dtype=np.float64), problem.n)[positions]
    part_plan = {
        "method": "variation",
        "questions": [0],
        "scan": arrays.add("scan", number(cycle_of(scan))),
        "steps": len(scan),
        "error": arrays.add("error", error),
        "initial": arrays.add("initial", initial),
        "matrix": matrix,
    }
    value = certificate.value
    if np.any(source._error):
        full = np.broadcast_to(np.asarray(problem.initial, dtype=np.float64), problem.n)
        coarser = np.minimum(errors + _MODEL_ERRORS * source._error, 1.0)
        value = max(value, evaluate(source, scan, objective, full, coarser).value)
    upper = min(value * (1.0 + BOUND_MARGIN), float(np.sum(objective.weights)))
    weights = [float(weight) for weight in objective.weights]
    question = {"kind": "distance", "variables": number(objective.positions).tolist(), "weights": weights}
    plan = about | {"fingerprint": "", "questions": [question], "confidence": 1.0, "parts": [part_plan]}
    _write(path, plan, {}, arrays, [upper], None)


def write_coalescence(certificate: Coalescence, path: str | os.PathLike[str]) -> None:
    """Write the proof of a bound by simulation; see `Coalescence.write_proof`."""
    model, scan = certificate._model, certificate.scan
    targets = positions_of(model, certificate.variables)
    updated = scan._updates(model.n_variables)
    if not np.isin(targets, updated).all():
        raise ArgumentError("certificate", "one of targets that the scan updates", certificate)
    arrays, part = Arrays(), PartOfModel(model, {}, updated)
    part.write(arrays)
    kernel: Any = choose_sets(model, scan)
    runs, held = int(certificate.runs), part.numbers(kernel.region.positions)
    planned = runs + certificate.stopped_early  # more than were drawn, where the run was stopped early
    part_plan = plan_draws(arrays, part, kernel, held, part.numbers(cycle_of(scan)), scan) | {
        "method": "coalescence",
        "questions": [0],
        "confidence": float(certificate.confidence),
        "chains": planned,
        "trials": planned,
        "aim": 1.0 - certificate.confidence,
        "run": 0,
        "words": int(kernel.words),
    }
    outcome = {
        "drawn": runs,
        "block": max(kernel.lanes, -(-runs // kernel.lanes) * kernel.lanes),
        "counts": arrays.add("counts", np.array([[certificate.failures]])),
        "means": [],
        "attempt": -1,
    }
    upper = min(1.0, certificate.value + _LIMIT_MARGIN)
    question = {"kind": "joint", "variables": part.numbers(targets).tolist()}
    about = {"fingerprint": "", "questions": [question], "confidence": float(certificate.confidence)}
    plan = part.describe([]) | about | {"parts": [part_plan]}
    _write(path, plan, outcome, arrays, [upper], certificate.seed)


def _write(
    path: str | os.PathLike[str], plan: dict[str, Any], outcome: dict[str, Any], arrays: Arrays, upper: list[float],
    seed: Any,
) -> None:  # fmt: skip
    claim = {"lower": [[0.0] for _ in upper], "upper": [[value] for value in upper]}
    write_file(path, plan, [outcome], claim, arrays, seed)
