"""Pictures of results. Each function draws on an Axes and returns it; needs the extra `plots` (matplotlib)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dobrushin._extras import require
from dobrushin._variation import Variation
from dobrushin.errors import ArgumentError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's colours, told apart by colour-blind readers too; no black, so that dark backgrounds work.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
STYLES = ("-", "--", "-.", ":")


def bounds(variations: Mapping[str, Variation], *, every: int | None = None, ax: Axes | None = None) -> Axes:
    """Draw the certified bound against the number of steps, one curve per scan.

    Parameters
    ----------
    variations : dict from names to Variation
    every : int, optional
        Steps between points; default about 200 points.
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
    if not isinstance(variations, Mapping) or not all(isinstance(v, Variation) for v in variations.values()):
        raise ArgumentError("plots.bounds", "variations", "a dict from names to Variation", variations)
    ax = _axes(ax)
    for k, (name, variation) in enumerate(variations.items()):
        steps, values = variation.curve(every)
        ax.plot(
            steps, values, color=COLORS[k % len(COLORS)], linestyle=STYLES[k % len(STYLES)], linewidth=1.8,
            label=f"{name}: {variation.value:.2g}",
        )  # fmt: skip
    ax.set_yscale("log")
    ax.set_xlabel("Gibbs steps")
    ax.set_ylabel("certified bound on the bias")
    ax.grid(visible=True, which="major", alpha=0.25)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False)
    return ax


def _axes(ax: Axes | None) -> Any:
    if ax is not None:
        return ax
    figure = require("matplotlib.figure", "plots").Figure(figsize=(6.4, 4.0), layout="constrained")
    return figure.add_subplot()
