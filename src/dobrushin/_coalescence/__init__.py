"""Certificates by simulation, where Dobrushin's bound says nothing: sets of states, and exact draws."""

from dobrushin._coalescence.certificate import Coalescence, coalescence
from dobrushin._coalescence.exact_draws import ExactSamples, exact_sample
from dobrushin._coalescence.set_bits import SetBits
from dobrushin._coalescence.set_field import SetField
from dobrushin._coalescence.set_kernel import register
from dobrushin._coalescence.set_labels import SetLabels
from dobrushin._coalescence.set_race import SetRace

__all__ = ["Coalescence", "ExactSamples", "coalescence", "exact_sample"]

# The ways to run sets: the first that fits is taken.
for _kernel in (SetBits, SetField, SetLabels, SetRace):
    register(_kernel)
