"""Certificates by simulation: the share of runs in which targets still depend on the initial state. [trusted]"""

from __future__ import annotations

import os
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dobrushin._coalescence.sets import SetTally, choose_sets, tally_sets
from dobrushin._models import Model
from dobrushin._models.sources import as_model
from dobrushin._sampling.start import check_feasible
from dobrushin._scan import Scan, as_scan
from dobrushin._shared import validate as check
from dobrushin._shared.call import limited, public
from dobrushin._shared.executors import raise_trouble
from dobrushin._shared.intervals import upper_end
from dobrushin._shared.running import RunOptions, kept_seed, read_options, read_running, refuse_long, seed_sequence
from dobrushin._shared.text import card, counted, percent, rounded_up
from dobrushin.errors import ArgumentError
from dobrushin.typing import ModelLike, ScanLike, Seed, Targets

_USUAL_RUNS = 10_000
# Largest number of variables shown in a notebook.
_SHOWN = 10
_CURVE_POINTS = 50
_TOO_LONG = (
    "Ask for fewer runs or steps, or pass time_limit= (seconds after which the runs that have finished are used)."
)


@dataclass(frozen=True, eq=False, repr=False)
class Coalescence:
    """Certificate by simulation: bounds the distance between the targets' law after a scan and their law in the model.

    Attributes
    ----------
    value : float
        Upper confidence limit on the probability that some target still depends on the initial state after the scan.
        It bounds the total variation distance of the targets' joint law, for every allowed initial state.
    per_variable : array
        For each target, in the order of `variables`, a limit for its own marginal. All of these limits are valid at
        once with the stated confidence.
    confidence : float
        Probability that `value` is valid; also the probability that all of `per_variable` are, and that all of a
        `curve` is.
    runs, steps : int
        Number of runs, and of steps of each run. With `stopped_early` there are fewer runs than requested, and the
        limits are wider, so that they are valid whatever ended the runs.
    failures : int
        Number of runs in which some target had not coalesced.
    variables : sequence of labels
        The targets.
    update_error : float
        Bound on the probability that rounding changes any update of a run; included in all limits.
    kernel : str
    seed : int or SeedSequence

    Examples
    --------
    >>> import dobrushin as db
    >>> torus = db.Ising.grid(40, 40, couplings=0.3, periodic=True)  # outside Dobrushin's condition
    >>> scan = db.Scan.systematic(1600, steps=16_000)
    >>> db.coalescence(torus, scan, targets=[0], runs=2000, seed=1)
    Coalescence(0.1...: at confidence 99.9%, total variation of 1 target after 16000 steps, from 2000 runs)
    """

    value: float
    per_variable: NDArray[np.float64]
    confidence: float
    runs: int
    failures: int
    variables: Sequence[Hashable]
    scan: Scan
    kernel: str
    update_error: float
    seed: int | np.random.SeedSequence
    _model: Model
    stopped_early: bool = False

    @property
    def steps(self) -> int:
        """Number of steps of the scan."""
        return len(self.scan)

    @property
    def is_vacuous(self) -> bool:
        """Return whether the limit is vacuous: a total variation distance is never above 1."""
        return self.value >= 1.0

    @public()
    def curve(self, every: int | None = None) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the bound after 0, `every`, 2 `every`, ... steps and after the last step, from the same runs.

        All bounds are valid at once with the stated confidence, so each is a little larger than a single bound.

        Parameters
        ----------
        every : int, optional
            Default: about 50 points.

        Returns
        -------
        steps, values : arrays

        Examples
        --------
        >>> import dobrushin as db
        >>> model = db.Ising.grid(4, 4, couplings=0.3)
        >>> proof = db.coalescence(model, db.Scan.systematic(16, 160), targets=[0], runs=1000, seed=1)
        >>> steps, values = proof.curve(every=80)
        >>> steps, values.round(2)
        (array([  0,  80, 160]), array([1.  , 0.14, 0.02]))
        """
        every = max(1, self.steps // _CURVE_POINTS) if every is None else check.count(every, "every")
        every = min(every, self.steps)
        sequence = seed_sequence(self.seed)
        steps = np.unique(np.append(np.arange(0, self.steps + 1, every), self.steps))
        if self.failures == self.runs and self.value >= 1.0:
            return steps, np.ones(len(steps))
        kernel = choose_sets(self._model, self.scan)
        tally = tally_sets(self._model, kernel, self.scan, list(self.variables), self.runs, sequence, every=every)
        error = (1.0 - self.confidence) / len(tally.failures)
        limits = upper_end(tally.failures, self.runs, error, self.stopped_early)
        return steps, np.concatenate([[1.0], np.minimum(limits + self.update_error, 1.0)])

    @public()
    def write_proof(self, path: str | os.PathLike[str]) -> None:
        """Write a proof of `value` that others can check without this library: ``python -m dobrushin.verify``.

        The limits of `per_variable` hold with the same confidence by themselves, not together with `value`. To prove
        the limit of a single target, certify that target alone.

        Examples
        --------
        >>> import dobrushin as db, pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "bound.proof"
        >>> model = db.Ising.grid(4, 4, couplings=0.3)
        >>> db.coalescence(model, db.Scan.systematic(16, 160), targets=[0], runs=1000, seed=1).write_proof(path)
        >>> db.verify_proof(path).verdict
        'holds'
        """
        from dobrushin._proof import write_coalescence

        write_coalescence(self, path)

    def __float__(self) -> float:
        return self.value

    def _repr_html_(self) -> str:
        vacuous = ", which is vacuous" if self.is_vacuous else ""
        facts = [
            ("total variation", f"at most {rounded_up(self.value)}{vacuous}"),
            ("confidence", percent(self.confidence)),
            ("runs", f"{self.runs:,}, of which {self.failures:,} had not coalesced"),
            ("steps", f"{self.steps:,}"),
            ("kernel", self.kernel),
            ("seed", str(self.seed)),
        ]
        facts += [("stopped early", "yes: the limits are wider, and still valid")] if self.stopped_early else []
        rows = [
            (str(label), rounded_up(float(limit)))
            for label, limit, _ in zip(self.variables, self.per_variable, range(_SHOWN), strict=False)
        ]
        more = len(self.variables) - len(rows)
        note = f"{more:,} more variables." if more else ""
        return card("Coalescence: a bound by simulation", facts, ("variable", "bound of its marginal"), rows, note)

    def __repr__(self) -> str:
        size = len(self.variables)
        about = f"{size} target{'s' if size > 1 else ''}"
        verdict = (", stopped early" if self.stopped_early else "") + (" (vacuous)" if self.is_vacuous else "")
        return (
            f"Coalescence({rounded_up(self.value, 4)}: at confidence {percent(self.confidence)}, total variation of "
            f"{about} after {counted(self.steps, 'step')}, from {counted(self.runs, 'run')}{verdict})"
        )


@public("preparing")
def coalescence(
    model: ModelLike,
    scan: ScanLike,
    targets: Targets | None = None,
    *,
    confidence: float = 0.999,
    runs: int | None = None,
    seed: Seed = None,
    time_limit: float | None = None,
    progress: bool | None = None,
    run: RunOptions | None = None,
) -> Coalescence:
    """Certify a scan by simulation: works where Dobrushin's condition fails.

    The scan is run on *sets* of states. Every variable starts with all its states; each update keeps those that any
    trajectory could have, when all of them use the same random bits. Once the set of a target is a single state, the
    target no longer depends on the start.

    Parameters
    ----------
    model : Model
    scan : Scan or ScanResult
        Without random steps. It must not have been chosen by looking at runs with the same seed.
    targets : labels, optional
        Default all variables.
    confidence : float
        Probability with which the limits are valid.
    runs : int, optional
        Number of independent runs; default 10 000. With no failure at all the limit is about
        -log(1 - confidence) / runs.
    seed : int, SeedSequence, Generator or None
    time_limit : number, optional
        Seconds after which the runs that have finished are used. Without it, runs that would take longer than an hour
        are refused; ``math.inf`` allows them.
    progress : bool, optional
        Show progress. None: only in a terminal or notebook; True: always; False: never.
    run : RunOptions, optional
        Executor, GPU and checkpoint. The draws are the same.

    Returns
    -------
    Coalescence

    Raises
    ------
    Interrupted
        On Ctrl-C; ``error.result`` is the certificate from the runs that have finished.
    WorkerError
        When the executor ends early, as a process pool does when one of its workers dies; also with ``error.result``.
    BudgetError
        When the runs would take too long.

    Notes
    -----
    Let Y start from the model's distribution and use the same random bits as X: then Y_T has that distribution, and
    P(X_T != Y_T) <= P(some target's set has more than one state). The limit on the latter is that of Clopper and
    Pearson for a number of runs that is fixed beforehand. Spins follow or oppose their neighbours, so that the ends of
    the set see the ends of the local field; labels race, with independent exponential times.

    Examples
    --------
    >>> import dobrushin as db
    >>> torus = db.Ising.grid(40, 40, couplings=0.3, periodic=True)
    >>> guided = db.greedy_scan(torus, targets=[0], steps=16_000).scan
    >>> db.coalescence(torus, guided, targets=[0], runs=30_000, seed=1).value < 0.002
    True
    """
    model = as_model(model)
    scan = as_scan(scan, model)
    scan._check_fits(model.n_variables)
    if scan.is_random:
        raise ArgumentError("scan", "without random steps: use a scan of fixed order", scan)
    confidence = check.fraction(confidence, "confidence")
    runs = _USUAL_RUNS if runs is None else check.count(runs, "runs")
    running, sequence = read_running(read_options(run, ("memory_limit",)), seed, time_limit)
    kernel = choose_sets(model, scan)
    if targets is not None:
        positions = check.positions(targets, model.labels, model._lookup, "targets")
    else:
        positions = np.arange(model.n_variables) if model._is_whole else kernel.region.positions
    with limited(running.deadline):
        check_feasible(model, model._form_of(kernel.region))
    refuse_long("This certificate", kernel.seconds(float(len(scan)) * runs, scan), running.deadline, _TOO_LONG)
    updated = np.isin(positions, scan._updates(model.n_variables))
    labels = model._labels_at(positions)
    if updated.any():
        wanted = model._labels_at(positions[updated])
        tally = tally_sets(model, kernel, scan, wanted, runs, sequence, running=running)
    else:  # a target that is never updated never coalesces
        tally = SetTally(runs, np.array([runs]), np.empty((1, 0), dtype=np.int64), "none", 0.0, None)
    early, error = tally.trouble is not None, 1.0 - confidence
    per_variable = np.ones(len(positions))
    limits = upper_end(tally.open[-1], tally.runs, error / max(1, int(updated.sum())), early)
    per_variable[updated] = np.minimum(limits + tally.error, 1.0)
    failures = int(tally.failures[-1]) if updated.all() else tally.runs
    certificate = Coalescence(
        min(1.0, float(upper_end(failures, tally.runs, error, early)) + tally.error),
        per_variable,
        confidence,
        runs=tally.runs,
        failures=failures,
        variables=labels,
        scan=scan,
        kernel=tally.kernel,
        update_error=tally.error,
        seed=kept_seed(sequence),
        _model=model,
        stopped_early=early,
    )
    saved = running.checkpoint is not None
    raise_trouble(tally.trouble, certificate, certificate.runs, runs, "runs", is_saved=saved)
    return certificate
