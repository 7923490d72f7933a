"""How far a scan can be from the truth: the certificate."""

from dobrushin._variation.certificate import Variation, variation

__all__ = ["Variation", "variation"]
