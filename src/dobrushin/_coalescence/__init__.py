"""Certificates by simulation, where Dobrushin's bound says nothing: sets of states, and exact draws."""

from dobrushin._coalescence.certificate import Coalescence, coalescence
from dobrushin._coalescence.exact_draws import ExactSamples, exact_sample

__all__ = ["Coalescence", "ExactSamples", "coalescence", "exact_sample"]
