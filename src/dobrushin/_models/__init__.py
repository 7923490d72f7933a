"""Model families, such as `Ising` or `FactorGraph`: one module per family, and what they share."""

from dobrushin._models.factors import FactorGraph
from dobrushin._models.ising import Ising
from dobrushin._models.model import Model
from dobrushin._models.pairwise import PairwiseMRF
from dobrushin._models.potts import Potts
from dobrushin._models.spins import SpinMRF

__all__ = ["FactorGraph", "Ising", "Model", "PairwiseMRF", "Potts", "SpinMRF"]
