"""Where the variables of a scan are: next to whom, how far from the targets, and where on a grid."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._estimate import Estimate
from dobrushin._estimate.targets import variables_of
from dobrushin._models import Model
from dobrushin.errors import ArgumentError
from dobrushin.report.table import distinct_targets

# On a grid, at least this part of the links goes down, and as many go across.
_PART_OF_LINKS = 0.25


@dataclass(frozen=True)
class Surroundings:
    """The variables that a scan can update, or all of them, numbered 0, 1, ...; `sites` are their numbers in the whole.

    The whole is the model with its observed variables, so that a grid stays a grid.
    """

    n_sites: int
    sites: NDArray[np.int64]
    positions: NDArray[np.int64]  # in the model that was sampled, increasing
    start: NDArray[Any]
    neighbor: NDArray[Any]
    targets: NDArray[np.int64]
    observed: NDArray[np.int64]  # sites

    def places(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Numbers here of positions in the model that was sampled."""
        return np.searchsorted(self.positions, positions)

    def distances(self, wanted: NDArray[np.int64]) -> NDArray[np.int64]:
        """Links from these variables to the nearest target; -1 where there is no way."""
        distance = np.full(len(self.sites), -1, dtype=np.int64)
        front, far, left = self.targets, 0, np.unique(wanted)
        distance[front] = 0
        while len(front) and len(left := left[distance[left] < 0]):
            sizes = self.start[front + 1] - self.start[front]
            begin = np.concatenate([[0], np.cumsum(sizes)])
            links = np.arange(begin[-1]) + np.repeat(self.start[front] - begin[:-1], sizes)
            front = self.neighbor[links]
            front = np.unique(front[distance[front] < 0])
            far += 1
            distance[front] = far
        return distance[wanted]

    def links(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Ends of the links, as sites, the smaller one first; those between two variables with rows come twice."""
        ends = np.repeat(self.sites, np.diff(self.start)), self.sites[self.neighbor]
        return np.minimum(*ends), np.maximum(*ends)


def surroundings(estimate: Estimate, model: Model, sampled: Model, evidence: dict[Hashable, Any]) -> Surroundings:
    """From the model, and from what is left of it given the evidence."""
    known = np.array([model.index(label) for label in evidence], dtype=np.int64)
    sizes = []
    if estimate.certificate is not None:
        sizes.append(estimate.certificate._problem.n)
    elif estimate.samples is not None:
        sizes.append(len(estimate.samples.update_error))
    fits = all(size == sampled.n_variables for size in sizes)
    scan = estimate.plan.scan
    if not fits or (scan is not None and scan.size > sampled.n_variables):
        raise _not_this(model)
    sites = np.delete(np.arange(model.n_variables), known)
    targets = _targets(estimate, model, sampled, evidence)
    return Surroundings(
        model.n_variables, sites, np.arange(sampled.n_variables), *sampled._form.adjacency, targets, np.unique(known)
    )


def target_labels(estimate: Estimate) -> list[Hashable]:
    """The variables that the targets are about, each once."""
    labels = (label for target in distinct_targets(estimate)[0] for label in variables_of(target))
    return list(dict.fromkeys(labels))


def _targets(estimate: Estimate, model: Model, sampled: Model, evidence: dict[Hashable, Any]) -> NDArray[np.int64]:
    places = []
    for label in target_labels(estimate):
        try:
            model.index(label)
            places += [] if label in evidence else [sampled.index(label)]
        except ArgumentError:
            raise _not_this(model) from None
    return np.unique(np.array(places, dtype=np.int64))


def _not_this(model: Model) -> ArgumentError:
    return ArgumentError("model", "the model that was estimated, and 'evidence' what was observed", model)


def certified_surroundings(estimate: Estimate) -> Surroundings | None:
    """Without the model, from the influence in the certificate; None where there is none."""
    if estimate.certificate is None:
        return None
    problem, objective = estimate.certificate._problem, estimate.certificate._objective
    part = problem.numbering
    targets = part.own(objective.positions[part.holds(objective.positions)])
    nothing = np.empty(0, dtype=np.int64)
    return Surroundings(part.n, part.positions, part.positions, problem.start, problem.columns, targets, nothing)


@dataclass(frozen=True)
class Grid:
    """A rectangle of sites, row by row."""

    rows: int
    columns: int
    is_periodic: bool


def as_grid(around: Surroundings, shape: tuple[int, int] | None) -> Grid | None:
    """The grid that the variables are on; None where they are on none.

    Examples
    --------
    >>> import dobrushin as db
    >>> model = db.Ising.grid(300, 200, couplings=0.2, periodic=True)
    >>> as_grid(surroundings(db.estimate(model, [0], seed=1), model, model, {}), None)
    Grid(rows=300, columns=200, is_periodic=True)
    """
    n = around.n_sites
    if shape is not None and shape[0] * shape[1] != n:
        raise ArgumentError("shape", f"(rows, columns) of {n} variables", shape)
    low, high = around.links()
    step = high - low
    rows, columns = _likely_shape(step, n) if shape is None else shape
    if rows < 2 or columns < 2 or rows * columns != n:
        return None
    same_row = low // columns == high // columns
    across, down = same_row & (step == 1), step == columns
    wrapped = (same_row & (step == columns - 1) & (columns > 2)) | ((step == n - columns) & (rows > 2))
    both_ways = min(across.sum(), down.sum()) >= _PART_OF_LINKS * len(step)
    if shape is None and not (both_ways and (across | down | wrapped).all()):
        return None
    return Grid(rows, columns, bool(wrapped.any()))


def _likely_shape(step: NDArray[np.int64], n: int) -> tuple[int, int]:
    """Neighbours below each other are one row apart: the most common step but that to the right."""
    counts = np.bincount(step, minlength=3)
    columns = 2 + int(np.argmax(counts[2:])) if counts[2:].any() else n
    return n // columns, columns
