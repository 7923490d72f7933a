"""How far one variable can move another: entrywise upper bounds on the Dobrushin influence."""

from dobrushin._influence.bounds import influence
from dobrushin._influence.matrix import Influence
from dobrushin._influence.rows import Rows, RowSource, row_source

__all__ = ["Influence", "RowSource", "Rows", "influence", "row_source"]
