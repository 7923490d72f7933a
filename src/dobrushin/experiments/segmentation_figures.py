"""Figures of the segmentation experiment. Those for the documentation contain no photograph."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin.experiments.drawing import GREY, finish, look, panels

METHODS = ("PLSA", "systematic", "DoGS", "shortest scan", "certified scan")
TITLES = {
    "truth": "by hand (black: void)",
    "PLSA": "PLSA: the start",
    "systematic": "systematic, 620 steps",
    "DoGS": "DoGS, 110 steps",
    "shortest scan": "shortest scan, 109 steps",
    "certified scan": "certified scan",
}
# Colours of the classes as in the data set, void first.
PALETTE = np.array(
    [
        (0, 0, 0), (128, 0, 0), (0, 128, 0), (128, 128, 0), (0, 0, 128), (128, 128, 128), (192, 0, 0), (192, 128, 0),
        (64, 0, 128), (192, 0, 128),
    ],
    dtype=np.uint8,
)  # fmt: skip


def errors(run: list[dict[str, Any]], key: str = "inside") -> NDArray[np.float64]:
    """Return the mean error of each split and method, with shape (splits, methods)."""
    return np.array([np.nanmean(split[key], axis=1) for split in run])


def spread(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the mean over splits, and its standard error."""
    return values.mean(axis=0), values.std(axis=0, ddof=1) / np.sqrt(len(values))


def draw(data: dict[str, Any]) -> dict[str, Any]:
    """Draw errors of all runs, certificates, label maps and, in a separate figure, the photograph."""
    return {
        "segmentation-errors": _draw_errors(data["runs"]),
        "segmentation-certificates": _draw_certificates(data["certificates"]),
        "segmentation-labels": _draw_labels(data["example"]),
        "segmentation-photograph": _draw_photograph(data["example"]),
    }


def _draw_errors(runs: list[list[dict[str, Any]]]) -> Any:
    """Draw errors of each run with one standard error over the splits, and differences from the systematic scan."""
    figure, axes = panels(1, len(runs) + 1, width=3.3, height=3.1)
    places = np.arange(len(METHODS))
    colors = ["#B0B0B0", *(look(name)["color"] for name in METHODS[1:])]
    names = ["PLSA", "systematic", "DoGS", "shortest\nscan", "certified\nscan"]
    for number, (ax, run) in enumerate(zip(axes[0], runs, strict=False)):
        mean, error = spread(errors(run))
        ax.bar(places, mean, yerr=error, color=colors, width=0.7, capsize=3, error_kw={"linewidth": 1})
        for k, value in enumerate(mean):
            ax.text(k, 0.004, f"{value:.3f}", ha="center", va="bottom", fontsize=7, color="white")
        ax.set_xticks(places, names)
        finish(ax, f"run {number + 1}: {len(run)} splits", "", "error in the rectangle", log="", legend=0)
        ax.tick_params(axis="x", labelsize=7)
    ax = axes[0][-1]
    table = np.concatenate([errors(run) for run in runs])
    mean, error = spread(table - table[:, [1]])
    for k in (0, 2, 3, 4):
        ax.errorbar(k, mean[k], 2 * error[k], fmt="o", color=colors[k], capsize=3)
    ax.axhline(0, color=GREY, linewidth=0.8)
    ax.set_xticks(places, names)
    ax.set_xlim(-0.5, len(METHODS) - 0.5)
    title = f"all {len(table)} splits, two standard errors"
    finish(ax, title, "", "error, less that of systematic", log="", legend=0)
    ax.tick_params(axis="x", labelsize=7)
    return figure


def _draw_certificates(data: dict[str, Any]) -> Any:
    """Draw bounds against sweeps, and the number of labels that `estimate` certifies."""
    figure, axes = panels(1, 3, width=3.9, height=3.2)
    ax, size = axes[0][0], 96
    sweeps = np.arange(data["paper"].shape[1])
    ax.plot(sweeps, data["paper"].max(axis=0) / size, label="Theorem 4, any image", **look("systematic"))
    middle = np.median(data["best"], axis=0) / size
    ax.plot(sweeps, middle, label="default influence, each image: median", **look("uniform"))
    exact = data["exact"] / size
    ax.plot(sweeps, np.median(exact, axis=0), label="exact influence, each image: median", **look("greedy + 1 round"))
    for curve in exact:
        ax.plot(sweeps, curve, color=look("greedy + 1 round")["color"], alpha=0.3, linewidth=0.7)
    finish(ax, "Dobrushin variation of the 96 labels", "systematic sweeps", "bound for a label, on average", legend=1)
    ax.set_ylim(1e-6, 1.6)
    ax = axes[0][1]
    for k, curve in enumerate(data["coalesced"]):
        label = "each test image" if k == 0 else None
        ax.plot(sweeps, curve, color=look("DoGS")["color"], alpha=0.4, linewidth=0.9, label=label)
    ax.axhline(0.05, color=GREY, linewidth=0.8, linestyle=":")
    finish(ax, "coalescence of all 96 labels at once", "systematic sweeps", "bound on their total variation")
    for one in axes[0][:2]:
        one.set_xticks(range(0, len(sweeps), 5))
    ax = axes[0][2]
    labels = np.sort(data["estimate, labels"])[::-1]
    ax.bar(np.arange(1, len(labels) + 1), labels, color=look("greedy + 1 round")["color"], width=0.8)
    ax.axhline(size, color=GREY, linewidth=0.8)
    seconds = float(np.median(data["estimate, seconds"]))
    title = f"labels certified of {size}, {seconds:.1g} s each"
    ax.set_xticks(range(1, len(labels) + 1, max(1, len(labels) // 6)))
    finish(ax, title, "test image", "patches", log="", legend=0)
    return figure


def _color(labels: NDArray[Any]) -> NDArray[np.uint8]:
    return PALETTE[labels + 1]


def _outline(ax: Any, box: NDArray[Any]) -> None:
    top, bottom, left, right = (float(side) for side in box)
    ax.plot([left, right, right, left, left], [top, top, bottom, bottom, top], color="white", linewidth=1.6)
    ax.set_xticks([])
    ax.set_yticks([])


def _draw_labels(data: dict[str, Any]) -> Any:
    """Draw label maps with the rectangle outlined, and a legend of the classes."""
    figure, axes = panels(2, 3, width=3.2, height=2.35)
    for ax, (name, title) in zip(axes.ravel(), TITLES.items(), strict=True):
        ax.imshow(_color(data[name]), interpolation="nearest")
        _outline(ax, data["box"])
        ax.set_title(title, fontsize=9)
    used = np.unique(np.concatenate([np.unique(data[name]) for name in TITLES]))
    classes = data["classes"]
    handles = [
        axes[0, 0].plot([], [], "s", color=PALETTE[k + 1] / 255, label=str(classes[k]), markersize=8)[0]
        for k in used
        if k >= 0
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=9)
    return figure


def _draw_photograph(data: dict[str, Any]) -> Any:
    """Draw the photograph beside its label maps (not for the documentation: the images' licence forbids it)."""
    figure, axes = panels(1, 3, width=3.2, height=2.5)
    pictures = (data["photograph"], _color(data["DoGS"]), _color(data["certified scan"]))
    titles = (str(data["name"]), TITLES["DoGS"], TITLES["certified scan"])
    for ax, picture, title in zip(axes[0], pictures, titles, strict=True):
        ax.imshow(picture, interpolation="nearest")
        _outline(ax, data["box"])
        ax.set_title(title, fontsize=9)
    return figure
