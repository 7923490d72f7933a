"""Write the parts of a proof: chains, runs of bounding sets, symmetry, sums, random clusters, and certificates."""

from __future__ import annotations

import math
import os
from collections import defaultdict
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._coalescence.certificate import Coalescence
from dobrushin._coalescence.sets import choose_sets
from dobrushin._estimate.method import Method
from dobrushin._estimate.questions import JointMarginal, SingleMarginals, TargetQuestion
from dobrushin._influence.matrix import KnownInfluence
from dobrushin._proof.answers import Draft, Piece, Written
from dobrushin._proof.archive import Arrays, plan_about, write_factors, write_file
from dobrushin._proof.part_of_model import PartOfModel, positions_of
from dobrushin._scan import Scan
from dobrushin._variation import Variation, evaluate
from dobrushin.errors import ArgumentError

# The kernels that the checker knows.
REPLAYABLE = ("bits", "counts", "table", "field", "dense", "potts", "conditional", "factors")
# Largest number of counts that a file holds for one part, but for those of a single block.
_MAX_COUNTS = 2**16
# States are counted one by one where a variable has at most this many.
_FEW_STATES = 8
# Rows with fewer columns are too short for vector lanes.
_FEW_COLUMNS = 16


# -- chains and runs ---------------------------------------------------------------------------


def cycle_of(scan: Scan) -> NDArray[np.int64]:
    """Return the positions of one cycle of a scan, or of the whole scan if it has several segments."""
    if len(scan._segments) > 1:
        return scan.order
    cycle: Any = scan._segments[0]
    return np.roll(cycle.array(), -int(cycle.first))[: len(scan)]


def plan_draws(
    arrays: Arrays, part: PartOfModel, kernel: Any, numbers: NDArray[np.int64], cycle: NDArray[np.int64], scan: Scan,
    start: Any = "uniform",
) -> dict[str, Any]:  # fmt: skip
    """Return the plan of draws: the scan, the kernel, the start, and where each variable finds its random words.

    `numbers` are the proof's numbers of the variables that the kernel holds.
    """
    held = kernel.region.positions

    def spread(name: str, values: NDArray[Any], rest: int) -> str:
        whole = np.full(len(part.positions), rest, dtype=np.int64)
        whole[numbers] = values
        return arrays.add(name, whole)

    return {
        "scan": arrays.add("scan", cycle),
        "steps": len(scan),
        "kernel": kernel.name,
        "places": spread("places", held, -1),
        "start": "" if isinstance(start, str) else spread("start", start[held], 0),
    }


def _plan_part(draft: Draft, piece: Piece, asked: list[int], start: Any = "uniform") -> dict[str, Any]:
    method: Any = piece.method
    scan, kernel = method.plan.scan, method.kernel
    cycle = draft.numbers(piece.model, cycle_of(scan))
    held = draft.numbers(piece.model, kernel.region.positions)
    plan = plan_draws(draft.arrays, draft.part, kernel, held, cycle, scan, start)
    return plan | {"questions": asked, "confidence": float(method.query.confidence), "run": piece.number}


def write_chains(draft: Draft, piece: Piece, asked: list[int]) -> list[Written]:
    """Write the part of a proof about chains whose bias Dobrushin's bound limits."""
    method, run = piece.method, piece.run
    query, kernel, aim = method.query, method.kernel, method.plan.monte_carlo
    if kernel.name not in REPLAYABLE:
        requirement = f"one that was drawn by a kernel that can be replayed ({', '.join(REPLAYABLE)})"
        raise ArgumentError("estimate", requirement, kernel.name)
    counted = any(question.is_counted for question in query.questions)
    plan = _plan_part(draft, piece, asked, query.space.start) | {
        "method": "dobrushin",
        "chains": int(method.plan.chains),
        "trials": int(query.least_chains(aim)) if counted else 0,
        "aim": float(aim),
    }
    if run is None:
        return [(plan, {})]
    trials, digits = min(plan["trials"], run.done), run.samples().states
    if digits is not None:
        digits = (digits[:trials] + 1) // 2 if query.model._spins else digits[:trials]
    pairs = zip(piece.questions, run.tallies, strict=True)
    totals = [tally.settled for question, tally in pairs if question.is_counted]
    return [(plan, _outcomes(draft, piece, digits, totals, trials, is_sets=False))]


