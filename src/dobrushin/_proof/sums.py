"""Proofs of summed answers: over all variables, or over regions around the targets."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._estimate.method import Method
from dobrushin._proof.answers import Draft, Piece, Written


def _everything(method: Method) -> NDArray[np.int64]:
    """All variables of the model that the method knows."""
    return np.arange(method.query.model.n_variables)


def _write_exact(draft: Draft, piece: Piece, asked: list[int]) -> list[Written]:
    """Sums over all states: a part for each order of elimination."""
    method: Any = piece.method
    parts: dict[str, list[int]] = {}
    at = 0
    for question, plan in zip(piece.questions, method.sum_plans, strict=True):
        own = asked[at : at + _count(question)]
        at += _count(question)
        name = draft.arrays.add("order", draft.numbers(method, np.array(plan.order, dtype=np.int64)))
        parts.setdefault(name, []).extend(own)
    nothing = draft.arrays.add("sweep", np.empty(0, dtype=np.int64))
    plans: list[Written] = []
    for name, own in parts.items():
        border = draft.arrays.add("border", np.zeros(len(draft.arrays.arrays[name]), dtype=np.int64))
        plan = {"questions": own, "order": name, "border": border, "sweep": nothing, "sweeps": 0}
        plans.append(({"method": "sums", **plan}, {}))
    return plans


def _regions(method: Any) -> list[Any]:
    """The regions that the answer came from, or those that are planned."""
    return [growth.best or growth.next for group in method.growths for growth in group]


def _insides(method: Any) -> NDArray[np.int64]:
    return np.unique(np.concatenate([region.ball.positions for region in _regions(method)]))


def _write_local(draft: Draft, piece: Piece, asked: list[int]) -> list[Written]:
    """Sums over a region around each target: a part for each."""
    method: Any = piece.method
    parts: list[Written] = []
    for number, region in zip(asked, _regions(method), strict=True):
        positions, around = region.ball.positions, region.around
        order = positions[np.array(region.order.variables, dtype=np.int64)]
        extremes = around.extremes if region.by_extremes and not region.is_closed else None
        # With extreme states the higher state of each variable; otherwise a boundary state.
        inside = np.zeros(len(positions), dtype=np.int64) if extremes is None else extremes[2]
        outside = region._allowed(around.border) if extremes is None else extremes[1]
        members = draft.numbers(method, np.concatenate([positions, around.border]))
        states = np.concatenate([inside, outside])[np.argsort(members, kind="stable")]
        sweeps = region.sweeps if extremes is None and not region.is_closed else 0
        inwards = positions[region.ball.outwards[::-1]] if sweeps else positions[:0]
        plan = {
            "method": "sums",
            "questions": [number],
            "order": draft.arrays.add("order", draft.numbers(method, order)),
            "border": draft.arrays.add("border", states),
            "sweep": draft.arrays.add("sweep", draft.numbers(method, inwards)),
            "sweeps": int(sweeps),
        }
        parts.append((plan, {}))
    return parts


def _count(question: Any) -> int:
    """Return the proof's questions for one question of the answer."""
    return 1 if question.needs_joint_law or len(question.positions) == 1 else len(question.positions)


write_exact = (_everything, _write_exact)
write_local = (_insides, _write_local)
