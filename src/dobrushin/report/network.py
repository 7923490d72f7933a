"""Picture of a small model's graph for notebooks, as an inline SVG with the marginals as bars in the nodes.

The picture takes its colours from the page that shows it, and contains no scripts.
"""

from __future__ import annotations

from collections.abc import Hashable
from html import escape
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dobrushin._estimate import Estimate
from dobrushin._estimate.targets import Target
from dobrushin._models import Model
from dobrushin._models.graph import links
from dobrushin._shared.layout import layered, spread
from dobrushin._shared.text import printable

# Larger graphs are not drawn, and of more states the first ones are.
_MAX_NODES, _MAX_SHOWN_STATES = 24, 6
_WIDTH, _ROW, _GAP_PIXELS = 168.0, 17.0, 26.0
# Of a row: where the bar begins and ends.
_BAR = (62.0, 118.0)


class Box(NamedTuple):
    """A node of the picture: the lines of text in its box, and the middle of the box."""

    name: str
    rows: list[tuple[str, float, float, float]]  # state, mean, lower, upper
    note: str
    x: float
    y: float

    @property
    def height(self) -> float:
        return _ROW * (1 + len(self.rows) + bool(self.note)) + 6.0


def network_picture(estimate: Estimate, model: Model | None = None) -> str:
    """Draw the graph of a model (default: that of the estimate) with the marginals in its nodes, as SVG.

    Returns an empty text for large graphs, lazy models and fields, and if no marginal is among the targets.
    """
    asked = estimate.asked
    model = asked.model if model is None and asked is not None else model
    if asked is None or model is None or not model._is_whole or not model._is_discrete:
        return ""
    if model.n_variables > _MAX_NODES or all(isinstance(target, Target) for target in estimate.targets):
        return ""
    arrows, is_directed = links(model)
    boxes = [_box(estimate, label, asked.evidence) for label in model.labels]
    boxes = _place(boxes, layered(len(boxes), arrows) if is_directed else spread(len(boxes), arrows))
    return _svg(boxes, arrows, is_directed)


def _box(estimate: Estimate, label: Hashable, evidence: dict[Hashable, Any]) -> Box:
    rows = [
        (printable(estimate.states[k]), float(estimate.value[k]), float(estimate.lower[k]), float(estimate.upper[k]))
        for k, target in enumerate(estimate.targets)
        if not isinstance(target, Target) and target == label
    ]
    note = f"{len(rows) - _MAX_SHOWN_STATES} more states" if len(rows) > _MAX_SHOWN_STATES else ""
    if label in evidence:
        state = evidence[label]
        note = "soft evidence" if isinstance(state, dict) else f"observed: {printable(state)}"
    return Box(printable(label), rows[:_MAX_SHOWN_STATES], note, 0.0, 0.0)


def _place(boxes: list[Box], places: NDArray[np.float64]) -> list[Box]:
    """Return the boxes at these positions, which are scaled up until no boxes overlap."""
    heights = np.array([box.height for box in boxes])
    least = np.array([_WIDTH, float(heights.max())]) + _GAP_PIXELS
    places = places - places.min(axis=0)
    scale = 0.5
    while _overlap(places * scale * least, heights) and scale < 20.0:
        scale *= 1.08
    places = places * scale * least
    return [box._replace(x=float(x), y=float(y)) for box, (x, y) in zip(boxes, places, strict=True)]


def _overlap(places: NDArray[np.float64], heights: NDArray[np.float64]) -> bool:
    dx, dy = (np.abs(places[:, None, axis] - places[None, :, axis]) for axis in (0, 1))
    near = (dx < _WIDTH + _GAP_PIXELS / 2) & (dy < (heights[:, None] + heights) / 2 + _GAP_PIXELS / 2)
    np.fill_diagonal(near, val=False)
    return bool(near.any())


