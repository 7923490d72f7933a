"""The rows of an estimate, as pictures show them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dobrushin._estimate import Estimate
from dobrushin._estimate.headline import telling_state
from dobrushin._estimate.targets import Joint, name_of, shown
from dobrushin._shared.text import printable
from dobrushin.plots.style import plain


class Selection(NamedTuple):
    """Rows of an estimate by number."""

    probabilities: NDArray[np.int64]  # of a variable with two states one only
    statistics: NDArray[np.int64]


def select(estimate: Estimate) -> Selection:
    """The rows to draw."""
    probabilities, statistics = [], []
    for first, last in groups(estimate):
        if estimate.states[first] is None:
            statistics.append(first)
        elif last - first == 2:  # joint marginals have four states or more
            probabilities.append(first + telling_state(estimate.states[first:last]))
        else:
            probabilities.extend(range(first, last))
    return Selection(np.array(probabilities, dtype=np.int64), np.array(statistics, dtype=np.int64))


def groups(estimate: Estimate) -> list[tuple[int, int]]:
    """First and one more than last row of each target."""
    targets, states = estimate.targets, estimate.states
    starts = [0]
    for k in range(1, len(targets)):
        same = targets[k] is targets[k - 1] or targets[k] == targets[k - 1]
        # Asked for twice, a target begins again with its first state.
        if not same or states[k] is None or states[k] == states[starts[-1]]:
            starts.append(k)
    return list(zip(starts, [*starts[1:], len(targets)], strict=True))


def common_state(estimate: Estimate, rows: NDArray[np.int64]) -> Any:
    """What the state of all these rows is called, if it is the same and each variable has one row; else None."""
    states = {_state_name(estimate, k) for k in rows.tolist()}
    single = all(not isinstance(estimate.targets[k], Joint) for k in rows.tolist())
    names = {name_of(estimate.targets[k]) for k in rows.tolist()}
    return states.pop() if len(states) == 1 and single and len(names) == len(rows) else None


def _state_name(estimate: Estimate, k: int) -> str:
    """The state of a row: by its name, or as a number that is said to be one."""
    state = estimate.states[k]
    return f"state {state}" if isinstance(state, int) else plain(state, 16)


def row_name(estimate: Estimate, k: int, with_state: bool) -> str:
    """How a row is called."""
    target, state = estimate.targets[k], estimate.states[k]
    name = plain(shown(target), 24)
    if state is None or not with_state:
        return name
    text = ", ".join(map(printable, state)) if isinstance(state, tuple) else state
    return f"{name}: {plain(text, 16)}"


def verdict(estimate: Estimate) -> str:
    """What the intervals are worth, in a few words."""
    if not estimate.is_certified:
        return f"NOT CERTIFIED: bias unknown, confidence {estimate.confidence:g}"
    if estimate.confidence == 1:
        return "exact, but for rounding"
    return f"certified at confidence {estimate.confidence:g}"
