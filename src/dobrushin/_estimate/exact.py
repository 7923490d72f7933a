"""Exact answers from clique trees. [trusted]"""

from __future__ import annotations

from itertools import product

import numpy as np

from dobrushin._estimate.answer import Estimate, Rows, answer, stated_weights
from dobrushin._estimate.exact_plan import is_joint, merged
from dobrushin._estimate.query import Plan, Query
from dobrushin._estimate.questions import JointMarginal, Marginals, Mean, Question
from dobrushin._estimate.workspace import Workspace
from dobrushin._exact.elimination import Elimination, eliminate
from dobrushin._models import Model
from dobrushin.errors import ArgumentError, CertificateError


def exact_answer(query: Query, made: Plan, has_evidence: bool) -> Estimate:
    """The answers of a plan with the method "exact"; intervals hold the rounding errors.

    `CertificateError` when these are larger than the tolerance.
    """
    rows, worst = [], 0.0
    for question in query.questions:
        tree, tables = _trees(query.space, question, has_evidence)
        worst = max(worst, tree.error)
        rows.append(_rows(query.space.model, question, np.concatenate(tables), tree.error))
    words = (f"the clique tree was summed in floating point, good to {worst:.1g} (included)",)
    found = answer(query.questions, made, rows, 1.0, (*words, *stated_weights(query.questions, exact=True)))
    if found.half_width.max() > query.tolerance:
        reason = f"the clique tree is good to {found.half_width.max():.3g} only, by rounding."
        raise CertificateError({"exact": reason}, "", found)
    return found


def _trees(space: Workspace, question: Question, has_evidence: bool) -> tuple[Elimination, list[np.ndarray]]:
    """The calibrated tree of a question, and the tables that it asks for; one tree serves all single variables."""
    if is_joint(question):
        joined, place = merged(space.model, question)
        tree = _eliminate(joined, space, has_evidence)
        return tree, [tree.marginals[place]]
    if "elimination" not in space.memory:
        space.memory["elimination"] = _eliminate(space.model, space, has_evidence)
    tree = space.memory["elimination"]
    return tree, [tree.marginals[i] for i in question.positions.tolist()]


def _rows(model: Model, question: Question, probabilities: np.ndarray, error: float) -> Rows:
    if isinstance(question, Marginals | JointMarginal):
        bias = np.minimum(1.0, probabilities * (2.0 * error) + 2.0**-1000) if error < np.inf else np.ones(len(question))
        return Rows(probabilities, np.maximum(probabilities - bias, 0.0), np.minimum(probabilities + bias, 1.0), bias)
    assert isinstance(question, Mean)
    states = np.array(list(product(*(model.states(i) for i in question.positions.tolist()))))
    possible = probabilities > 0
    values = question.values(states[possible], 0)
    mean = np.array([float(probabilities[possible] @ values)])
    # Adding up costs one rounding per term, of numbers no larger than the largest value.
    bias = np.array([min((2.0 * error + 2.0**-50 * len(values)) * float(np.abs(values).max()), question.span)])
    least, most = map(float, question.statistic.bounds)
    return Rows(mean, np.maximum(mean - bias, least), np.minimum(mean + bias, most), bias)


def _eliminate(model: Model, space: Workspace, has_evidence: bool) -> Elimination:
    try:
        return eliminate(model, function="estimate", source=space.model, rounding=space.rounding)
    except ArgumentError as error:
        if "allows some joint state" in str(error):
            raise impossible(has_evidence, space.model) from None
        raise


def impossible(has_evidence: bool, model: Model) -> ArgumentError:
    """No state is allowed."""
    if has_evidence:
        return ArgumentError("estimate", "evidence", "possible under the model", got="evidence of probability zero")
    return ArgumentError("estimate", "model", "one that allows some joint state", model)
