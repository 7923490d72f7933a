"""Labels by majority over the draws of a posterior, and what is known about them."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._models import Potts
from dobrushin._optimize import ScanResult, shortest_scan
from dobrushin._sampling import Record, sample
from dobrushin._scan import Scan
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import frozen
from dobrushin._shared.call import public
from dobrushin._shared.running import kept_seed, seed_sequence
from dobrushin._variation import Variation
from dobrushin.vision.field import Region
from dobrushin.vision.images import hamming_error
from dobrushin.vision.patches import PatchGrid

CHAINS = 200
SCANS = ("shortest", "systematic", "certified")
ScanChoice = str | Scan | ScanResult | Callable[[Region], Any]


@dataclass(frozen=True, eq=False, repr=False)
class Posed:
    """What is known of an image before anything is drawn: see `Segmentation`."""

    name: str
    classes: tuple[str, ...]
    grid: PatchGrid
    region: Region
    first: NDArray[np.int64]
    posterior: Potts
    seconds: dict[str, float]


@dataclass(frozen=True, eq=False, repr=False)
class Segmentation(Posed):
    """The labels of an image, and what is known about them.

    Attributes
    ----------
    name : str
    classes : tuple of str
    grid : PatchGrid
    region : Region
        The target rectangle.
    labels : array, shape (rows, cols)
        The class of each patch, as a position in `classes`: the one that most draws have (of equals the first).
    probabilities : array, shape (rows, cols, classes)
        Share of the draws that have each class. Patches that the scan does not update keep their first label.
    first : array, shape (rows, cols)
        The start of all chains: the most likely class of each patch by PLSA alone.
    posterior : Potts
        What was sampled; for `dobrushin.estimate`, `coalescence` and the rest.
    scan : Scan
    guarantee : Variation or None
        Bound on the total variation of the rectangle's labels after the scan: for all images of this shape, or with
        scan="certified" for this one. None for a scan that was given without one.
    chains : int
    seed : int or SeedSequence
    seconds : dict from str to float
        Time spent: "words", "proportions", "scan", "draws".

    Examples
    --------
    >>> import numpy as np
    >>> from dobrushin import vision
    >>> rng = np.random.default_rng(1)
    >>> dark, light = (
    ...     vision.Image(name, rng.integers(low, low + 60, (120, 160, 3)).astype(np.uint8), keywords=(name,))
    ...     for name, low in (("night", 0), ("day", 190))
    ... )
    >>> model = vision.Segmenter(["night", "day"], words=(20, 10, 4), target=(4, 6)).fit([dark, light])
    >>> found = model.segment(light, scan="systematic", seed=1)
    >>> len(found.scan), found.labels.shape, found.pixels.shape
    (165, (11, 15), (120, 160))
    >>> found.error(np.ones((120, 160), dtype=int)) < 0.5
    True
    >>> bool(found.again(scan="certified", tolerance=0.05, seed=1).guarantee.target_bounds.max() <= 0.05)
    True
    """

    labels: NDArray[np.int64]
    probabilities: NDArray[np.float64]
    scan: Scan
    guarantee: Variation | None
    chains: int
    seed: int | np.random.SeedSequence

    @property
    def targets(self) -> NDArray[np.int64]:
        """The variables of the target rectangle."""
        return self.region.targets

    @property
    def pixels(self) -> NDArray[np.int64]:
        """The class of each pixel: that of the patch whose centre is nearest."""
        return self.grid.to_pixels(self.labels).astype(np.int64)

    @property
    def inside(self) -> NDArray[np.bool_]:
        """Which pixels belong to the target rectangle."""
        mask = np.zeros(self.region.shape, dtype=bool)
        mask[slice(*self.region.rows), slice(*self.region.cols)] = True
        return self.grid.to_pixels(mask).astype(bool)

    def error(self, truth: Any, everywhere: bool = False) -> float:
        """Share of wrong pixels in the target rectangle, or everywhere; void pixels do not count.

        Parameters
        ----------
        truth : array, shape (height, width)
            Classes, -1 for void: the `labels` of an `Image`.
        everywhere : bool

        Returns
        -------
        float
        """
        return hamming_error(self.pixels, truth, None if everywhere else self.inside)

    @public(name="vision.Segmentation.again")
    def again(
        self,
        *,
        scan: ScanChoice = "shortest",
        tolerance: float = 0.05,
        chains: int = CHAINS,
        seed: int | np.random.SeedSequence | None = None,
        executor: Executor | None = None,
    ) -> Segmentation:
        """Draw the same image again, with another scan or seed; arguments as for `Segmenter.segment`."""
        return draw_labels(self, Drawing(scan, tolerance, chains, seed, executor))

    def __repr__(self) -> str:
        values, counts = np.unique(self.labels.ravel()[self.targets], return_counts=True)
        most = np.argsort(-counts, kind="stable")[:3]
        shares = ", ".join(f"{self.classes[values[k]]} {counts[k] / counts.sum():.0%}" for k in most)
        high, wide = self.region.rows[1] - self.region.rows[0], self.region.cols[1] - self.region.cols[0]
        bound = "" if self.guarantee is None else f", guarantee {self.guarantee.value:.3g} of {len(self.targets)}"
        return (
            f"Segmentation({self.name!r}, {high} x {wide} patches: {shares}; "
            f"{len(self.scan)} steps x {self.chains} chains{bound})"
        )


@dataclass(frozen=True)
class Drawing:
    """How the labels of an image are drawn; the arguments of `Segmenter.segment`."""

    scan: ScanChoice
    tolerance: float
    chains: int
    seed: int | np.random.SeedSequence | None
    executor: Executor | None


def draw_labels(posed: Posed, how: Drawing) -> Segmentation:
    """Labels for an image whose posterior is known."""
    chains = check.count(how.chains, "chains")
    sequence = seed_sequence(how.seed)
    clock = [time.perf_counter()]
    order, guarantee = _choose(how.scan, posed.region, posed.posterior, how.tolerance)
    order.check_fits(posed.grid.size)
    clock.append(time.perf_counter())
    probabilities = _shares(posed.posterior, order, posed.first, chains, sequence, how.executor)
    clock.append(time.perf_counter())
    spent = dict(zip(("scan", "draws"), np.diff(clock).tolist(), strict=True))
    return Segmentation(
        posed.name, posed.classes, posed.grid, posed.region, posed.first, posed.posterior, {**posed.seconds, **spent},
        frozen(probabilities.argmax(axis=2)), frozen(probabilities), order, guarantee, chains, kept_seed(sequence),
    )  # fmt: skip


def _choose(scan: Any, region: Region, posterior: Potts, tolerance: float) -> tuple[Scan, Variation | None]:
    if callable(scan):
        scan = scan(region)
    if check.is_text(scan, "certified"):
        tolerance = check.positive(tolerance, "tolerance")
        scan = shortest_scan(posterior, targets=region.targets, tolerance=tolerance, criterion="max", polish=0)
    elif check.is_text(scan, *SCANS):
        scan = region.systematic() if scan == "systematic" else region.shortest()
    requirement = f"one of {', '.join(map(repr, SCANS))}, a Scan, or a function that returns one"
    check.instance(scan, Scan | ScanResult, "scan", requirement)
    return (scan.scan, scan.variation) if isinstance(scan, ScanResult) else (scan, None)


def _shares(
    posterior: Potts,
    scan: Scan,
    first: NDArray[np.int64],
    chains: int,
    seed: np.random.SeedSequence,
    executor: Executor | None = None,
) -> NDArray[np.float64]:
    """Shares of the classes over chains that start at `first`, shape (rows, cols, classes)."""
    states = int(posterior.cardinalities[0])
    shares = np.eye(states)[first.ravel()]
    updated = scan.updates(posterior.n_variables)
    run = sample(
        posterior, scan, chains=chains, seed=seed, initial=first.ravel(), executor=executor,
        record=Record(variables=updated.tolist(), states=False, counts=True),
    )  # fmt: skip
    shares[updated] = run.marginals()
    return shares.reshape(*first.shape, states)
