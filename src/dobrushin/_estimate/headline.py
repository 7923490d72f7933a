"""The text of an answer: the headline, the table, and the card shown in a notebook."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from dobrushin._estimate.targets import Joint, Target, name_of
from dobrushin._shared.text import Bar, card, exact_text, in_full, interval_texts, percent, printable, rounded_up

if TYPE_CHECKING:
    from dobrushin._estimate.answer import Estimate

# Largest number of rows shown; longer answers show their first and their last rows.
MAX_SHOWN_ROWS = 20
# Two probabilities that differ by at most this are treated as equal.
_TIED_PROBABILITY = 1e-12
# Largest number of observed variables in a headline.
_MAX_OBSERVED = 3
_YES = frozenset({"yes", "y", "true", "t", "1", "on", "present", "positive"})
_NOT_CERTIFIED = "NOT CERTIFIED: the bias is unknown and not included"
# End of the assumption that a user's weights (Lipschitz constants) of statistics are correct.
UNCHECKED = "were given and not checked"
_PLURALS = {
    "probability": "probabilities",
    "mean": "means",
    "quantile": "quantiles",
    "standard deviation": "standard deviations",
}


def telling_state(states: Sequence[Any]) -> int:
    """Choose which of two states to report: the one that means yes, else the last number or the first name.

    Examples
    --------
    >>> telling_state(["yes", "no"]), telling_state([-1, 1]), telling_state(["low", "high"])
    (0, 1, 0)
    """
    yes = [k for k, state in enumerate(states) if str(state).lower() in _YES]
    if len(yes) == 1:
        return yes[0]
    return len(states) - 1 if all(isinstance(state, int | float) for state in states) else 0


def headline(answer: Estimate) -> str:
    """Return the result and how certain it is, in one line."""
    if answer._is_vacuous:
        return f"No method had a result within the limits of the call: {_count(answer)}"
    evidence = {} if answer.asked is None else answer.asked.evidence
    given = given_words(evidence, _MAX_OBSERVED)
    row = _single_row(answer)
    if row is None:
        what = f"{_count(answer)}{f' given {given}' if given else ''}"
        if answer.plan.method == "exact":
            return f"{what}, exact to {rounded_up(max(float(answer.half_width.max()), 1e-12), 1)}"
        return f"{what}, each within {rounded_up(float(answer.half_width.max()))}{_sureness(answer, True)}"
    what = f"{_name(answer, row, given)} = "
    if answer.plan.method == "exact":
        return what + exact_text(answer.value[row], answer.lower[row], answer.upper[row]) + _rank(answer, row)
    return f"{what}{_value(answer, row)}{_rank(answer, row)}{_sureness(answer, False)}"


def _rank(answer: Estimate, row: int) -> str:
    """Return how the reported state ranks, such as " (most likely of 3 states)"; empty for one or two states."""
    if len(answer) <= 2:
        return ""
    others = [k for k in range(len(answer)) if k != row]
    is_sure = answer.is_certified and bool(answer.lower[row] > answer.upper[others].max())
    return f" ({'most likely' if is_sure else 'largest estimate'} of {len(answer)} states)"


def _sureness(answer: Estimate, several: bool) -> str:
    """Return how certain an answer is, as text that follows its value; for answers that are not exact."""
    at_once = " for all at once" if several else ""
    words = f", with {percent(answer.confidence)} confidence{at_once}"
    if not answer.is_certified:
        return f"{words} for the random error alone; {_NOT_CERTIFIED}"
    if answer.plan.is_certain:
        words = ", for certain"
    is_conditional = any(assumption.endswith(UNCHECKED) for assumption in answer.assumptions)
    words += "; proved if the given weights are correct" if is_conditional else "; proved, not diagnosed"
    if answer.widest <= answer.plan.tolerance:
        return words
    why = f"stopped by {answer.stopped_by}; " if answer.stopped_by else ""
    return f"{words} ({why}the tolerance {in_full(answer.plan.tolerance)} was not reached)"


def _single_row(answer: Estimate) -> int | None:
    """Return the number of the row that the headline reports; None if there are several targets.

    Among the states of one target, this is the state that means yes, else the likeliest state.
    """
    first, states = answer.targets[0], answer.states
    if len(answer) == 1:
        return 0
    if any(state is None for state in states) or len(set(states)) < len(states):
        return None
    if not all(target is first or (type(target) is type(first) and target == first) for target in answer.targets):
        return None
    telling = telling_state(states) if len(states) == 2 else 0
    if len(states) == 2 and isinstance(states[telling], str) and states[telling].lower() in _YES:
        return telling
    likeliest = int(answer.value.argmax())
    return telling if answer.value[likeliest] - answer.value[telling] <= _TIED_PROBABILITY else likeliest


def _name(answer: Estimate, row: int, given: str) -> str:
    target, state = answer.targets[row], answer.states[row]
    name = name_of(target)
    if isinstance(target, Joint):
        name = ", ".join(f"{printable(v)} = {printable(x)}" for v, x in zip(target.labels, state, strict=True))
    elif state is not None and answer.plan.noun == "probability":
        name = f"{name} = {printable(state)}"
    condition = f" | {given}" if given else ""
    plain = f"{name} (given {given})" if given else name
    return {"probability": f"P({name}{condition})", "mean": f"E({name}{condition})"}.get(noun(answer, row), plain)


def _value(answer: Estimate, row: int) -> str:
    """Return value and half-width as text, rounded so that the text still contains the interval."""
    value = float(answer.value[row])
    off = max(float(answer.upper[row]) - value, value - float(answer.lower[row]))
    if not math.isfinite(off):  # a field, in a run that was stopped early
        return f"{value:.4g} +- inf"
    digits = 4 if off <= 0 else min(12, max(2, 1 - math.floor(math.log10(off))))
    least = rounded_up(off, 2)
    # One digit more where rounding the value would enlarge the displayed error.
    texts = [(rounded_up(off + abs(round(value, d) - value), 2), d) for d in (digits, digits + 1, digits + 2)]
    text, digits = next((pair for pair in texts if pair[0] == least), texts[0])
    return f"{value:.{digits}f} +- {text}"


def _count(answer: Estimate) -> str:
    """Return the number of rows with their noun, such as "2 probabilities"."""
    nouns = [noun(answer, row) for row in range(len(answer))]
    counts = {(one, many): nouns.count(one) for one, many in _PLURALS.items() if one in nouns}
    *parts, last = (f"{count:,} {names[count > 1]}" for names, count in counts.items())
    return f"{', '.join(parts)} and {last}" if parts else last


def noun(answer: Estimate, row: int) -> str:
    """Return what the value of a row is: "probability", "mean" or "quantile"."""
    target = answer.targets[row]
    return target._noun if isinstance(target, Target) else answer.plan.noun


def value_name(answer: Estimate) -> str:
    """Return the name of the column of values: the noun that all rows share, else "value"."""
    nouns = {noun(answer, row) for row in range(len(answer))}
    return nouns.pop() if len(nouns) == 1 else "value"


def visible_numbers(count: int) -> list[int]:
    """Return the numbers of the rows that are shown, of `count` rows in all."""
    rows = list(range(count))
    return rows if count <= MAX_SHOWN_ROWS else rows[: MAX_SHOWN_ROWS // 2] + rows[-MAX_SHOWN_ROWS // 2 :]


def column_names(answer: Estimate) -> list[str]:
    """Return the column names of the table of an answer; with a column "method" if rows have different methods."""
    names = ["target", "state", value_name(answer), "lower", "upper", "bias bound"]
    return [*names, "method"] if answer.found_by else names


def row_texts(answer: Estimate, k: int) -> list[str]:
    state = "" if answer.states[k] is None else printable(answer.states[k])
    bias = "unknown" if math.isnan(answer.bias_bound[k]) else rounded_up(answer.bias_bound[k], 2)
    numbers = interval_texts(answer.value[k], answer.lower[k], answer.upper[k])
    return [name_of(answer.targets[k]), state, *numbers, bias, *answer.found_by[k : k + 1]]


def given_words(evidence: Mapping[Any, Any], most: int = MAX_SHOWN_ROWS) -> str:
    """Return the evidence as text; only the first `most` observed variables.

    Examples
    --------
    >>> given_words({"rain": "yes", "grass": {"wet": 0.9, "dry": 0.2}})
    'rain = yes, grass: wet 0.9 / dry 0.2'
    """
    parts = []
    for label, state in islice(evidence.items(), most):
        if isinstance(state, Mapping):
            likelihoods = " / ".join(f"{printable(name)} {in_full(number)}" for name, number in state.items())
            parts.append(f"{printable(label)}: {likelihoods}")
        else:
            parts.append(f"{printable(label)} = {printable(state)}")
    return ", ".join(parts) + (", ..." if len(evidence) > most else "")


def estimate_card(answer: Estimate, picture: str = "") -> str:
    """Return a card for notebooks: headline, picture, probabilities as bars with intervals, and assumptions."""
    visible, columns = visible_numbers(len(answer)), column_names(answer)
    rows: list[list[Any]] = [list(row_texts(answer, k)) for k in visible]
    is_share = [noun(answer, k) == "probability" and answer.lower[k] >= 0 and answer.upper[k] <= 1 for k in visible]
    if any(is_share):  # else there is nothing to draw: means of a field
        columns.insert(2, "interval")
        for k, row, can_draw in zip(visible, rows, is_share, strict=True):
            numbers = (float(column[k]) for column in (answer.value, answer.lower, answer.upper))
            row.insert(2, Bar(*numbers) if can_draw else "")
    if len(visible) < len(answer):
        left_out = f"... {len(answer) - len(visible)} more rows ..."
        rows.insert(MAX_SHOWN_ROWS // 2, [left_out, *[""] * (len(columns) - 1)])
    evidence = {} if answer.asked is None else answer.asked.evidence
    facts = [("given", given_words(evidence))] if evidence else []
    why = ("what it rests on", answer.assumptions)
    return card(headline(answer), facts, columns, rows, answer.footer, why, picture)
