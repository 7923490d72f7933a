"""Photographs with label maps and keywords, read from a folder; conversion of Microsoft's archive to such a folder."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dobrushin._shared import validate as check
from dobrushin._shared.arrays import frozen
from dobrushin._shared.call import public
from dobrushin._shared.environment import replace_file, require
from dobrushin.errors import ArgumentError, FormatError

VOID = -1
_ROW = "rows of name, width, height and a list of keywords"


@dataclass(frozen=True, eq=False, repr=False)
class Image:
    """A photograph, with its labels and keywords if they are known.

    Attributes
    ----------
    name : str
    pixels : array of uint8
        Red, green and blue, shape (height, width, 3).
    labels : array or None
        Class of each pixel, shape (height, width): positions in the list of classes, -1 for void.
    keywords : tuple of str or None
        Classes that occur somewhere in the image.

    Examples
    --------
    >>> import numpy as np
    >>> from dobrushin import vision
    >>> vision.Image("grey", np.full((40, 60, 3), 128, dtype=np.uint8), keywords=("sky",))
    Image('grey', 60 x 40, keywords sky)
    """

    name: str
    pixels: NDArray[np.uint8]
    labels: NDArray[np.int16] | None = None
    keywords: tuple[str, ...] | None = None

    @public(name="vision.Image")
    def __post_init__(self) -> None:
        pixels = np.asarray(self.pixels)
        if pixels.ndim != 3 or pixels.shape[2] != 3 or pixels.dtype != np.uint8:
            requirement = "an array of uint8 of shape (height, width, 3)"
            raise ArgumentError("pixels", requirement, got=f"{pixels.dtype} of shape {pixels.shape}")
        object.__setattr__(self, "pixels", frozen(pixels.copy()))
        if self.labels is not None:
            labels = np.asarray(self.labels)
            if labels.shape != pixels.shape[:2] or labels.dtype.kind not in "iu":
                requirement = f"whole numbers of shape {pixels.shape[:2]}, as the pixels"
                raise ArgumentError("labels", requirement, got=f"{labels.dtype} of shape {labels.shape}")
            object.__setattr__(self, "labels", frozen(labels.astype(np.int16)))
        if self.keywords is not None:
            if not check.is_several(self.keywords):
                raise ArgumentError("keywords", "a list of words", self.keywords)
            object.__setattr__(self, "keywords", tuple(self.keywords))

    def __repr__(self) -> str:
        words = "" if self.keywords is None else f", keywords {' '.join(self.keywords)}"
        return f"Image({self.name!r}, {self.pixels.shape[1]} x {self.pixels.shape[0]}{words})"


class Images(Sequence[Image]):
    """The images of one folder, and the names of their classes.

    Attributes
    ----------
    classes : tuple of str
        Without void; label maps count from 0 in this order.

    Examples
    --------
    >>> from dobrushin import vision
    >>> vision.Images([], ("sky", "grass"))
    Images(0 images of sky, grass)
    """

    def __init__(self, images: Sequence[Image], classes: Sequence[str]) -> None:
        self._images = tuple(images)
        self.classes = tuple(classes)

    @overload
    def __getitem__(self, index: int) -> Image: ...

    @overload
    def __getitem__(self, index: slice) -> Images: ...

    def __getitem__(self, index: int | slice) -> Image | Images:
        if isinstance(index, slice):
            return Images(self._images[index], self.classes)
        return self._images[index]

    def __len__(self) -> int:
        return len(self._images)

    def __iter__(self) -> Iterator[Image]:
        return iter(self._images)

    def __repr__(self) -> str:
        return f"Images({len(self)} images of {', '.join(self.classes)})"


def read_folder(path: str | os.PathLike[str], labels: str | None = "labels9", most: int | None = None) -> Images:
    """Read a folder of images with keywords and label maps.

    Parameters
    ----------
    path : path
        Has ``index.json``, ``images/NAME.png`` and ``LABELS/NAME.png``. The index has "classes", a list of names of
        which the first is void, and "images", rows of name, width, height, keywords (more is ignored). Label maps are
        PNG files whose values, or palette numbers, are positions in "classes".
    labels : str or None
        Name of the folder of label maps; None to do without.
    most : int, optional
        Largest number of images to read, evenly spread over the index.

    Returns
    -------
    Images

    Examples
    --------
    >>> import json, tempfile, pathlib, cv2, numpy as np
    >>> from dobrushin import vision
    >>> with tempfile.TemporaryDirectory() as name:
    ...     folder = pathlib.Path(name)
    ...     (folder / "images").mkdir()
    ...     _ = cv2.imwrite(str(folder / "images" / "a.png"), np.zeros((40, 60, 3), dtype=np.uint8))
    ...     rows = {"classes": ["void", "night"], "images": [["a", 60, 40, ["night"]]]}
    ...     _ = (folder / "index.json").write_text(json.dumps(rows))
    ...     vision.read_folder(folder, labels=None)
    Images(1 images of night)
    """
    folder = Path(path)
    if not folder.is_dir():
        raise FormatError(str(folder), "a folder with index.json, images and label maps", "no such folder")
    if labels is not None and not (folder / labels).is_dir():
        raise FormatError(str(folder / labels), "a folder of label maps (or pass labels=None)", "no such folder")
    classes, rows = _read_index(folder / "index.json")
    if most is not None and most < len(rows):
        rows = [rows[k] for k in np.linspace(0, len(rows) - 1, most).astype(int)]
    known = set(classes[1:])
    images = []
    for name, width, height, keywords in rows:
        if (strange := next((word for word in keywords if word not in known), None)) is not None:
            raise FormatError(str(folder / "index.json"), "keywords that are classes", f"{strange!r} of {name!r}")
        pixels = _read_pixels(folder / "images" / f"{name}.png", (height, width))
        truth = None if labels is None else _read_labels(folder / labels / f"{name}.png", (height, width), len(classes))
        images.append(Image(name, pixels, truth, tuple(keywords)))
    return Images(images, classes[1:])


def _read_index(path: Path) -> tuple[list[str], list[tuple[str, int, int, list[str]]]]:
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FormatError(str(path), "a list of the images", "no such file") from None
    except (OSError, ValueError) as error:
        raise FormatError(str(path), "JSON", str(error).rstrip(".")) from None
    for key in ("classes", "images"):
        if not isinstance(content, dict) or not isinstance(content.get(key), list):
            raise FormatError(str(path), f"a list under {key!r}", "none")
    classes, rows = content["classes"], content["images"]
    if len(classes) < 2 or not all(isinstance(name, str) for name in classes):
        raise FormatError(str(path), "names of void and of at least one class under 'classes'", repr(classes)[:80])
    if not rows:
        raise FormatError(str(path), "at least one image", "none")
    for row in rows:
        if not (
            isinstance(row, list)
            and len(row) >= 4
            and isinstance(row[0], str)
            and all(isinstance(side, int) and side > 0 for side in row[1:3])
            and isinstance(row[3], list)
            and all(isinstance(word, str) for word in row[3])
        ):
            raise FormatError(str(path), f"{_ROW} under 'images'", repr(row)[:80])
    return classes, [(row[0], row[1], row[2], row[3]) for row in rows]


def decode(path: Path, flag: int) -> NDArray[Any]:
    """Decode an image file with OpenCV; raise `FormatError` if the file is broken."""
    cv2 = require("cv2", "vision")
    try:
        data = np.fromfile(path, dtype=np.uint8)
    except OSError:
        raise FormatError(str(path), "an image", "no such file") from None
    pixels = cv2.imdecode(data, flag) if len(data) else None
    if pixels is None:
        raise FormatError(str(path), "an image", "something that cannot be decoded")
    decoded: NDArray[Any] = pixels
    return decoded


def _same_size(path: Path, pixels: NDArray[Any], shape: tuple[int, int]) -> None:
    if pixels.shape[:2] != shape:
        high, wide = pixels.shape[:2]
        raise FormatError(str(path), f"{shape[1]} x {shape[0]} pixels, as in the index", f"{wide} x {high}")


def _read_pixels(path: Path, shape: tuple[int, int]) -> NDArray[np.uint8]:
    cv2 = require("cv2", "vision")
    pixels = decode(path, cv2.IMREAD_COLOR)
    _same_size(path, pixels, shape)
    return np.ascontiguousarray(pixels[:, :, ::-1])


def _read_labels(path: Path, shape: tuple[int, int], classes: int) -> NDArray[np.int16]:
    """Read the palette numbers of a label map (OpenCV would return the colours of the palette instead)."""
    image = require("PIL.Image", "vision")
    try:
        with image.open(path) as stored:
            values = np.array(stored)
    except FileNotFoundError:
        raise FormatError(str(path), "a label map", "no such file") from None
    except (OSError, SyntaxError, ValueError):
        raise FormatError(str(path), "a label map", "something that cannot be decoded") from None
    if values.ndim != 2:
        raise FormatError(str(path), "one number for each pixel", f"an array of shape {values.shape}")
    _same_size(path, values, shape)
    if int(values.max()) >= classes:
        expected = f"label values from 0 (void) to {classes - 1}"
        raise FormatError(str(path), expected, f"{int(values.max())}")
    return values.astype(np.int16) - 1


@public(name="vision.hamming_error")
def hamming_error(found: ArrayLike, truth: ArrayLike | None, where: ArrayLike | None = None) -> float:
    """Return the share of labelled pixels with a wrong label; void pixels do not count.

    Parameters
    ----------
    found, truth : arrays of the same shape
        Class numbers; in `truth` -1 is void.
    where : array of bool, optional
        Which pixels count.

    Returns
    -------
    float
        NaN where no pixel is labelled.

    Examples
    --------
    >>> from dobrushin import vision
    >>> vision.hamming_error([[0, 1], [2, 2]], [[0, 1], [1, -1]])
    0.3333333333333333
    """
    labels, correct = np.asarray(found), np.asarray(truth)
    if labels.shape != correct.shape:
        requirement = f"of the shape {correct.shape} of 'truth'"
        raise ArgumentError("found", requirement, got=f"shape {labels.shape}")
    counts = correct != VOID
    if where is not None:
        counts = counts & np.asarray(where, dtype=bool)
    return float(np.mean(labels[counts] != correct[counts])) if counts.any() else float("nan")


# Colours of the label maps; all others (horse, sheep, water, ...) become void.
MSRC_COLORS = {
    "building": (128, 0, 0),
    "grass": (0, 128, 0),
    "tree": (128, 128, 0),
    "cow": (0, 0, 128),
    "sky": (128, 128, 128),
    "aeroplane": (192, 0, 0),
    "face": (192, 128, 0),
    "car": (64, 0, 128),
    "bicycle": (192, 0, 128),
}
_MSRC_GROUPS = range(1, 9)
# A class that has less of an image is no keyword of it.
_LEAST_SHARE = 0.01


def convert_msrc(source: str | os.PathLike[str], folder: str | os.PathLike[str]) -> int:
    """Convert Microsoft's image archive, as unpacked: write images of nine classes with keywords and label maps.

    Parameters
    ----------
    source : path
        Has ``Images/1_1_s.bmp``, ... and ``GroundTruth/1_1_s_GT.bmp``, ...: Microsoft Research's "pixel-wise labelled
        image database v2". Its groups 1 to 8, the 240 images of version 1, are taken.
    folder : path
        Where to write ``index.json``, ``images`` and ``labels9``.

    Returns
    -------
    int
        Number of images.

    Examples
    --------
    >>> import tempfile, pathlib, cv2, numpy as np
    >>> from dobrushin import vision
    >>> with tempfile.TemporaryDirectory() as name:
    ...     source = pathlib.Path(name)
    ...     for place, end in (("Images", ""), ("GroundTruth", "_GT")):
    ...         (source / place).mkdir()
    ...         green = np.full((40, 60, 3), (0, 128, 0), dtype=np.uint8)
    ...         _ = cv2.imwrite(str(source / place / f"1_1_s{end}.bmp"), green)
    ...     vision.convert_msrc(source, source / "out"), vision.read_folder(source / "out")[0]
    (1, Image('1_1_s', 60 x 40, keywords grass))
    """
    cv2, image = require("cv2", "vision"), require("PIL.Image", "vision")
    origin, out = Path(source), Path(folder)
    paths = [
        path for group in _MSRC_GROUPS for path in sorted((origin / "Images").glob(f"{group}_*_s.bmp"), key=_number)
    ]
    if not paths:
        raise FormatError(str(origin / "Images"), "images 1_1_s.bmp, 1_2_s.bmp and so on", "none")
    for place in ("images", "labels9"):
        (out / place).mkdir(parents=True, exist_ok=True)
    rows = []
    for path in paths:
        pixels = decode(path, cv2.IMREAD_COLOR)
        truth = origin / "GroundTruth" / f"{path.stem}_GT.bmp"
        colors = decode(truth, cv2.IMREAD_COLOR)[:, :, ::-1]
        if colors.shape != pixels.shape:
            raise FormatError(str(truth), "the size of its image", f"{colors.shape[1]} x {colors.shape[0]} pixels")
        labels = np.zeros(colors.shape[:2], dtype=np.uint8)
        for k, color in enumerate(MSRC_COLORS.values()):
            labels[(colors == color).all(axis=2)] = k + 1
        cv2.imwrite(str(out / "images" / f"{path.stem}.png"), pixels)
        image.fromarray(labels).save(out / "labels9" / f"{path.stem}.png")
        words = [name for k, name in enumerate(MSRC_COLORS) if (labels == k + 1).mean() >= _LEAST_SHARE]
        high, wide = colors.shape[:2]
        rows.append([path.stem, wide, high, words, round(float((labels > 0).mean()), 4)])
    # Last: a folder with an index is whole.
    text = json.dumps({"classes": ["void", *MSRC_COLORS], "images": rows})
    replace_file(str(out / "index.json"), text.encode())
    return len(rows)


def _number(path: Path) -> int:
    middle = path.stem.split("_")[1]
    return int(middle) if middle.isdigit() else 0
