"""Writers of proofs about fields: the variables around a scan, the initial point and the chains' outcomes."""

from __future__ import annotations

import math
import os
from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dobrushin._estimate.answer import Estimate
from dobrushin._estimate.questions import TargetQuestion
from dobrushin._fields.anchor import Anchor, FieldSpace, space_of
from dobrushin._fields.certificate import FieldVariation, certify
from dobrushin._fields.chains import FieldChains
from dobrushin._fields.intervals import EventTally, PlannedMean
from dobrushin._fields.model import GaussianField
from dobrushin._fields.questions import Exceeds, Quantile
from dobrushin._models.near import Numbering
from dobrushin._proof.answers import write_claim
from dobrushin._proof.archive import Arrays, different_names, plan_about, write_factors, write_file
from dobrushin._proof.writers import BOUND_MARGIN, cycle_of
from dobrushin._scan import Scan
from dobrushin.errors import ArgumentError

# Bounds on the distances from the initial point are rounded up by this share.
_START_MARGIN = 1e-10
# Ends of intervals are rounded outwards to this part of their width.
_END_PART = 1e-6


class PartOfField:
    """The variables of a field on which a claim about a scan depends, numbered as in the proof file.

    These are the variables that the scan updates, the targets, and neighbours: those of the updated variables and those
    of unbounded variables. The distance of an unbounded variable from its initial value depends on its neighbours; that
    of a bounded variable depends on its limits alone.
    """

    def __init__(
        self, field: GaussianField, evidence: Mapping[Hashable, float], scan: Scan, asked: NDArray[np.int64],
        anchor: Anchor, drift: NDArray[np.float64],
    ) -> None:  # fmt: skip
        """Collect the variables and their numbers.

        The scan, the targets (`asked`), the initial point (`anchor`) and the bounds on the drift of rounded chains
        (`drift`) are those of the field conditioned on the evidence.
        """
        form = self.form = field._form
        self.field, n = field, form.n_variables
        known = np.array([field.index(label) for label in evidence], dtype=np.int64)
        self.given = Numbering(n, np.setdiff1d(np.arange(n), known))
        value, far, off = (np.zeros(n) for _ in range(3))
        value[known], value[self.given.positions] = list(evidence.values()), anchor.point
        far[self.given.positions], off[self.given.positions] = anchor.unit * (1.0 + _START_MARGIN), drift
        lower, upper = form.lower.copy(), form.upper.copy()
        lower[known] = upper[known] = value[known]
        is_bounded = np.isfinite(upper - lower)
        scanned = self.given.positions[scan._updates(self.given.size)]
        self.positions = self._reached(np.union1d(scanned, self.given.positions[asked]), scanned, is_bounded)
        far[is_bounded] = 0.0
        own = (form.diagonal, form.linear, *form.amounts, lower, upper, value, far, off)
        self.sites = np.stack(own)[:, self.positions]
        chosen = sparse.coo_array(sparse.triu(form.couplings[self.positions][:, self.positions], k=1))
        self.scopes, self.couplings = np.stack(chosen.coords, axis=1), chosen.data
        fixed = set(known.tolist())
        points = {k: form.values_of(i) for k, i in enumerate(self.positions.tolist()) if i not in fixed}
        self.levels = {str(k): values.tolist() for k, values in points.items() if len(values)}

    def _reached(
        self, inside: NDArray[np.int64], scanned: NDArray[np.int64], is_bounded: NDArray[np.bool_]
    ) -> NDArray[np.int64]:
        """Add the neighbours of updated and of unbounded variables, continuing through unbounded neighbours."""
        matrix = self.form.couplings
        seen, shell = inside, np.union1d(scanned, inside[~is_bounded[inside]])
        while len(shell):
            beside = np.setdiff1d(matrix[shell].indices, seen)
            seen, shell = np.union1d(seen, beside), beside[~is_bounded[beside]]
        return seen.astype(np.int64)

    def numbers(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers that variables have in the proof file.

        `positions` are those of the field given the evidence, which has fewer variables than the field.
        """
        return np.searchsorted(self.positions, self.given.positions[positions])

    def write(
        self, path: str | os.PathLike[str], scan: Scan, questions: list[dict[str, Any]], part: dict[str, Any],
        numbers: list[list[float]], ends: tuple[list[list[float]], list[list[float]]],
    ) -> None:  # fmt: skip
        arrays = Arrays()
        tables = np.zeros((len(self.couplings), 4))
        tables[:, 3] = -self.couplings
        scopes = np.full(len(self.couplings), 2), self.scopes.ravel()
        write_factors(arrays, self.positions, scopes=scopes, tables=tables.ravel())
        names = different_names(self.field._labels_at(self.positions))
        about = {"fingerprint": self.field.fingerprint or "", "confidence": part["confidence"]}
        own = {
            "method": "field",
            "questions": list(range(len(questions))),
            "scan": arrays.add("scan", self.numbers(cycle_of(scan))),
            "steps": len(scan),
            "sites": arrays.add("sites", self.sites),
            "levels": self.levels,
            **part,
        }
        plan = plan_about(self.form.n_variables, names, questions, **about, parts=[own])
        write_file(path, plan, [{"numbers": numbers}], {"lower": ends[0], "upper": ends[1]}, arrays)


def write_field_variation(certificate: FieldVariation, path: str | os.PathLike[str]) -> None:
    """Write the proof of a certificate (see `FieldVariation.write_proof`)."""
    scan, objective, anchor = certificate._scan, certificate._objective, certificate._anchor
    if scan.is_random:
        requirement = "one of a fixed scan: the checker does not support random scans"
        raise ArgumentError("certificate", requirement, certificate)
    if anchor is None:
        requirement = "made in this process, of a field without evidence"
        raise ArgumentError("certificate", requirement, certificate)
    field = replace(anchor.space.form, is_plain=True).to_model(anchor.space.model.labels)
    anchor = space_of(field).anchor_at(anchor.point)
    plain = certify(anchor, scan, objective)
    part = PartOfField(field, {}, scan, objective.positions, anchor, np.zeros(len(anchor.point)))
    kind = {"kind": "joint"} if objective.is_set else {"kind": "bias", "weights": [float(w) for w in objective.weights]}
    question = {**kind, "variables": part.numbers(objective.positions).tolist()}
    upper = plain.value * (1.0 + BOUND_MARGIN)
    ends = [[0.0]], [[min(upper, 1.0) if objective.is_set else upper]]
    part.write(path, scan, [question], {"chains": 1, "slip": 0.0, "confidence": 1.0}, [[]], ends)


@write_claim.register
def _(space: FieldSpace, estimate: Estimate, path: str | os.PathLike[str]) -> None:
    asked: Any = estimate.asked
    method, run = asked.transcript.method, asked.transcript.run
    if not isinstance(method, FieldChains) or not method.query.proof:
        requirement = (
            "one for which proof= or verify= was set beforehand: only then is the number of chains fixed in advance, "
            "with bounds that the checker can recompute"
        )
        raise ArgumentError("estimate", requirement, estimate.headline)
    if run.trouble is not None:
        raise ArgumentError("estimate", "one that was not stopped early", estimate.headline)
    query, scan, drift = method.query, method.scan, method.drift
    model: Any = asked.model
    part = PartOfField(model, asked.evidence, scan, query.positions, space.anchor, drift.each)
    questions = [_describe(question, part) for question in query.questions]
    numbers = [_numbers(tally) for tally in run.tallies]
    ends = [_ends(tally, question) for tally, question in zip(run.tallies, query.questions, strict=True)]
    plan = {"chains": int(method.plan.chains), "slip": float(drift.chance), "confidence": float(query.confidence)}
    part.write(path, scan, questions, plan, numbers, ([low for low, _ in ends], [high for _, high in ends]))


def _describe(question: Any, part: PartOfField) -> dict[str, Any]:
    variables = part.numbers(question.positions).tolist()
    if isinstance(question.target, Quantile):
        return {"kind": "quantile", "variables": variables, "level": float(question.target.level)}
    if question.is_counted:
        event = question.target
        if isinstance(event, Exceeds):
            return {"kind": "above", "variables": variables, "threshold": float(event.threshold)}
        return {"kind": "between", "variables": variables, "low": float(event.low), "high": float(event.high)}
    if question.name is None:
        return {"kind": "mean", "variables": variables}
    weights = [float(slope) for slope in question.slopes]
    return {"kind": "statistic", "variables": variables, "name": question.name, "weights": weights}


def _numbers(tally: Any) -> list[float]:
    """Return the outcomes of the chains for a question, as numbers in the proof file."""
    if isinstance(tally, PlannedMean):
        return [tally.total / tally.chains]
    if isinstance(tally, EventTally):
        return [float(tally.surely), float(tally.perhaps)]
    x, low, high = tally.order_statistics(False)
    low, high = max(low, 1), min(high, len(x))
    return [float(low), float(high), float(x[low - 1]), float(x[high - 1])]


def _ends(tally: Any, question: TargetQuestion) -> tuple[list[float], list[float]]:
    """Return both ends of a question's interval, rounded outwards to few digits."""
    value, low, high = tally.ends(False)
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ArgumentError("estimate", "one whose intervals are all finite", (low, high))
    size = max(abs(low), abs(high), abs(value))
    unit = max(10.0 ** math.floor(math.log10(max(high - low, 1e-300))) * _END_PART, 8.0 * float(np.spacing(size)))
    least, most = question.bounds
    room = 2e-12 * size
    below, above = (math.floor((low - room) / unit) - 1) * unit, (math.ceil((high + room) / unit) + 1) * unit
    return [max(below, least)], [min(above, most)]
