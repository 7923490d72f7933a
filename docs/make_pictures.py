"""Draw the pictures of plots.md anew, light and dark: ``python docs/make_pictures.py``.

Runs the examples of the page from top to bottom. Where the page shows a picture, that is what the name `picture` holds.
"""

import doctest
import io
import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parent / "plots.md"
IMAGE = re.compile(r"^```\{image\} _static/(\S+)-light\.png$", re.MULTILINE)
# The page's background in the two colour schemes of the site's theme.
BACKGROUND = {"light": "#ffffff", "dark": "#14181e"}


def main() -> None:
    """Write all pictures of the page."""
    import matplotlib
    import numpy as np
    from PIL import Image

    text = PAGE.read_text(encoding="utf-8")
    # Pieces of text, each followed by the name of the picture that it makes.
    pieces = IMAGE.split(text)
    for scheme, color in BACKGROUND.items():
        names: dict[str, Any] = {}
        with matplotlib.rc_context({"figure.facecolor": color, "axes.facecolor": color, "font.size": 9}):
            for examples, name in zip(pieces[::2], pieces[1::2], strict=False):
                for example in doctest.DocTestParser().get_examples(examples):
                    exec(example.source, names)
                figure = np.ravel(names["picture"])[0].figure
                path = PAGE.parent / "_static" / f"{name}-{scheme}.png"
                figure.savefig(drawn := io.BytesIO(), dpi=130)
                Image.open(drawn).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
                print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
