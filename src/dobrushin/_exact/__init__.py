"""Exact answers: enumeration of small models, elimination for small treewidth; `dobrushin.exact` is public."""
