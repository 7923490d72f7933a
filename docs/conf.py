"""Configuration of the documentation site.

Build with ``python -m sphinx -W --keep-going -q -b html docs docs/_build/html``. Nothing is fetched from a network.
"""

from importlib.metadata import version as installed_version

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
]
root_doc = "index"
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build", "_templates"]
templates_path = ["_templates"]

# Pages are Markdown; headings can be linked to by their words.
myst_heading_anchors = 3

# Names in single backticks in docstrings become links where they can.
default_role = "py:obj"
add_module_names = False
autosummary_generate = True
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
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "header_links_before_dropdown": 6,
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "footer_start": ["copyright"],
    "footer_end": [],
}
