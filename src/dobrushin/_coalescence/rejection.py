"""Exact draws by rejection, from mini-buckets or a Gaussian envelope. [trusted]

With the threshold 1 every try (importance sample) has weight 0 or 1 (theory page, "Weights of at most 1"). The states
of the tries with weight 1 are independent draws from the model, whatever their number is.
"""

from __future__ import annotations

import math
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from dobrushin._exact.envelope import Envelope, has_envelope
from dobrushin._exact.minibuckets import MiniBuckets, TooDense, lay_out
from dobrushin._models import Model
from dobrushin._sampling.weighted import Proposal, Tries, draw_weighted
from dobrushin._shared.call import Deadline
from dobrushin._shared.executors import cores
from dobrushin._shared.memory import require_memory
from dobrushin._shared.running import MOST_SECONDS, Running
from dobrushin.errors import BudgetError, CertificateError

# Sizes of mini-buckets in bits: the larger if a draw with the smaller is expected to take more than this number of
# seconds on one core. (Draws must not depend on how many are asked for, nor on the machine.)
_FEW_BITS, _MANY_BITS, _SOON_SECONDS = 12.0, 16.0, 1e-3
# Tries of a pilot, and a seed that no draws of a user have.
_PILOT, _PILOT_SEED = 500, np.random.SeedSequence(0, spawn_key=(1951, 2015))
# Most tries that are made at a time.
_MAX_TRIES = 2**20
_REMEDY = "Fix some variables by evidence (Model.condition), or draw without this guarantee (sample)."


def draw_by_rejection(
    model: Model, positions: NDArray[np.int64], sequence: np.random.SeedSequence, states: NDArray[np.int64],
    deadline: Deadline,
) -> tuple[int, float]:  # fmt: skip
    """Fill `states` with exact draws; return the number of importance samples, and a bound on the error of a draw."""
    draws = len(states)
    made, seconds = _propose(model, positions)
    seconds *= draws / cores()
    if not seconds <= MOST_SECONDS and deadline.limit == math.inf:
        raise BudgetError("Drawing", seconds, MOST_SECONDS, "seconds", "Ask for fewer draws, or set time_limit=.")
    runner = Tries.make(made, positions, 0.0)
    found = tries = 0
    while found < draws:
        missing = (draws - found) * max(1.0, tries / (found + 1)) + 1.0
        numbers = range(tries, tries + min(_MAX_TRIES, max(draws, int(1.2 * missing))))
        block = draw_weighted(runner, numbers, sequence, Running(deadline=deadline))
        if block.trouble is not None:
            deadline.check()
            raise block.trouble
        kept = block.states[: draws - found]
        states[found : found + len(kept)] = kept
        found, tries = found + len(kept), tries + block.tries
    # The logarithm of a probability is off by at most twice both of these.
    distortion = 2.0 * (made.distortion + model._error)
    return tries, float(runner.error[0]) * tries + math.expm1(min(distortion, 1.0))


def _propose(model: Model, positions: NDArray[np.int64]) -> tuple[Proposal, float]:
    """Return a proposal distribution and the seconds that a draw is expected to take on one core."""
    form = model._form
    best: tuple[Proposal, float] | None = None
    if has_envelope(form):
        with np.errstate(all="ignore"), suppress(np.linalg.LinAlgError):  # of couplings that are huge
            envelope = Envelope(form.couplings.toarray(), form.fields)
            envelope.begin()
            envelope.improve()
            best = envelope, _expect(envelope, positions)
            if best[1] <= _SOON_SECONDS:
                return best
    for bits in (_FEW_BITS, _MANY_BITS):
        try:
            layout = lay_out(form.tables(), bits)
        except TooDense:
            break
        require_memory("Mini-buckets", 4.0 * layout.bytes, "Draw with another method=.")
        buckets = MiniBuckets(form.tables(), layout)
        buckets.begin()
        buckets.improve()
        seconds = _expect(buckets, positions)
        if best is None or seconds < best[1]:
            best = buckets, seconds
        if seconds <= _SOON_SECONDS:
            break
    if best is None or best[1] == math.inf:
        reason = f"none of {_PILOT} tries of a pilot had a weight that is large enough."
        raise CertificateError({"weights": reason}, _REMEDY)
    return best


def _expect(made: Proposal, positions: NDArray[np.int64]) -> float:
    """Return the seconds of a draw on one core, by a pilot; infinite where all its weights are 0."""
    runner = Tries.make(made, positions, -math.inf)
    weights = draw_weighted(runner, range(_PILOT), _PILOT_SEED).weights
    mean = float(weights.sum()) / _PILOT
    return runner.try_seconds / mean if mean > 0.0 else math.inf
