"""Plots of chains: their recorded states, or running shares of states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from dobrushin._estimate.headline import telling_state
from dobrushin._sampling import Samples
from dobrushin._shared import validate as check
from dobrushin._shared.call import public
from dobrushin._shared.environment import require
from dobrushin.errors import ArgumentError
from dobrushin.plots.style import (
    STYLES,
    Look,
    as_result,
    color_bar,
    dress,
    entry,
    legend_font,
    look,
    name_ticks,
    panels,
    plain,
)
from dobrushin.typing import Trace

_PANELS, _MAX_PANELS = 4, 24
_MAX_POINTS, _MAX_LINES, _MAX_STRIPS = 1000, 20, 100


@public(name="plots.trace")
def trace(samples: Samples, variables: Any = None, *, show: Trace = "means", ax: Any = None) -> Any:
    """Draw the recorded draws of chains, with a panel for each variable.

    Parameters
    ----------
    samples : Samples
        Whose states were recorded at intervals: ``record=db.Record(every=...)``.
    variables : labels, optional
        Default the first four of those that were kept.
    show : {"means", "states"}
        "means": for each state the share of draws in it so far, thick for all chains together and thin for single ones,
        the first 20. Of two states the last one is drawn. "states": the states themselves, a line for each chain,
        the first 100, and a column for each draw, at most 1000 of them.
    ax : Axes, or a sequence of them, optional
        One for each variable; default those of a new figure.

    Returns
    -------
    matplotlib Axes, or array of Axes where there are several variables

    Examples
    --------
    >>> import dobrushin as db
    >>> model = db.Ising.grid(4, 4, couplings=0.3, fields=0.1)
    >>> run = db.sample(model, db.Scan.systematic(16, 1600), chains=10, seed=1, record=db.Record(every=16))
    >>> ax = db.plots.trace(run, [5])
    >>> ax.get_title(), ax.get_ylabel()
    ('variable 5', 'share of state 1')
    """
    check.instance(samples, Samples, "samples", "Samples")
    check.choice(show, get_args(Trace), "show")
    states = samples.states
    if states is None or states.ndim != 3:
        kept = "counts only" if states is None else "the last draw only"
        raise ArgumentError("samples", "recorded at intervals: record=db.Record(every=...)", got=kept)
    if not samples.chains:
        raise ArgumentError("samples", "of at least one chain", got="0 chains")
    labels = samples.variables
    lookup = None if labels == range(len(labels)) else {label: k for k, label in enumerate(labels)}
    if variables is None:
        columns = np.arange(min(_PANELS, len(labels)))
    else:
        columns = check.positions(variables, labels, lookup, "variables")
    if len(columns) > _MAX_PANELS:
        raise ArgumentError("variables", f"at most {_MAX_PANELS}", got=f"{len(columns)} variables")
    count = len(columns)
    across = 1 if count == 1 else 2
    size = (6.4, 3.6) if count == 1 else (8.0, 0.4 + 2.2 * -(-count // across))
    axes = panels(ax, count, size, across)
    values = range(-1, 2, 2) if samples._spins else range(samples._cardinality)
    image = None
    for panel, column in zip(axes, columns.tolist(), strict=True):
        colours = look(panel)
        if show == "means":
            called = _called(samples, column, values)
            _draw_means(panel, states[:, :, column], values[: len(called)], called, colours)
        else:
            image = _draw_states(panel, states[:, :, column], values, colours)
        panel.set_xlabel("recorded draw")
        panel.set_title(f"variable {plain(labels[column], 30)}", fontsize="medium")
        dress(panel, colours, grid="" if show == "states" else "y")
    if image is not None:
        bar = color_bar(image, axes, "state", look(axes[-1]))
        names = {tuple(_called(samples, column, values)) for column in columns.tolist()}
        ticks = _states_shown(values[: min(map(len, names))])
        if len(names) == 1:  # else a number stands for another name in each panel
            own = next(iter(names))
            name_ticks(bar.ax.yaxis, ticks, [plain(own[values.index(state)], 12) for state in ticks])
        else:
            bar.set_ticks(_states_shown(values))
            bar.set_label("number of the state")
    return as_result(axes)


def _called(samples: Samples, column: int, values: range) -> Sequence[Any]:
    """Return the names of a variable's states, or their numbers if they have no names."""
    return (None if samples.state_names is None else samples.state_names.at(column)) or values


def _states_shown(values: range) -> list[int]:
    """Return at most ten of the states, evenly spaced."""
    return list(values)[:: -(-len(values) // 10)]


def _draw_means(ax: Any, states: NDArray[Any], values: range, called: Sequence[Any], look: Look) -> None:
    """Draw the share of each state among the draws so far."""
    chains, draws = states.shape
    points = np.unique(np.linspace(1, draws, min(draws, _MAX_POINTS)).round().astype(np.int64))
    drawn = [values[telling_state(called)] if len(values) == 2 else values[-1]]
    left_out = 0
    names = {state: entry(plain(name, 20)) for state, name in zip(values, called, strict=True)}
    if len(values) > 2:
        seen, counts = np.unique(states, return_counts=True)
        most = seen[np.argsort(-counts, kind="stable")][: len(look.colors)]
        drawn, left_out = np.sort(most).tolist(), len(seen) - len(most)
    lines = min(chains, _MAX_LINES) if chains > 1 else 0
    for k, state in enumerate(drawn):
        color = look.colors[k % len(look.colors)]
        hits = states == state
        single = np.cumsum(hits[:lines], axis=1)[:, points - 1] / points
        if lines and len(drawn) == 1:
            ax.plot(points, single.T, color=color, linewidth=0.7, alpha=0.35)
        together = np.cumsum(hits.mean(axis=0))[points - 1] / points
        ax.plot(points, together, color=color, linestyle=STYLES[k % 4], linewidth=2.0, label=names[state])
    if len(drawn) == 1:
        ax.set_ylabel(f"share of {'state ' if isinstance(called, range) else ''}{names[drawn[0]].strip()}")
    else:
        ax.set_ylabel("share of states")
        ax.legend(frameon=False, fontsize="small" if legend_font(ax) == "medium" else "x-small", ncols=len(drawn))
    ax.set_ylim(-0.03, 1.03)
    if left_out:
        ax.set_ylabel(f"share of states ({left_out} rarer ones not drawn)")


def _draw_states(ax: Any, states: NDArray[Any], values: range, look: Look) -> Any:
    """Draw the states as an image: a line for each chain, a column for each draw."""
    chains, draws = states.shape
    columns = np.unique(np.linspace(0, draws - 1, min(draws, _MAX_POINTS)).round().astype(np.int64))
    picture = states[:_MAX_STRIPS, columns]
    edges = np.arange(len(values) + 1) * values.step + values[0] - values.step / 2
    colors = require("matplotlib", "plots").colormaps[look.map].resampled(len(values))
    norm = require("matplotlib.colors", "plots").BoundaryNorm(edges, len(values))
    image = ax.imshow(
        picture, cmap=colors, norm=norm, aspect="auto", interpolation="nearest", origin="upper",
        extent=(0.5, draws + 0.5, len(picture) - 0.5, -0.5),
    )  # fmt: skip
    ax.set_ylabel("chain" if chains <= _MAX_STRIPS else f"chain (the first {_MAX_STRIPS} of {chains})")
    ax.yaxis.set_major_locator(require("matplotlib.ticker", "plots").MaxNLocator(nbins=5, integer=True))
    return image
