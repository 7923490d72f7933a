"""Microsoft's archive of labelled images, as a folder that `read_folder` reads."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np

from dobrushin._shared.extras import require
from dobrushin._shared.files import replace_file
from dobrushin.errors import FormatError
from dobrushin.vision.images import decode

# Colours of the label maps; all others (horse, sheep, water, ...) become void.
COLORS = {
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
GROUPS = range(1, 9)
# A class that has less of an image is no keyword of it.
_LEAST = 0.01


def convert_msrc(source: str | os.PathLike[str], folder: str | os.PathLike[str]) -> int:
    """Write the images of nine classes, with keywords and label maps, from the archive as it is unpacked.

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
    paths = [path for group in GROUPS for path in sorted((origin / "Images").glob(f"{group}_*_s.bmp"), key=_number)]
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
        for k, color in enumerate(COLORS.values()):
            labels[(colors == color).all(axis=2)] = k + 1
        cv2.imwrite(str(out / "images" / f"{path.stem}.png"), pixels)
        image.fromarray(labels).save(out / "labels9" / f"{path.stem}.png")
        words = [name for k, name in enumerate(COLORS) if (labels == k + 1).mean() >= _LEAST]
        high, wide = colors.shape[:2]
        rows.append([path.stem, wide, high, words, round(float((labels > 0).mean()), 4)])
    # Last: a folder with an index is whole.
    text = json.dumps({"classes": ["void", *COLORS], "images": rows})
    replace_file(str(out / "index.json"), text.encode())
    return len(rows)


def _number(path: Path) -> int:
    middle = path.stem.split("_")[1]
    return int(middle) if middle.isdigit() else 0
