"""Certificates by simulation, where Dobrushin's bound says nothing: sets of states, and exact draws."""

# The ways to run sets: the first that fits is taken.
from dobrushin._coalescence import set_bits, set_field, set_race  # isort: skip

from dobrushin._coalescence.certificate import Coalescence, coalescence
from dobrushin._coalescence.exact_draws import ExactSamples, exact_sample

__all__ = [
    "Coalescence", "ExactSamples", "coalescence", "exact_sample", "set_bits", "set_field", "set_race",
]  # fmt: skip
