"""Greedy scans, built step by step from the targets, without an input scan."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from dobrushin._influence import Influence, RowSource, row_source
from dobrushin._influence.matrix import KnownInfluence
from dobrushin._kernels import descent, greedy
from dobrushin._models import Model
from dobrushin._models.sources import read_source
from dobrushin._optimize.dogs import move_single_steps
from dobrushin._optimize.guide import ScanResult, guide_of, whole
from dobrushin._scan import Scan
from dobrushin._shared import compile as pieces
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import Array, Floats, Ints, distinct, frozen, prefix_sums, row_entries
from dobrushin._shared.call import bar, public
from dobrushin._shared.compile import code_for, in_pieces
from dobrushin._variation import Objective, evaluate, read_objective, warn_vacuous
from dobrushin.typing import Guide, Targets, Weights

# Number of rows of the influence matrix that are computed together at first, where rows are cheap.
_AHEAD = 64


@public("choosing a scan", read=read_source)
def greedy_scan(
    model: Model | Influence,
    targets: Targets | None = None,
    weights: Weights | None = None,
    *,
    steps: int,
    guide: Guide | None = "auto",
    progress: bool | None = None,
) -> ScanResult:
    """Build a scan of a given length without an input scan, forwards and backwards, and return the better one.

    Parameters
    ----------
    model : Model or Influence
        For a model, its whole influence is computed (``method="best"``); compute it once for several calls.
    targets, weights
        As for `variation`.
    steps : int
    guide : {"auto", None}
        "auto": if the certificate is nearly vacuous because the spectral radius of the influence is 1 or more, choose
        again with the influence scaled to a radius below 1. The certificate never uses the scaled matrix; it may be
        vacuous where that of `coalescence` is informative.
    progress : bool, optional
        Show progress. None: only in a terminal or notebook; True: always; False: never.

    Returns
    -------
    ScanResult

    Notes
    -----
    Backwards: prepend the variable with the largest weight d_i, pulled back through the later steps. Forwards: append
    the variable whose bound falls most, by b_i - (C b)_i, which does well when all variables count alike. Short scans
    are then improved by moving single steps while that helps, which usually finds the optimum.

    Examples
    --------
    >>> import dobrushin as db
    >>> model = db.Ising.grid(10, 10, couplings=0.2)
    >>> greedy = db.greedy_scan(model, targets=[0], steps=1000)
    >>> greedy.variation.value < db.optimize_scan(model, db.Scan.systematic(100, 1000), targets=[0]).variation.value
    True
    """
    source = whole(model)
    objective = read_objective(source, targets, weights)
    steps = check.count(steps, "steps")

    def build(chooser: Influence) -> ScanResult:
        scans = _both_ways(chooser, objective, steps)
        scan = min(scans, key=lambda scan: evaluate(chooser, scan, objective).value)
        return ScanResult(scan, evaluate(source, scan, objective))

    best = build(source)
    if (chooser := guide_of(source, best.variation, guide)) is not None:
        best = build(chooser)
    if best.variation.is_vacuous:
        warn_vacuous(best.variation)
    return best


def _both_ways(chooser: Influence, objective: Objective, steps: int) -> list[Scan]:
    backward = BackwardGreedy(chooser, objective)
    with bar(steps, "choosing a scan from its end", "steps") as report:
        backward.extend(0.0, steps, report)
    order = backward.order()
    if len(order) < steps:  # no other variable influences the targets
        order = np.concatenate([np.resize(np.arange(chooser.n_variables), steps - len(order)), order])
    matrix = chooser.matrix
    forward = forward_order(matrix, steps)
    weights = np.zeros(chooser.n_variables)
    weights[objective.positions] = objective.weights
    everyone = np.ones(chooser.n_variables, dtype=np.bool_)
    return [Scan(move_single_steps(matrix, weights, everyone, trial)) for trial in (order, forward)]


def forward_order(matrix: Any, steps: int) -> Ints:
    """Return an order built forwards: each step updates the variable whose disagreement bound falls most."""
    n, columns = matrix.shape[0], sparse.csr_array(matrix.T)
    rows = (matrix.indptr, matrix.indices, matrix.data, frozen(columns.indptr), frozen(columns.indices))
    order, tree = np.empty(steps, dtype=np.int64), descent.tree(n)
    in_pieces(descent.falls, n, matrix.indptr, matrix.data, *tree)
    in_pieces(descent.forward_greedy, steps, order, *rows, *tree, np.ones(n), what="choosing a scan from its beginning")
    return order


class BackwardGreedy:
    """A greedy scan for an objective, built from its last step backwards; a shorter scan is the end of a longer one.

    The search has its own numbering of the variables, in the order in which it first reads them, so that the work does
    not grow with the model. The array of numbers is allocated but not initialised: variable i has the number k =
    _number[i] only if ids[k] is i.

    Rows of the influence matrix are read when they are needed. With `ahead`, rows of variables nearby are read with
    them if rows are cheap to compute.
    """

    def __init__(self, influence: RowSource | Model, objective: Objective, ahead: bool = False) -> None:
        self._source = source = row_source(influence)
        self._links = source.links if ahead and isinstance(source, KnownInfluence) else None
        self._objective = objective
        self._number = np.empty(source.n_variables, dtype=np.int32)  # own numbers; arbitrary for variables without one
        room = max(64, 2 * len(objective.positions))
        self.ids = np.zeros(room, dtype=np.int64)
        self._begin = np.zeros(room, dtype=np.int64)
        self._end = np.zeros(room, dtype=np.int64)
        self.has_row = np.zeros(room, dtype=np.bool_)
        self._caps = np.ones(room)
        self._d = np.zeros(room)
        self._heap = np.zeros(room, dtype=np.int64)
        self._place = np.zeros(room, dtype=np.int64)
        self._columns = np.zeros(4 * room, dtype=np.int32)
        self._values = np.zeros(4 * room)
        self._entries = 0
        self.size = 0
        self._order = np.zeros(64, dtype=np.int64)
        self._norms = np.zeros(65)
        self._counters = np.zeros(2, dtype=np.int64)
        self._meet(objective.positions)
        self._d[: self.size] = objective.weights
        in_pieces(greedy.push_all, self.size, self.size, self.ids, self._d, self._heap, self._place)
        total = float(objective.weights.sum())
        self._norms[0] = total
        self._state = np.array([total, total])
        self._counters[0] = self.size
        self.steps = 0  # length of the scan built so far
        self.norm = total  # the sum of the pulled-back weights: the variation without clamps at 1 and rounding

    @property
    def norms(self) -> Floats:
        """Linear variation (bound without clamps at 1) of the scan after 0, 1, 2, ... steps of the search."""
        return self._norms[: self.steps + 1]

    def order(self, steps: int | None = None) -> Ints:
        """Return the last `steps` steps of the scan (default all), as positions in the model, in order of updates."""
        return self.ids[self._order[: self.steps if steps is None else min(steps, self.steps)][::-1]]

    def last(self, steps: int) -> Ints:
        """Extend the scan to this many steps, if possible; return these in the search's own numbering of variables."""
        self.extend(0.0, steps)
        return self._order[: min(steps, self.steps)][::-1]

    def first(self) -> Ints:
        return self.ids[self._heap[:1]]

    def extend(self, tolerance: float, limit: int, report: Callable[[int], None] | None = None) -> bool:
        """Extend the scan until its linear variation is at most `tolerance` (return True), or to `limit` steps (False).

        Raise `LateError` when the time for planning is over; the scan keeps the steps that it has.
        """
        code, allowance = pieces.first_piece(greedy.extend)
        while True:
            room = min(limit, len(self._order))
            status = code(
                allowance, tolerance, room, self._begin, self._end, self._columns, self._values, self.has_row,
                self.ids, self._d, self._heap, self._place, self._order, self._norms, self._state, self._counters,
            )  # fmt: skip
            self.steps, self.norm = int(self._counters[1]), float(self._state[0])
            if status == greedy.DONE:
                return True
            if status == greedy.PAUSED:
                if code is greedy.extend:
                    pieces.charge_piece("the search for a scan")
                code, allowance = greedy.extend, pieces.PIECE
                if report:
                    report(self.steps)
            elif status == greedy.NEED_ROW:
                self._fetch()
            elif self.steps >= limit:
                return False
            else:
                self._order = enlarge(self._order, 2 * len(self._order))
                self._norms = enlarge(self._norms, 2 * len(self._order) + 1)

    def matrix(self) -> Any:
        """Return the influence rows read so far as a sparse matrix, in the search's own numbering of variables."""
        start, columns, values, _ = self.rows()
        return sparse.csr_array((values, columns, start.astype(np.int32)), (self.size, self.size))

    def rows(self) -> tuple[Ints, Array, Floats, Floats]:
        """Return the influence rows read so far (starts, columns, values, caps), in the search's own numbering."""
        known = np.flatnonzero(self.has_row[: self.size])
        sizes = np.zeros(self.size, dtype=np.int64)
        sizes[known] = self._end[known] - self._begin[known]
        start, entry = row_entries(self._begin[: self.size], sizes)
        return start.astype(np.int64), self._columns[entry], self._values[entry], self._caps[: self.size]

    def weights(self) -> Floats:
        """Return the weights of the objective, in the search's own numbering of variables."""
        d = np.zeros(self.size)
        d[: len(self._objective.weights)] = self._objective.weights
        return d

    def local(self, positions: Ints) -> Ints:
        """Translate positions in the model into the search's own numbering; each variable must have a number there."""
        return self._number[positions].astype(np.int64)

    def _meet(self, positions: Ints) -> None:
        if not self.size:
            new = positions
        else:
            number = self._number[positions]
            number[(number < 0) | (number >= self.size)] = 0
            new = positions[self.ids[number] != positions]
        if not len(new):
            return
        new = distinct(new, len(self._number))
        size = self.size + len(new)
        if size > len(self.ids):
            room = 2 * size
            for name in ("ids", "_begin", "_end", "has_row", "_caps", "_d", "_heap", "_place"):
                setattr(self, name, enlarge(getattr(self, name), room))
        self.ids[self.size : size] = new
        self._number[new] = np.arange(self.size, size)
        self.size = size

    def _fetch(self) -> None:
        """Read the missing influence rows of all variables with a number: the scan will soon need most of them."""
        positions = self.ids[: self.size][~self.has_row[: self.size]]
        if self._links is not None:
            positions = self._look_around(positions, *self._links)
        positions = np.sort(positions)
        rows = self._source.rows(positions)
        self._meet(np.concatenate([positions, rows.columns]))
        numbers = self.local(positions)
        total = self._entries + len(rows.columns)
        if total > len(self._columns):
            self._columns = enlarge(self._columns, 2 * total)
            self._values = enlarge(self._values, 2 * total)
        self._columns[self._entries : total] = self._number[rows.columns]
        self._values[self._entries : total] = rows.values
        self._begin[numbers] = self._entries + rows.start[:-1]
        self._end[numbers] = self._entries + rows.start[1:]
        self._caps[numbers] = rows.cap
        self.has_row[numbers] = True
        self._entries = total

    def _look_around(self, positions: Ints, start: Array, neighbor: Array) -> Ints:
        """Add nearby variables without a number, so that more rows are read at once.

        The result has as many variables as there are rows so far, at least 64.
        """
        most = max(_AHEAD, int(self.has_row[: self.size].sum()))
        if len(positions) >= most:
            return positions
        found = np.empty(most, dtype=np.int64)
        found[: len(positions)] = positions
        code = code_for(greedy.look_around, 16 * most)
        return found[: code(start, neighbor, self._number, self.ids, self.size, most, found, len(positions))]


