"""Style of all plots: panels, colours that can be read on any background, and plain text."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dobrushin._shared.environment import require
from dobrushin._shared.progress import is_notebook
from dobrushin._shared.text import visible
from dobrushin.errors import ArgumentError

# Okabe and Ito's colours, told apart by colour-blind readers too: those that stand out on white, and on black.
ON_LIGHT = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#333333")
ON_DARK = ("#56B4E9", "#E69F00", "#009E73", "#CC79A7", "#F0E442")
INK, CHALK = "#1a1a1a", "#e6e6e6"
STYLES = ("-", "--", "-.", ":")
# Text is left in its colour where its contrast is at least this (WCAG 2, level AA).
_READABLE = 4.5


class Look(NamedTuple):
    """Colours for the texts, lines and points of one Axes."""

    colors: tuple[str, ...]
    alarm: str  # warnings
    ink: Any  # text and lines inside the Axes
    frame: Any  # text and lines around it
    paper: Any  # the background
    map: str  # name of a colour map whose low end is near the background


def look(ax: Any) -> Look:
    """Return colours that are readable on the background of an Axes."""
    now = ax.xaxis.label.get_color()
    outside = _over(None, ax.figure.figure.patch, ax.figure.patch)
    inside = _over(outside, ax.patch)
    ink, frame = _readable(now, inside), _readable(now, outside)
    dark = _luminance(inside) < 0.18 if inside is not None else _luminance(_rgb(now)) > 0.5
    paper = inside if inside is not None else ((0.0, 0.0, 0.0) if dark else (1.0, 1.0, 1.0))
    if dark:
        return Look(ON_DARK, "#FF7F2A", ink, frame, paper, "cividis")
    return Look(ON_LIGHT, "#D55E00", ink, frame, paper, "cividis_r")


def dress(ax: Any, look: Look, grid: str = "", alarm: bool = False) -> None:
    """Give the frame, ticks and texts of an Axes their colours; `grid` is "x", "y", "both" or "".

    If `alarm`, the title is shown in the colour of a warning.
    """
    ax.tick_params(which="both", color=look.frame, labelcolor=look.frame)
    for spine in ax.spines.values():
        spine.set_edgecolor(look.frame)
    for text in (ax.title, ax.xaxis.label, ax.yaxis.label):
        text.set_color(look.frame)
        text.set_usetex(False)
    if alarm:
        ax.title.set_color(look.alarm)
    ax.xaxis.get_offset_text().set_color(look.frame)
    ax.yaxis.get_offset_text().set_color(look.frame)
    if grid:
        ax.grid(visible=True, which="major", axis=grid, color=look.ink, alpha=0.15, linewidth=0.8)
        ax.set_axisbelow(True)
        ax.spines[["top", "right"]].set_visible(False)
    if (legend := ax.get_legend()) is not None:
        for text in legend.get_texts():
            text.set_color(look.ink)
            text.set_usetex(False)


def panels(ax: Any, count: int, size: tuple[float, float], columns: int = 0, **layout: Any) -> list[Any]:
    """Return the Axes to draw on: the given ones, or those of a new figure with this number of columns."""
    axes = require("matplotlib.axes", "plots")
    if ax is None:
        figure = _new_figure(size)
        columns = columns or count
        grid = figure.subplots(-(-count // columns), columns, squeeze=False, **layout).ravel()
        figure.get_layout_engine().set(wspace=0.06)
        for spare in grid[count:]:
            spare.remove()
        return list(grid[:count])
    given = [ax] if isinstance(ax, axes.Axes) else []
    if isinstance(ax, list | tuple | np.ndarray):
        given = list(np.asarray(ax, dtype=object).ravel())
    if len(given) != count or not all(isinstance(panel, axes.Axes) for panel in given):
        raise ArgumentError("ax", "a matplotlib Axes" if count == 1 else f"{count} matplotlib Axes", ax)
    return given


def _new_figure(size: tuple[float, float]) -> Any:
    """Return a new figure: one of pyplot if that is in use or in a notebook, else one that need not be closed."""
    if "matplotlib.pyplot" in sys.modules or is_notebook():
        return require("matplotlib.pyplot", "plots").figure(figsize=size, layout="constrained")
    return require("matplotlib.figure", "plots").Figure(figsize=size, layout="constrained")


def as_result(axes: list[Any]) -> Any:
    """Return the Axes of a plot: one Axes, or an array of several."""
    return axes[0] if len(axes) == 1 else np.array(axes, dtype=object)


def plain(name: Any, longest: int = 40) -> str:
    """Return a name in a form that matplotlib shows unchanged: no formulas, no line breaks, at most `longest` long."""
    text = visible(str(name))
    if len(text) > longest:
        text = text[: longest - 1] + "…"
    return text.replace("$", r"\$")


def entry(name: str) -> str:
    """Return a plain name as an entry of a legend, where a name must not begin with an underscore."""
    return f" {name}" if name.startswith("_") else name


def name_ticks(axis: Any, positions: Any, names: list[str]) -> None:
    """Label ticks of an axis with plain names."""
    axis.set_ticks(positions, names)
    for text in axis.get_ticklabels():
        text.set_usetex(False)


def inches(ax: Any) -> Any:
    """Return the width and height of an Axes in inches, before layout."""
    return ax.get_position().size * ax.figure.bbox.size / ax.figure.figure.dpi


def legend_font(ax: Any) -> str:
    """Return the font size of a legend, which is smaller for a narrower Axes."""
    width = float(inches(ax)[0])
    return "medium" if width > 4 else "small" if width > 2.8 else "x-small"


def color_bar(image: Any, axes: list[Any], label: str, look: Look) -> Any:
    """Draw one colour bar for several panels, and return it."""
    figure = axes[-1].figure
    bar = figure.colorbar(image, ax=[ax for ax in axes if ax.figure is figure])
    bar.set_label(label)
    bar.outline.set_edgecolor(look.frame)
    dress(bar.ax, look._replace(ink=look.frame))
    return bar


def blocks(values: NDArray[np.float64], most: int) -> tuple[NDArray[np.float64], int]:
    """Return the largest value in each of at most `most` equal blocks of an array, and the size of a block."""
    size = -(-len(values) // most)
    if size == 1:
        return values, 1
    padded = np.pad(values, (0, -len(values) % size), constant_values=np.nan).reshape(-1, size)
    return np.fmax.reduce(padded, axis=1), size


def _over(below: Any, *patches: Any) -> Any:
    """Return the colour of semi-transparent patches lying on each other; None if the result is transparent."""
    for patch in patches:
        *color, alpha = patch.get_facecolor()
        if not patch.get_visible() or alpha == 0:
            continue
        under = (1.0, 1.0, 1.0) if below is None else below
        below = tuple(alpha * c + (1 - alpha) * u for c, u in zip(color, under, strict=True))
    return below


def _readable(color: Any, background: Any) -> Any:
    """Return the colour if it is readable on the background, else a dark or a light one that is."""
    if background is None or _contrast(_rgb(color), background) >= _READABLE:
        return color
    return max((INK, CHALK), key=lambda other: _contrast(_rgb(other), background))


def _contrast(one: Any, other: Any) -> float:
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _luminance(rgb: Any) -> float:
    c = np.asarray(rgb)
    linear = np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)
    return float(linear @ (0.2126, 0.7152, 0.0722))


def _rgb(color: Any) -> Any:
    return require("matplotlib.colors", "plots").to_rgb(color)
