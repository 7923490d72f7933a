"""Where the patches of an image are, which pixels belong to which, and where the target rectangle lies."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dobrushin._shared import validate as check
from dobrushin._shared.call import public
from dobrushin.errors import ArgumentError

PATCH, STEP = 20, 10
TARGET = (8, 12)


@dataclass(frozen=True)
class PatchGrid:
    """Square patches on a regular grid, as many as fit.

    Parameters
    ----------
    height, width : int
        Of the image, in pixels.
    patch, step : int
        Side of a patch, and the distance from one to the next.

    Examples
    --------
    >>> from dobrushin import vision
    >>> grid = vision.PatchGrid(213, 320)
    >>> grid.shape, grid.size
    ((20, 31), 620)
    >>> grid.rectangle((8, 12))
    (slice(6, 14, None), slice(9, 21, None))
    """

    height: int
    width: int
    patch: int = PATCH
    step: int = STEP

    @public(name="vision.PatchGrid")
    def __post_init__(self) -> None:
        for name in ("height", "width", "patch", "step"):
            check.count(getattr(self, name), name)
        if min(self.height, self.width) < self.patch:
            least = f"at least {self.patch} x {self.patch} pixels, the size of a patch"
            raise ArgumentError("image", least, got=f"{self.height} x {self.width}")

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of patches."""
        rows, cols = ((side - self.patch) // self.step + 1 for side in (self.height, self.width))
        return rows, cols

    @property
    def size(self) -> int:
        """Number of patches."""
        return self.shape[0] * self.shape[1]

    @cached_property
    def centers(self) -> NDArray[np.float64]:
        """Row and column of each patch's centre in pixels, shape (patches, 2)."""
        first = (self.patch - 1) / 2
        rows, cols = (first + self.step * np.arange(count) for count in self.shape)
        return np.stack([axis.ravel() for axis in np.meshgrid(rows, cols, indexing="ij")], axis=1)

    @cached_property
    def nearest(self) -> NDArray[np.int64]:
        """For each pixel the number of the patch whose centre is nearest, shape (height, width)."""
        first = (self.patch - 1) / 2
        rows, cols = (
            np.clip(np.round((np.arange(side) - first) / self.step).astype(np.int64), 0, count - 1)
            for side, count in zip((self.height, self.width), self.shape, strict=True)
        )
        return rows[:, None] * self.shape[1] + cols[None, :]

    @public(name="vision.PatchGrid.rectangle")
    def rectangle(self, target: tuple[int, int] = TARGET) -> tuple[slice, slice]:
        """The central rectangle of patches; turned with the image where that is upright.

        Parameters
        ----------
        target : (int, int)
            Rows and columns of patches on an image that is wider than high.

        Returns
        -------
        rows, cols : slices
        """
        sides = tuple(check.count(side, "target") for side in target)
        rows, cols = self.shape
        high, wide = sides if rows <= cols else sides[::-1]
        if high > rows or wide > cols:
            least = f"large enough for the target rectangle of {high} x {wide} patches: at least "
            pixels = [self.patch + self.step * (side - 1) for side in (high, wide)]
            got = f"{self.height} x {self.width} pixels, which are {rows} x {cols} patches"
            raise ArgumentError("image", least + "{} x {} pixels".format(*pixels), got=got)
        top, left = (rows - high) // 2, (cols - wide) // 2
        return slice(top, top + high), slice(left, left + wide)

    def mask(self, target: tuple[int, int] = TARGET) -> NDArray[np.bool_]:
        """Which patches are in the rectangle, shape (rows, cols)."""
        inside = np.zeros(self.shape, dtype=bool)
        inside[self.rectangle(target)] = True
        return inside

    def to_pixels(self, values: NDArray[np.generic]) -> NDArray[np.generic]:
        """What each pixel gets from the patch nearest to it; `values` of shape (rows, cols, ...)."""
        return values.reshape(self.size, *values.shape[2:])[self.nearest]
