"""The Markov field on the patches, and the scans for its target rectangle: one for each shape of grid."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._influence import Influence, influence
from dobrushin._models import Potts
from dobrushin._models.grids import grid_couplings
from dobrushin._models.potts import LabelPairs
from dobrushin._optimize import ScanResult, shortest_scan
from dobrushin._scan import Scan
from dobrushin._shared import validate as check
from dobrushin._shared.call import public
from dobrushin._variation import variation
from dobrushin.errors import ArgumentError, VacuousBoundWarning
from dobrushin.vision.patches import TARGET, PatchGrid

COUPLING = 0.48


@dataclass(frozen=True)
class Region:
    """A rectangle of patches on a grid of patches: what a scan is chosen for.

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
        What two neighbours of the same class add to the log-density.

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
        """The rectangle in the middle of a grid, turned with the image."""
        rows, cols = grid.rectangle(target)
        return cls(grid.shape, (rows.start, rows.stop), (cols.start, cols.stop), states, coupling)

    @property
    def targets(self) -> NDArray[np.int64]:
        """The variables of the rectangle."""
        rows, cols = np.arange(*self.rows), np.arange(*self.cols)
        return (rows[:, None] * self.shape[1] + cols[None, :]).ravel()

    def influence(self) -> Influence:
        """Theorem 4 of the paper, without any image: the bound that the paper chooses its scan with."""
        return _influence(self.shape, self.states, self.coupling)

    def systematic(self) -> ScanResult:
        """One sweep over all patches, row by row."""
        return _systematic(self)

    def shortest(self) -> ScanResult:
        """The shortest scan found with a guarantee for the rectangle no worse than that of one sweep."""
        return _shortest(self)


@lru_cache(maxsize=64)
def _influence(shape: tuple[int, int], states: int, coupling: float) -> Influence:
    return influence(Potts.grid(*shape, states=states, couplings=coupling), method="paper")


@lru_cache(maxsize=64)
def _systematic(region: Region) -> ScanResult:
    scan = Scan.systematic(region.shape[0] * region.shape[1], steps=region.shape[0] * region.shape[1])
    with warnings.catch_warnings():
        # The bound of one sweep is what others are compared with, whatever it says.
        warnings.simplefilter("ignore", VacuousBoundWarning)
        return ScanResult(scan, variation(region.influence(), scan, targets=region.targets))


@lru_cache(maxsize=64)
def _shortest(region: Region) -> ScanResult:
    return choose_scan(region, region.systematic().variation.value)


def choose_scan(region: Region, tolerance: float, polish: int = 1) -> ScanResult:
    """The shortest scan found whose guarantee for the rectangle is at most a tolerance; not remembered."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", VacuousBoundWarning)
        return shortest_scan(region.influence(), targets=region.targets, tolerance=tolerance, polish=polish)


@public(name="vision.field")
def field(unaries: Any, coupling: float = COUPLING) -> Potts:
    """The posterior of the Markov field aspect model.

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
        raise ArgumentError("unaries", "of shape (rows, cols, classes)", got=f"shape {array.shape}")
    # The constant of a patch changes nothing; without it no number is large.
    rows, cols, classes = array.shape
    matrix = grid_couplings(rows, cols, coupling, False)
    centred = array - array.max(axis=2, keepdims=True)
    return LabelPairs(matrix, classes, centred.reshape(-1, classes)).to_model(None)
