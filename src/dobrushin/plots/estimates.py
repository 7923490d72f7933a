"""Plots of estimates: intervals, and estimates against exact answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._estimate import Estimate
from dobrushin._estimate.headline import telling_state
from dobrushin._estimate.targets import Joint, Target, name_of, shown
from dobrushin._shared import validate as check
from dobrushin._shared.call import public
from dobrushin._shared.text import interval_texts, percent, printable
from dobrushin.errors import ArgumentError
from dobrushin.plots.style import Look, as_result, dress, inches, legend_font, look, name_ticks, panels, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes


# Rows with names; more are sorted, and of more than the second number some are left out.
_MAX_NAMES, _MAX_ROWS = 40, 400
_MIN_ROW = 0.14  # inches, of a row with a name
# The axis of probabilities is at least this long, so that rounding does not look like uncertainty.
_MIN_SPAN = 0.1


@public(name="plots.marginals")
def marginals(estimate: Estimate, *, ax: Any = None) -> Any:
    """Draw estimated probabilities with their intervals.

    Of a variable with two states one is drawn: the one that says yes, or the last number; the picture says which. More
    than 40 rows, or than there is room for, are drawn sorted by probability, and of more than 400 evenly spaced ones;
    the axis says so. Points of uncertified estimates are hollow, and the title says "NOT CERTIFIED".

    Parameters
    ----------
    estimate : Estimate
    ax : matplotlib Axes, or two, optional
        Two if there are statistics too: these are drawn in the second one, in their own units. Default those of a new
        figure.

    Returns
    -------
    matplotlib Axes, or array of two

    Examples
    --------
    >>> import dobrushin as db
    >>> model = db.Ising({("sun", "rain"): -0.4, ("rain", "wet"): 0.7}, fields={"sun": 0.2})
    >>> ax = db.plots.marginals(db.estimate(model, "all"))
    >>> [text.get_text() for text in ax.get_yticklabels()], ax.get_title()
    (['sun', 'rain', 'wet'], 'exact, but for rounding')
    """
    check.instance(estimate, Estimate, "estimate", "an Estimate")
    rows = select(estimate)
    parts = [part for part in rows if len(part)]
    most = max(map(len, parts))
    height = 3.8 if most > _MAX_NAMES else max(2.2, 1.2 + 0.24 * most)
    axes = panels(ax, len(parts), (2.6 + 3.4 * len(parts), height))
    for panel, part in zip(axes, parts, strict=True):
        colours, is_named = look(panel), True
        if part is rows[1]:
            _draw_rows(panel, estimate, part, colours, values=True)
            panel.set_xlabel("mean")
        elif is_named := len(part) <= min(_MAX_NAMES, max(3, inches(panel)[1] / _MIN_ROW)):
            state = common_state(estimate, part)
            _draw_rows(panel, estimate, part, colours, states=state is None)
            panel.set_xlabel(_probability(state))
            panel.set_ylabel("variable: state" if state is None else "variable")
        else:
            _draw_sorted(panel, estimate, part, colours)
        panel.set_title(verdict(estimate), fontsize="medium")
        dress(panel, colours, grid="x" if is_named else "y", alarm=not estimate.is_certified)
    return as_result(axes)


def _draw_rows(
    ax: Any, estimate: Estimate, rows: NDArray[np.int64], look: Look, states: bool = False, values: bool = False
) -> None:
    """Draw an interval for each row, from top to bottom, with its name and optionally its state and limits."""
    place = np.arange(len(rows))
    mean, lower, upper = (part[rows] for part in (estimate.value, estimate.lower, estimate.upper))
    ax.hlines(place, lower, upper, colors=look.colors[0], linewidth=1.6, label="interval")
    ax.plot(np.concatenate([lower, upper]), np.tile(place, 2), "|", color=look.colors[0], markersize=7)
    ax.plot(mean, place, "o", markersize=4.5, **_marker(estimate, look), label="estimate")
    names = [row_name(estimate, k, states) for k in rows.tolist()]
    if values:
        limits = [interval_texts(*numbers)[1:] for numbers in zip(mean, lower, upper, strict=True)]
        names = [f"{name}\n{low} to {high}" for name, (low, high) in zip(names, limits, strict=True)]
    name_ticks(ax.yaxis, place, names)
    ax.set_ylim(len(rows) - 0.4, -0.6)
    span = 1e-3 * max(1.0, float(np.abs(mean).max())) if values else _MIN_SPAN
    if (short := span - float(upper.max() - lower.min())) > 0:
        ax.set_xlim(lower.min() - short / 2, upper.max() + short / 2)


def _draw_sorted(ax: Any, estimate: Estimate, rows: NDArray[np.int64], look: Look) -> None:
    """Draw rows side by side, sorted by probability; of more than `_MAX_ROWS`, an evenly spaced selection."""
    ordered = rows[np.argsort(estimate.value[rows], kind="stable")]
    place = np.arange(len(rows))
    if len(rows) > _MAX_ROWS:
        place = np.linspace(0, len(rows) - 1, _MAX_ROWS).round().astype(np.int64)
    kept = ordered[place]
    ax.vlines(place, estimate.lower[kept], estimate.upper[kept], colors=look.colors[0], linewidth=1.0, alpha=0.8)
    ax.plot(place, estimate.value[kept], "o", markersize=2.5, **_marker(estimate, look), label="estimate")
    thinned = f", {len(kept)} of them drawn" if len(kept) < len(rows) else ""
    ax.set_xlabel(f"{len(rows)} rows sorted by probability{thinned}")
    ax.set_ylabel(_probability(common_state(estimate, rows)))


def _probability(state: str | None) -> str:
    """Return the label of the axis: the probability of this state."""
    return "probability" if state in (None, "probability") else f"probability of {state}"


def _marker(estimate: Estimate, look: Look) -> dict[str, Any]:
    """Return the style of points: filled if the estimate is certified, hollow otherwise."""
    fill = look.colors[0] if estimate.is_certified else look.paper
    return {"color": look.colors[0], "markerfacecolor": fill}


_ANSWERS = "marginals by position, a dict from labels to marginals, or an Estimate"
_MAX_NAMED_MISSES = 8


# Exact answers for the rows of an estimate, with their limits; NaN where a row has none.
ExactAnswers = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]


@public(name="plots.against_exact")
def against_exact(estimate: Estimate, exact: Any, *, difference: bool = False, ax: Axes | None = None) -> Axes:
    """Draw estimates with their intervals against exact answers, and mark intervals that miss.

    Parameters
    ----------
    estimate : Estimate
        Of a variable with two states one is drawn. Statistics are drawn only where there is nothing else.
    exact : list of arrays, dict from labels to arrays, or Estimate
        As `exact.marginals` gives it, for labels 0 to n-1; for other labels
        ``dict(zip(model.labels, db.exact.marginals(model)))``. Of an Estimate the intervals are drawn too, and an
        interval misses where the two do not meet.
    difference : bool
        Draw the estimate less the exact answer, so that narrow intervals can be seen.
    ax : matplotlib Axes, optional
        Default: a new figure's.

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> import dobrushin as db
    >>> model = db.Ising.grid(5, 5, couplings=0.2, fields=0.1)
    >>> answer = db.estimate(model, "all", tolerance=0.05, method="dobrushin", seed=1)
    >>> ax = db.plots.against_exact(answer, db.exact.marginals(model))
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['25 intervals that hold']
    """
    check.instance(estimate, Estimate, "estimate", "an Estimate")
    if isinstance(exact, Estimate):
        known = _from_estimate(estimate, exact)
    elif isinstance(exact, Mapping | Sequence | np.ndarray) and not isinstance(exact, str):
        known = _from_marginals(estimate, exact)
    else:
        raise ArgumentError("exact", _ANSWERS, exact)
    rows = next((part[hit] for part in select(estimate) if (hit := ~np.isnan(known[0][part])).any()), None)
    if rows is None:
        raise ArgumentError("exact", "about some of the targets that were estimated", exact)
    axis: Any = panels(ax, 1, (5.4, 4.6))[0]
    _draw_comparison(axis, estimate, known, rows, difference)
    return axis


def _draw_comparison(
    ax: Any, estimate: Estimate, known: ExactAnswers, rows: NDArray[np.int64], difference: bool
) -> None:
    colours = look(ax)
    x, x_low, x_high = (part[rows] for part in known)
    shift = x if difference else np.zeros(len(rows))
    mean, lower, upper = (part[rows] - shift for part in (estimate.value, estimate.lower, estimate.upper))
    # As they are, not shifted: rounding must not make a miss.
    missed = (estimate.upper[rows] < x_low) | (estimate.lower[rows] > x_high)
    ends = np.array([min(x_low.min(), x.min()), max(x_high.max(), x.max())])
    ax.plot(ends, np.zeros(2) if difference else ends, color=colours.ink, linestyle="--", linewidth=1.0, zorder=1)
    handles, names = [], []
    for which, color, marker, text in (
        (~missed, colours.colors[0], "o", "that hold"), (missed, colours.alarm, "X", "that miss"),
    ):  # fmt: skip
        if not which.any():
            continue
        ax.vlines(x[which], lower[which], upper[which], colors=color, linewidth=1.2, zorder=2)
        wide = which & (x_high - x_low > 1e-6)
        if wide.any():
            ax.hlines(mean[wide], x_low[wide], x_high[wide], colors=color, linewidth=1.2, zorder=2)
        face = color if estimate.is_certified else colours.paper
        handles += ax.plot(
            x[which], mean[which], marker, color=color, markerfacecolor=face, markersize=4 if marker == "o" else 7,
            zorder=3,
        )  # fmt: skip
        count = int(which.sum())
        one = {"that hold": "that holds", "that miss": "that misses"}[text]
        names.append(f"{count} intervals {text}" if count > 1 else f"1 interval {one}")
    for k in np.flatnonzero(missed)[:_MAX_NAMED_MISSES]:
        ax.annotate(
            row_name(estimate, int(rows[k]), True), (x[k], mean[k]), (6, -3), textcoords="offset points",
            fontsize="x-small", color=colours.ink, usetex=False,
        )  # fmt: skip
    ax.set_xlabel("exact")
    ax.set_ylabel("estimate less exact" if difference else "estimate")
    ax.set_title(verdict(estimate), fontsize="medium")
    # Below the diagonal there is room.
    ax.legend(handles, names, frameon=False, fontsize=legend_font(ax), loc="best" if difference else "lower right")
    dress(ax, colours, grid="both", alarm=not estimate.is_certified)


def _from_estimate(estimate: Estimate, exact: Estimate) -> ExactAnswers:
    place = {_key(exact, k): k for k in range(len(exact))}
    rows = np.array([place.get(_key(estimate, k), -1) for k in range(len(estimate))], dtype=np.int64)
    mean, lower, upper = (np.where(rows < 0, np.nan, part[rows]) for part in (exact.value, exact.lower, exact.upper))
    return mean, lower, upper


def _key(estimate: Estimate, k: int) -> Any:
    """Return a key that identifies a row: its target and state.

    The same row of another estimate has the same key: joint states are tuples, and statistics have no state.
    """
    target = estimate.targets[k]
    return target._name if isinstance(target, Target) else target, estimate.states[k]


def _from_marginals(estimate: Estimate, exact: Any) -> ExactAnswers:
    value, by_label = np.full(len(estimate), np.nan), isinstance(exact, Mapping)
    for first, last in groups(estimate):
        target = estimate.targets[first]
        if isinstance(target, Target) or (by_label and target not in exact):
            continue
        if not by_label and check.label_position(target, range(len(exact)), None) is None:
            requirement = "a dict from labels to marginals, where labels are not 0 to n-1"
            raise ArgumentError("exact", requirement, got=f"{len(exact)} marginals", where=f"label {target!r}")
        where = f"label {target!r}"
        p = check.real_array(exact[target], "exact")
        if p.shape != (last - first,):
            raise ArgumentError("exact", f"{last - first} probabilities", got=f"shape {p.shape}", where=where)
        if not ((p >= -1e-9) & (p <= 1 + 1e-9)).all():
            raise ArgumentError("exact", "probabilities", exact[target], where)
        value[first:last] = p
    return value, value, value


def select(estimate: Estimate) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the indices of the rows to draw: of probabilities (one row for a binary variable), and of means."""
    probabilities, statistics = [], []
    for first, last in groups(estimate):
        if estimate.states[first] is None:
            statistics.append(first)
        elif last - first == 2:  # joint marginals have four states or more
            probabilities.append(first + telling_state(estimate.states[first:last]))
        else:
            probabilities.extend(range(first, last))
    return np.array(probabilities, dtype=np.int64), np.array(statistics, dtype=np.int64)


