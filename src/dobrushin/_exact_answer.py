"""Exact answers from clique trees. [trusted]"""

from __future__ import annotations

from itertools import product

import numpy as np

from dobrushin._answer import Estimate, Rows, answer, stated_weights
from dobrushin._elimination import Elimination, eliminate
from dobrushin._models import Model
from dobrushin._plan import Plan, Query
from dobrushin._questions import JointMarginal, Marginals, Mean, Question
from dobrushin.errors import ArgumentError


def exact_answer(query: Query, made: Plan, has_evidence: bool) -> Estimate:
    """The answers of a plan with the method "exact"; intervals hold the rounding errors."""
    found: dict[str, Elimination] = {}

    def single() -> Elimination:
        """One tree serves all single variables, of this call and of later ones."""
        memory = query.space.memory
        if "elimination" not in memory:
            memory["elimination"] = _eliminate(query.space.model, has_evidence)
        found["single"] = memory["elimination"]
        return found["single"]

    rows, worst = [], 0.0
    for question in query.questions:
        if isinstance(question, Marginals) or len(question.positions) == 1:
            tree = single()
            tables = [tree.marginals[i] for i in question.positions.tolist()]
            probabilities = np.concatenate(tables)
        else:
            labels = query.space.model._labels_at(question.positions)
            merged = query.space.model.merge([labels])
            tree = _eliminate(merged, has_evidence)
            probabilities = tree.marginals[merged.index(tuple(labels))]
        worst = max(worst, tree.error)
        rows.append(_rows(query.space.model, question, probabilities, tree.error))
    words = (f"the clique tree was summed in floating point, good to {worst:.1g} (included)",)
    return answer(query.questions, made, rows, 1.0, (*words, *stated_weights(query.questions, exact=True)))


def _rows(model: Model, question: Question, probabilities: np.ndarray, error: float) -> Rows:
    if isinstance(question, Marginals | JointMarginal):
        bias = np.minimum(1.0, probabilities * (2.0 * error) + 2.0**-1000)
        return Rows(probabilities, np.maximum(probabilities - bias, 0.0), np.minimum(probabilities + bias, 1.0), bias)
    assert isinstance(question, Mean)
    states = np.array(list(product(*(model.states(i) for i in question.positions.tolist()))))
    possible = probabilities > 0
    values = question.values(states[possible], 0)
    mean = np.array([float(probabilities[possible] @ values)])
    # Adding up costs one rounding per term, of numbers no larger than the largest value.
    bias = np.array([(2.0 * error + 2.0**-50 * len(values)) * float(np.abs(values).max())])
    least, most = map(float, question.statistic.bounds)
    return Rows(mean, np.maximum(mean - bias, least), np.minimum(mean + bias, most), bias)


def _eliminate(model: Model, has_evidence: bool) -> Elimination:
    try:
        return eliminate(model, function="estimate")
    except ArgumentError as error:
        if "allows some joint state" in str(error):
            raise impossible(has_evidence, model) from None
        raise


def impossible(has_evidence: bool, model: Model) -> ArgumentError:
    """No state is allowed."""
    if has_evidence:
        return ArgumentError("estimate", "evidence", "possible under the model", "evidence of probability zero")
    return ArgumentError("estimate", "model", "one that allows some joint state", model)
