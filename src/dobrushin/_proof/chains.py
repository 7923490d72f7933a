"""Proofs of sampled answers: chains with a bounded bias, and runs on bounding sets."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._estimate.method import Method
from dobrushin._estimate.questions import JointMarginal, Marginals, Question
from dobrushin._proof.answers import Draft, Piece, Written
from dobrushin._scan import Scan
from dobrushin.errors import ArgumentError

# The kernels that the checker knows.
REPLAYABLE = ("bits", "counts", "table", "field", "dense", "potts", "conditional", "factors")
# Counts that a file holds for one part at most, but for those of a single block.
_MOST_COUNTS = 2**16
# States that are counted one by one.
_FEW = 8
# Rows with fewer columns are too short for vector lanes.
_NARROW = 16


def _updated(method: Method) -> NDArray[np.int64]:
    scan: Any = method.plan.scan
    return scan._updates(method.query.model.n_variables)


def cycle_of(scan: Scan) -> NDArray[np.int64]:
    """The positions that a scan goes through again and again."""
    if len(scan._segments) > 1:
        return scan.order
    cycle: Any = scan._segments[0]
    return np.roll(cycle.array(), -int(cycle.first))[: len(scan)]


def _scan(draft: Draft, method: Method) -> dict[str, Any]:
    scan: Scan = method.plan.scan  # type: ignore[assignment]
    return {"scan": draft.arrays.add("scan", draft.numbers(method, cycle_of(scan))), "steps": len(scan)}


def _spread(draft: Draft, name: str, numbers: NDArray[np.int64], values: NDArray[Any], rest: int) -> str:
    """Values of some variables as an array over all of the proof."""
    whole = np.full(len(draft.part.positions), rest, dtype=np.int64)
    whole[numbers] = values
    return draft.arrays.add(name, whole)


def _plan_chains(draft: Draft, piece: Piece, asked: list[int]) -> dict[str, Any]:
    """Chains of one scan, whose bias Dobrushin's bound limits."""
    method: Any = piece.method
    query, kernel = method.query, method.kernel
    if kernel.name not in REPLAYABLE:
        requirement = f"one that was drawn by a kernel that can be replayed ({', '.join(REPLAYABLE)})"
        raise ArgumentError("estimate", requirement, kernel.name)
    start = query.space.start
    has_start = not isinstance(start, str)
    counted = any(question.is_counted for question in query.questions)
    held = kernel.region.positions
    numbers = draft.numbers(method, held)
    return {
        "method": "dobrushin",
        "questions": asked,
        **_scan(draft, method),
        "confidence": float(query.confidence),
        "kernel": kernel.name,
        "places": _spread(draft, "places", numbers, held, -1),
        "start": _spread(draft, "start", numbers, start[held], 0) if has_start else "",
        "chains": int(method.plan.chains),
        "trials": int(query.least_chains(method.plan.monte_carlo)) if counted else 0,
        "aim": float(method.plan.monte_carlo),
        "run": piece.number,
    }


def _write_chains(draft: Draft, piece: Piece, asked: list[int]) -> list[Written]:
    plan, run = _plan_chains(draft, piece, asked), piece.run
    if run is None:
        return [(plan, {})]
    states = run.samples().states
    trials = min(plan["trials"], run.done)
    digits = None
    if states is not None:
        digits = (states[:trials] + 1) // 2 if run.query.model._spins else states[:trials]
    columns = [run.query.columns(question) for question in piece.questions]
    counted = [tally.settled for tally, q in zip(run.tallies, piece.questions, strict=True) if q.is_counted]
    totals = np.concatenate([np.empty(0, dtype=np.int64), *counted])
    block, counts = _blocks(piece, columns, digits, totals, trials, run.method.kernel.lanes, False)
    return [(plan, _outcomes(draft, piece, run, block, counts))]


def _outcomes(draft: Draft, piece: Piece, run: Any, block: int, counts: NDArray[np.int64] | None) -> dict[str, Any]:
    means = [run.tallies[k].low.count for k, question in enumerate(piece.questions) if not question.is_counted]
    return {
        "drawn": int(run.done),
        "block": int(block),
        "counts": "" if counts is None else draft.arrays.add("counts", counts),
        "means": [int(count) for count in means],
    }


