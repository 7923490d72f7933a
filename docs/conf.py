"""Configuration of the documentation site.

Build with ``python -m sphinx -W --keep-going -q -b html docs docs/_build/html``. Nothing is fetched from a network.
"""

import re
import sys
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any

import dobrushin

sys.path.insert(0, str(Path(__file__).parent))

project = "dobrushin"
author = "The dobrushin developers"
project_copyright = author
release = version = installed_version("dobrushin")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "matplotlib.sphinxext.plot_directive",
    "mathml",
]
root_doc = "index"
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build", "_templates"]
templates_path = ["_templates"]

# Formulas are written $x$ or $$x$$, in LaTeX.
myst_enable_extensions = ["dollarmath"]
myst_dmath_double_inline = True
html_math_renderer = "mathml"

# Headings can be linked to by their words.
myst_heading_anchors = 3

# Names in single backticks in docstrings become links where they can.
default_role = "py:obj"
add_module_names = False
autosummary_generate = True
# Not all file systems tell influence from Influence: where a class has the name of a function, the function's page is
# called influence_function.
autosummary_filename_map = {
    f"{home.__name__}.{name}": f"{home.__name__}.{name}_function"
    for home in (dobrushin, dobrushin.exact)
    for name in home.__all__
    if name.islower() and name.capitalize() in home.__all__
}
autodoc_typehints = "none"  # docstrings say it in words
autodoc_member_order = "bysource"
numpydoc_show_class_members = False

# Pictures are drawn when the site is built.
plot_include_source = True
plot_html_show_source_link = False
plot_html_show_formats = False
plot_formats = ["svg"]
plot_rcparams = {"figure.figsize": (6.4, 3.8), "figure.constrained_layout.use": True, "font.size": 9}
plot_apply_rcparams = True

html_theme = "pydata_sphinx_theme"
html_title = "dobrushin"
html_static_path = ["_static"]
html_css_files = ["site.css"]
# These have no pages below them.
_ALONE = "index notation theory map architecture benchmarks which comparison scaling experiments segmentation"
html_sidebars = {page: [] for page in _ALONE.split()}
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "header_links_before_dropdown": 6,
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "footer_start": ["copyright"],
    "footer_end": [],
}


def plain_notes(_app: Any, _what: str, _name: str, _thing: Any, _options: Any, lines: list[str]) -> None:
    """Notes of docstrings hold formulas in plain text: what reStructuredText takes for markup is escaped in them."""
    inside = False
    for k, line in enumerate(lines):
        if k + 1 < len(lines) and re.fullmatch(r"-{3,}", lines[k + 1].strip()):
            inside = line.strip() == "Notes"
        elif inside:
            parts = re.split(r"(`+[^`]*`+)", line)
            parts[::2] = [re.sub(r"[|*]|(?<=\w)_(?!\w)", r"\\\g<0>", part) for part in parts[::2]]
            lines[k] = "".join(parts)


_MADE_HERE = tuple(
    f"dobrushin.{name}"
    for name in ("Model", "Variation", "Coalescence", "ExactSamples", "Plan", "Estimate", "Diagnosis")
)


def no_private_constructors(
    _app: Any, _what: str, name: str, _thing: Any, _options: Any, signature: str | None, returns: str | None
) -> tuple[str | None, str | None]:
    """What only the library makes is shown without the arguments that it is made from."""
    return (None, None) if name in _MADE_HERE else (signature, returns)


def closed_examples(_app: Any, _page: str, source: list[str]) -> None:
    """Doctest needs an empty line between an output and the end of its block; readers do not."""
    source[0] = source[0].replace("\n\n```\n", "\n```\n")


def setup(app: Any) -> None:
    """Escape notes before numpydoc, which listens to the same event, reads them."""
    app.connect("autodoc-process-docstring", plain_notes, priority=100)
    app.connect("autodoc-process-signature", no_private_constructors)
    app.connect("source-read", closed_examples)
