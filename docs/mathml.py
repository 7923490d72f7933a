"""Formulas as MathML, made when the site is built: no script, nothing fetched, read aloud by screen readers.

Docutils translates LaTeX. Where the package ziamath is installed, its copy of STIX Two Math, cut to the signs that are
used, goes with the site. Elsewhere browsers take a mathematical font of the reader's system.
"""

import re
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.util import logging

# Letters and digits, Greek, punctuation, letter-like signs, arrows, operators, brackets, and letters for mathematics.
SIGNS = [
    *range(0x20, 0x7F),
    *range(0xA0, 0xFF),
    *range(0x2C6, 0x2DE),
    *range(0x300, 0x338),
    *range(0x391, 0x3D7),
    *range(0x2010, 0x2050),
    *range(0x2100, 0x2140),
    *range(0x2190, 0x21D6),
    *range(0x2200, 0x2300),
    *range(0x2308, 0x230C),
    *range(0x27E8, 0x27EC),
    *range(0x1D434, 0x1D468),
    *range(0x1D6E2, 0x1D71C),
]
FONT = "mathematics.woff"

# What Docutils makes, and what looks right: subscripts of letters with a bar go beside them, no room around bars and
# strokes, a little between a function and what it is of, unless that is in brackets.
BETTER = [
    (
        r"<munderover>(<mi>\w</mi>)(<mi>\w</mi>|<mn>\w+</mn>|<mrow>.*?</mrow>)(<mo[^>]*>[ˉ~]</mo>)</munderover>",
        r'<msub><mover accent="true">\1\3</mover>\2</msub>',
    ),
    (r'<mo stretchy="false">([/|])</mo>', r'<mo stretchy="false" lspace="0" rspace="0">\1</mo>'),
    (r"<mo>(min|max|sup)</mo>(?=<mo[^>]*>[({])", r'<mo lspace="0.17em" rspace="0">\1</mo>'),
    (r"<mo>(min|max|sup)</mo>", r'<mo lspace="0.17em" rspace="0.17em">\1</mo>'),
    (r"<mo>&ApplyFunction;</mo>(?!<mo[^>]*>[({])", r'<mspace width="0.17em"/>'),
]


def visit_math(translator: Any, node: nodes.math) -> None:
    """A formula within a line."""
    # Word joiners: no line ends between a formula and the comma or bracket beside it.
    translator.body.append(f"\u2060{translate(node, as_block=False)}\u2060")
    raise nodes.SkipNode


def visit_display(translator: Any, node: nodes.math_block) -> None:
    """A formula on a line of its own, which scrolls where it is wider than the page."""
    translator.body.append(translator.starttag(node, "div", CLASS="math-display", tabindex="0"))
    translator.body.append(translate(node, as_block=True) + "</div>\n")
    raise nodes.SkipNode


def translate(node: nodes.Element, as_block: bool) -> str:
    """The MathML of a formula; one that cannot be read is a warning, and so an error of the build."""
    text, number = re.fullmatch(r"(.*?)(?:\\tag\{(\w+)\})?", node.astext().strip(), re.DOTALL).groups()
    try:
        made = "".join(line.strip() for line in tex2mathml(text, as_block).splitlines())
    except (MathError, IndexError) as error:
        logging.getLogger(__name__).warning("this formula cannot be read (%s): %s", error, text, location=node)
        return ""
    for pattern, better in BETTER:
        made = re.sub(pattern, better, made)
    return made + (f'<span class="math-number">({number})</span>' if number else "")


def write_font(app: Any, problem: Exception | None) -> None:
    """Put the font, cut to the signs above, beside the style sheet."""
    package = find_spec("ziamath")
    if problem or app.builder.format != "html" or package is None or package.origin is None:
        return
    from fontTools import subset

    options = subset.Options(flavor="woff", layout_features=["ssty", "dtls", "flac"], drop_tables=["DSIG", "FFTM"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tables that it does not know
        font = subset.load_font(str(Path(package.origin).parent / "fonts" / "STIXTwoMath-Regular.ttf"), options)
        cutter = subset.Subsetter(options)
        cutter.populate(unicodes=SIGNS)
        cutter.subset(font)
        subset.save_font(font, str(Path(app.outdir) / "_static" / FONT), options)


def setup(app: Any) -> dict[str, Any]:
    """Offer the renderer to Sphinx."""
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_display, None))
    app.connect("build-finished", write_font)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
