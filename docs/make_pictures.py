"""Draw the pictures of index.md, plots.md and the gallery anew, light and dark: ``python docs/make_pictures.py``.

Runs the examples of each page from top to bottom. Where a page shows a picture, that is what the name `picture` holds.
``python docs/make_pictures.py --experiments results`` also copies the figures of the paper's experiments, which
``dobrushin reproduce all --out results`` drew, as PNG and PDF.
"""

import argparse
import doctest
import io
import os
import re
import shutil
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
IMAGE = re.compile(r"^```\{image\} (?:\.\./)?_static/(\S+)-light\.png$", re.MULTILINE)
# The page's background and its text in the two colour schemes of the site's theme.
SCHEMES = {"light": ("#ffffff", "#222832"), "dark": ("#14181e", "#ced6dd")}
_DPI = 200  # pages show a hundred dots an inch


def main() -> None:
    """Write all pictures of the pages."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="pages whose names have this text")
    parser.add_argument("--experiments", type=Path, help="folder of dobrushin reproduce, to copy figures from")
    arguments = parser.parse_args()
    for page in [DOCS / "index.md", DOCS / "plots.md", *sorted((DOCS / "gallery").glob("*.md"))]:
        if arguments.only in page.stem:
            draw(page)
    if arguments.experiments is not None:
        copy_experiments(arguments.experiments)


def draw(page: Path) -> None:
    """Write the pictures of one page."""
    import matplotlib
    import numpy as np
    from PIL import Image

    if page.stem in ("counties", "language") and not os.environ.get("DOBRUSHIN_DATA"):
        print(f"{page.name}: left out, as DOBRUSHIN_DATA is not set")
        return
    # Pieces of text, each followed by the name of the picture that it makes.
    pieces = IMAGE.split(page.read_text(encoding="utf-8"))
    for scheme, (paper, ink) in SCHEMES.items():
        names: dict[str, Any] = {}
        colors = {f"{part}.color": ink for part in ("text", "xtick", "ytick")} | {"axes.labelcolor": ink}
        sheet = {"figure.facecolor": paper, "axes.facecolor": paper, "axes.edgecolor": ink, "font.size": 9}
        with matplotlib.rc_context(colors | sheet):
            for examples, name in zip(pieces[::2], pieces[1::2], strict=False):
                for example in doctest.DocTestParser().get_examples(examples):
                    exec(example.source, names)
                figure = np.ravel(names["picture"])[0].figure
                path = DOCS / "_static" / f"{name}-{scheme}.png"
                figure.savefig(drawn := io.BytesIO(), dpi=_DPI)
                Image.open(drawn).convert("RGB").quantize(96, dither=Image.Dither.NONE).save(path, optimize=True)
                print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


def copy_experiments(results: Path) -> None:
    """Copy each figure that a page shows; the photographs of others stay where they are."""
    shown = re.findall(r"_static/experiments/(\S+)\.png", (DOCS / "experiments.md").read_text(encoding="utf-8"))
    shown += re.findall(r"_static/experiments/(\S+)\.png", (DOCS / "segmentation.md").read_text(encoding="utf-8"))
    for name in sorted(set(shown)):
        for suffix in ("png", "pdf"):
            found = sorted(results.glob(f"*/{name}.{suffix}"))
            if found:
                shutil.copyfile(found[-1], DOCS / "_static" / "experiments" / f"{name}.{suffix}")
            else:
                print(f"{name}.{suffix} is not in {results}")


if __name__ == "__main__":
    main()
