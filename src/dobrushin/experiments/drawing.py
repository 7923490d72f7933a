"""How the figures look: one colour and one line style for each scan, throughout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dobrushin._shared.extras import require

# Okabe and Ito's colours, told apart by colour-blind readers too.
COLORS = {
    "uniform": "#8A8A8A",
    "systematic": "#0072B2",
    "DoGS": "#D55E00",
    "iterated DoGS": "#CC79A7",
    "ours": "#009E73",
}
LINES = {"uniform": ":", "systematic": "--", "DoGS": "-", "iterated DoGS": "-.", "ours": "-"}
MARKERS = {"uniform": "x", "systematic": "s", "DoGS": "o", "iterated DoGS": "v", "ours": "D"}


def look(method: str, marker: bool = False) -> dict[str, Any]:
    """Keywords of `plot` for a scan: those of the longest known name that its name begins with."""
    known = max((name for name in COLORS if method.startswith(name)), key=len, default="ours")
    style: dict[str, Any] = {"color": COLORS[known], "linestyle": LINES[known], "linewidth": 1.6}
    if marker:
        style |= {"marker": MARKERS[known], "markersize": 3.5}
    return style


def panels(rows: int = 1, columns: int = 1, width: float = 4.6, height: float = 3.4, **share: Any) -> tuple[Any, Any]:
    """A figure and its axes, always as a two-dimensional array."""
    figure = require("matplotlib.figure", "experiments").Figure(
        figsize=(columns * width, rows * height), layout="constrained", dpi=110
    )
    return figure, figure.subplots(rows, columns, squeeze=False, **share)


def finish(ax: Any, title: str, x: str, y: str, log: str = "y", legend: bool = True) -> None:
    """Title, labels, scales and a light grid."""
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
        ax.legend(frameon=False, fontsize=8)


def save(figures: dict[str, Any], folder: Path) -> list[Path]:
    """Write each figure as PNG (of few colours, so that it is small) and as SVG."""
    image = require("PIL.Image", "experiments")
    written: list[Path] = []
    for name, figure in figures.items():
        png, svg = folder / f"{name}.png", folder / f"{name}.svg"
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # laid out once is enough
        figure.savefig(png)
        with image.open(png) as whole:
            small = whole.convert("RGB").quantize(200)
        small.save(png, optimize=True)
        figure.savefig(svg)
        written += [png, svg]
    return written
