"""Proofs of certificates of scans: by Dobrushin's bound, and by runs on sets."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._coalescence.certificate import Coalescence
from dobrushin._coalescence.set_kernel import choose_sets
from dobrushin._models import Model
from dobrushin._proof.answers import SOME_STATE, WORDS, seed_entry
from dobrushin._proof.archive import Arrays, write_archive
from dobrushin._proof.part_of_model import PartOfModel, names_in_words, positions_of
from dobrushin._scan import Scan
from dobrushin._variation import Variation
from dobrushin.errors import ArgumentError

# A bound on a distance is rounded up by this share, and a limit by this much.
_SHARE, _UNIT = 1e-6, 1e-9


def write_variation(certificate: Variation, path: str | os.PathLike[str]) -> None:
    """See `Variation.write_proof`."""
    source: Any = certificate._source
    scan, objective, problem = certificate._scan, certificate._objective, certificate._problem
    if source is None or scan.is_random:
        requirement = "one of a fixed scan, for a model that is made as a whole, made in this process"
        raise ArgumentError("Variation.write_proof", "certificate", requirement, certificate)
    arrays, assumptions = Arrays(), [SOME_STATE]
    updated = scan.updates(source.n_variables)
    model: Model | None = getattr(source, "model", None)
    matrix = ""
    number: Any
    if model is not None:
        part = PartOfModel(model, {}, np.union1d(updated, objective.positions))
        part.write(arrays)
        names, spins, number = part.names, bool(model._spins), part.numbers
        positions = part.positions
    else:
        rows = source.rows(updated)
        positions = np.unique(np.concatenate([updated, objective.positions, rows.columns.astype(np.int64)]))
        names, spins = [str(source.labels[i]) for i in positions.tolist()], False
        _write_empty(arrays, positions)

        number = partial(np.searchsorted, positions)
        owner = np.repeat(updated, np.diff(rows.start))
        entries = [number(owner), number(rows.columns.astype(np.int64)), rows.values]
        caps = [number(updated), number(updated), rows.cap]
        triples = np.concatenate([np.stack(part, axis=1).astype(np.float64) for part in (entries, caps)])
        matrix = arrays.add("matrix", triples)
        assumptions.append("the matrix bounds what each variable does to each other one, its diagonal what all do")
    error, initial = problem.numbering.spread(problem.error, 0.0)[positions], _initial(problem)
    if error.any():
        assumptions.append("a draw errs at most as the file says")
    if initial is not None:
        assumptions.append("start and model disagree at most as the file says, under one joint coupling")
    plan_part = {
        "method": "variation",
        "questions": [0],
        "scan": _scan(arrays, scan, number),
        "error": arrays.add("error", error) if error.any() else "",
        "initial": "" if initial is None else arrays.add("initial", initial[positions]),
        "matrix": matrix,
    }
    question = _distance(number(objective.positions), objective.weights)
    upper = min(certificate.value * (1.0 + _SHARE), float(np.sum(objective.weights)))
    _write(path, arrays, Arrays(), source.n_variables, names, spins, question, plan_part, {}, upper, 1.0, assumptions)


def _initial(problem: Any) -> NDArray[np.float64] | None:
    """Bounds on the disagreement at the start; None where everything may disagree."""
    initial = np.broadcast_to(np.asarray(problem.initial, dtype=np.float64), problem.n)
    return None if (initial == 1.0).all() else initial


def _write_empty(arrays: Arrays, positions: NDArray[np.int64]) -> None:
    """Variables without factors."""
    none = np.empty(0, dtype=np.int64)
    arrays.add("positions", positions)
    arrays.add("states", np.full(len(positions), 2))
    for name in ("arity", "scope"):
        arrays.arrays[name] = none.astype("<i8")
    arrays.arrays["tables"] = np.empty(0)


def write_coalescence(certificate: Coalescence, path: str | os.PathLike[str]) -> None:
    """See `Coalescence.write_proof`."""
    model, scan = certificate._model, certificate.scan
    targets = positions_of(model, certificate.variables)
    updated = scan.updates(model.n_variables)
    if not np.isin(targets, updated).all():
        raise ArgumentError(
            "Coalescence.write_proof", "certificate", "one of targets that the scan updates", certificate
        )
    arrays, drawn = Arrays(), Arrays()
    part = PartOfModel(model, {}, updated)
    part.write(arrays)
    kernel: Any = choose_sets(model, scan)
    runs, error = int(certificate.runs), 1.0 - certificate.confidence
    places = kernel.region.positions
    plan_part = {
        "method": "coalescence",
        "questions": [0],
        "confidence": float(certificate.confidence),
        "dropped": "",
        "scan": _scan(arrays, scan, part.numbers),
        "kernel": kernel.name,
        "places": arrays.add("places", np.stack([part.numbers(places), places], axis=1)),
        "start": "",
        "chains": runs,
        "trials": runs,
        "aim": error,
        "words": int(getattr(kernel, "largest", 0)),
    }
    counts = drawn.add("counts", np.array([[certificate.failures]]))
    block = max(kernel.lanes, -(-runs // kernel.lanes) * kernel.lanes)
    early = bool(certificate.stopped_early)
    outcome = {"run": 0, "drawn": runs, "early": early, "block": block, "counts": counts, "means": [], "attempt": -1}
    assumptions = [WORDS, SOME_STATE, "the scan and the number of runs were chosen without the words of this seed"]
    upper = min(float(len(targets)), certificate.value + _UNIT)
    question = _distance(part.numbers(targets), np.ones(len(targets)))
    _write(
        path, arrays, drawn, model.n_variables, part.names, bool(model._spins), question, plan_part, outcome, upper,
        float(certificate.confidence), assumptions, certificate.seed,
    )  # fmt: skip


def _scan(arrays: Arrays, scan: Scan, number: Any) -> dict[str, Any]:
    if len(scan.segments) == 1:
        cycle: Any = scan.segments[0]
        return {"cycle": arrays.add("scan", number(cycle.array())), "first": int(cycle.first), "steps": len(scan)}
    return {"cycle": arrays.add("scan", number(scan.order)), "first": 0, "steps": len(scan)}


def _distance(numbers: NDArray[np.int64], weights: NDArray[np.float64]) -> dict[str, Any]:
    return {"kind": "distance", "variables": numbers.tolist(), "weights": [float(weight) for weight in weights]}


def _write(
    path: str | os.PathLike[str], arrays: Arrays, drawn: Arrays, n: int, names: list[str], spins: bool,
    question: dict[str, Any], part: dict[str, Any], outcome: dict[str, Any], upper: float, confidence: float,
    assumptions: list[str], seed: Any = None,
) -> None:  # fmt: skip
    plan = {
        "model": {"variables": int(n), "fingerprint": ""},
        "names": names,
        "spins": spins,
        "evidence": [],
        "questions": [question],
        "tolerance": 1.0,
        "confidence": confidence,
        "parts": [part],
        "arrays": arrays.declare(),
    }
    entry, words = seed_entry(seed, plan)
    outcomes = {"seed": entry, "parts": [outcome], "arrays": drawn.declare()}
    own = [names_in_words(names, arrays.arrays["positions"])[v] for v in question["variables"]]
    weighted = ", ".join(f"{weight!r} of {name}" for weight, name in zip(question["weights"], own, strict=True))
    law = f"a law (with weights {weighted})"
    if set(question["weights"]) == {1.0}:
        law = f"the law of {', '.join(own)}"
    claim = {
        "lower": [[0.0]],
        "upper": [[upper]],
        "words": [
            f"distance of {law} after the scan from the model's: at most {upper!r}",
            f"all at once with confidence {confidence!r}",
        ],
        "assumptions": [*words, *assumptions],
    }
    write_archive(path, plan, outcomes, claim, arrays.arrays | drawn.arrays)