def write_runs(draft: Draft, piece: Piece, asked: list[int]) -> list[Written]:
    """Write the part of a proof about runs of bounding sets."""
    method, run = piece.method, piece.run
    plan = _plan_part(draft, piece, asked) | {
        "method": "coalescence",
        "chains": int(method.first_runs),
        "trials": int(method.first_runs),
        "aim": float(method.query.tolerance),
        "words": int(method.kernel.words),
    }
    if run is None:
        return [(plan, {})]
    digits = np.concatenate(run.kept).astype(np.int64) if run.kept else None
    totals: list[NDArray[np.int64]] = []  # runs that ended in each state of each target, and that did not coalesce
    for question, tally in zip(piece.questions, run.tallies, strict=True):
        at = 0
        for _, sizes in _counted_together(question) if question.is_counted else ():
            cells = math.prod(sizes)
            totals += [tally.settled[at : at + cells], tally.open[at : at + 1]]
            at += cells
    outcomes = _outcomes(draft, piece, digits, totals, run.done, is_sets=True)
    return [(plan, {**outcomes, "attempt": int(run.number)})]


def _outcomes(
    draft: Draft, piece: Piece, digits: NDArray[Any] | None, totals: list[NDArray[np.int64]], trials: int,
    is_sets: bool,
) -> dict[str, Any]:  # fmt: skip
    """Return the outcomes of a part: counts of blocks of chains, in a single block if states were not kept."""
    run, counts = piece.run, ""
    block = lanes = run.method.kernel.lanes
    pairs = zip(piece.questions, run.query.columns, strict=True)
    counted = [(question, columns) for question, columns in pairs if question.is_counted]
    rows = sum(map(len, totals))
    if counted and (digits is None or len(digits) < trials):
        block = max(lanes, -(-trials // lanes) * lanes)
        counts = draft.arrays.add("counts", np.concatenate(totals)[None])
    elif counted:
        known = np.asarray(digits)
        while -(-trials // block) * rows > _MAX_COUNTS:
            block *= 2
        parts = []
        for question, columns in counted:
            own = known[:trials, columns]
            if isinstance(question, SingleMarginals) and len(set(question.sizes.tolist())) == 1:
                parts.append(_count(own, int(question.sizes[0]), block, is_sets))
                continue
            for places, sizes in _counted_together(question):
                parts.append(_count(_cells(own[:, places], sizes), math.prod(sizes), block, is_sets))
        counts = draft.arrays.add("counts", np.concatenate(parts, axis=1))
    pairs = zip(piece.questions, run.tallies, strict=True)
    means = [int(tally.low.count) for question, tally in pairs if not question.is_counted]
    return {"drawn": int(run.done), "block": int(block), "counts": counts, "means": means}


def _counted_together(question: TargetQuestion) -> list[tuple[list[int], tuple[int, ...]]]:
    """Return the groups of a question's variables that are counted jointly, with their numbers of states."""
    if isinstance(question, SingleMarginals):
        return [([k], (size,)) for k, size in enumerate(question.sizes.tolist())]
    assert isinstance(question, JointMarginal)
    return [(list(range(len(question.shape))), question.shape)]


def _cells(digits: NDArray[Any], sizes: tuple[int, ...]) -> NDArray[np.int64]:
    """Return the number of each chain's joint state, as one column; -1 where a variable has not coalesced."""
    strides = np.append(np.cumprod(sizes[:0:-1])[::-1], 1).astype(np.int64)
    cell = digits.astype(np.int64) @ strides
    cell[(digits < 0).any(axis=1)] = -1
    return cell[:, None]


def _count(cells: NDArray[Any], states: int, block: int, is_sets: bool) -> NDArray[np.int64]:
    """Count how often each state occurs in each block of chains; with sets, also how often a run has not coalesced.

    `cells` has a row for each chain; each of its columns is counted by itself.
    """
    if states <= _FEW_STATES:
        kinds = [*range(states), -1] if is_sets else range(states)
        counts = np.stack([_sum_blocks(cells == kind, block) for kind in kinds], axis=2)
        return counts.reshape(len(counts), -1).astype(np.int64)
    width, number = states + is_sets, np.arange(len(cells)) // block
    parts = []
    for column in cells.T:
        kind = np.where(column < 0, states, column).astype(np.int64)
        parts.append(np.bincount(number * width + kind, minlength=(number[-1] + 1) * width).reshape(-1, width))
    return np.concatenate(parts, axis=1)


def _sum_blocks(flags: NDArray[np.bool_], block: int) -> NDArray[Any]:
    """Count the true entries of each block of rows, by column."""
    whole = len(flags) // block * block
    if flags.shape[1] < _FEW_COLUMNS or block >= 2**16:
        return np.add.reduceat(flags, np.arange(0, len(flags), block), axis=0, dtype=np.int64)
    # Sums of short integers over long rows run through vector lanes.
    counts = flags[:whole].reshape(-1, block, flags.shape[1]).sum(axis=1, dtype=np.uint16)
    rest = flags[whole:].sum(axis=0, dtype=np.uint16)[None]
    return np.concatenate([counts, rest]) if whole < len(flags) else counts


# -- symmetry ----------------------------------------------------------------------------------


def variables_connected(method: Method) -> NDArray[np.int64]:
    """Return the variables that are connected with a target."""
    query = method.query
    component = query.model._form.components()
    return np.flatnonzero(np.isin(component, component[query.positions]))


def write_symmetry(draft: Draft, piece: Piece, asked: list[int]) -> list[Written]:
    """Write the part of a proof by symmetry, for which the checker needs nothing but the factors."""
    del draft, piece
    return [({"method": "symmetry", "questions": asked}, {})]


# -- sums --------------------------------------------------------------------------------------


def write_exact(draft: Draft, piece: Piece, asked: list[int]) -> list[Written]:
    """Write sums over all variables: a part of the proof for each elimination order."""
    parts: dict[str, list[int]] = {}
    at = 0
    for question, plan in zip(piece.questions, piece.method.sum_plans, strict=True):
        count = 1 if question.needs_joint_law else len(question.positions)
        name = draft.arrays.add("order", draft.numbers(piece.model, np.array(plan.order, dtype=np.int64)))
        parts.setdefault(name, []).extend(asked[at : at + count])
        at += count
    nothing = draft.arrays.add("sweep", np.empty(0, dtype=np.int64))
    written: list[Written] = []
    for name, own in parts.items():
        border = draft.arrays.add("border", np.zeros(len(draft.arrays.arrays[name]), dtype=np.int64))
        rest = {"order": name, "border": border, "sweep": nothing, "sweeps": 0}
        written.append(({"method": "sums", "questions": own, **rest}, {}))
    return written


def _regions(method: Any) -> list[Any]:
    """Return the region of each target: the one that gave the answer, or else the planned one."""
    return [growth.best or growth.next for growth in method.growths]


def variables_summed(method: Method) -> NDArray[np.int64]:
    """Return the variables in any region."""
    return np.unique(np.concatenate([region.ball.positions for region in _regions(method)]))


def write_local(draft: Draft, piece: Piece, asked: list[int]) -> list[Written]:
    """Write sums over a region around each target: a part of the proof for each target."""
    written: list[Written] = []
    for number, region in zip(asked, _regions(piece.method), strict=True):
        positions, around = region.ball.positions, region.around
        order = positions[np.array(region.order.variables, dtype=np.int64)]
        extremes = around.extremes if region.by_extremes and not region.is_closed else None
        # With extreme states the higher state of each variable; otherwise a boundary state.
        inside = np.zeros(len(positions), dtype=np.int64) if extremes is None else extremes[2]
        outside = region.allowed_states(around.border) if extremes is None else extremes[1]
        members = draft.numbers(piece.model, np.concatenate([positions, around.border]))
        states = np.concatenate([inside, outside])[np.argsort(members, kind="stable")]
        sweeps = region.sweeps if extremes is None and not region.is_closed else 0
        inwards = positions[region.ball.outwards[::-1]] if sweeps else positions[:0]
        plan = {
            "method": "sums",
            "questions": [number],
            "order": draft.arrays.add("order", draft.numbers(piece.model, order)),
            "border": draft.arrays.add("border", states),
            "sweep": draft.arrays.add("sweep", draft.numbers(piece.model, inwards)),
            "sweeps": int(sweeps),
        }
        written.append((plan, {}))
    return written


# -- random clusters: edges, relabelled states, and counts of connected draws ------------------


def variables_of_model(method: Method) -> range:
    return range(method.query.model.n_variables)


def write_clusters(draft: Draft, piece: Piece, asked: list[int]) -> list[Written]:
    """Write the part of a proof about draws of random clusters, which are counted by whether targets are connected."""
    method, run = piece.method, piece.run
    runner, draws = method.runner, int(method.plan.chains)
    numbers = draft.numbers(piece.model, np.arange(piece.model.n_variables))
    plan = {
        "method": "clusters",
        "questions": asked,
        "confidence": float(method.query.confidence),
        "chains": draws,
        "trials": draws,
        "aim": float(method.query.tolerance),
        "kernel": runner.name,
        "past": int(runner.past),
        "rounds": int(runner.rounds),
        "edges": draft.arrays.add("edges", _edges(draft, runner.magnet, numbers)),
        "colours": draft.arrays.add("colours", _colours(runner.magnet, numbers, len(draft.part.positions))),
    }
    if run is None:
        return [(plan, {})]
    links = [np.concatenate(tally.kept) for tally in run.tallies]
    block = 1
    while -(-run.done // block) * 2 * sum(own.shape[1] for own in links) > _MAX_COUNTS:
        block *= 2
    firsts, columns = np.arange(0, run.done, block), []
    for own in links:
        both = np.stack([own == 1, own < 0], axis=2).reshape(len(own), -1)
        columns.append(np.add.reduceat(both, firsts, axis=0, dtype=np.int64))
    counts = draft.arrays.add("counts", np.concatenate(columns, axis=1))
    return [(plan, {"drawn": int(run.done), "block": block, "counts": counts, "means": []})]


def _edges(draft: Draft, magnet: Any, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of the edge of each pair factor of the proof, -1 for a constant factor."""
    edges: dict[tuple[int, ...], list[int]] = defaultdict(list)
    ends = np.sort(
        numbers[np.stack([magnet.neighbor[magnet.twin[magnet.first]], magnet.neighbor[magnet.first]])], axis=0
    )
    for e, pair in enumerate(zip(*ends.tolist(), strict=True)):
        edges[pair].append(e)
    scopes, tables = draft.part.free_factors()
    factors: dict[tuple[int, ...], list[bool]] = defaultdict(list)
    found = []
    for scope, table in zip(scopes, tables, strict=True):
        if len(scope) == 2:
            pair = (min(scope), max(scope))
            factors[pair].append(bool(np.ptp(table) > 0.0))
            own, k = edges.get(pair, []), sum(factors[pair]) - 1
            # Tables of two states over one pair are one edge together; others have one each.
            found.append(-1 if not own or not factors[pair][-1] else own[0] if len(own) == 1 else own[k])
    return np.array(found, dtype=np.int64)


def _colours(magnet: Any, numbers: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Return the relabelled states of each variable of the proof, beginning with the one that fields favour."""
    colours = np.tile(np.arange(magnet.q), (count, 1))
    order = np.argsort(np.arange(magnet.q) != magnet.favourite[:, None], axis=1, kind="stable")
    colours[numbers] = np.take_along_axis(magnet.gauge.astype(np.int64), order, axis=1)
    return colours


# -- certificates of scans: by Dobrushin's bound, and by runs of bounding sets -----------------

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
        raise ArgumentError("certificate", "a certificate of targets that the scan updates", certificate)
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
