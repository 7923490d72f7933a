"""Importance samples with bounded weights, drawn from a proposal distribution. [trusted]

Theory page, "Bounded weights". A try (importance sample) draws a state x with probability q(x) from the proposal. Its
weight is random, in [0, 1], with mean f(x) / (q(x) U), where f is the unnormalised probability and U the upper bound on
the partition function, by mini-buckets or by a Gaussian envelope. With the threshold 1 a weight is 0 or 1, and the
states with weight 1 are exact draws from f / Z.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dobrushin._exact.envelope import Envelope, EnvelopeLaw
from dobrushin._exact.minibuckets import Layout, MiniBuckets
from dobrushin._kernels.envelope import draw_fields
from dobrushin._kernels.weights import draw_tries
from dobrushin._models.near import Numbering, ScanRegion
from dobrushin._sampling.batches import Job, run_batches
from dobrushin._sampling.kernel import Batches, Runner, Work
from dobrushin._scan import Scan
from dobrushin._shared.arrays import frozen
from dobrushin._shared.executors import Trouble
from dobrushin._shared.running import PLAIN, Running, master_key

# Seconds of a step of a try, and of each table that the step reads (benchmarks/rates.py).
_SECONDS_PER_STEP, _SECONDS_PER_READ = 1.5e-8, 1.2e-8
# Seconds of a local field of an envelope, and of each entry of its factor.
_SECONDS_PER_FIELD, _SECONDS_PER_ENTRY = 5e-8, 3e-10
# Approximate largest number of seconds of a batch.
_BATCH_SECONDS = 0.1
# Words of 16 bits that hold the logarithm of a weight.
_WORDS = 4
# Proposals from which tries are drawn, each with its bound on the partition function.
Proposal = MiniBuckets | Envelope
# A scan of one step, which makes a whole try.
_ONE_STEP = Scan(np.zeros(1, dtype=np.int64))


class BucketSteps(NamedTuple):
    """Steps of an importance sample, one for each variable drawn or weighed, as arguments of the loop `draw_tries`."""

    steps: NDArray[np.int64]
    reads: NDArray[np.int64]
    pairs: NDArray[np.int64]
    constants: NDArray[np.float64]
    table: NDArray[np.float64]


def needed_variables(layout: Layout, asked: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which variables an importance sample must draw.

    These are the wanted variables (`asked`), the variables of split buckets, and all variables on which these depend.
    """
    needed = np.zeros(len(layout.sizes), dtype=np.bool_)
    needed[asked] = True
    for bucket in layout.buckets:
        if bucket.is_split or needed[bucket.variable]:
            for group in bucket.groups:
                needed[list(group.scope)] = True
    return needed


def make_steps(made: MiniBuckets, asked: NDArray[np.int64]) -> tuple[BucketSteps, float]:
    """Return the steps of an importance sample, and a bound on the total rounding error of its random numbers.

    The variables are drawn in reverse elimination order.
    """
    layout = made.layout
    needed = needed_variables(layout, asked)
    steps: list[tuple[int, ...]] = []
    reads: list[tuple[int, ...]] = []
    pairs: list[tuple[int, ...]] = []
    place: dict[int, int] = {}
    tables: list[NDArray[np.float64]] = []
    constants: list[float] = []
    length, error = 0, 0.0

    def read(number: int, variable: int | None) -> None:
        nonlocal length
        if number not in place:
            place[number] = length
            tables.append(made.tables[number])
            length += len(tables[-1])
        reads.append((place[number], len(pairs)))
        stride = 1
        for v in reversed(layout.scopes[number]):
            if v != variable:
                pairs.append((v, stride))
            stride *= int(layout.sizes[v])

    for bucket in reversed(layout.buckets):
        v, first = bucket.variable, len(reads)
        if not (bucket.is_split or needed[v]):
            continue
        for group in bucket.groups:
            for number in group.tables:
                read(number, v)
        middle = len(reads)
        for group in bucket.groups if bucket.is_split else ():
            read(group.message, None)
        constants.append(math.fsum(made.tops[group.message] for group in bucket.groups))
        states = int(layout.sizes[v])
        steps.append((v, states, first, middle, int(needed[v])))
        error += (states + 2) * 2.0**-52
    steps.append((0, 0, len(reads), len(reads), 0))
    reads.append((0, len(pairs)))
    arrays = BucketSteps(
        _columns(steps, 5), _columns(reads, 2), _columns(pairs, 2), frozen(np.array(constants)),
        frozen(np.concatenate([np.empty(0), *tables])),
    )  # fmt: skip
    return arrays, error


def _columns(rows: list[tuple[int, ...]], width: int) -> NDArray[np.int64]:
    return frozen(np.ascontiguousarray(np.array(rows, dtype=np.int64).reshape(-1, width).T))


