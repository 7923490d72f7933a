"""Style of the experiments' figures: each kind of scan has one colour and line style in all figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.transforms import ScaledTranslation
from PIL import Image

from dobrushin.experiments.catalog import Arrays
from dobrushin.experiments.scans import FEW, METHODS

GREY = "#8A8A8A"
# Colour (Okabe and Ito's, told apart by colour-blind readers too), line and marker of each scan.
_STYLES = {
    "uniform": (GREY, ":", "x"),
    "systematic": ("#0072B2", "--", "s"),
    "DoGS": ("#D55E00", "-", "o"),
    "iterated DoGS": ("#CC79A7", "-.", "v"),
    "greedy + 1 round": ("#009E73", "-", "D"),
}
COLORS = {name: style[0] for name, style in _STYLES.items()}

# The figure of the paper that each of these redoes.
PAPER = {
    "ising-tv": "Figure 1",
    "ising-tv-replicates": "Figure 9",
    "wall-clock": "Figures 2 and 11",
    "wall-clock-trials": "Figure 10",
    "mle": "Figure 3",
    "marginal-guarantees": "Figures 4 and 5 (left)",
    "marginal-distances": "Figures 4 and 14",
    "marginal-heatmaps": "Figures 12 and 15",
    "marginal-bias": "Figures 5 and 13",
    "segmentation-photograph": "Figure 6",
    "segmentation-labels": "Figure 6",
    "segmentation-errors": "Figures 7 and 16",
    "loose-bounds": "Figure 8",
}
_DPI = 220  # twice what a page shows


def look(method: str, marker: bool = False) -> dict[str, Any]:
    """Return the keywords of matplotlib's `plot` for a scan, by the longest known name that begins the scan's name."""
    known = max((name for name in _STYLES if method.startswith(name)), key=len, default="greedy + 1 round")
    color, line, mark = _STYLES[known]
    style: dict[str, Any] = {"color": color, "linestyle": line, "linewidth": 1.6}
    return style | ({"marker": mark, "markersize": 3.5} if marker else {})


def panels(rows: int = 1, columns: int = 1, width: float = 4.6, height: float = 3.9, **share: Any) -> tuple[Any, Any]:
    """Make a figure with Axes, always as a two-dimensional array."""
    figure = Figure(figsize=(columns * width, rows * height), layout="constrained", dpi=_DPI)
    return figure, figure.subplots(rows, columns, squeeze=False, **share)


def finish(ax: Any, title: str, x: str, y: str, log: str = "y", legend: int = 2) -> None:
    """Set title, labels and scales of a panel, a light grid, and a legend with `legend` columns (0: none)."""
    if "x" in log:
        ax.set_xscale("log")
    if "y" in log:
        ax.set_yscale("log")
    ax.set_title(title, fontsize=10)
    ax.set_xlabel(x, fontsize=9)
    ax.set_ylabel(y, fontsize=9)
    ax.tick_params(labelsize=8)
    ax.grid(visible=True, which="major", alpha=0.25)
    ax.spines[["top", "right"]].set_visible(False)
    if legend:
        legend_below(ax, columns=legend)


def legend_below(ax: Any, columns: int = 2, size: float = 8) -> None:
    """Put the legend of a panel below its horizontal axis."""
    under = ax.transAxes + ScaledTranslation(0, -0.42, ax.figure.dpi_scale_trans)
    ax.legend(
        frameon=False, fontsize=size, ncols=columns, loc="upper center", bbox_to_anchor=(0.5, 0.0),
        bbox_transform=under, handlelength=1.8, columnspacing=1.2, labelspacing=0.25,
    )  # fmt: skip


def save(name: str, figure: Any, folder: Path) -> list[Path]:
    """Write a figure as PNG (with few colours, to be small), SVG and PDF, with its number in the paper."""
    png, *others = (folder / f"{name}.{suffix}" for suffix in ("png", "svg", "pdf"))
    source = f"after {PAPER[name]} of the paper" if name in PAPER else "not in the paper"
    figure.supxlabel(source, fontsize=8, color="#6A6A6A", x=0.99, ha="right")
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # laid out once is enough
    figure.savefig(png)
    with Image.open(png) as whole:
        small = whole.convert("RGB").quantize(128, dither=Image.Dither.NONE)
    small.save(png, optimize=True)
    with mpl.rc_context({"svg.fonttype": "none"}):  # text stays text
        for path in others:
            figure.savefig(path)
    return [png, *others]


def draw_guarantees(ax: Any, data: Arrays, title: str, methods: Sequence[str] = METHODS, compact: bool = False) -> None:
    """Draw the bound of each method's scans against their length, and as thin lines bounds along the longest scan."""
    for method in methods:
        best = f"{method}: {data[method].min():.2g}"
        if method in ("uniform", "systematic"):
            ax.plot(data["along"], data[f"{method}, along"], label=best, **look(method))
        else:
            ax.plot(data["budgets"], data[method], label=best, **look(method, marker=not compact))
            if not compact:
                ax.plot(data["along"], data[f"{method}, along"], **{**look(method), "linewidth": 0.6, "alpha": 0.7})
    finish(ax, title, "Gibbs steps T", "bound on the total variation")
    if compact:
        ax.label_outer()
        legend_below(ax, columns=1, size=7)


def draw_bias(ax: Any, budgets: Any, data: dict[str, Any], scan: str) -> None:
    """Draw measured biases: a line for many chains, and points with standard errors for each run of `FEW` chains."""
    many = data["many"]
    ax.errorbar(budgets, many["bias"], many["error"], label=f"{scan}: {data['chains']:,} chains", **look(scan, True))
    for k, few in enumerate(data["few"]):
        shift = 1.06 ** (k + 1)
        label = f"{FEW} chains, {len(data['few'])} times" if k == 0 and scan == "greedy + 1 round" else None
        ax.errorbar(np.asarray(budgets) * shift, few["bias"], few["error"], fmt=".", markersize=4, color=COLORS[scan],
                    alpha=0.45, linewidth=0.8, label=label)  # fmt: skip
    ax.axhline(0, color=GREY, linewidth=0.8)
