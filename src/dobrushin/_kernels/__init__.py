"""Numba-compiled loops, which take and return arrays only: no classes, exceptions or configuration."""
