"""Exact answers: enumeration for small models, sums that stream for narrow ones (`dobrushin.exact` in public)."""
