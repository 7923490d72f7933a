"""How often the intervals of `estimate` hold, how wide they are, and that intervals made too narrow are caught."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

import dobrushin as db
from dobrushin._shared.intervals import clopper_pearson
from measure import Row

# The random models are those of the tests.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from models import FAMILIES, all_states, random_model

_MODELS = 20
_CONFIDENCE = 0.8
# A mean is estimated more closely, so that the data and not the first block of chains end the run.
_COUNTED_TOLERANCE, _MEAN_TOLERANCE = 0.1, 0.02
# A right method has more misses than it is allowed with this probability.
_CHANCE = 1e-6
# The slow chain is run as often as this, with so many chains.
_SLOW_RUNS, _SLOW_CHAINS = 50, 64 * 1000


@dataclass(frozen=True)
class Tally:
    """What many runs on one model came to."""

    misses: int
    narrow_misses: int  # of intervals that are made too narrow on purpose
    widest: float  # half of the largest width, over the tolerance
    width: float  # mean of the widths, each over the narrowest possible


def coverage(runs: int) -> Iterator[Row]:
    """Marginals, a mean, and a chain that is too slow for its scan."""
    models = list(_weak_models())
    # Half of an empirical Bernstein interval would still hold about as often as a confidence of 0.8 asks for.
    yield from _judge("marginals and a pair", [_marginals(model, runs, shrink=0.5) for model in models], runs, "half")
    yield from _judge("a mean (energy)", [_energy(model, runs, shrink=0.25) for model in models], runs, "a quarter of")
    yield from _slow_chain()


def _weak_models() -> Iterator[db.Model]:
    """Random models of all families inside Dobrushin's condition."""
    rng = np.random.default_rng(7)
    found = 0
    while found < _MODELS:
        model = random_model(rng, FAMILIES[found % len(FAMILIES)], n=4, strength=0.3)
        if db.influence(model).spectral_radius() < 0.9:
            found += 1
            yield model


def _marginals(model: db.Model, runs: int, shrink: float) -> Tally:
    states, probability = all_states(model), db.exact.distribution(model).ravel()
    singles = [probability[states[:, i] == a].sum() for i in range(model.n_variables) for a in model.states(i)]
    pair = (states[:, :2] == states[:, None, :2]).all(axis=2) @ probability
    _, firsts = np.unique(states[:, :2], axis=0, return_index=True)
    truth = np.array([*singles, *pair[firsts]])
    targets = [*model.labels, db.Joint(*model.labels[:2])]
    return _tally(model, targets, _COUNTED_TOLERANCE, truth, truth * (1 - truth), runs, shrink)


def _energy(model: db.Model, runs: int, shrink: float) -> Tally:
    probability, energy = db.exact.distribution(model).ravel(), -model.log_density(all_states(model))
    mean = probability @ energy
    variance = probability @ (energy - mean) ** 2
    target = db.Statistic.energy(model)
    return _tally(model, target, _MEAN_TOLERANCE, np.array([mean]), np.array([variance]), runs, shrink)


def _tally(
    model: db.Model,
    targets: Any,
    tolerance: float,
    truth: NDArray[np.float64],
    variance: NDArray[np.float64],
    runs: int,
    shrink: float,
) -> Tally:
    misses = narrow = 0
    widest, widths = 0.0, []
    for seed in range(runs):
        found = db.estimate(model, targets, tolerance=tolerance, confidence=_CONFIDENCE, method="dobrushin", seed=seed)
        distance = np.abs(truth - (found.lower + found.upper) / 2)
        misses += bool((distance > found.half_width).any())
        narrow += bool((distance > shrink * found.half_width).any())
        widest = max(widest, float(found.half_width.max()) / tolerance)
        # The normal interval of one who knows the variance, at the same level, for draws without bias.
        level = (1 - _CONFIDENCE) / found.plan.intervals / 2
        least = -float(special.ndtri(level)) * np.sqrt(variance / found.samples.chains)
        widths.append(float((found.half_width / least).mean()))
    return Tally(misses, narrow, widest, float(np.mean(widths)))


def _judge(what: str, tallies: Sequence[Tally], runs: int, narrowed: str) -> Iterator[Row]:
    size = f"{len(tallies)} models x {runs} runs"
    misses = np.array([tally.misses for tally in tallies])
    limit = int(stats.binom.ppf(1 - _CHANCE, runs, 1 - _CONFIDENCE))
    measured = f"{misses.max()} of {runs} missed in the worst model, {misses.mean() / runs:.1%} of all runs"
    name = f"Coverage at {_CONFIDENCE}, {what}: {size}"
    yield Row(name, measured, f"{limit} or fewer in every model", bool((misses <= limit).all()))

    total = sum(tally.narrow_misses for tally in tallies)
    limit = int(stats.binom.ppf(1 - _CHANCE, runs * len(tallies), 1 - _CONFIDENCE))
    measured = f"{total} missed, {total / runs / len(tallies):.1%} of all runs"
    yield Row(f"  control: {narrowed} the width", measured, f"must fail: more than {limit}", total > limit)

    widest, widths = max(tally.widest for tally in tallies), [tally.width for tally in tallies]
    measured = f"{widest:.4f}; the mean width is {np.mean(widths):.2f}x the narrowest possible"
    measured += f" ({min(widths):.2f}x to {max(widths):.2f}x by model)"
    yield Row("  largest half-width / tolerance", measured, "1 or less in every run", widest <= 1)


def _slow_chain() -> Iterator[Row]:
    """A chain of spins, driven from one end; two steps at the other end leave a bias."""
    model = db.Ising({(i, i + 1): 0.45 for i in range(5)}, fields=[3.0, 0, 0, 0, 0, 0])
    truth = db.exact.marginals(model)[5][1]
    without, included = 0, 0
    for seed in range(_SLOW_RUNS):
        run = db.sample(model, db.Scan([4, 5]), chains=_SLOW_CHAINS, seed=seed, record=[5])
        low, high = clopper_pearson(int((run.states == 1).sum()), run.chains, 1 - _CONFIDENCE)
        bias = run.variation(model, targets=[5]).value
        without += not low <= truth <= high
        included += not low - bias <= truth <= high + bias
    limit = int(stats.binom.ppf(1 - _CHANCE, _SLOW_RUNS, 1 - _CONFIDENCE))
    name = f"Slow chain, {_SLOW_RUNS} runs of 2 steps"
    yield Row(f"{name}: bias included", f"{included} missed", f"{limit} or fewer", included <= limit)
    yield Row("  control: bias dropped", f"{without} missed", f"must fail: more than {limit}", without > limit)
