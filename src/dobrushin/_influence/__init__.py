"""How far one variable can move another: entrywise upper bounds on the Dobrushin influence."""

# Each file of bounds makes them known for its forms.
from dobrushin._influence import factors, pairwise
from dobrushin._influence.known import influence, row_source
from dobrushin._influence.matrix import Influence
from dobrushin._influence.rows import Rows, RowSource

__all__ = ["Influence", "RowSource", "Rows", "factors", "influence", "pairwise", "row_source"]
