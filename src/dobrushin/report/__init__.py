"""Reports: an estimate as one interactive HTML page in a single file, to look at and to pass on.

The page is made of the files in this folder (`page.html`, `page.css` and the scripts). It loads nothing from the
network, runs no data as code, and escapes every name.
"""

from dobrushin.report.page import Page, render, write

__all__ = ["Page", "render", "write"]
