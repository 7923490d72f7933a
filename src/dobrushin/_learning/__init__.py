"""Maximum likelihood with Gibbs gradients whose bias is bounded at every step."""

from dobrushin._learning.data import Imputed
from dobrushin._learning.em import EM
from dobrushin._learning.fitting import fit
from dobrushin._learning.gradients import GibbsGradient, MarginalGradient
from dobrushin._learning.result import Fit, History

__all__ = ["EM", "Fit", "GibbsGradient", "History", "Imputed", "MarginalGradient", "fit"]
