"""Maximum likelihood with Gibbs gradients whose bias is bounded at every step."""

from dobrushin._learning.entry import fit
from dobrushin._learning.result import Fit, History

__all__ = ["Fit", "History", "fit"]
