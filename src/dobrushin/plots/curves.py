"""Bounds against steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dobrushin._coalescence import Coalescence
from dobrushin._optimize import ScanResult
from dobrushin._shared.call import public
from dobrushin._variation import Variation
from dobrushin.errors import ArgumentError
from dobrushin.plots.style import STYLES, dress, entry, legend_font, look, panels, plain

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
    ...     "DoGS": db.optimize(model, systematic, targets=[0]).variation,
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
        text = f"{plain(name)}: {bound.value:.2g}"
        if by_simulation := isinstance(bound, Coalescence):
            text += f" (confidence {bound.confidence:g})"
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
