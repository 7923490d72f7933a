"""Exact answers from clique trees, where the model is narrow enough. [trusted]"""

from __future__ import annotations

import math
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dobrushin._estimate.answer import Estimate
from dobrushin._estimate.method import Choice, Method, Plan, Rows
from dobrushin._estimate.query import Query, TreeSearch, Workspace
from dobrushin._estimate.questions import Question
from dobrushin._estimate.targets import shown
from dobrushin._exact.clique_tree import MEMORY_LIMIT, CliqueTree, clique_tree
from dobrushin._exact.elimination import Elimination, NoAllowedState, eliminate
from dobrushin._models import Model
from dobrushin._shared.deadline import LateError
from dobrushin._shared.running import Running
from dobrushin.errors import BudgetError, CertificateError

# A clique tree takes about so long per variable to find and per byte to run.
_SECONDS_PER_VARIABLE, _SECONDS_PER_BYTE = 1e-4, 5e-9
# Statistics of so few joint states have exact means.
_MOST_CELLS = 2**14
# An exact answer that is expected within this time is taken even where sampling would be faster still.
_QUICK = 0.05


class _Tree(NamedTuple):
    """A clique tree for some questions, of a model in which their variables are one if there are several."""

    model: Model
    tree: CliqueTree
    place: int | None  # of the joint variable


class Exact(Method):
    """Sums over all states: one clique tree for the single variables, one more for every question about several."""

    name: ClassVar[str] = "exact"
    is_certain: ClassVar[bool] = True

    def __init__(self, query: Query, plan: Plan, trees: list[_Tree]) -> None:
        super().__init__(query, plan)
        self.trees = trees

    @classmethod
    def propose(cls, query: Query, choice: Choice) -> Method | None:
        best = choice.best
        # Looking for a clique tree costs time by itself: not worth it where sampling is done sooner.
        worth = math.inf if best is None else max(best.plan.seconds, _QUICK)
        search = query.model.n_variables * _SECONDS_PER_VARIABLE
        if not choice.by_name and (query.is_part or search >= worth):
            return best
        reason = "no dearer than sampling" if best is not None else "Dobrushin's bound says nothing"
        trees = [_tree_for(query, question) for question in query.questions]
        single = [tree.tree for tree in trees if tree.place is None]
        distinct = single[:1] + [tree.tree for tree in trees if tree.place is not None]
        seconds = sum(search + tree.memory * _SECONDS_PER_BYTE for tree in distinct)
        widest, memory = max(tree.width for tree in distinct), max(tree.memory for tree in distinct)
        why = "asked for" if choice.by_name else reason
        words = f"{why}: a clique tree of width {widest} takes {memory / 2**20:.3g} MiB"
        exact = cls(query, cls.draft(query, words, 0.0, seconds=seconds), trees)
        return exact if best is None or seconds < worth else best

    def answer(self, sequence: np.random.SeedSequence, running: Running) -> Estimate:
        """The sums; intervals hold the rounding errors. `CertificateError` when these are larger than the tolerance."""
        del sequence, running
        rows, worst = [], 0.0
        for question, tree in zip(self.query.questions, self.trees, strict=True):
            probabilities, error = self._probabilities(question, tree)
            worst = max(worst, error)
            value, bias = question.exact(probabilities, error)
            least, most = question.bounds
            rows.append(Rows(value, np.maximum(value - bias, least), np.minimum(value + bias, most), bias))
        words = (f"the clique tree was summed in floating point, good to {worst:.1g} (included)",)
        estimate = self.assemble(rows, 1.0, words)
        if estimate.half_width.max() > self.query.tolerance:
            reason = f"the clique tree is good to {estimate.half_width.max():.3g} only, by rounding."
            raise CertificateError({self.name: reason}, "", estimate)
        return estimate

    def _probabilities(self, question: Question, tree: _Tree) -> tuple[NDArray[np.float64], float]:
        """Probabilities that a question asks for, and their relative error; one tree serves all single variables."""
        space = self.query.space
        if tree.place is not None:
            joint = _eliminate(tree, space)
            return joint.marginals[tree.place], joint.error
        if space.elimination is None:
            space.elimination = _eliminate(tree, space)
        parts = [space.elimination.marginals[i] for i in question.positions.tolist()]
        return np.concatenate(parts), space.elimination.error

    @classmethod
    def explain(cls, estimate: Estimate) -> list[str]:
        return [
            "The probabilities were added up over all states of the model, in an order (a clique tree) that makes this "
            "affordable. No chance is involved.",
            f"Numbers in a computer are rounded. A bound on what this can have done, at most {estimate.bias_text}, is "
            "inside the intervals.",
        ]


def _tree_for(query: Query, question: Question) -> _Tree:
    """The clique tree of a question; `BudgetError` or `CertificateError` where it is too large."""
    space = query.space
    if not question.needs_joint_law:
        return _Tree(space.model, known_tree(space), None)
    group = question.positions.tolist()
    cells = math.prod(space.model.cardinalities[group].tolist())
    if cells > _MOST_CELLS:
        size = f"{cells:.3g}" if cells < 1e300 else "more than 1e300"
        what = f"{shown(question.targets[0])!r} depends on {size} joint states, too many to add up"
        raise CertificateError({Exact.name: f"{what}."}, "Sample instead.")
    # Without the user's labels, which could collide with that of the joint variable.
    plain = space.model._form.tables().to_model(None)
    joined = plain.merge([group])
    return _Tree(joined, known_tree(space, joined, tuple(group)), joined.index(tuple(group)))


def known_tree(space: Workspace, model: Model | None = None, group: tuple[int, ...] = ()) -> CliqueTree:
    """The clique tree of a model, or of one with a joint variable, looked for once."""
    if group not in space.trees:
        try:
            space.trees[group] = TreeSearch(clique_tree(space.model if model is None else model, MEMORY_LIMIT))
        except LateError:
            raise  # of this call: another one may have more time
        except BudgetError as refusal:
            space.trees[group] = TreeSearch(None, refusal.required, refusal.limit)
    search = space.trees[group]
    if search.tree is None:
        remedy = "Fix some variables (evidence=), or sample."
        raise BudgetError("A part of the clique tree", search.required, search.limit, "bytes", remedy)
    return search.tree


def _eliminate(tree: _Tree, space: Workspace) -> Elimination:
    try:
        return eliminate(tree.model, tree.tree, "estimate", space.model, space.rounding)
    except NoAllowedState:
        raise space.impossible() from None
