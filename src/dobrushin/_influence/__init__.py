"""Upper bounds on the Dobrushin influence matrix: how much a variable can change the conditional law of another."""

from dobrushin._influence import theorems  # registers the bounds for each form
from dobrushin._influence.matrix import Influence, influence, row_source
from dobrushin._influence.rows import Rows, RowSource

__all__ = ["Influence", "RowSource", "Rows", "influence", "row_source", "theorems"]
