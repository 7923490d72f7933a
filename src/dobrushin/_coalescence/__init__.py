"""Certificates by simulation on sets of states, for models beyond Dobrushin's condition; and exact draws."""

from dobrushin._coalescence.certificate import Coalescence, coalescence
from dobrushin._coalescence.exact_draws import ExactSamples, exact_sample
from dobrushin._coalescence.set_kernels import SetBits, SetField, SetLabels, SetRace
from dobrushin._coalescence.sets import SET_KERNELS

__all__ = ["Coalescence", "ExactSamples", "coalescence", "exact_sample"]

SET_KERNELS.update((_kernel.name, _kernel) for _kernel in (SetBits, SetField, SetLabels, SetRace))
