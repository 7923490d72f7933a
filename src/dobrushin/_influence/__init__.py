"""Entrywise upper bounds on the Dobrushin influence of each variable on each other one."""

from dobrushin._influence import theorems  # which makes the bounds known for their forms
from dobrushin._influence.known import influence, row_source
from dobrushin._influence.matrix import Influence
from dobrushin._influence.rows import Rows, RowSource

__all__ = ["Influence", "RowSource", "Rows", "influence", "row_source", "theorems"]
