"""Proofs of answers that were summed: over everything, or over regions around the targets."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._estimate.method import Method
from dobrushin._proof.answers import SOME_STATE, Draft, Piece, Written


def _everything(method: Method) -> NDArray[np.int64]:
    """All variables of the model that the method knows."""
    return np.arange(method.query.model.n_variables)


def _write_exact(draft: Draft, piece: Piece, asked: list[int]) -> Written:
    """Sums over all states."""
    method: Any = piece.method
    orders: list[dict[str, Any]] = []
    at = 0
    for question, plan in zip(piece.questions, method.sum_plans, strict=True):
        own = asked[at : at + _count(question)]
        at += _count(question)
        name = draft.arrays.add("order", draft.numbers(method, np.array(plan.order, dtype=np.int64)))
        same = next((order for order in orders if order["order"] == name), None)
        if same is None:
            orders.append({"order": name, "questions": own})
        else:
            same["questions"] += own
    dropped = draft.part.dropped()
    draft.assume("what no factor of the proof connects with the targets allows some state")
    name = draft.arrays.add("dropped", dropped) if dropped else ""
    return Written({"method": "exact", "questions": asked, "dropped": name, "orders": orders}, {})


def _regions(method: Any) -> list[Any]:
    """The regions that the answer came from, or those that are planned."""
    return [growth.best or growth.next for group in method.growths for growth in group]


def _insides(method: Any) -> NDArray[np.int64]:
    return np.unique(np.concatenate([region.ball.positions for region in _regions(method)]))


def _write_local(draft: Draft, piece: Piece, asked: list[int]) -> Written:
    """Sums over a region around each target."""
    method: Any = piece.method
    regions = []
    for number, region in zip(asked, _regions(method), strict=True):
        positions = region.ball.positions
        order = positions[np.array(region.order.variables, dtype=np.int64)]
        around = region.around
        extremes = around.extremes if region.by_extremes and not region.is_closed else None
        borders = [region._allowed(around.border)] if extremes is None else list(extremes[:2])
        # The proof numbers the variables outside by their position in the whole.
        place = np.argsort(draft.numbers(method, around.border), kind="stable")
        names = [draft.arrays.add("border", digits[place]) if len(digits) else "" for digits in borders]
        sweeps = extremes is None and not region.is_closed
        inwards = positions[region.ball.outwards[::-1]]
        regions.append(
            {
                "question": number,
                "order": draft.arrays.add("order", draft.numbers(method, order)),
                "borders": names,
                "sweep": draft.arrays.add("sweep", draft.numbers(method, inwards)) if sweeps else "",
                "sweeps": region.sweeps if sweeps else 0,
            }
        )
    dropped = draft.part.dropped()
    draft.assume(SOME_STATE)
    name = draft.arrays.add("dropped", dropped) if dropped else ""
    return Written({"method": "local", "questions": asked, "dropped": name, "regions": regions}, {})


def _count(question: Any) -> int:
    """Questions of the proof that one of the answer becomes."""
    return 1 if question.needs_joint_law or len(question.positions) == 1 else len(question.positions)


write_exact = (_everything, _write_exact)
write_local = (_insides, _write_local)
