"""Maximum likelihood with Gibbs gradients whose bias is bounded at every step."""

from dobrushin._learning.ascent import Fit, History
from dobrushin._learning.fitting import fit
from dobrushin._learning.gibbs import GibbsGradient

__all__ = ["Fit", "GibbsGradient", "History", "fit"]
