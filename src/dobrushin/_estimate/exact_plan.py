"""Clique trees: exact answers where the model is narrow enough."""

from __future__ import annotations

import math
from typing import Any

from dobrushin._estimate.query import Plan, Query
from dobrushin._estimate.questions import JointMarginal, Mean, Question
from dobrushin._estimate.targets import shown
from dobrushin._estimate.workspace import Workspace
from dobrushin._exact.elimination import MEMORY_LIMIT, CliqueTree, clique_tree
from dobrushin._models import FactorGraph, Model
from dobrushin.errors import BudgetError, CertificateError

# A clique tree takes about so long per variable to find and per byte to run.
SECONDS_PER_VARIABLE, _SECONDS_PER_BYTE = 1e-4, 5e-9
# Statistics of so few joint states have exact means.
_MOST_CELLS = 2**14


def plan_exact(query: Query, reason: str) -> Plan:
    """By clique trees: one for the single variables, one more for every question about several."""
    space = query.space
    widest, memory, seconds = 0, 0, 0.0
    for question in distinct(query.questions):
        if is_joint(question) and (cells := _cells(space.model, question)) > _MOST_CELLS:
            size = f"{cells:.3g}" if cells < 1e300 else "more than 1e300"
            what = f"{shown(question.targets[0])!r} depends on {size} joint states, too many to add up"
            raise CertificateError({"exact": f"{what}."}, "Sample instead.")
        tree = known_tree(space, question)
        widest, memory = max(widest, tree.width), max(memory, tree.memory)
        seconds += space.model.n_variables * SECONDS_PER_VARIABLE + tree.memory * _SECONDS_PER_BYTE
    why = f"{reason}: a clique tree of width {widest} takes {memory / 2**20:.3g} MiB"
    return Plan("exact", why, query.tolerance, query.confidence, 0.0, "none needed", query.intervals, seconds=seconds)


def is_joint(question: Question) -> bool:
    """Whether the joint law of several variables is needed."""
    return len(question.positions) > 1 and isinstance(question, JointMarginal | Mean)


def distinct(questions: list[Question]) -> list[Question]:
    """One question for all single variables, and those about several."""
    single = [question for question in questions if not is_joint(question)]
    return single[:1] + [question for question in questions if is_joint(question)]


def merged(model: Model, question: Question) -> tuple[FactorGraph, int]:
    """The model with the variables of a question made one, and the position of that one."""
    graph = model.to_factor_graph()
    plain = FactorGraph._from_arrays(graph)  # names of the user's could collide with that of the joint variable
    group = question.positions.tolist()
    joined = plain.merge([group])
    return joined, joined.index(tuple(group))


def _cells(model: Model, question: Question) -> float:
    return math.prod(model.cardinalities[question.positions].tolist())


def known_tree(space: Workspace, question: Question | None = None) -> CliqueTree:
    """The clique tree of a model, or of one with joint variables, looked for once."""
    key: Any = "tree"
    if question is not None and is_joint(question):
        key = ("tree", tuple(question.positions.tolist()))
    if key not in space.memory:
        try:
            model = space.model if key == "tree" or question is None else merged(space.model, question)[0]
            space.memory[key] = clique_tree(model, MEMORY_LIMIT)
        except BudgetError as refusal:
            remedy = "Fix some variables (evidence=), or sample."
            space.memory[key] = BudgetError(
                "A part of the clique tree", refusal.required, refusal.limit, "bytes", remedy
            )
    if isinstance(space.memory[key], BudgetError):
        raise space.memory[key]
    tree: CliqueTree = space.memory[key]
    return tree
