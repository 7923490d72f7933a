"""Write proofs of answers by random clusters: edges, relabelled states, and counts of connected draws."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._estimate.method import Method
from dobrushin._proof.answers import Draft, Piece, Written

# Largest number of counts that a file holds, but for those of a single block.
_MAX_COUNTS = 2**16


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
