"""The Markov field on an image's patches, scans for its target rectangle, and labels by majority over draws."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

import dobrushin as db
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import frozen
from dobrushin._shared.call import public
from dobrushin._shared.running import kept_seed, seed_sequence
from dobrushin.typing import Seed
from dobrushin.vision.images import hamming_error
from dobrushin.vision.patches import TARGET, PatchGrid

COUPLING = 0.48


@dataclass(frozen=True)
class Region:
    """A rectangle on a grid of patches, for which scans are chosen.

    Images of the same shape have the same region, and share its scans.

    Attributes
    ----------
    shape : (int, int)
        Rows and columns of the grid.
    rows, cols : (int, int)
        First row of the rectangle and the one after its last, and the same for columns.
    states : int
        Number of classes.
    coupling : float
        Added to the log-density for two neighbours of the same class.

    Examples
    --------
    >>> from dobrushin import vision
    >>> region = vision.Region.center(vision.PatchGrid(213, 320), states=9)
    >>> sweep, short = region.systematic(), region.shortest()
    >>> len(sweep.scan), round(sweep.variation.value, 1)
    (620, 85.5)
    >>> len(short.scan), short.variation.value <= sweep.variation.value
    (109, True)
    """

    shape: tuple[int, int]
    rows: tuple[int, int]
    cols: tuple[int, int]
    states: int
    coupling: float = COUPLING

    @classmethod
    def center(
        cls, grid: PatchGrid, states: int, coupling: float = COUPLING, target: tuple[int, int] = TARGET
    ) -> Region:
        """Return the region in the middle of a grid, turned by 90 degrees if the image is higher than wide."""
        rows, cols = grid.rectangle(target)
        return cls(grid.shape, (rows.start, rows.stop), (cols.start, cols.stop), states, coupling)

    @property
    def targets(self) -> NDArray[np.int64]:
        """Variables (patches) of the rectangle."""
        rows, cols = np.arange(*self.rows), np.arange(*self.cols)
        return (rows[:, None] * self.shape[1] + cols[None, :]).ravel()

    @lru_cache(maxsize=64)  # noqa: B019  regions are few small values
    def influence(self) -> db.Influence:
        """Return the influence bound with which the paper chooses its scan: Theorem 4, the same for all images."""
        model = db.Potts.grid(*self.shape, states=self.states, couplings=self.coupling)
        return db.influence(model, method="paper")

    @lru_cache(maxsize=64)  # noqa: B019
    def systematic(self) -> db.ScanResult:
        """Return one sweep over all patches, row by row."""
        n = self.shape[0] * self.shape[1]
        scan = db.Scan.systematic(n, steps=n)
        with warnings.catch_warnings():
            # Other scans are compared with one sweep, even where its bound is vacuous.
            warnings.simplefilter("ignore", db.VacuousBoundWarning)
            return db.ScanResult(scan, db.variation(self.influence(), scan, targets=self.targets))

    @lru_cache(maxsize=64)  # noqa: B019
    def shortest(self) -> db.ScanResult:
        """Return the shortest scan found whose bound for the rectangle is no worse than that of one sweep."""
        tolerance = self.systematic().variation.value
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", db.VacuousBoundWarning)
            return db.shortest_scan(self.influence(), targets=self.targets, tolerance=tolerance)


@public(name="vision.field")
def field(unaries: ArrayLike, coupling: float = COUPLING) -> db.Potts:
    """Return the posterior of the Markov field aspect model, as a Potts model.

    Parameters
    ----------
    unaries : array of shape (rows, cols, classes)
        log theta_a + log beta_a(words of the patch), up to a constant for each patch.
    coupling : float

    Returns
    -------
    Potts

    Notes
    -----
    pi(x) ∝ exp( sum over neighbours σ 1{x_i = x_j} + sum_i log(theta_{x_i} beta_{x_i, y_i}) ) (paper, Section 5.5).

    Examples
    --------
    >>> import numpy as np
    >>> from dobrushin import vision
    >>> vision.field(np.zeros((20, 31, 9)))
    Potts(n_variables=620, states=9, edges=1189)
    """
    array = check.real_array(unaries, "unaries")
    if array.ndim != 3:
        raise db.ArgumentError("unaries", "of shape (rows, cols, classes)", got=f"shape {array.shape}")
    # The constant of a patch changes nothing; without it no number is large.
    rows, cols, classes = array.shape
    centred = array - array.max(axis=2, keepdims=True)
    return cast(db.Potts, db.Potts.grid(rows, cols, classes, couplings=coupling, unaries=centred))


CHAINS = 200
SCANS = ("shortest", "systematic", "certified")
ScanChoice: TypeAlias = str | db.Scan | db.ScanResult | Callable[[Region], Any]


@dataclass(frozen=True, eq=False, repr=False)
class Posed:
    """An image with its posterior, before labels are drawn: see `Segmentation`."""

    name: str
    classes: tuple[str, ...]
    grid: PatchGrid
    region: Region
    first: NDArray[np.int64]
    posterior: db.Potts
    seconds: dict[str, float]


@dataclass(frozen=True, eq=False, repr=False)
class Segmentation(Posed):
    """The labels of an image, and how they were drawn.

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
        The model that was sampled, for `dobrushin.estimate`, `coalescence` and the rest.
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
    scan: db.Scan
    guarantee: db.Variation | None
    chains: int
    seed: int | np.random.SeedSequence

    @property
    def targets(self) -> NDArray[np.int64]:
        """Variables of the target rectangle."""
        return self.region.targets

    @property
    def pixels(self) -> NDArray[np.int64]:
        """Class of each pixel: that of the patch with the nearest centre."""
        return self.grid.to_pixels(self.labels).astype(np.int64)

    @property
    def inside(self) -> NDArray[np.bool_]:
        """For each pixel, whether it is in the target rectangle."""
        mask = np.zeros(self.region.shape, dtype=bool)
        mask[slice(*self.region.rows), slice(*self.region.cols)] = True
        return self.grid.to_pixels(mask).astype(bool)

    def error(self, truth: ArrayLike | None, everywhere: bool = False) -> float:
        """Return the share of wrong pixels in the target rectangle, or in the whole image; void pixels do not count.

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
        seed: Seed = None,
        executor: Executor | None = None,
    ) -> Segmentation:
        """Label the same image again, with another scan or seed; arguments as for `Segmenter.segment`."""
        return draw_labels(self, scan=scan, tolerance=tolerance, chains=chains, seed=seed, executor=executor)

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


def draw_labels(
    posed: Posed, *, scan: Any, tolerance: float, chains: int, seed: Any, executor: Executor | None
) -> Segmentation:
    """Draw labels of an image whose posterior is known; arguments as for `Segmenter.segment`."""
    chains = check.count(chains, "chains")
    sequence = seed_sequence(seed)
    clock = [time.perf_counter()]
    order, guarantee = _choose(scan, posed, tolerance)
    clock.append(time.perf_counter())
    # Patches that the scan does not update keep their first label.
    start, states = posed.first.ravel(), len(posed.classes)
    shares = np.eye(states)[start]
    updated = np.flatnonzero(order.counts())
    record = db.Record(variables=updated.tolist(), states=False, counts=True)
    run = db.sample(
        posed.posterior,
        order,
        chains=chains,
        seed=sequence,
        initial=start,
        run=db.RunOptions(executor=executor),
        record=record,
    )
    shares[updated] = run.marginals()
    probabilities = shares.reshape(*posed.first.shape, states)
    clock.append(time.perf_counter())
    spent = dict(zip(("scan", "draws"), np.diff(clock).tolist(), strict=True))
    return Segmentation(
        posed.name, posed.classes, posed.grid, posed.region, posed.first, posed.posterior, {**posed.seconds, **spent},
        frozen(probabilities.argmax(axis=2)), frozen(probabilities), order, guarantee, chains, kept_seed(sequence),
    )  # fmt: skip


def _choose(scan: Any, posed: Posed, tolerance: float) -> tuple[db.Scan, db.Variation | None]:
    """Return the scan that `scan` describes, and its bound if there is one."""
    region = posed.region
    if callable(scan):
        scan = scan(region)
    if check.is_text(scan, "certified"):
        tolerance = check.positive(tolerance, "tolerance")
        scan = db.shortest_scan(posed.posterior, targets=region.targets, tolerance=tolerance, criterion="max", polish=0)
    elif check.is_text(scan, *SCANS):
        scan = region.systematic() if scan == "systematic" else region.shortest()
    requirement = f"one of {', '.join(map(repr, SCANS))}, a Scan, or a function that returns one"
    check.instance(scan, db.Scan | db.ScanResult, "scan", requirement)
    return (scan.scan, scan.variation) if isinstance(scan, db.ScanResult) else (scan, None)
