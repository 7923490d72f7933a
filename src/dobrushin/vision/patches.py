"""Patches of an image: where they are, and three words that describe each: of texture, colour and position.

After J. Verbeek and B. Triggs, *Region classification with Markov field aspect models*, CVPR 2007.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import gcd
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dobrushin as db
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import frozen
from dobrushin._shared.call import public
from dobrushin._shared.environment import require
from dobrushin.vision.images import Image

PATCH, STEP = 20, 10
TARGET = (8, 12)


@dataclass(frozen=True)
class PatchGrid:
    """A regular grid of square patches, as many as fit on an image.

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
            raise db.ArgumentError("image", least, got=f"{self.height} x {self.width}")

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
        """For each pixel, the number of the patch with the nearest centre; shape (height, width)."""
        first = (self.patch - 1) / 2
        rows, cols = (
            np.clip(np.round((np.arange(side) - first) / self.step).astype(np.int64), 0, count - 1)
            for side, count in zip((self.height, self.width), self.shape, strict=True)
        )
        return rows[:, None] * self.shape[1] + cols[None, :]

    @public(name="vision.PatchGrid.rectangle")
    def rectangle(self, target: tuple[int, int] = TARGET) -> tuple[slice, slice]:
        """Return the central rectangle of patches, turned by 90 degrees if the image is higher than wide.

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
            raise db.ArgumentError("image", least + "{} x {} pixels".format(*pixels), got=got)
        top, left = (rows - high) // 2, (cols - wide) // 2
        return slice(top, top + high), slice(left, left + wide)

    def mask(self, target: tuple[int, int] = TARGET) -> NDArray[np.bool_]:
        """Return which patches are in the rectangle, shape (rows, cols)."""
        inside = np.zeros(self.shape, dtype=bool)
        inside[self.rectangle(target)] = True
        return inside

    def to_pixels(self, values: NDArray[np.generic]) -> NDArray[np.generic]:
        """Give each pixel the value of the patch nearest to it; `values` of shape (rows, cols, ...)."""
        return values.reshape(self.size, *values.shape[2:])[self.nearest]


HUES = 36
# Saturation, summed over a patch of 400 pixels, below which a patch counts as grey: of 255 a pixel.
_GREY = 10.0
# The side of OpenCV's descriptor is 6 times the size of a key point.
_SIDE = 6.0


@dataclass(frozen=True, eq=False, repr=False)
class Described:
    """Measurements on the patches of an image, before any training.

    Attributes
    ----------
    name : str
    grid : PatchGrid
    texture : array of uint8, shape (patches, 128)
        SIFT descriptors.
    color : array of float32, shape (patches, 36)
        Histograms of hue.
    keywords : tuple of str or None
    labels : array or None
        The label map of the image.

    Examples
    --------
    >>> import numpy as np
    >>> from dobrushin import vision
    >>> found = vision.describe(vision.Image("grey", np.full((40, 60, 3), 128, dtype=np.uint8)))
    >>> found.grid.shape, found.texture.shape, found.color.shape
    ((3, 5), (15, 128), (15, 36))
    """

    name: str
    grid: PatchGrid
    texture: NDArray[np.uint8]
    color: NDArray[np.float32]
    keywords: tuple[str, ...] | None
    labels: NDArray[np.int16] | None

    def __repr__(self) -> str:
        rows, cols = self.grid.shape
        return f"Described({self.name!r}, {rows} x {cols} patches)"


def describe(image: Image, patch: int = PATCH, step: int = STEP) -> Described:
    """Measure the texture and colour of each patch of an image.

    Parameters
    ----------
    image : Image
    patch, step : int
        As for `PatchGrid`.

    Returns
    -------
    Described

    Notes
    -----
    Texture: SIFT, upright, on a window of the patch's size. Colour: the robust hue of van de Weijer and Schmid (2006),
    a histogram of 36 hues weighted by saturation, and smoothed; divided by its sum plus a constant, so that patches
    that are almost grey have short histograms instead of noise.

    Examples
    --------
    >>> import numpy as np
    >>> from dobrushin import vision
    >>> vision.describe(vision.Image("grey", np.full((213, 320, 3), 128, dtype=np.uint8)))
    Described('grey', 20 x 31 patches)
    """
    height, width = image.pixels.shape[:2]
    grid = PatchGrid(height, width, patch, step)
    return Described(image.name, grid, frozen(_textures(image, grid)), frozen(_colors(image, grid)), image.keywords,
                     image.labels)  # fmt: skip


def _textures(image: Image, grid: PatchGrid) -> NDArray[np.uint8]:
    cv2 = require("cv2", "vision")
    gray = cv2.cvtColor(image.pixels, cv2.COLOR_RGB2GRAY)
    size = grid.patch / _SIDE
    points = [cv2.KeyPoint(float(x), float(y), size, 0.0, 0.0, 0) for y, x in grid.centers]
    _, features = cv2.SIFT_create().compute(gray, points)
    # The numbers are whole and below 256 already.
    return np.clip(features, 0, 255).astype(np.uint8)


def _colors(image: Image, grid: PatchGrid) -> NDArray[np.float32]:
    red, green, blue = (image.pixels[:, :, k].astype(np.float32) for k in range(3))
    first, second = (red - green) / np.sqrt(2), (red + green - 2 * blue) / np.sqrt(6)
    saturation = np.hypot(first, second)
    place = (np.arctan2(first, second) / (2 * np.pi) % 1.0) * HUES
    low = place.astype(np.int64) % HUES
    share = place - np.floor(place)
    # Patches are made of whole tiles. A pixel gives to the two hues next to its own.
    side = gcd(grid.patch, grid.step)
    high, wide = grid.height // side, grid.width // side
    inside = (slice(high * side), slice(wide * side))
    tile = (np.arange(high * side)[:, None] // side) * wide + np.arange(wide * side)[None, :] // side
    tiles = np.zeros(high * wide * HUES)
    for hue, weight in ((low, 1 - share), ((low + 1) % HUES, share)):
        place_of = (tile * HUES + hue[inside]).ravel()
        tiles += np.bincount(place_of, (saturation * weight)[inside].ravel(), minlength=len(tiles))
    windows = np.lib.stride_tricks.sliding_window_view(
        tiles.reshape(high, wide, HUES), (grid.patch // side,) * 2, (0, 1)
    )
    stride = grid.step // side
    histogram = windows[::stride, ::stride].sum(axis=(3, 4)).reshape(grid.size, HUES)
    scaled: NDArray[np.float64] = histogram / (histogram.sum(axis=1, keepdims=True) + _GREY * grid.patch**2)
    return np.sqrt(scaled).astype(np.float32)


class Vocabulary:
    """Words for textures and colours, found by k-means, and for positions, as cells of a regular grid.

    Parameters
    ----------
    texture, color : int
        Number of words; fewer where there are not as many different patches.
    cells : int
        Places are rounded to a grid with this number of cells a side.
    seed : int
    sample : int
        Patches, drawn from all, that the words are learnt from.

    Examples
    --------
    >>> from dobrushin import vision
    >>> vision.Vocabulary(texture=50, color=20, cells=5)
    Vocabulary(50 textures, 20 colours, 25 places)
    """

    def __init__(
        self, texture: int = 1000, color: int = 100, cells: int = 10, seed: int = 0, sample: int = 20_000
    ) -> None:
        self.sizes = (texture, color, cells * cells)
        self.cells, self.seed, self.sample = cells, seed, sample
        self._centers: tuple[NDArray[np.float32], ...] = ()

    def fit(self, images: list[Described]) -> Vocabulary:
        """Learn the words. The result depends on the images and the seed, not on the order of computation."""
        rng = np.random.default_rng(self.seed)
        centers = []
        for count, name in zip(self.sizes, ("texture", "color"), strict=False):
            rows = np.concatenate([getattr(image, name) for image in images])
            if len(rows) > self.sample:
                rows = rows[np.sort(rng.choice(len(rows), self.sample, replace=False))]
            centers.append(_cluster(rows.astype(np.float32), count, int(rng.integers(2**31))))
        self._centers = tuple(centers)
        self.sizes = (len(centers[0]), len(centers[1]), self.sizes[2])
        return self

    def encode(self, image: Described) -> NDArray[np.int32]:
        """Return the numbers of the three words of each patch, shape (patches, 3)."""
        texture = _nearest(image.texture.astype(np.float32), self._centers[0])
        color = _nearest(image.color, self._centers[1])
        scale = self.cells / np.array([image.grid.height, image.grid.width])
        row, col = (image.grid.centers * scale).astype(np.int64).T
        return np.stack([texture, color, row * self.cells + col], axis=1).astype(np.int32)

    def __repr__(self) -> str:
        return f"Vocabulary({self.sizes[0]} textures, {self.sizes[1]} colours, {self.sizes[2]} places)"


def _cluster(rows: NDArray[np.float32], count: int, seed: int) -> NDArray[np.float32]:
    """Return centres of clusters by k-means, or all different rows if there are no more than `count`."""
    different = np.unique(rows, axis=0)
    if len(different) <= count:
        return different
    cluster = require("sklearn.cluster", "vision")
    clusters: Any = cluster.MiniBatchKMeans(
        count, random_state=seed, batch_size=2048, n_init=1, init="random", max_iter=8, reassignment_ratio=0.0
    )
    centers: NDArray[np.float32] = clusters.fit(rows).cluster_centers_.astype(np.float32)
    return centers


def one_thread() -> Any:
    """Limit BLAS to one thread inside a `with` block, so that the order of sums is always the same."""
    return require("threadpoolctl", "vision").threadpool_limits(1)


def _nearest(rows: NDArray[np.float32], centers: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return the number of the nearest centre of each row, comparing |x - c|^2 - |x|^2."""
    distance = 0.5 * np.einsum("cd,cd->c", centers, centers)[None, :] - rows @ centers.T
    return distance.argmin(axis=1)