@dataclass(frozen=True)
class Tries(Runner):
    """Runner for importance samples (tries): `read` returns each weight and the states of the wanted variables."""

    steps: Any  # arguments of the loop
    asked: NDArray[np.int64]  # variables to keep
    n: int
    threshold: float  # logarithm of the weight below which tries end at random
    error: NDArray[np.float64]
    region: ScanRegion  # a stand-in whose variables are the rows that `read` returns
    name: ClassVar[str] = "weights"
    lanes: ClassVar[int] = 1
    batch: ClassVar[int] = 2**14
    rate: ClassVar[float] = 1.0 / (_SECONDS_PER_STEP + 5 * _SECONDS_PER_READ)

    @staticmethod
    def make(made: Proposal, asked: NDArray[np.int64], threshold: float) -> Tries:
        """Make the runner that draws importance samples of the wanted variables (`asked`).

        Samples whose log-weight is below `threshold` end at random; 0 gives exact draws.
        """
        kind: type[Tries]
        steps: EnvelopeLaw | BucketSteps
        if isinstance(made, Envelope):
            # Each field has two numbers that are compared, or a normal number that is off: 2^-52 for each.
            n = len(made.fields)
            kind, steps, error = EnvelopeTries, made.law, (3 * n + 1) * 2.0**-52
        else:
            n = len(made.layout.sizes)
            kind, (steps, error) = BucketTries, make_steps(made, asked)
        rows, nothing = np.arange(_WORDS + len(asked)), np.empty(0, dtype=np.int64)
        region = ScanRegion(
            Numbering(len(rows), rows), rows[:1], np.zeros(2, dtype=np.int64), nothing, rows, slice(None)
        )
        return kind(steps, frozen(asked), n, threshold, frozen(np.array([error])), region)

    @property
    @abstractmethod
    def drawn(self) -> int:
        """Return the number of variables that a completed importance sample draws."""

    @property
    @abstractmethod
    def try_seconds(self) -> float:
        """Return the seconds that a completed importance sample takes on one core."""

    @property
    def dtype(self) -> Any:
        return np.int16

    def look(self, chains: int) -> int:
        return 1

    def batches(self, numbers: range, cores: int) -> Batches:
        most = max(16, min(self.batch, int(_BATCH_SECONDS / self.try_seconds)))
        return Batches(numbers, max(1, min(most, -(-len(numbers) // (2 * cores)))))

    def start(self, master: NDArray[np.uint64], chains: range) -> NDArray[np.float64]:
        return np.zeros((1 + len(self.asked), len(chains)))

    def read(self, x: NDArray[np.float64], rows: NDArray[np.int64], chains: int) -> NDArray[np.int16]:
        out = np.empty((_WORDS + len(self.asked), chains), dtype=np.int16)
        out[:_WORDS] = np.ascontiguousarray(x[0])[:, None].view(np.int16).T
        out[_WORDS:] = x[1:]
        return out


class BucketTries(Tries):
    """Runner for importance samples whose proposal and bound come from mini-buckets."""

    steps: BucketSteps

    @property
    def drawn(self) -> int:
        return int(self.steps.steps[4].sum())

    @property
    def try_seconds(self) -> float:
        return _SECONDS_PER_STEP * self.steps.steps.shape[1] + _SECONDS_PER_READ * self.steps.reads.shape[1] + 1e-6

    def run(self, x: NDArray[np.float64], work: Work) -> None:
        state = np.zeros(self.n, dtype=np.int64)
        draw_tries(work.keys(1), self.threshold, *self.steps, self.asked, state, x)


class EnvelopeTries(Tries):
    """Runner for importance samples whose proposal and bound come from a Gaussian envelope."""

    steps: EnvelopeLaw

    @property
    def drawn(self) -> int:
        return self.n

    @property
    def try_seconds(self) -> float:
        return _SECONDS_PER_FIELD * self.n + 0.5 * _SECONDS_PER_ENTRY * self.n**2 + 1e-6

    def run(self, x: NDArray[np.float64], work: Work) -> None:
        draw_fields(work.keys(1), self.threshold, *self.steps, self.asked, np.empty(self.n), x)


class WeightedDraws(NamedTuple):
    """The importance samples (tries) whose weight is not 0.

    Attributes
    ----------
    tries : int
        Number of all tries; fewer than requested if the run ended early (`trouble`).
    numbers : array
        Numbers of the tries whose weight is not 0, counted from the first try.
    weights : array
    states : array of shape (kept tries, wanted variables)
        State numbers.
    trouble : KeyboardInterrupt, Lost, TimeUp or None
        Reason why the run ended early.
    """

    tries: int
    numbers: NDArray[np.int64]
    weights: NDArray[np.float64]
    states: NDArray[np.int16]
    trouble: Trouble | None


def draw_weighted(
    runner: Tries, numbers: range, sequence: np.random.SeedSequence, running: Running = PLAIN,
    call_seed: np.random.SeedSequence | None = None,
) -> WeightedDraws:  # fmt: skip
    """Draw the importance samples (tries) with these numbers, and return those whose weight is not 0.

    A checkpoint stores `call_seed`, with which the call can be repeated.
    """
    rows = np.arange(_WORDS + len(runner.asked))
    job = Job(runner, _ONE_STEP, master_key(sequence), rows, np.array([1]), 0)
    outcome = run_batches(job, numbers, call_seed or sequence, running, "drawing weights")
    words = outcome.states(job)[0]
    logs = np.ascontiguousarray(words[:_WORDS].T).view(np.float64)[:, 0]
    kept = np.flatnonzero(logs > -math.inf)
    return WeightedDraws(outcome.chains, kept, np.exp(logs[kept]), words[_WORDS:, kept].T, outcome.trouble)