def _blocks(
    piece: Piece, columns: list[NDArray[np.int64]], digits: NDArray[Any] | None, totals: NDArray[np.int64],
    trials: int, lanes: int, is_sets: bool,
) -> tuple[int, NDArray[np.int64] | None]:  # fmt: skip
    """The size of blocks, and their counts; one block where the states were not kept."""
    counted = [k for k, question in enumerate(piece.questions) if question.is_counted]
    if not counted:
        return lanes, None
    if digits is None or len(digits) < trials:
        return max(lanes, -(-trials // lanes) * lanes), totals[None]
    block = lanes
    while -(-trials // block) * len(totals) > _MOST_COUNTS:
        block *= 2
    parts = []
    for k in counted:
        question, own = piece.questions[k], digits[:trials, columns[k]]
        if isinstance(question, Marginals) and len(set(question.sizes.tolist())) == 1:
            parts.append(_count(own, int(question.sizes[0]), block, is_sets))
            continue
        for places, sizes in _targets(question):
            parts.append(_count(_cells(own[:, places], sizes), math.prod(sizes), block, is_sets))
    return block, np.concatenate(parts, axis=1)


def _targets(question: Question) -> list[tuple[list[int], tuple[int, ...]]]:
    """What is counted together: places of variables in a question, and their numbers of states."""
    if isinstance(question, Marginals):
        return [([k], (size,)) for k, size in enumerate(question.sizes.tolist())]
    assert isinstance(question, JointMarginal)
    return [(list(range(len(question.shape))), question.shape)]


def _cells(digits: NDArray[Any], sizes: tuple[int, ...]) -> NDArray[np.int64]:
    """The number of each joint state, in one column; -1 where something is open."""
    strides = np.append(np.cumprod(sizes[:0:-1])[::-1], 1).astype(np.int64)
    cell = digits.astype(np.int64) @ strides
    cell[(digits < 0).any(axis=1)] = -1
    return cell[:, None]


def _count(cells: NDArray[Any], states: int, block: int, is_sets: bool) -> NDArray[np.int64]:
    """For each block how many outcomes of each column are in each state; of sets also how many are open, below 0."""
    if states <= _FEW:
        kinds = [*range(states), -1] if is_sets else range(states)  # whatever is open is -1
        counts = np.stack([_sum_blocks(cells == kind, block) for kind in kinds], axis=2)
        return counts.reshape(len(counts), -1).astype(np.int64)
    width, number = states + is_sets, np.arange(len(cells)) // block
    parts = []
    for column in cells.T:
        kind = np.where(column < 0, states, column).astype(np.int64)
        parts.append(np.bincount(number * width + kind, minlength=(number[-1] + 1) * width).reshape(-1, width))
    return np.concatenate(parts, axis=1)


def _sum_blocks(flags: NDArray[np.bool_], block: int) -> NDArray[Any]:
    """Count the true rows of each block, by column."""
    whole = len(flags) // block * block
    if flags.shape[1] < _NARROW or block >= 2**16:
        return np.add.reduceat(flags, np.arange(0, len(flags), block), axis=0, dtype=np.int64)
    # Sums of short integers over long rows run through vector lanes.
    counts = flags[:whole].reshape(-1, block, flags.shape[1]).sum(axis=1, dtype=np.uint16)
    rest = flags[whole:].sum(axis=0, dtype=np.uint16)[None]
    return np.concatenate([counts, rest]) if whole < len(flags) else counts


def _write_runs(draft: Draft, piece: Piece, asked: list[int]) -> list[Written]:
    """Runs on sets of states."""
    method: Any = piece.method
    query, kernel = method.query, method.kernel
    held = kernel.region.positions
    plan = {
        "method": "coalescence",
        "questions": asked,
        **_scan(draft, method),
        "confidence": float(query.confidence),
        "kernel": kernel.name,
        "places": _spread(draft, "places", draft.numbers(method, held), held, -1),
        "start": "",
        "chains": int(method.first_runs),
        "trials": int(method.first_runs),
        "aim": float(query.tolerance),
        "run": piece.number,
        "words": int(getattr(kernel, "largest", 0)),
    }
    run: Any = piece.run
    if run is None:
        return [(plan, {})]
    digits = np.concatenate(run.kept).astype(np.int64) if run.kept else None
    columns = [query.columns(question) for question in piece.questions]
    totals = _totals(piece, run)
    block, counts = _blocks(piece, columns, digits, totals, run.done, kernel.lanes, True)
    outcomes = _outcomes(draft, piece, run, block, counts)
    return [(plan, {**outcomes, "attempt": int(run.number)})]


def _totals(piece: Piece, run: Any) -> NDArray[np.int64]:
    """Count the runs that ended in each state of each target, and those that did not coalesce."""
    parts = [np.empty(0, dtype=np.int64)]
    for question, tally in zip(piece.questions, run.tallies, strict=True):
        at = 0
        for _, sizes in _targets(question) if question.is_counted else ():
            cells = math.prod(sizes)
            parts += [tally.settled[at : at + cells], tally.open[at : at + 1]]
            at += cells
    return np.concatenate(parts)


write_chains = (_updated, _write_chains)
write_runs = (_updated, _write_runs)
