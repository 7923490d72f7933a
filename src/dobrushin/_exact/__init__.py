"""Exact answers: enumeration of small models, sums that stream on narrow ones; `dobrushin.exact` is the public face."""
