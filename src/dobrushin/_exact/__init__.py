"""Exact answers: enumeration for small models, clique trees for narrow ones; `dobrushin.exact` is the public face."""