def groups(estimate: Estimate) -> list[tuple[int, int]]:
    """Return, for each target, its first row and the row after its last."""
    targets, states = estimate.targets, estimate.states
    starts = [0]
    for k in range(1, len(targets)):
        same = targets[k] is targets[k - 1] or targets[k] == targets[k - 1]
        # Asked for twice, a target begins again with its first state.
        if not same or states[k] is None or states[k] == states[starts[-1]]:
            starts.append(k)
    return list(zip(starts, [*starts[1:], len(targets)], strict=True))


def common_state(estimate: Estimate, rows: NDArray[np.int64]) -> Any:
    """Return the state that all rows are about, if it is the same and each variable has one row; else None."""
    states = {_state_name(estimate, k) for k in rows.tolist()}
    single = all(not isinstance(estimate.targets[k], Joint) for k in rows.tolist())
    names = {name_of(estimate.targets[k]) for k in rows.tolist()}
    return states.pop() if len(states) == 1 and single and len(names) == len(rows) else None


def _state_name(estimate: Estimate, k: int) -> str:
    """Return the name of a row's state, or "state 1" for a number."""
    state = estimate.states[k]
    return f"state {state}" if isinstance(state, int) else plain(state, 16)


def row_name(estimate: Estimate, k: int, with_state: bool) -> str:
    """Return the label of a row, with its state if `with_state`."""
    target, state = estimate.targets[k], estimate.states[k]
    name = plain(shown(target), 24)
    if state is None or not with_state:
        return name
    text = ", ".join(map(printable, state)) if isinstance(state, tuple) else state
    return f"{name}: {plain(text, 16)}"


def verdict(estimate: Estimate) -> str:
    """Say in a few words whether the intervals of an estimate are certified."""
    if not estimate.is_certified:
        return f"NOT CERTIFIED: bias unknown, confidence {percent(estimate.confidence)}"
    if estimate.confidence == 1:
        return "exact, but for rounding"
    return f"certified at confidence {percent(estimate.confidence)}"
