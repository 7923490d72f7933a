"""Check marginals that are uniform because a shift of all states by one changes no factor.

If all variables that are connected with a target have as many states as it, and no factor over them
changes when each state a becomes a + 1 (the last one 0), then all states of the target are equally
likely, whatever the factors are (theory.md, Marginals known by symmetry).
"""

import numpy as np

from dobrushin.verify.document import require
from dobrushin.verify.model import Factors
from dobrushin.verify.proof import SOME_STATE, ProofPart


def connected(factors: Factors, variables: set[int]) -> set[int]:
    """Return all variables that paths of factors connect with some variables."""
    found, waiting = set(variables), list(variables)
    while waiting:
        near = {v for k in factors.touching[waiting.pop()] for v in factors.pairs[k][0]}
        waiting += near - found
        found |= near
    return found


def check_symmetry(part: ProofPart) -> float:
    """Check claims that the laws of single variables are uniform."""
    proof = part.proof
    asked = {v for question in part.questions.values() for v in question.variables}
    inside = connected(proof.factors, asked)
    wider = proof.close(inside) + proof.off + 2.0**-50
    for scope, table in proof.factors.near(inside).pairs:
        shifted = np.roll(table, 1, axis=tuple(range(table.ndim)))
        is_same = len({*table.shape}) == 1 and np.array_equal(table, shifted)
        require(is_same, f"A shift of all states changes the factor over the variables {scope}.")
    for k, question in part.questions.items():
        require(
            len(question.variables) == 1, "A question about symmetry must name a single variable."
        )
        chance = 1.0 / question.cells
        for row, (low, high) in enumerate(zip(proof.lower[k], proof.upper[k], strict=True)):
            proof.within(k, row, low + wider <= chance, high - wider >= chance)
    proof.checked.append(f"the symmetry of all factors over {len(inside)} variables")
    proof.assumptions.append(SOME_STATE)
    return part.lost
