"""Moved to `start`."""

from dobrushin._sampling.start import allowed_state

__all__ = ["allowed_state"]
