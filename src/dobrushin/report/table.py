"""The rows of an estimate, as few characters as they need."""

from __future__ import annotations

import json
import math
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal, localcontext
from typing import Any

import numpy as np

from dobrushin._estimate import Estimate
from dobrushin._estimate.targets import Statistic, shown
from dobrushin._shared.text import visible

# Rows of a page, and characters that all their names may take.
MOST_ROWS = 20_000
_NAME, _ALL_NAMES = 200, 500_000
_MOST_DECIMALS = 12
_DIGITS = 15


def rows_of(estimate: Estimate) -> dict[str, Any]:
    """The columns of the table; rows name their target by its number."""
    count = min(len(estimate), MOST_ROWS)
    targets, numbers = distinct_targets(estimate, count)
    decimals = _decimals(estimate, count)
    columns = {
        "mean": (estimate.mean, ROUND_HALF_EVEN),
        "lower": (estimate.lower, ROUND_FLOOR),
        "upper": (estimate.upper, ROUND_CEILING),
    }
    return {
        "total": len(estimate),
        "names": short_names([visible(str(shown(target))) for target in targets]),
        "target": numbers,
        "state": ["" if state is None else visible(str(state)) for state in estimate.states[:count]],
        **{name: [_round(x, decimals, way) for x in part[:count]] for name, (part, way) in columns.items()},
        "bias": [_two_digits(x) for x in estimate.bias_bound[:count]],
        "decimals": decimals,
        "probabilities": not any(isinstance(target, Statistic) and not target.is_event for target in targets),
    }


def cell_texts(rows: dict[str, Any], k: int) -> tuple[str, ...]:
    """One row as the page shows it."""
    numbers = (f"{rows[name][k]:.{rows['decimals']}f}" for name in ("mean", "lower", "upper"))
    bias = "unknown" if rows["bias"][k] is None else f"{rows['bias'][k]:.2g}"
    return rows["names"][rows["target"][k]], rows["state"][k], *numbers, bias


def distinct_targets(estimate: Estimate, count: int | None = None) -> tuple[list[Any], list[int]]:
    """The targets as they were asked for, and which one each row is about."""
    targets: list[Any] = []
    numbers = []
    for target in estimate.targets[:count]:
        if not targets or not _same(targets[-1], target):
            targets.append(target)
        numbers.append(len(targets) - 1)
    return targets, numbers


def _same(one: Any, other: Any) -> bool:
    return one is other or (type(one) is type(other) and bool(one == other))


def short_names(names: list[str]) -> list[str]:
    """Names cut in the middle, where they or all of them together are too long; numbered where that makes them alike.

    Examples
    --------
    >>> [name[-5:] for name in short_names(["a", "b" * 300 + "x" + "b" * 300, "b" * 300 + "y" + "b" * 300])]
    ['a', 'b (2)', 'b (3)']
    """
    cut = [_cut(name, _NAME) for name in names]
    size = sum(len(json.dumps(name)) for name in cut)
    if size > _ALL_NAMES:
        longest = int(_ALL_NAMES / size * sum(map(len, cut)) / len(cut))
        cut = [_cut(name, max(8, longest)) for name in names]
    if len(set(cut)) < len(set(names)):
        pairs = zip(cut, names, strict=True)
        cut = [short if short == name else f"{short} ({k})" for k, (short, name) in enumerate(pairs, 1)]
    return cut


def _cut(name: str, most: int) -> str:
    return name if len(name) <= most else f"{name[: most // 2]}\u2026{name[len(name) - most // 2 + 1 :]}"


def _decimals(estimate: Estimate, count: int) -> int:
    """Enough for two digits of the narrowest interval, and no more than numbers have."""
    widths = estimate.half_width[:count]
    narrow = float(np.min(widths, where=widths > 0, initial=1.0))
    largest = float(np.max(np.abs([estimate.lower[:count], estimate.upper[:count]]), initial=1.0))
    wanted = min(max(2 - math.floor(math.log10(narrow)), 2), _MOST_DECIMALS)
    return max(0, min(wanted, _DIGITS - 1 - math.floor(math.log10(largest))))


def _round(value: float, decimals: int, way: str) -> float:
    if abs(value) >= 10**_DIGITS:
        return float(value)
    with localcontext(prec=1100):  # every double has its digits
        return float(Decimal(float(value)).quantize(Decimal(1).scaleb(-decimals), way))


def _two_digits(value: float) -> float | None:
    """Rounded upwards; None where it is unknown."""
    if math.isnan(value):
        return None
    if value <= 0:
        return 0.0
    with localcontext(prec=1100):
        exact = Decimal(float(value))
        return float(exact.quantize(Decimal(1).scaleb(max(exact.adjusted() - 1, -300)), ROUND_CEILING))
