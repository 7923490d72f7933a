"""Write proof files of answers and certificates, for the independent checker `dobrushin.verify`.

Each method has its own writer. To add one, write a function in a file of its own and register it below.
"""

from dobrushin._estimate.method import Method
from dobrushin._proof.answers import answer_with_proof, register, seed_of_plan, write_answer
from dobrushin._proof.writers import (
    variables_connected,
    variables_of_model,
    variables_summed,
    write_chains,
    write_clusters,
    write_coalescence,
    write_exact,
    write_local,
    write_runs,
    write_symmetry,
    write_variation,
)  # fmt: skip

__all__ = ["answer_with_proof", "seed_of_plan", "write_answer", "write_coalescence", "write_variation"]

register("dobrushin", Method.updated, write_chains)
register("coalescence", Method.updated, write_runs)
register("exact", variables_of_model, write_exact)
register("local", variables_summed, write_local)
register("clusters", variables_of_model, write_clusters)
register("symmetry", variables_connected, write_symmetry)
