"""Plots of certificates: bounds against steps, and the influence matrix with its row sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._coalescence import Coalescence
from dobrushin._influence import Influence
from dobrushin._influence import influence as compute
from dobrushin._models import Model
from dobrushin._optimize import ScanResult
from dobrushin._shared import validate as check
from dobrushin._shared.call import public
from dobrushin._shared.environment import require
from dobrushin._shared.text import percent, rounded_up
from dobrushin._variation import Variation
from dobrushin.errors import ArgumentError
from dobrushin.plots.style import (
    STYLES,
    Look,
    as_result,
    blocks,
    color_bar,
    dress,
    entry,
    legend_font,
    look,
    name_ticks,
    panels,
    plain,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@public(name="plots.bounds")
def bounds(
    variations: Mapping[str, Variation | Coalescence | ScanResult], *, every: int | None = None, ax: Axes | None = None
) -> Axes:
    """Draw the certified bound against the number of steps, one curve per scan.

    Parameters
    ----------
    variations : dict from names to Variation, Coalescence or ScanResult
        The curve of a Coalescence has points, all of which hold at once with its confidence.
    every : int, optional
        Steps between points; default about 200 points, 50 for a Coalescence.
    ax : matplotlib Axes, optional
        Default: a new figure's.

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> import dobrushin as db
    >>> model = db.Ising.grid(5, 5, couplings=0.2)
    >>> systematic = db.Scan.systematic(25, steps=300)
    >>> curves = {
    ...     "systematic": db.variation(model, systematic, targets=[0]),
    ...     "DoGS": db.optimize_scan(model, systematic, targets=[0]).variation,
    ... }
    >>> db.plots.bounds(curves).get_yscale()
    'log'
    """
    kinds = Variation | Coalescence | ScanResult
    if not isinstance(variations, Mapping) or not all(isinstance(v, kinds) for v in variations.values()):
        requirement = "a dict from names to Variation, Coalescence or ScanResult"
        raise ArgumentError("variations", requirement, variations)
    if not variations:
        raise ArgumentError("variations", "a dict with at least one curve", variations)
    axis: Any = panels(ax, 1, (6.4, 4.0))[0]
    colours = look(axis)
    handles, names = [], []
    for k, (name, result) in enumerate(variations.items()):
        bound = result.variation if isinstance(result, ScanResult) else result
        steps, values = bound.curve(every)
        text = f"{plain(name)}: {rounded_up(bound.value, 2)}"
        if by_simulation := isinstance(bound, Coalescence):
            text += f" (confidence {percent(bound.confidence)})"
        line, = axis.plot(
            steps, values, color=colours.colors[k % len(colours.colors)], linestyle=STYLES[k % len(STYLES)],
            linewidth=1.8, marker="o" if by_simulation else "", markersize=3, label=entry(text),
        )  # fmt: skip
        handles.append(line)
        names.append(entry(text))
    axis.set_yscale("log")
    axis.set_xlabel("Gibbs steps")
    axis.set_ylabel("certified bound on the bias")
    axis.legend(handles, names, frameon=False, fontsize=legend_font(axis))
    dress(axis, colours, grid="both")
    return axis


# Entries of the picture along a side; of a larger matrix the largest entries of blocks.
_SIDE, _COARSE = 300, 200
_MAX_BARS, _MAX_POINTS, _MAX_NAMES = 60, 2000, 25


@public(name="plots.influence")
def influence(model: Model | Influence, *, ax: Any = None) -> Any:
    """Draw an influence matrix, and the sums of its rows.

    Where all row sums are below 1 (the dashed line), Dobrushin's condition holds.

    Parameters
    ----------
    model : Model or Influence
    ax : two matplotlib Axes, optional
        For the matrix and for the sums; default those of a new figure.

    Returns
    -------
    array of two matplotlib Axes
        Of more than 300 variables the matrix is shown by the largest entries of blocks.

    Notes
    -----
    Entry (i, j), in row i and column j, bounds C_ij, the influence of variable j on variable i; Dobrushin's condition
    is max_i sum_j C_ij < 1.

    Examples
    --------
    >>> import dobrushin as db
    >>> model = db.Ising.grid(6, 6, couplings=0.2)
    >>> matrix, sums = db.plots.influence(db.influence(model, method="paper"))
    >>> sums.get_title()
    'row sums: largest 0.79'
    """
    bound = compute(model) if isinstance(model, Model) else model
    check.instance(bound, Influence, "model", "a model or an Influence")
    axes = panels(ax, 2, (8.2, 3.8), width_ratios=[1.15, 1])
    _draw_matrix(axes[0], bound, look(axes[0]))
    _draw_sums(axes[1], bound, look(axes[1]))
    return as_result(axes)


def _draw_matrix(ax: Any, bound: Influence, look: Look) -> None:
    n = bound.n_variables
    k = 1 if n <= _SIDE else -(-n // _COARSE)
    entries = bound.matrix.tocoo()
    picture = np.zeros((-(-n // k),) * 2)
    np.maximum.at(picture, (entries.row // k, entries.col // k), entries.data)
    end = len(picture) * k - 0.5
    most = float(picture.max()) or 1.0
    image = ax.imshow(
        np.ma.masked_equal(picture, 0), vmin=0.0, vmax=most, cmap=look.map, extent=(-0.5, end, end, -0.5),
        aspect="equal", interpolation="nearest", origin="upper",
    )  # fmt: skip
    ax.set_xlabel("of variable j")
    ax.set_ylabel("on variable i")
    computed = bound.computed_rows
    title = "influence" if computed is None else f"influence: {len(computed)} of {n} rows"
    ax.set_title(title if k == 1 else f"{title}, largest in blocks of {k} × {k}", fontsize="medium")
    _ticks(ax, (ax.xaxis, ax.yaxis), bound)
    dress(ax, look)
    color_bar(image, [ax], "", look)


def _draw_sums(ax: Any, bound: Influence, look: Look) -> None:
    n = bound.n_variables
    sums: NDArray[np.float64] = np.asarray(bound.matrix.sum(axis=1), dtype=np.float64)
    if bound.computed_rows is not None:
        known = np.zeros(n, dtype=np.bool_)
        known[bound.computed_rows] = True
        sums = np.where(known, sums, np.nan)
    values, k = blocks(sums, _MAX_POINTS)
    where = np.arange(len(values)) * k + (k - 1) / 2
    high = values >= 1
    if n <= _MAX_BARS:
        ax.bar(where, values, color=[look.alarm if bad else look.colors[0] for bad in high])
    else:
        single = np.isnan(values).any()
        ax.plot(where, values, "." if single else "-", color=look.colors[0], linewidth=1.0)
        ax.plot(where[high], values[high], ".", color=look.alarm, markersize=4)
    ax.axhline(1.0, color=look.ink, linestyle="--", linewidth=1.2)
    ax.set_ylim(0.0, 1.08 * max(1.0, float(np.nanmax(sums))))
    ax.set_xlim(-0.6, n - 0.4)
    above = int((sums >= 1).sum())
    verdict = f"{above} of {n} not below 1" if above else f"largest {rounded_up(float(np.nanmax(sums)), 2)}"
    ax.set_title(f"row sums: {verdict}", fontsize="medium")
    ax.set_xlabel("variable i" if k == 1 else f"variable i (largest of each {k})")
    _ticks(ax, (ax.xaxis,), bound)
    dress(ax, look, grid="y")


def _ticks(ax: Any, which: Sequence[Any], bound: Influence) -> None:
    """Label ticks with the names of variables if there is room for them, else with positions."""
    n, has_names = bound.n_variables, not check.are_positions(bound.labels)
    for axis in which:
        if has_names and n <= _MAX_NAMES:
            name_ticks(axis, range(n), [plain(label, 12) for label in bound.labels])
            ax.tick_params(axis="x", labelrotation=90)
        else:
            bins = 6 if n < 10_000 else 3
            axis.set_major_locator(require("matplotlib.ticker", "plots").MaxNLocator(nbins=bins, integer=True))
