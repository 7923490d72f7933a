"""Conversion of thrml's energy-based models, and bounds on the bias of its block Gibbs sampling. [trusted]"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._influence import row_source
from dobrushin._models import Model
from dobrushin._scan import Scan
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import inflation
from dobrushin._shared.call import public
from dobrushin._shared.environment import require
from dobrushin._shared.text import rounded_up
from dobrushin._variation import touched_by
from dobrushin.adapters.thrml_terms import EnergyTerms, GibbsProgram, read_program, terms_of_ebm
from dobrushin.errors import ArgumentError, CertificateError

__all__ = ["ScheduleCertificate", "certify", "nodes"]

# Largest number of warm-up sweeps that is tried for a tolerance.
_MAX_SWEEPS = 100_000
# Where the bounds of all targets are below it, later ones are not computed: they are no larger.
_NEGLIGIBLE = 1e-30
_ASSUMPTIONS = (
    "JAX's random numbers are independent and uniform on their grid",
    "the logistic function and the logarithm of JAX are right within 16 and 8 units of roundoff",
)


@public("reading")
def from_thrml(source: Any, clamped: Sequence[Any] | None = None, *, progress: bool | None = None) -> Model:
    """Return the model of a thrml energy-based model or sampling program.

    Parameters
    ----------
    source : IsingEBM, FactorizedEBM, IsingSamplingProgram or FactorSamplingProgram
        Of spins, categories or both (`DiscreteEBMFactor` and its kinds).
    clamped : list of arrays, optional
        Of a program with clamped blocks: their states, as for ``thrml.sample_states``.
    progress : bool, optional
        Show progress. None: only in a terminal or notebook; True: also in a log; False: never.

    Returns
    -------
    Ising, SpinMRF or FactorGraph
        Its variables are numbered as `nodes` says. A spin True is +1. Nodes with one category are left out, and so are
        clamped nodes.

    Notes
    -----
    pi(x) ∝ exp(-energy(x)), with beta as it is in the energy; weights are taken as thrml has them, mostly in float32.

    Examples
    --------
    >>> import dobrushin as db
    >>> import jax.numpy as jnp  # doctest: +SKIP
    >>> from thrml import SpinNode  # doctest: +SKIP
    >>> from thrml.models import IsingEBM  # doctest: +SKIP
    >>> a, b = SpinNode(), SpinNode()  # doctest: +SKIP
    >>> ebm = IsingEBM([a, b], [(a, b)], jnp.array([1.0, 0.0]), jnp.array([0.25]), jnp.array(2.0))  # doctest: +SKIP
    >>> model = db.from_thrml(ebm)  # doctest: +SKIP
    >>> model.fields, float(model.couplings[0, 1])  # doctest: +SKIP
    (array([2., 0.]), 0.5)
    """
    if _is_program(source):
        return _model_of(read_program(source), source, clamped)[0]
    if clamped is not None:
        raise ArgumentError("clamped", "None, because only a SamplingProgram has clamped nodes", clamped)
    return terms_of_ebm(source).without_constants().to_model()


@public(name="adapters.thrml.nodes")
def nodes(source: Any) -> list[Any]:
    """Return the nodes of a model or program of thrml in the order of the variables of ``from_thrml(source)``.

    The order is that of the nodes of an IsingEBM, of the factors of other energies, of the free blocks of a program.

    Examples
    --------
    >>> import dobrushin as db
    >>> import jax.numpy as jnp  # doctest: +SKIP
    >>> from thrml import SpinNode  # doctest: +SKIP
    >>> from thrml.models import IsingEBM  # doctest: +SKIP
    >>> a, b = SpinNode(), SpinNode()  # doctest: +SKIP
    >>> ebm = IsingEBM([b, a], [(a, b)], jnp.zeros(2), jnp.array([0.5]), jnp.array(1.0))  # doctest: +SKIP
    >>> db.adapters.thrml.nodes(ebm).index(a)  # doctest: +SKIP
    1
    """
    if not _is_program(source):
        return terms_of_ebm(source).without_constants().nodes
    program = read_program(source)
    free = sum(map(len, program.sweep))
    return [node for node, size in list(zip(program.terms.nodes, program.terms.sizes, strict=True))[:free] if size > 1]


@dataclass(frozen=True, eq=False, repr=False)
class ScheduleCertificate:
    """Bounds on the errors of the samples of a thrml schedule, for each target.

    All bounds hold for every initial state, and without `clamped` for every state of the clamped blocks.

    Attributes
    ----------
    schedule : thrml.SamplingSchedule
        The schedule that was given, or the smallest one for the tolerance.
    targets : list of nodes
    first : array
        Bound on the total variation between the law of the target in the first sample and its marginal distribution.
        No later sample has a larger one.
    bias : array
        The same for a sample that is chosen at random from all: a bound on the bias of the share of samples in which
        the target is in some given states.
    standard_error : array
        Bound on the standard deviation of this share.
    joint : float
        Bound on the total variation of the joint law of the targets in the first sample.
    sweeps : int
        Passes through all blocks until the last sample.
    assumptions : tuple of str
        What the bounds rest on.
    """

    schedule: Any
    targets: list[Any]
    first: NDArray[np.float64]
    bias: NDArray[np.float64]
    standard_error: NDArray[np.float64]
    joint: float
    sweeps: int
    assumptions: tuple[str, ...]

    @property
    def is_vacuous(self) -> bool:
        """True if no target has a bound on its bias below 1."""
        return bool((self.bias >= 1).all())

    @property
    def effective_samples(self) -> NDArray[np.float64]:
        """Number of independent samples whose standard error would have the same bound."""
        return 0.25 / self.standard_error**2

    def __repr__(self) -> str:
        schedule = self.schedule
        about = (
            f"{schedule.n_warmup} sweeps of warm-up, {schedule.n_samples} samples, one in {schedule.steps_per_sample}"
        )
        if self.is_vacuous:
            return f"ScheduleCertificate({about}: vacuous, nothing is known of the bias)"
        bias, deviation = rounded_up(float(self.bias.max())), rounded_up(float(self.standard_error.max()))
        size = f"{len(self.targets)} target{'s' * (len(self.targets) > 1)}"
        return f"ScheduleCertificate({about}: bias at most {bias}, standard error at most {deviation}, {size})"


@public("planning", name="adapters.thrml.certify")
def certify(
    program: Any,
    schedule: Any,
    targets: Any = None,
    *,
    tolerance: float | None = None,
    clamped: Sequence[Any] | None = None,
    update_error: float | None = None,
    progress: bool | None = None,
) -> ScheduleCertificate:
    """Bound the bias and the standard error of the samples of a schedule, before they are drawn.

    Parameters
    ----------
    program : IsingSamplingProgram or FactorSamplingProgram
        Nodes that it draws at the same time, those of a block and of the blocks of a superblock, must not interact.
    schedule : thrml.SamplingSchedule
    targets : node, Block or list of them, optional
        Free nodes; default all.
    tolerance : float, optional
        Find the smallest warm-up after which no sample is biased by more, and certify that.
    clamped : list of arrays, optional
        States of the clamped blocks, as for ``thrml.sample_states``. Bounds can be smaller then.
    update_error : float, optional
        Bound on the total variation between the law of one draw and the conditional distribution. Default: that of
        float32 or float64 arithmetic, under the assumptions that the certificate names. 0 is for exact draws.
    progress : bool, optional
        Show progress. None: only in a terminal or notebook; True: also in a log; False: never.

    Returns
    -------
    ScheduleCertificate

    Raises
    ------
    ArgumentError
        For programs whose blocks have neighbours in them, whose interactions belong to no distribution, or that draw in
        another way than Gibbs sampling does.
    CertificateError
        When no warm-up meets the tolerance.

    Notes
    -----
    With b(t) the recursion of `dobrushin.variation` after t sweeps, for n samples after w sweeps of warm-up, s sweeps
    between samples, the bias is at most 1/n sum_k b(w + k s), and the variance at most
    1/(4n) (1 + 2 sum_d (1 - d/n) c(d s)), where c is b with twice the update error (theory page, "Runs of other
    engines").

    Examples
    --------
    >>> import dobrushin as db
    >>> import jax.numpy as jnp  # doctest: +SKIP
    >>> from thrml import Block, SamplingSchedule, SpinNode  # doctest: +SKIP
    >>> from thrml.models import IsingEBM, IsingSamplingProgram  # doctest: +SKIP
    >>> row = [SpinNode() for _ in range(100)]  # doctest: +SKIP
    >>> weights = jnp.full(99, 0.25)  # doctest: +SKIP
    >>> ebm = IsingEBM(row, list(zip(row, row[1:])), jnp.zeros(100), weights, jnp.array(1.0))  # doctest: +SKIP
    >>> program = IsingSamplingProgram(ebm, [Block(row[::2]), Block(row[1::2])], [])  # doctest: +SKIP
    >>> db.adapters.thrml.certify(program, SamplingSchedule(20, 1000, 2), row[50])  # doctest: +SKIP
    ScheduleCertificate(20 sweeps of warm-up, 1000 samples, one in 2: bias at most ..., 1 target)
    """
    if not isinstance(program, require("thrml", "thrml").BlockSamplingProgram):
        raise ArgumentError("program", "a sampling program of thrml", got=type(program).__name__)
    schedule = _read_schedule(schedule)
    if update_error is not None and not (check.is_real(update_error) and 0 <= update_error <= 1):
        raise ArgumentError("update_error", "between 0 and 1", update_error)
    known = read_program(program)
    model, numbers = _model_of(known, program, clamped, keep_clamped=clamped is None)
    free = {k for group in known.sweep for k in group if k in numbers}
    own = _read_targets(targets, known.terms, free)
    error = known.error if update_error is None else np.full_like(known.error, update_error)
    if not free:
        raise ArgumentError("program", "one with a free node of two or more states", got="none")
    sweep = Scan([numbers[k] for group in known.sweep for k in group if k in numbers])
    place = np.array([numbers[k] for k in own])
    start = np.zeros(model.n_variables)
    start[np.unique(sweep.order)] = 1.0
    by_variable = np.zeros(model.n_variables)
    for k, position in numbers.items():
        by_variable[position] = error[k]
    if tolerance is not None:
        limit = check.fraction(tolerance, "tolerance")
        warmup = _smallest_warmup(_after_sweeps(model, sweep, start, by_variable, place), limit)
        schedule = replace(schedule, n_warmup=warmup)
    samples, every = max(1, schedule.n_samples), schedule.steps_per_sample
    bounds = _Bounds(_after_sweeps(model, sweep, start, by_variable, place))
    first = bounds.at(schedule.n_warmup)
    bias = bounds.sum(schedule.n_warmup, every, samples, np.ones(samples)) / samples
    # Two chains that are both drawn with errors.
    twice = _Bounds(_after_sweeps(model, sweep, start, np.minimum(2 * by_variable, 1.0), place))
    shares = 1.0 - np.arange(samples) / samples
    shares[0] = 0.0
    variance = (1.0 + 2.0 * twice.sum(0, every, samples, shares)) / (4.0 * samples)
    return ScheduleCertificate(
        schedule,
        [known.terms.nodes[k] for k in own],
        first,
        np.minimum(bias * inflation(samples), 1.0),
        np.sqrt(variance * inflation(samples)),
        min(1.0, float(first.sum()) * inflation(len(first))),
        schedule.n_warmup + (samples - 1) * every,
        _ASSUMPTIONS if update_error is None else (f"each draw is within {update_error:g} of Gibbs sampling",),
    )


# -- bounds --------------------------------------------------------------------------------------


def _after_sweeps(
    model: Model, sweep: Scan, start: NDArray[np.float64], error: NDArray[np.float64], targets: NDArray[np.int64]
) -> Iterator[NDArray[np.float64]]:
    """Yield bounds on the bias of the targets after 0, 1, 2, ... sweeps, until they no longer change."""
    problem = touched_by(row_source(model), sweep, start, error)
    b = problem.start_values()
    each = problem.roundings(sweep)
    done = 0
    while True:
        bounds = np.minimum(problem.at(b, targets) * inflation(done * each), 1.0)
        yield bounds
        before = b.copy()
        problem.advance(sweep, b)
        done += 1
        if (b == before).all() or bounds.max() < _NEGLIGIBLE:
            return


class _Bounds:
    """Bounds on the bias after any number of sweeps; after the last one that was computed, they stay the same."""

    def __init__(self, after_sweeps: Iterator[NDArray[np.float64]]) -> None:
        self._more = after_sweeps
        self._known: list[NDArray[np.float64]] = []

    def at(self, sweeps: int) -> NDArray[np.float64]:
        while len(self._known) <= sweeps and (bounds := next(self._more, None)) is not None:
            self._known.append(bounds)
        return self._known[min(sweeps, len(self._known) - 1)]

    def sum(self, first: int, every: int, count: int, shares: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the sum of the bounds after `first`, `first` + `every`, ... sweeps, weighted by `shares`."""
        total = np.zeros_like(self.at(0))
        for k in range(count):
            total += shares[k] * self.at(first + k * every)
            if first + k * every >= len(self._known):  # from here on they are the same
                return total + shares[k + 1 :].sum() * self._known[-1]
        return total


def _smallest_warmup(after_sweeps: Iterator[NDArray[np.float64]], tolerance: float) -> int:
    reached = 1.0
    for sweeps, bounds in enumerate(after_sweeps):
        reached = float(bounds.max())
        if reached <= tolerance:
            return sweeps
        if sweeps >= _MAX_SWEEPS:
            break
    reason = f"the bound on the bias falls only to {reached:.3g}, above the tolerance {tolerance:g}."
    remedy = "Ask for fewer targets, or use db.estimate(db.from_thrml(ebm), ...), which has other methods."
    raise CertificateError({"dobrushin": reason}, remedy)


# -- arguments -----------------------------------------------------------------------------------


def _is_program(source: Any) -> bool:
    thrml, models = require("thrml", "thrml"), require("thrml.models", "thrml")
    if isinstance(source, thrml.BlockSamplingProgram):
        return True
    if not isinstance(source, models.AbstractFactorizedEBM):
        requirement = "an energy of thrml (IsingEBM, FactorizedEBM) or a sampling program"
        raise ArgumentError("source", requirement, source)
    return False


def _model_of(
    known: GibbsProgram, program: Any, clamped: Any, keep_clamped: bool = False
) -> tuple[Model, dict[int, int]]:
    """Return a model conditioned on the clamped nodes, and the position in it of each node with two states or more."""
    blocks = program.gibbs_spec.clamped_blocks
    if clamped is None and blocks and not keep_clamped:
        requirement = f"the states of the {len(blocks)} clamped blocks of the program"
        raise ArgumentError("clamped", requirement, clamped)
    terms = known.terms.without_constants()
    places = {k: terms.number_of(node) for k, node in enumerate(known.terms.nodes)}
    numbers = {k: place for k, place in places.items() if place is not None}
    model = terms.to_model()
    if clamped is None:
        return model, numbers
    given = _read_clamped(clamped, blocks, known)
    held = {numbers[k]: state for k, state in given.items() if k in numbers}
    free = {k: place for k, place in numbers.items() if k not in given}
    if not free:
        raise ArgumentError("program", "one with a free node of two or more states", got="none")
    return (model.condition(held) if held else model), {k: i for i, k in enumerate(free)}


def _read_clamped(clamped: Any, blocks: Any, known: GibbsProgram) -> dict[int, int]:
    """Return the states of the clamped nodes, by number and as states of the model; ignored nodes are left out."""
    clamped = list(clamped) if check.is_several(clamped) else [clamped]
    if len(clamped) != len(blocks):
        raise ArgumentError("clamped", f"{len(blocks)} arrays, one for each clamped block", clamped)
    given = {}
    for b, (states, block, numbers) in enumerate(zip(clamped, blocks, known.clamped, strict=True)):
        array = np.asarray(states)
        if array.shape != (len(block),):
            requirement = f"one state for each node of block {b} ({len(block)})"
            raise ArgumentError("clamped", requirement, got=f"shape {array.shape}")
        for k, (number, state) in enumerate(zip(numbers, array.tolist(), strict=True)):
            if number is None:
                continue
            is_spin, size = known.terms.spins[number], known.terms.sizes[number]
            if is_spin and array.dtype != np.bool_:
                raise ArgumentError("clamped", "True or False for spins", state, f"node {k} of block {b}")
            if not is_spin and (array.dtype.kind not in "iu" or not 0 <= state < size):
                requirement = f"a category from 0 to {size - 1}"
                raise ArgumentError("clamped", requirement, state, f"node {k} of block {b}")
            given[number] = (1 if state else -1) if is_spin else int(state)
    return given


def _read_schedule(schedule: Any) -> Any:
    kind = require("thrml", "thrml").SamplingSchedule
    check.instance(schedule, kind, "schedule", "a thrml.SamplingSchedule")
    for name in ("n_warmup", "n_samples", "steps_per_sample"):
        number = getattr(schedule, name)
        if not check.is_whole(number) or number < 0:
            raise ArgumentError("schedule", f"one whose {name} is a number of sweeps or samples", number)
    return schedule


def _read_targets(targets: Any, terms: EnergyTerms, free: set[int]) -> list[int]:
    thrml = require("thrml", "thrml")
    if targets is None:
        return sorted(free)
    if isinstance(targets, thrml.AbstractNode | thrml.Block):
        targets = [targets]
    if not check.is_several(targets):
        raise ArgumentError("targets", "free nodes of the program, or Blocks of them", targets)
    flat = [node for target in targets for node in (target if isinstance(target, thrml.Block) else [target])]
    own: list[int] = []
    for k, node in enumerate(flat):
        number = terms.number_of(node) if isinstance(node, thrml.AbstractNode) else None
        if number is None or number not in free or number in own:
            raise ArgumentError("targets", "distinct free nodes of the program", node, f"index {k}")
        own.append(number)
    if not own:
        raise ArgumentError("targets", "at least one node", targets)
    return own
