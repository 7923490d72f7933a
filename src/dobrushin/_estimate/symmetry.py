"""Marginals that are uniform because a relabelling of states leaves the model unchanged. [trusted]

Take one permutation of states, applied to all variables of a connected component. If it changes no potential, and its
repetition takes every state to every other one, then the states of each variable are equally likely, at any
temperature.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dobrushin._estimate.answer import Estimate
from dobrushin._estimate.method import AnswerRows, Choice, Method
from dobrushin._estimate.query import Query
from dobrushin._estimate.questions import SingleMarginals
from dobrushin._models.factors import FactorTables
from dobrushin._models.forms import Form, widen
from dobrushin._models.ising import SpinPairs
from dobrushin._models.potts import LabelPairs
from dobrushin._models.spins import SpinTerms
from dobrushin._shared.running import Running

# "auto" asks quick methods in the order of these seconds: this one last, since answers of the others can be proved.
_SECONDS_TO_COME_LAST = 1.0


class Symmetry(Method):
    """The method "symmetry": uniform marginals of single variables."""

    name: ClassVar[str] = "symmetry"
    is_certain: ClassVar[bool] = True

    @classmethod
    def asking_seconds(cls, query: Query, quickly: bool) -> float | None:
        is_single = all(isinstance(question, SingleMarginals) for question in query.questions)
        return _SECONDS_TO_COME_LAST if quickly and is_single and not query.is_part else None

    @classmethod
    def propose(cls, query: Query, choice: Choice) -> Method | None:
        if query.is_part or not all(isinstance(question, SingleMarginals) for question in query.questions):
            refusal = "only the marginals of single variables follow from a symmetry of the whole model."
        elif not _is_symmetric(query.model._form, query.positions):
            refusal = "no shift of all states by one leaves the potentials around the targets unchanged."
        else:
            words = "a relabelling of states leaves the model unchanged, so all states of a target are equally likely"
            return cls(query, cls.draft(query, words, 0.0))
        if choice.by_name:
            raise cls.refuse(refusal)
        return choice.best

    def answer(self, sequence: np.random.SeedSequence, running: Running) -> Estimate:
        _ = self.query.space.start  # raises if no state is allowed
        rounding = self.query.space.rounding
        off = min(1.0, math.expm1(2.0 * rounding) if rounding < 1.0 else 1.0)
        rows = []
        for question in self.query.questions:
            value, bias = 1.0 / question.choices, np.full(len(question), off)
            bias += np.where(question.choices & (question.choices - 1), 2.0**-54, 0.0)  # the rounding of 1/q
            rows.append(AnswerRows.within(question, value, value, value, bias))
        return self.assemble(rows, 1.0, ("the symmetry was found in the potentials, entry by entry",))

    @classmethod
    def explain(cls, estimate: Estimate) -> list[str]:
        return [
            "Shifting the states of all variables that are connected with a target (for spins: flipping them) leaves "
            "every potential unchanged. So all states of the target have the same probability, whatever the couplings "
            "are. Nothing was drawn or summed."
        ]


def _is_symmetric(form: Form, positions: NDArray[np.int64]) -> bool:
    """Return whether a cyclic shift of all states changes no potential in the components of these variables."""
    if (form.cardinalities != form.cardinalities[0]).any():
        return False
    wider, read = widen(form, _READERS)
    changed = read(wider)
    if not changed.any():
        return True
    if changed[positions].any():
        return False
    component = form.components()
    return not np.isin(component[positions], component[changed]).any()


def _changed_spins(form: Any) -> NDArray[np.bool_]:
    """Return a mask of the variables whose potentials change if all spins are flipped.

    These are the variables with a field, or in a term of odd order.
    """
    changed = form.fields != 0
    if isinstance(form, SpinTerms):
        arity = np.diff(form.scope_start)
        changed[form.scope[np.repeat(arity % 2 == 1, arity)]] = True
    return np.asarray(changed)


def _changed_labels(form: LabelPairs) -> NDArray[np.bool_]:
    """Return a mask of the variables whose unaries change if all states are shifted; Potts couplings never change."""
    given = form.given_unaries
    return np.zeros(form.n_variables, dtype=np.bool_) if given is None else (given != given[:, :1]).any(axis=1)


def _changed_tables(form: FactorTables) -> NDArray[np.bool_]:
    """Return a mask of the variables of factors whose tables change when all states are shifted by one."""
    q, arity = int(form.sizes[0]), np.diff(form.scope_start)
    changed = np.zeros(form.n_variables, dtype=np.bool_)
    for size in np.unique(arity[arity > 0]).tolist():
        factors = np.flatnonzero(arity == size)
        shifted = np.roll(np.arange(q**size).reshape((q,) * size), 1, axis=tuple(range(size))).ravel()
        for some in np.array_split(factors, -(-len(factors) * q**size // 2**20)):
            tables = form.table[form.table_start[some][:, None] + np.arange(q**size)]
            moved = some[(tables != tables[:, shifted]).any(axis=1)]
            changed[form.scope[form.scope_start[moved][:, None] + np.arange(size)]] = True
    return changed


_READERS: dict[type[Form], Callable[[Any], NDArray[np.bool_]]] = {
    SpinPairs: _changed_spins,
    SpinTerms: _changed_spins,
    LabelPairs: _changed_labels,
    FactorTables: _changed_tables,
}
