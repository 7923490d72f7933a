"""Reports: an estimate as one interactive page that stands by itself, to look at and to hand on.

The page is made from files of this folder (`page.html`, `page.css` and the scripts). It asks the network for nothing,
runs no data as code, and escapes every name.
"""

from dobrushin.report.page import Page, render, write

__all__ = ["Page", "render", "write"]
