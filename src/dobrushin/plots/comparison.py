"""Estimates against exact answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dobrushin._estimate import Estimate
from dobrushin._estimate.targets import Target
from dobrushin._shared import validate as check
from dobrushin._shared.call import public
from dobrushin.errors import ArgumentError
from dobrushin.plots.style import dress, legend_font, look, panels
from dobrushin.plots.table import groups, row_name, select, verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_REQUIREMENT = "marginals by position, a dict from labels to marginals, or an Estimate"
_MOST_NAMES = 8


class Reference(NamedTuple):
    """What the rows of an estimate are compared with; NaN where there is nothing."""

    value: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]


@public(name="plots.against_exact")
def against_exact(estimate: Estimate, exact: Any, *, difference: bool = False, ax: Axes | None = None) -> Axes:
    """Draw estimates with their intervals against exact answers; an interval that misses is marked.

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
        raise ArgumentError("exact", _REQUIREMENT, exact)
    rows = next((part[hit] for part in select(estimate) if (hit := ~np.isnan(known.value[part])).any()), None)
    if rows is None:
        raise ArgumentError("exact", "about some of the targets that were estimated", exact)
    axis: Any = panels(ax, 1, (5.4, 4.6))[0]
    _draw(axis, estimate, known, rows, difference)
    return axis


def _draw(ax: Any, estimate: Estimate, known: Reference, rows: NDArray[np.int64], difference: bool) -> None:
    colours = look(ax)
    x, x_low, x_high = (part[rows] for part in known)
    shift = x if difference else np.zeros(len(rows))
    mean, lower, upper = (part[rows] - shift for part in (estimate.mean, estimate.lower, estimate.upper))
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
    for k in np.flatnonzero(missed)[:_MOST_NAMES]:
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


def _from_estimate(estimate: Estimate, exact: Estimate) -> Reference:
    place = {_key(exact, k): k for k in range(len(exact))}
    rows = np.array([place.get(_key(estimate, k), -1) for k in range(len(estimate))], dtype=np.int64)
    return Reference(*(np.where(rows < 0, np.nan, part[rows]) for part in (exact.mean, exact.lower, exact.upper)))


def _key(estimate: Estimate, k: int) -> Any:
    """The same for the same row of another estimate: joint states are tuples, and statistics have none."""
    target = estimate.targets[k]
    return target.plain if isinstance(target, Target) else target, estimate.states[k]


def _from_marginals(estimate: Estimate, exact: Any) -> Reference:
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
    return Reference(value, value, value)
