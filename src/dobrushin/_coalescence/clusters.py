"""Exact draws of ferromagnets at every temperature, by coupling from the past on random clusters. [trusted]

A draw is made in rounds. Round r begins `past` * 2^r sweeps in the past, and all rounds use the same random numbers at
the same times. A draw is done when the clusters of the targets at time 0 no longer depend on the start. A draw that is
not done after the last round stays open: the number of rounds is fixed beforehand, and no clock ends a draw.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dobrushin._coalescence.ferromagnet import Ferromagnet, read_ferromagnet
from dobrushin._kernels.clusters import OPEN, colour_clusters, run_clusters
from dobrushin._models import Model
from dobrushin._models.near import ScanRegion
from dobrushin._sampling.batches import LOOK_SECONDS, Job, run_batches
from dobrushin._sampling.kernel import Batches, Runner, Work, streams_of
from dobrushin._sampling.sampler import on_backend
from dobrushin._scan import Scan
from dobrushin._shared.arrays import frozen
from dobrushin._shared.call import current_deadline
from dobrushin._shared.executors import Trouble, cores
from dobrushin._shared.running import Running, master_key

# Seconds per updated edge or visited variable, on one core (benchmarks/rates.py).
_SECONDS_PER_VISIT = 1.9e-8
# Sweeps of the first round without a pilot.
_PAST = 4
# Sweeps of the last round: this multiple of the first round, and at least this number.
_LAST_ROUND_FACTOR, _LAST_ROUND_SWEEPS = 64, 1024
# Number of draws of a pilot, and the share of its time after which it begins no further draw.
_PILOT_DRAWS, _PILOT_SHARE = 8, 0.2
_PILOT_SEED = np.random.SeedSequence(0, spawn_key=(1996, 2017))
# Seconds that a batch of draws should take, and the largest number of draws in a batch.
_BATCH_SECONDS, _MAX_DRAWS = 0.2, 4096


@dataclass(frozen=True)
class ClusterRunner(Runner):
    """Runner that draws random clusters: a step is a sweep over all edges; the scan has the sweeps of all rounds."""

    magnet: Ferromagnet
    region: ScanRegion
    error: NDArray[np.float64]
    targets: NDArray[np.int64]
    past: int
    rounds: int
    draw_seconds: float
    name: ClassVar[str] = "clusters"
    lanes: ClassVar[int] = 1
    rate: ClassVar[float] = 1.0 / _SECONDS_PER_VISIT
    counts_states: ClassVar[bool] = False

    @property
    def scan(self) -> Scan:
        """Return a scan with one step for each sweep of all rounds; batches measure the work by its length."""
        return Scan.systematic(1, self.past * (2**self.rounds - 1))

    @property
    def last_round(self) -> int:
        """Return the number of edge updates in the last round."""
        return self.past * 2 ** (self.rounds - 1) * self.magnet.edges

    @property
    def dtype(self) -> Any:
        return np.int32

    @property
    def run_error(self) -> float:
        """Bound the probability that rounding of thresholds, of colours or of the model changes a draw."""
        sweeps = self.past * 2 ** (self.rounds - 1)
        colours = len(self.targets) * self.magnet.q * 2.0**-63
        of_model = math.expm1(2.0 * self.magnet.error) if self.magnet.error < 1.0 else 1.0
        return min(1.0, (sweeps * self.magnet.sweep_error + colours + of_model) * (1 + 1e-9))

    def look(self, chains: int) -> int:
        sweeps = LOOK_SECONDS / (4.0 * _SECONDS_PER_VISIT * chains * max(1, self.magnet.edges))
        return max(1, min(2**30, int(sweeps)))

    def batches(self, numbers: range, cores: int) -> Batches:
        size = max(1, min(_MAX_DRAWS, int(_BATCH_SECONDS / self.draw_seconds), -(-len(numbers) // (4 * cores))))
        return Batches(numbers, size)

    def start(self, master: NDArray[np.uint64], chains: range) -> NDArray[np.int32]:
        """Return the initial arrays of draws, a row each: sweeps (-1 until done), target clusters, states of edges."""
        states = len(self.magnet.neighbor) + len(self.magnet.start) - 1
        return np.full((len(chains), 1 + len(self.targets) + -(-states // 4)), OPEN, dtype=np.int32)

    def run(self, x: NDArray[np.int32], work: Work) -> None:
        self.go(x, work.lo, work.hi, work.keys(1))

    def go(self, x: NDArray[np.int32], lo: int, hi: int, keys: NDArray[np.uint64]) -> float:
        """Run sweeps `lo` to `hi` of some draws; return their expected seconds on an ordinary machine."""
        magnet, spent = self.magnet, np.zeros(len(x), dtype=np.int64)
        halves = (magnet.start, magnet.neighbor, magnet.twin, magnet.first, magnet.tied, magnet.low, magnet.high)
        run_clusters(lo, hi, self.past, *halves, self.targets, keys, x, spent)
        return _SECONDS_PER_VISIT * float(spent.sum())

    def read(self, x: NDArray[np.int32], rows: NDArray[np.int64], chains: int) -> NDArray[np.int32]:
        """Return for each draw its number of sweeps and the clusters of the targets; `rows` is not used."""
        return x[:, : 1 + len(self.targets)].T.copy()


class Clusters(NamedTuple):
    """Draws of the random clusters of some targets.

    Attributes
    ----------
    clusters : array of shape (draws, targets)
        Number of each target's cluster: 0 for the ghost's, else 1 + the first target in the cluster; -1 if the draw did
        not coalesce.
    sweeps : array
        Number of sweeps of the last round of each draw.
    error : float
        Bound on the probability that rounding changed a draw.
    """

    runner: ClusterRunner
    clusters: NDArray[np.int32]
    sweeps: NDArray[np.int32]
    master: NDArray[np.uint64]
    first: int
    error: float
    trouble: Trouble | None

    @property
    def is_closed(self) -> NDArray[np.bool_]:
        """Return a mask of the draws that coalesced."""
        return np.asarray(self.sweeps > 0)

    def states(self) -> NDArray[np.int64]:
        """Return the state numbers 0..k-1 of the targets, -1 where a draw did not coalesce."""
        magnet, targets = self.runner.magnet, self.runner.targets
        states = np.empty(self.clusters.shape, dtype=np.int64)
        if len(states):
            keys = streams_of(self.master, range(self.first, self.first + len(states)), 1)
            own = magnet.gauge[targets], magnet.favourite[targets]
            colour_clusters(self.clusters, targets, *own, keys, states)
        return states


def make_runner(
    model: Model, targets: NDArray[np.int64], past: int = _PAST, most_steps: float = math.inf
) -> ClusterRunner:
    """Make the runner of random clusters for some targets, with `past` sweeps in the first round.

    The last round has at most `most_steps` edge updates. The result of a draw does not depend on `past`. Raise
    `CertificateError` if the model is no ferromagnet.
    """
    magnet = read_ferromagnet(model)
    _, region = model._region(np.arange(model.n_variables))
    sweeps = max(_LAST_ROUND_FACTOR * past, _LAST_ROUND_SWEEPS)
    if most_steps < math.inf:
        sweeps = max(1, int(most_steps // max(1, magnet.edges)))
        past = min(past, sweeps)
    rounds = math.floor(math.log2(sweeps / past)) + 1
    nothing = frozen(np.zeros(model.n_variables))
    return ClusterRunner(
        magnet, region, nothing, frozen(targets), past, rounds, _SECONDS_PER_VISIT * past * magnet.edges + 1e-7
    )


def try_runner(model: Model, targets: NDArray[np.int64], patience: float) -> ClusterRunner | None:
    """Make the runner of random clusters, after a pilot that chooses the length of its first round and times a draw.

    Return None if the pilot needs more than `patience` seconds, computed from its work and not measured by a clock.
    """
    pilot = make_runner(model, targets, 1)
    sweeps: list[int] = []
    spent, keys = 0.0, streams_of(master_key(_PILOT_SEED), range(_PILOT_DRAWS), 1)
    while len(sweeps) < _PILOT_DRAWS and (not sweeps or spent < _PILOT_SHARE * patience):
        k, step = len(sweeps), 0
        x = pilot.start(keys, range(1))
        while x[0, 0] <= 0 and step < len(pilot.scan):
            chunk = pilot.look(1)
            seconds = pilot.go(x, step, step + chunk, keys[:, k : k + 1])
            step += chunk
            spent += seconds
            current_deadline().charge(seconds, "a pilot of random clusters")
            if spent > patience:
                return None
        if x[0, 0] <= 0:
            return None
        sweeps.append(int(x[0, 0]))
    runner = make_runner(model, targets, int(np.median(sweeps)))
    return replace(runner, draw_seconds=max(spent / len(sweeps), 1e-7))


def draw_clusters(
    runner: ClusterRunner, numbers: range, sequence: np.random.SeedSequence, running: Running
) -> Clusters:
    """Draw random clusters for the draws with these numbers, or only for the first of them if the run ends early."""
    runner_there: Any = on_backend(runner, runner.scan, len(numbers), running.backend)
    master, scan = master_key(sequence), runner.scan
    job = Job(runner_there, scan, master, np.arange(1 + len(runner.targets)), np.array([len(scan)]), 0)
    outcome = run_batches(job, numbers, sequence, running, "drawing clusters")
    found = outcome.states(job)[0]
    return Clusters(runner, found[1:].T, found[0], master, numbers.start, runner.run_error, outcome.trouble)


def expected_seconds(runner: ClusterRunner, draws: float) -> float:
    """Return the expected seconds of a number of draws on all cores."""
    return 1e-3 + runner.draw_seconds * draws / min(cores(), max(1.0, draws))