def _svg(boxes: list[Box], arrows: NDArray[np.int64], is_directed: bool) -> str:
    left = min(box.x for box in boxes) - _WIDTH / 2 - 4
    top = min(box.y - box.height / 2 for box in boxes) - 4
    width = max(box.x for box in boxes) + _WIDTH / 2 + 4 - left
    height = max(box.y + box.height / 2 for box in boxes) + 4 - top
    lines = [_link(boxes[i], boxes[j], is_directed) for i, j in arrows.tolist()]
    label = f"Graph of {len(boxes)} variables with their probabilities, which the table below lists"
    return (
        f'<svg role="img" aria-label="{label}" viewBox="{left:.0f} {top:.0f} {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" font-size="12" '
        f'fill="currentColor" stroke="none">{"".join(lines)}{"".join(map(_node, boxes))}</svg>'
    )


def _link(one: Box, other: Box, is_directed: bool) -> str:
    """Draw a line between the borders of two boxes, with an arrow head if the graph is directed."""
    begin, end = _border(one, other), _border(other, one)
    line = (
        f'<line x1="{begin[0]:.1f}" y1="{begin[1]:.1f}" x2="{end[0]:.1f}" y2="{end[1]:.1f}" '
        'stroke="currentColor" stroke-opacity="0.55"/>'
    )
    if not is_directed:
        return line
    way = np.array([end[0] - begin[0], end[1] - begin[1]])
    way = way / max(1e-9, float(np.hypot(*way)))
    base, side = np.array(end) - 8.0 * way, 3.5 * np.array([-way[1], way[0]])
    corners = " ".join(f"{x:.1f},{y:.1f}" for x, y in (end, base + side, base - side))
    return f'{line}<polygon points="{corners}" fill-opacity="0.75"/>'


def _border(box: Box, other: Box) -> tuple[float, float]:
    """Return the point where the line from the middle of a box to that of another one crosses its border."""
    dx, dy = other.x - box.x, other.y - box.y
    share = min(_WIDTH / 2 / abs(dx) if dx else 1.0, box.height / 2 / abs(dy) if dy else 1.0, 1.0)
    return box.x + share * dx, box.y + share * dy


def _node(box: Box) -> str:
    x, y = box.x - _WIDTH / 2, box.y - box.height / 2
    parts = [
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{_WIDTH:.0f}" height="{box.height:.1f}" rx="4" fill-opacity="0.05" '
        'stroke="currentColor" stroke-opacity="0.6"/>',
        _text(box.x, y + _ROW - 4, box.name, 24, 'text-anchor="middle" font-weight="bold"'),
    ]
    y += _ROW
    for state, mean, lower, upper in box.rows:
        first, last = (x + end for end in _BAR)
        at = [first + (last - first) * min(1.0, max(0.0, value)) for value in (mean, lower, upper)]
        bars = ((first, last, 0.12), (first, at[0], 0.45), (at[1], max(at[1] + 1.0, at[2]), 0.95))
        parts.append(_text(x + 6, y + _ROW - 5, state, 9))
        parts += [
            f'<rect x="{left:.1f}" y="{y + 3:.1f}" width="{right - left:.1f}" height="11" fill-opacity="{opacity}"/>'
            for left, right, opacity in bars
        ]
        parts.append(_text(x + _WIDTH - 6, y + _ROW - 5, f"{mean:.3f}", 9, 'text-anchor="end"'))
        y += _ROW
    if box.note:
        parts.append(_text(box.x, y + _ROW - 5, box.note, 26, 'text-anchor="middle" font-style="italic"'))
    return "".join(parts)


def _text(x: float, y: float, text: str, most: int, how: str = "") -> str:
    """Draw a text of at most `most` characters; if it is cut, the tooltip shows all of it."""
    cut = escape(text) if len(text) <= most else f"<title>{escape(text)}</title>{escape(text[: most - 1])}…"
    return f'<text x="{x:.1f}" y="{y:.1f}" {how}>{cut}</text>'
