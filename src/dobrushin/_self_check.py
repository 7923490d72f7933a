"""A self-check of the sampler: every kernel is compared with exact laws, on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np

from dobrushin._exact import enumeration
from dobrushin._models import FactorGraph, Ising, Model, PairwiseMRF, Potts, SpinMRF
from dobrushin._sampling import sample
from dobrushin._sampling.kernel import fitting_kernels
from dobrushin._scan import Scan
from dobrushin._shared import validate as check
from dobrushin._shared.call import public
from dobrushin._shared.running import seed_sequence
from dobrushin.typing import KernelName, Seed

# Largest deviation in standard deviations: about one false alarm in 10^11 frequencies.
_THRESHOLD = 7.0


@dataclass(frozen=True)
class SelfCheck:
    """The comparison of one kernel with the exact law of one model.

    Attributes
    ----------
    family, kernel : str
        Names of the model's class and of the kernel.
    deviation : float
        Largest difference between a frequency and its exact value, in standard deviations.
    threshold : float
        Deviation that a correct kernel exceeds in about one of 10^11 frequencies.
    """

    family: str
    kernel: str
    deviation: float
    threshold: float

    @property
    def ok(self) -> bool:
        """Return whether the deviation is within the threshold."""
        return self.deviation <= self.threshold


@public()
def self_check(chains: int = 200_000, seed: Seed = 0) -> list[SelfCheck]:
    """Compare every sampling kernel with exact laws of small models, on this machine.

    The frequencies of all joint states after a short scan are compared with their exact probabilities. The chains need
    not mix, since the law after the scan is known exactly.

    Parameters
    ----------
    chains : int
    seed : int, SeedSequence, Generator or None

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
    sequence = seed_sequence(seed)
    rng = np.random.default_rng(12345)
    pair = [(0, 1), (1, 2), (0, 2)]
    models: list[Model] = [
        Ising({edge: float(w) for edge, w in zip(pair, rng.normal(size=3), strict=True)}, fields=rng.normal(size=3)),
        SpinMRF({(0, 1, 2): 0.7, (0, 1): -0.4}, fields=rng.normal(size=3)),
        Potts({edge: float(w) for edge, w in zip(pair, rng.normal(size=3), strict=True)}, 3, rng.normal(size=(3, 3))),
        PairwiseMRF(rng.normal(size=(3, 4)), pair, rng.normal(size=(3, 4, 4))),
        FactorGraph([2, 3, 2], [((0, 1, 2), rng.normal(size=(2, 3, 2))), ((1,), rng.normal(size=3))]),
        PairwiseMRF([[0.0, 0.3]] * 3, pair, np.array([[0.0, 0.0], [0.0, -np.inf]])),
    ]
    scan = Scan([0, 1, 2, 1, 0, 2, 0])
    results = []
    for model in models:
        start = [int(model.states(i)[0]) for i in range(model.n_variables)]
        law = enumeration.law(model, scan, initial=np.array(start))
        p = law.ravel()
        spread = np.sqrt(p * (1 - p) / chains)
        for kernel in fitting_kernels(*model._region(scan._updates(3)), scan):
            name = cast(KernelName, kernel.name)
            states = sample(model, scan, chains=chains, seed=sequence, initial=start, kernel=name).states
            assert states is not None
            digits = (states.astype(np.int64) + 1) // 2 if model._spins else states.astype(np.int64)
            cells = np.ravel_multi_index(tuple(digits.T), law.shape)
            deviation = np.abs(np.bincount(cells, minlength=law.size) / chains - p)
            with np.errstate(divide="ignore", invalid="ignore"):
                worst = np.where(spread > 0, deviation / spread, np.where(deviation > 1e-12, np.inf, 0.0))
            results.append(SelfCheck(type(model).__name__, kernel.name, float(worst.max()), _THRESHOLD))
    return results
