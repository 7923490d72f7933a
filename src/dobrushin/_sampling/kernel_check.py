"""A sampler that can be asked to prove itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np

from dobrushin._exact import enumeration
from dobrushin._models import FactorGraph, Ising, Model, PairwiseMRF, Potts, SpinMRF
from dobrushin._sampling.kernel import fitting_kernels
from dobrushin._sampling.sampler import sample
from dobrushin._scan import Scan
from dobrushin._shared import validate as check
from dobrushin._shared.call import public
from dobrushin._shared.options import KernelName
from dobrushin._shared.running import seed_sequence


@dataclass(frozen=True)
class SelfCheck:
    """One comparison of a kernel with exact answers.

    Attributes
    ----------
    family, kernel : str
    deviation : float
        Largest difference of a frequency from its exact value, in standard deviations.
    threshold : float
        What it should stay below.
    """

    family: str
    kernel: str
    deviation: float
    threshold: float

    @property
    def ok(self) -> bool:
        """Whether it did."""
        return self.deviation <= self.threshold


@public()
def self_check(chains: int = 200_000, seed: int = 0) -> list[SelfCheck]:
    """Compare every kernel with exact laws on small models, on this machine.

    The frequencies of all joint states after a short scan are compared with their exact probabilities; no mixing is
    needed, since the law after a scan is known exactly.

    Parameters
    ----------
    chains : int
    seed : int

    Returns
    -------
    list of SelfCheck

    Examples
    --------
    >>> import dobrushin as db
    >>> all(result.ok for result in db.self_check(chains=20_000))
    True
    """
    chains = check.count(chains, "chains")
    seed_sequence(seed)
    results = []
    for model in _small_models():
        scan = Scan([0, 1, 2, 1, 0, 2, 0])
        start = [int(model.states(i)[0]) for i in range(model.n_variables)]
        law = enumeration.law(model, scan, initial=np.array(start))
        for kernel in fitting_kernels(*model._region(scan.updates(3)), scan):
            run = sample(model, scan, chains=chains, seed=seed, initial=start, kernel=cast(KernelName, kernel.name))
            results.append(_compare(model, law, run.states, kernel.name))
    return results


def _compare(model: Model, law: np.ndarray, states: np.ndarray | None, kernel: str) -> SelfCheck:
    assert states is not None
    digits = (states.astype(np.int64) + 1) // 2 if model._form.spins else states.astype(np.int64)
    cells = np.ravel_multi_index(tuple(digits.T), law.shape)
    frequency = np.bincount(cells, minlength=law.size) / len(states)
    p = law.ravel()
    deviation = np.abs(frequency - p)
    spread = np.sqrt(p * (1 - p) / len(states))
    worst = np.where(
        spread > 0, deviation / np.where(spread > 0, spread, 1.0), np.where(deviation > 1e-12, np.inf, 0.0)
    )
    # Seven standard deviations: about one false alarm in 10^11 per cell.
    return SelfCheck(type(model).__name__, kernel, float(worst.max()), 7.0)


def _small_models() -> list[Model]:
    rng = np.random.default_rng(12345)
    pair = [(0, 1), (1, 2), (0, 2)]
    return [
        Ising({edge: float(w) for edge, w in zip(pair, rng.normal(size=3), strict=True)}, fields=rng.normal(size=3)),
        SpinMRF({(0, 1, 2): 0.7, (0, 1): -0.4}, fields=rng.normal(size=3)),
        Potts({edge: float(w) for edge, w in zip(pair, rng.normal(size=3), strict=True)}, 3, rng.normal(size=(3, 3))),
        PairwiseMRF(rng.normal(size=(3, 4)), pair, rng.normal(size=(3, 4, 4))),
        FactorGraph([2, 3, 2], [((0, 1, 2), rng.normal(size=(2, 3, 2))), ((1,), rng.normal(size=3))]),
        PairwiseMRF([[0.0, 0.3]] * 3, pair, np.array([[0.0, 0.0], [0.0, -np.inf]])),
    ]
