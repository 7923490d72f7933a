"""How far one variable can move another: entrywise upper bounds on the Dobrushin influence."""

from dobrushin._influence.compute import influence
from dobrushin._influence.result import Influence
from dobrushin._influence.rows import Rows, RowSource, row_source

__all__ = ["Influence", "RowSource", "Rows", "influence", "row_source"]
