"""Proof files: what the finder writes, for a checker that shares nothing with it (`dobrushin.verify`).

One writer for each method. To add one, write a function in a file of its own and register it below.
"""

from dobrushin._proof.answers import answer_with_proof, register, seed_of_plan, write_answer
from dobrushin._proof.certificates import write_coalescence, write_variation
from dobrushin._proof.chains import write_chains, write_runs
from dobrushin._proof.sums import write_exact, write_local

__all__ = ["answer_with_proof", "seed_of_plan", "write_answer", "write_coalescence", "write_variation"]

for _name, _writer in (
    ("dobrushin", write_chains),
    ("coalescence", write_runs),
    ("exact", write_exact),
    ("local", write_local),
):
    register(_name, _writer)
