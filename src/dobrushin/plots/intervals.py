"""Estimates with their intervals."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._estimate import Estimate
from dobrushin._shared import validate as check
from dobrushin._shared.call import public
from dobrushin.plots.style import Look, as_result, dress, inches, look, name_ticks, panels
from dobrushin.plots.table import common_state, row_name, select, verdict

# Rows with names; more are sorted, and of more than the second number some are left out.
_MOST_NAMES, _MOST_ROWS = 40, 400
_ROW = 0.14  # the least height of a row with a name, in inches
# The axis of probabilities is at least this long, so that rounding does not look like uncertainty.
_LEAST_SPAN = 0.1


@public(name="plots.marginals")
def marginals(estimate: Estimate, *, ax: Any = None) -> Any:
    """Draw estimated probabilities with their intervals.

    Of a variable with two states one is drawn: the one that says yes, or the last number; the picture says which. More
    than 40 rows, or than there is room for, are drawn sorted by probability, and of more than 400 evenly spaced ones;
    the axis says so. What is not certified is drawn hollow and said in the title.

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
    height = 3.8 if most > _MOST_NAMES else max(2.2, 1.2 + 0.24 * most)
    axes = panels(ax, len(parts), (2.6 + 3.4 * len(parts), height))
    for panel, part in zip(axes, parts, strict=True):
        colours, is_named = look(panel), True
        if part is rows.statistics:
            draw_rows(panel, estimate, part, colours, values=True)
            panel.set_xlabel("mean")
        elif is_named := len(part) <= min(_MOST_NAMES, max(3, inches(panel)[1] / _ROW)):
            state = common_state(estimate, part)
            draw_rows(panel, estimate, part, colours, states=state is None)
            panel.set_xlabel(_probability(state))
            panel.set_ylabel("variable: state" if state is None else "variable")
        else:
            _draw_sorted(panel, estimate, part, colours)
        panel.set_title(verdict(estimate), fontsize="medium")
        dress(panel, colours, grid="x" if is_named else "y", alarm=not estimate.is_certified)
    return as_result(axes)


def draw_rows(
    ax: Any, estimate: Estimate, rows: NDArray[np.int64], look: Look, states: bool = False, values: bool = False
) -> None:
    """A line for each row, the first one on top, with its name, its state and its interval in figures if wanted."""
    place = np.arange(len(rows))
    mean, lower, upper = (part[rows] for part in (estimate.mean, estimate.lower, estimate.upper))
    ax.hlines(place, lower, upper, colors=look.colors[0], linewidth=1.6, label="interval")
    ax.plot(np.concatenate([lower, upper]), np.tile(place, 2), "|", color=look.colors[0], markersize=7)
    ax.plot(mean, place, "o", markersize=4.5, **_marker(estimate, look), label="estimate")
    names = [row_name(estimate, k, states) for k in rows.tolist()]
    if values:
        names = [f"{name}\n{a:.4g} to {b:.4g}" for name, a, b in zip(names, lower, upper, strict=True)]
    name_ticks(ax.yaxis, place, names)
    ax.set_ylim(len(rows) - 0.4, -0.6)
    span = 1e-3 * max(1.0, float(np.abs(mean).max())) if values else _LEAST_SPAN
    if (short := span - float(upper.max() - lower.min())) > 0:
        ax.set_xlim(lower.min() - short / 2, upper.max() + short / 2)


def _draw_sorted(ax: Any, estimate: Estimate, rows: NDArray[np.int64], look: Look) -> None:
    """Rows side by side, by increasing probability; evenly spaced ones if there are too many."""
    ordered = rows[np.argsort(estimate.mean[rows], kind="stable")]
    place = np.arange(len(rows))
    if len(rows) > _MOST_ROWS:
        place = np.linspace(0, len(rows) - 1, _MOST_ROWS).round().astype(np.int64)
    kept = ordered[place]
    ax.vlines(place, estimate.lower[kept], estimate.upper[kept], colors=look.colors[0], linewidth=1.0, alpha=0.8)
    ax.plot(place, estimate.mean[kept], "o", markersize=2.5, **_marker(estimate, look), label="estimate")
    thinned = f", {len(kept)} of them drawn" if len(kept) < len(rows) else ""
    ax.set_xlabel(f"{len(rows)} rows sorted by probability{thinned}")
    ax.set_ylabel(_probability(common_state(estimate, rows)))


def _probability(state: str | None) -> str:
    """What is drawn; of events of a field the state is called "probability" itself."""
    return "probability" if state in (None, "probability") else f"probability of {state}"


def _marker(estimate: Estimate, look: Look) -> dict[str, Any]:
    """Filled points for what is certified, hollow ones for what is not."""
    fill = look.colors[0] if estimate.is_certified else look.paper
    return {"color": look.colors[0], "markerfacecolor": fill}
