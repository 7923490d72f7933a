"""What an estimate will do, decided before it is done."""

from dobrushin._plan.entry import make_plan, nearby, plan, planned
from dobrushin._plan.query import Plan, Query, biases, chains_for_counts, combined, is_counted, read_query

__all__ = [
    "Plan",
    "Query",
    "biases",
    "chains_for_counts",
    "combined",
    "is_counted",
    "make_plan",
    "nearby",
    "plan",
    "planned",
    "read_query",
]
