"""Exact draws of the targets alone by coupling from the past (Propp and Wilson 1996). [trusted]"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from dobrushin._coalescence.clusters import draw_clusters, make_runner
from dobrushin._coalescence.ferromagnet import is_ferromagnet
from dobrushin._coalescence.rejection import draw_by_rejection
from dobrushin._coalescence.sets import choose_sets
from dobrushin._influence.matrix import known_influence
from dobrushin._models import Model
from dobrushin._models.sources import as_model
from dobrushin._models.state_names import Names, call_states
from dobrushin._optimize.greedy import BackwardGreedy
from dobrushin._optimize.guide import guiding_rows
from dobrushin._sampling.batches import Job, run_batches
from dobrushin._sampling.start import check_feasible
from dobrushin._scan import Scan, as_scan
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import frozen
from dobrushin._shared.call import NO_DEADLINE, Deadline, public
from dobrushin._shared.environment import require
from dobrushin._shared.memory import require_memory
from dobrushin._shared.running import Running, kept_seed, master_key, read_time_limit, seed_sequence
from dobrushin._shared.text import card, counted, rounded_up
from dobrushin._variation import Objective
from dobrushin.errors import ArgumentError, BudgetError, CertificateError, CoalescenceError
from dobrushin.typing import DrawMethod, ModelLike, ScanLike, Seed, Targets

if TYPE_CHECKING:
    import pandas

_MAX_STEPS = 10**7
# Largest numbers of variables, and of states of one variable, shown in a notebook.
_SHOWN = 10
# Largest number of states of a call: 16 GiB.
_MAX_STATES = 2**31
# Largest expected number of seconds of a pilot, and a seed that no draws of a user can have.
_PILOT_SECONDS = 0.1
_PILOT_SEED = np.random.SeedSequence(0, spawn_key=(1996, 2018))
# Largest number of cluster labels (draws times targets) in memory at a time.
_MAX_LABELS = 2**25
# Draws that rounding may change with a larger probability are refused, since they could not be called exact.
_MAX_ERROR = 1e-3


@dataclass(frozen=True, eq=False, repr=False)
class ExactSamples:
    """Independent draws from the joint marginal of some variables, without any bias.

    Attributes
    ----------
    states : array of shape (draws, variables)
    variables : sequence of labels
    steps : int
        Number of steps into the past from which the slowest draw was run; with "weights", the number of all
        proposals, accepted or not.
    error : float
        Bound on the probability that rounding changed a given draw.
    seed : int or SeedSequence
    state_names : list
        For each variable the names of its states, or None. The array `states` has numbers.
    """

    states: NDArray[Any]
    variables: Sequence[Hashable]
    steps: int
    error: float
    seed: int | np.random.SeedSequence
    state_names: Sequence[Names | None]
    _spins: bool

    def to_dataframe(self) -> pandas.DataFrame:
        """Return a pandas DataFrame with a row for each draw, a column for each variable, and named states.

        Examples
        --------
        >>> import dobrushin as db
        >>> model = db.Ising({("sun", "rain"): -0.4}, state_names=("no", "yes"))
        >>> db.exact_sample(model, ["rain", "sun"], draws=3, seed=1).to_dataframe()
          rain  sun
        0  ...
        """
        pandas = require("pandas", "formats")
        columns = zip(self.variables, self.states.T, self.state_names, strict=True)
        return pandas.DataFrame({label: call_states(states, names, self._spins) for label, states, names in columns})

    def _repr_html_(self) -> str:
        facts = [("draws", f"{len(self.states):,}"), ("steps", f"{self.steps:,}, of the slowest draw")]
        facts += [("error", f"at most {rounded_up(self.error)} of the draws, by rounding"), ("seed", str(self.seed))]
        rows = []
        for k, label in zip(range(_SHOWN), self.variables, strict=False):
            states, counts = np.unique(self.states[:, k], return_counts=True)
            called = call_states(states, self.state_names[k], self._spins)
            shares = [f"{state}: {count / len(self.states):.4g}" for state, count in zip(called, counts, strict=True)]
            rows.append((str(label), ", ".join(shares[:_SHOWN]) + (", ..." if len(shares) > _SHOWN else "")))
        more = len(self.variables) - len(rows)
        note = "Independent draws without bias." + (f" {more:,} more variables." if more else "")
        what = counted(len(self.variables), "variable")
        return card(f"Exact draws of {what}", facts, ("variable", "shares"), rows, note)

    def __repr__(self) -> str:
        draws, size = self.states.shape
        return f"ExactSamples(draws={draws}, variables={size}, steps={self.steps}, seed={self.seed})"


@public("drawing")
def exact_sample(
    model: ModelLike,
    targets: Targets,
    draws: int,
    *,
    method: DrawMethod = "auto",
    scan: ScanLike | None = None,
    seed: Seed = None,
    max_steps: int | None = None,
    time_limit: float | None = None,
    progress: bool | None = None,
) -> ExactSamples:
    """Draw exactly from the joint marginal of some variables: no burn-in, no bias.

    Parameters
    ----------
    model : Model
    targets : labels or "all"
    draws : int
    method : {"auto", "scan", "clusters", "weights"}
        "scan": single variables are updated in the order of a scan. "clusters": random clusters, for Ising and Potts
        models with ferromagnetic couplings (also after states are relabelled) and fields that favour one state, at
        every temperature. "weights": rejection from the proposals of bounded weights, for models with strong couplings
        of any sign, or with many weak ones, that are not too large. "auto": a scan, unless a pilot with other random
        bits does not coalesce and the model is a ferromagnet.
    scan : Scan or ScanResult, optional
        Without random steps; it is repeated into the past. Default: a greedy scan for the targets, which grows
        into the past without changing its end.
    seed : int, SeedSequence, Generator or None
    max_steps : int, optional
        Give up when some draw would have to begin further back than this number of updates: of single variables
        (default 10 million) or of edges (default 1024 sweeps or more). Not for "weights".
    time_limit : float, optional
        Give up after this number of seconds.
    progress : bool, optional
        Show progress. None: only in a terminal or notebook; True: always; False: never.

    Returns
    -------
    ExactSamples

    Raises
    ------
    BudgetError
        When the draws would take more than 16 GiB of memory, or more than there is, or when the time limit is over.
    CertificateError
        When potentials are so large that rounding could change the draws.
    CoalescenceError
        When some draw did not coalesce in time. The others are not returned either: leaving out slow draws would bias
        the rest.

    Notes
    -----
    The scan is run from time -T to 0 on sets of states (see `coalescence`), with T doubled until every target has
    coalesced. The variable and the random bits of the step at time -k are the same for all T > k, and the map of a step
    does not depend on the sets; so the value at time 0 is that of a trajectory that began in the infinite past. With
    "clusters" steps update the edges of a random-cluster model (Fortuin and Kasteleyn), whose largest and smallest
    states contain all others between them. With "weights" a step is a try, which is accepted with a probability that is
    proportional to the ratio of the model's probability to the proposal's.

    Examples
    --------
    >>> import dobrushin as db
    >>> torus = db.Ising.grid(40, 40, couplings=0.35, periodic=True)
    >>> exact = db.exact_sample(torus, targets=[0, 1], draws=1000, seed=1)
    >>> bool(0.35 < (exact.states[:, 0] * exact.states[:, 1]).mean() < 0.6)
    True
    >>> cold = db.Ising.grid(40, 40, couplings=0.6, periodic=True)  # single spins hardly ever flip, clusters do
    >>> db.exact_sample(cold, targets="all", draws=4, seed=1).states.shape
    (4, 1600)
    """
    model = as_model(model)
    if check.is_text(targets, "all"):
        positions = np.arange(model.n_variables)
    else:
        positions = check.positions(targets, model.labels, model._lookup, "targets")
    draws = check.count(draws, "draws")
    check.choice(method, get_args(DrawMethod), "method")
    if method in ("clusters", "weights") and scan is not None:
        raise ArgumentError("scan", f"left out with method={method!r}", scan)
    if method in ("clusters", "weights") and not model._is_whole:
        raise ArgumentError("model", f"in memory for method={method!r}", model)
    if method == "weights" and max_steps is not None:
        raise ArgumentError("max_steps", "left out with method='weights', which time_limit= can end", max_steps)
    most = None if max_steps is None else check.count(max_steps, "max_steps")
    sequence = seed_sequence(seed)
    remedy = "Ask for fewer draws, or for draws of fewer variables."
    with Deadline(read_time_limit(time_limit).limit, "Drawing", remedy=remedy) as deadline:
        check_feasible(model, model._form)
        states = _room_for(draws, len(positions))
        past: _Past | None = None
        if scan is not None:
            past = _repeated_past(model, as_scan(scan, model), positions)
        elif method not in ("clusters", "weights"):
            past = _greedy_past(model, positions)
            if method == "auto" and _needs_clusters(model, positions, past):
                past = None
        if method == "weights":
            longest, error = draw_by_rejection(model, positions, sequence, states, deadline)
        elif past is None:
            longest, error = _draw_clusters(model, positions, sequence, states, most, deadline)
        else:
            longest, error = _draw_by_scan(model, positions, sequence, states, past, most or _MAX_STEPS, deadline)
    if model._spins:
        states = 2 * states - 1
    labels = model._labels_at(positions)
    if error > _MAX_ERROR:
        reason = (
            f"rounding changes a draw with probability up to {min(error, 1.0):.2g}, because potentials are so large."
        )
        raise CertificateError({"exact draws": reason}, "Use smaller potentials.")
    names = [None if model._state_names is None else model._names_at(i) for i in positions.tolist()]
    return ExactSamples(frozen(states), labels, longest, error, kept_seed(sequence), names, model._spins)


def _draw_by_scan(
    model: Model, positions: NDArray[np.int64], sequence: np.random.SeedSequence, states: NDArray[np.int64],
    past: _Past, most: int, deadline: Deadline,
) -> tuple[int, float]:  # fmt: skip
    """Fill `states` with exact draws by a scan; return the steps of the slowest draw and a bound on a draw's error.

    The error of a draw is the probability that rounding changed it.
    """
    draws = len(states)
    waiting = [range(first, min(first + 64, draws)) for first in range(0, draws, 64)]
    steps, longest, error = min(most, past.first), 0, 0.0
    while waiting:
        deadline.check()
        order = past.order(steps)
        settled, wrong = _draw_from_past(model, positions, sequence, order, waiting, deadline)
        error += wrong  # errors of all rounds add up: a wrong update in an earlier round may have ended a draw
        for block, values in zip(waiting, settled, strict=True):
            states[block.start : block.stop] = values
        ended = sum(int((values >= 0).all(axis=1).sum()) for values in settled)
        left = [block for block, values in zip(waiting, settled, strict=True) if (values < 0).any()]
        if len(left) < len(waiting):
            longest = max(longest, len(order))
        if left and (steps >= most or len(order) < steps):
            raise CoalescenceError(draws, sum(map(len, waiting)) - ended, len(order), len(order) < steps)
        waiting, steps = left, min(2 * steps, most)
    return longest, error


def _needs_clusters(model: Model, positions: NDArray[np.int64], past: _Past) -> bool:
    """Return whether the model is a ferromagnet for which a pilot of the scan does not coalesce in `_PILOT_SECONDS`.

    The pilot has separate random bits: a method chosen by the draws themselves would bias them.
    """
    if not model._is_whole or not is_ferromagnet(model):
        return False
    first = min(_MAX_STEPS, past.first)
    steps = first
    while True:
        order = past.order(steps)
        seconds = choose_sets(model, Scan(order)).seconds(64.0 * len(order))
        if seconds > _PILOT_SECONDS and steps > first:
            return True
        settled, _ = _draw_from_past(model, positions, _PILOT_SEED, order, [range(64)], NO_DEADLINE)
        if (settled[0] >= 0).all():
            return False
        if len(order) < steps:
            return True
        steps *= 2


def _draw_clusters(
    model: Model, positions: NDArray[np.int64], sequence: np.random.SeedSequence, states: NDArray[np.int64],
    most: int | None, deadline: Deadline,
) -> tuple[int, float]:  # fmt: skip
    """Fill `states` with exact draws by random clusters; return the edge updates of the slowest draw, and its error.

    The error of a draw is a bound on the probability that rounding changed it.
    """
    runner = make_runner(model, positions, most_steps=math.inf if most is None else most)
    room = max(1, _MAX_LABELS // len(positions))
    longest = 0
    for first in range(0, len(states), room):
        deadline.check()
        numbers = range(first, min(first + room, len(states)))
        block = draw_clusters(runner, numbers, sequence, Running(deadline=deadline))
        if block.trouble is not None:
            deadline.check()
            raise block.trouble
        longest = max(longest, int(block.sweeps.max()))
        if not block.is_closed.all():
            raise CoalescenceError(len(states), int((~block.is_closed).sum()), runner.last_round, False)
        states[numbers.start : numbers.stop] = block.states()
    return longest * runner.magnet.edges, runner.run_error


def _room_for(draws: int, variables: int) -> NDArray[np.int64]:
    """Return an empty array for the draws; raise `BudgetError` if it needs more memory than allowed or free."""
    remedy = "Draw in several calls, each with a seed of its own."
    if draws * variables > _MAX_STATES:
        raise BudgetError("This call", draws * variables, _MAX_STATES, "states in memory", remedy)
    require_memory("This call", 8.0 * draws * variables, remedy)
    return np.empty((draws, variables), dtype=np.int64)


def _draw_from_past(
    model: Model, positions: NDArray[np.int64], sequence: np.random.SeedSequence, order: NDArray[np.int64],
    blocks: list[range], deadline: Deadline,
) -> tuple[list[NDArray[np.int64]], float]:  # fmt: skip
    """Run blocks of draws on bounding sets through the steps of `order`, the last of which is at time 0.

    Return the states of each block (draws, targets), with -1 where a target has not coalesced, and a bound on the
    probability that rounding changes a draw.
    """
    if not np.isin(positions, order).all():  # a target that is never updated never coalesces
        return [np.full((len(block), len(positions)), -1) for block in blocks], 0.0
    scan = Scan(order)
    kernel = choose_sets(model, scan)
    rows, stops = kernel.region.numbering.own(positions), np.array([len(order)])
    job = Job(kernel, scan, master_key(sequence), rows, stops, 0, is_from_past=True)
    what = f"drawing from {len(order):,} steps back"
    outcome = run_batches(job, blocks, sequence, Running(deadline=deadline), what)
    if outcome.trouble is not None:
        deadline.check()
        raise outcome.trouble
    settled: list[Any] = [outcome.parts[k].states for k in range(len(blocks))]
    return [states[0].T.astype(np.int64) for states in settled], kernel.run_error(scan)


class _Past(NamedTuple):
    """A scan that reaches as far into the past as needed, and its length in the first round.

    `order(steps)` returns the last updates before time 0: `steps` or more of them, or fewer if earlier updates cannot
    change the targets.
    """

    first: int
    order: Callable[[int], NDArray[np.int64]]


def _greedy_past(model: Model, positions: NDArray[np.int64]) -> _Past:
    """Return a scan for the targets that is built backwards, from time 0 into the past."""
    objective = Objective(np.sort(positions), np.ones(len(positions)), True)
    search = BackwardGreedy(guiding_rows(known_influence(model), objective.positions), objective)
    search.extend(0.0, len(positions))

    def order(steps: int) -> NDArray[np.int64]:
        search.extend(0.0, steps)
        return search.order(min(steps, search.steps))

    return _Past(max(2 * len(positions), 64), order)


def _repeated_past(model: Model, scan: Scan, positions: NDArray[np.int64]) -> _Past:
    """Return the user's scan, repeated into the past; raise `ArgumentError` if it is random or leaves out a target."""
    scan._check_fits(model.n_variables)
    if scan.is_random:
        raise ArgumentError("scan", "without random steps", scan)
    missing = np.setdiff1d(positions, scan._updates(model.n_variables))
    if len(missing):
        raise ArgumentError("scan", "one that updates every target", model.labels[int(missing[0])])
    cycle = scan.order
    return _Past(max(2 * len(positions), 64, len(cycle)), lambda steps: np.tile(cycle, -(-steps // len(cycle))))
