"""One marginal of an estimate, as other libraries have theirs: variables, names of their states, and a table."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dobrushin._estimate import Estimate
from dobrushin._estimate.targets import Joint
from dobrushin._shared import validate as check
from dobrushin.errors import ArgumentError


class Marginal(NamedTuple):
    """A table with an axis for each variable."""

    variables: list[Hashable]
    states: list[list[Any]]
    table: NDArray[np.float64]


def read_marginal(answer: Any, target: Any, where: str) -> Marginal:
    """The marginal of a target, or of the only one."""
    check.instance(answer, Estimate, where, "answer", "an Estimate")
    if target is None:
        # One row after the other is about the same target.
        found = [one for k, one in enumerate(answer.targets) if not k or one is not answer.targets[k - 1]]
        if len({id(one) if isinstance(one, Joint) else one for one in found}) != 1:
            requirement = "given, where there are several"
            raise ArgumentError(where, "target", requirement, got=f"none of {len(found)} targets")
        target = found[0]
    states, mean, *_ = answer[target]
    if any(state is None for state in states):
        raise ArgumentError(where, "target", "a variable or a Joint", target)
    if isinstance(target, Joint) or (isinstance(target, tuple) and target not in answer.targets):
        variables = list(target.labels if isinstance(target, Joint) else target)
        axes = [list(dict.fromkeys(state[k] for state in states)) for k in range(len(variables))]
        return Marginal(variables, axes, mean.reshape([len(axis) for axis in axes]))
    return Marginal([target], [list(states)], mean)