def enlarge(array: Array, room: int) -> Array:
    larger = np.zeros(room, dtype=array.dtype)
    larger[: len(array)] = array
    return larger


# Products of influences that differ by a smaller share than this count as equal: rounding alone can cause it.
_TIED_SHARE = 1e-9
# Largest number of variables of a region.
MAX_BALL_VARIABLES = 20_000


class Ball(NamedTuple):
    """The variables around some targets, with the neighbours among them and the border."""

    positions: Ints  # increasing
    outwards: Ints  # indices into `positions`, the strongest variable first
    start: Ints  # neighbours within the ball in CSR format, as indices into `positions`
    neighbor: Ints
    border: Ints  # positions of the neighbours outside of the ball


class Reach(BackwardGreedy):
    """The variables around targets, sorted by strength: the largest product of influences along a path to a target.

    The strength is the largest single term of a variable's pulled-back weight. The targets come first. The work does
    not grow with the model.
    """

    def __init__(self, influence: RowSource, targets: Ints) -> None:
        super().__init__(influence, Objective(np.sort(targets), np.ones(len(targets)), True), ahead=True)
        self._strength = np.zeros(64)

    def grow(self, size: int, strength: float = math.inf, most: int = MAX_BALL_VARIABLES) -> int:
        """Collect at least `size` variables, all of at least this `strength`, and all ties with the weakest of these.

        Return their number: less than `size` if no other variables have an influence, and never more than `most`.
        """
        if self.steps < most:
            self._take(size, strength, most)
        known = self._strength[: self.steps]
        size = max(1, min(size, self.steps), int(np.searchsorted(-known, -strength, side="right")))
        last = known[size - 1] * (1.0 - _TIED_SHARE)
        return min(most, size + int(np.searchsorted(-known[size:], -last, side="left")))

    def strength(self, size: int) -> float:
        """Return the strength of the weakest of the first `size` variables."""
        return float(self._strength[size - 1])

    def ball(self, size: int) -> Ball:
        """Return the first (strongest) `size` variables with their neighbours."""
        numbers = self._order[:size]
        rank = np.full(self.size, -1, dtype=np.int64)
        by_position = np.argsort(self.ids[numbers], kind="stable")
        positions = self.ids[numbers][by_position]
        rank[numbers[by_position]] = np.arange(size)
        members = numbers[by_position]
        first = self._begin[members]
        start, entry = row_entries(first, self._end[members] - first)
        columns = self._columns[entry]
        owner = np.repeat(np.arange(size), np.diff(start))
        inside = rank[columns] >= 0
        border = np.unique(self.ids[columns[~inside]])
        rows = prefix_sums(np.bincount(owner[inside], minlength=size))
        own = rank[columns[inside]]
        return Ball(positions, rank[numbers], frozen(rows), frozen(own), border)

    def _take(self, size: int, strength: float, most: int) -> None:
        while True:
            # The search stops at a row that is missing, so that the entries read so far bound its work.
            code = code_for(greedy.reach, 16 * (self._entries + self.size))
            status = code(
                size, strength, most, self._begin, self._end, self._columns, self._values, self.has_row, self.ids,
                self._d, self._heap, self._place, self._order, self._strength, self._counters,
            )  # fmt: skip
            self.steps = int(self._counters[1])
            if status == greedy.DONE:
                return
            if status == greedy.NEED_ROW:
                self._fetch()
            else:
                self._order = enlarge(self._order, 2 * len(self._order))
                self._strength = enlarge(self._strength, len(self._order))
