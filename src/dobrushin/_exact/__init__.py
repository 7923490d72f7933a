"""Exact inference: enumeration for small models, variable elimination for small treewidth.

The public functions are in `dobrushin.exact`.
"""
