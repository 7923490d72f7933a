"""Which variable each step of a Gibbs sampler updates."""

from dobrushin._scan.scan import Scan, as_scan
from dobrushin._scan.segments import Cycle, Draw, Segment

__all__ = ["Cycle", "Draw", "Scan", "Segment", "as_scan"]
