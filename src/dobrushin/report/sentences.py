"""What a certificate says, in plain words."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dobrushin._estimate import Estimate


def percent(confidence: float) -> str:
    """A confidence as people say it.

    Examples
    --------
    >>> percent(0.99), percent(0.9995)
    ('99%', '99.95%')
    """
    return f"{100 * confidence:.10g}%"


def verdict(estimate: Estimate) -> dict[str, str]:
    """The one thing to know: whether to believe the numbers."""
    count = len(estimate)
    rows = {1: "the interval", 2: "both intervals"}.get(count, f"all {count:,} intervals")
    widest = float(estimate.half_width.max())
    if not estimate.is_certified:
        text = (
            "Nothing is known about how far the sampler is from the model. The intervals cover chance only; the bias "
            "is left out of them, and the true values may lie far outside."
        )
        return {"level": "bad", "headline": "NOT CERTIFIED: the bias is unknown", "text": text}
    if estimate.plan.method == "exact":
        text = f"Nothing was sampled. {rows.capitalize()} hold for certain: rounding is inside them."
        return {"level": "good", "headline": "Certified: exact up to rounding", "text": _verb(text, count)}
    text = (
        f"{rows.capitalize()} hold{' at once' if count > 1 else ''} with probability {percent(estimate.confidence)} or "
        "more. The bias of the sampler is inside them."
    )
    if widest > estimate.plan.tolerance:
        headline = (
            f"Certified, but wider than asked: within {rounded_up(widest)} instead of {estimate.plan.tolerance:g}"
        )
        return {"level": "warn", "headline": headline, "text": _verb(text, count)}
    headline = f"Certified: within {estimate.plan.tolerance:g} at confidence {percent(estimate.confidence)}"
    return {"level": "good", "headline": headline, "text": _verb(text, count)}


def explained(estimate: Estimate) -> list[str]:
    """Why the intervals hold, or why they need not."""
    scan = estimate.plan.scan
    steps = 0 if scan is None else len(scan)
    chains = f"{_chains(estimate):,}"
    bias, confidence = bias_text(estimate), percent(estimate.confidence)
    if estimate.plan.method == "exact":
        return [
            "The probabilities were added up over all states of the model, in an order (a clique tree) that makes this "
            "affordable. No chance is involved.",
            f"Numbers in a computer are rounded. A bound on what this can have done, at most {bias}, is inside the "
            "intervals.",
        ]
    if estimate.plan.method == "dobrushin":
        return [
            f"The answer comes from {chains} independent chains. Each made {steps:,} updates of single variables, in "
            "an order that was chosen for these targets.",
            f"Before anything was drawn, Dobrushin's bound showed how far such a chain can be from the model after so "
            f"many updates, wherever it starts: the mean of infinitely many such chains is off by its bias bound or "
            f"less, at most {bias}. This is proven and does not rest on chance.",
            f"What is left is chance. The intervals ({estimate.plan.interval}) were widened by the bias bound, and "
            f"hold all at once with probability {confidence} or more.",
        ]
    if estimate.plan.method == "coalescence":
        return [
            f"The answer comes from {chains} or more independent runs of {steps:,} updates each. A run begins with all "
            "states of all variables at once, and keeps every state that some start could lead to.",
            "Where only one state of a target is left, the run has forgotten its start, and this state is an exact "
            "draw from the model. Where more are left, the run counts for each of them, so that the interval covers "
            "every case.",
            f"The share of runs that are left open bounds the bias: at most {bias}. It is counted, as the intervals "
            f"({estimate.plan.interval}) are: all of them hold at once with probability {confidence} or more.",
        ]
    return [
        f"The answer comes from {chains} independent chains of {steps:,} updates each.",
        f"No bound on the bias of such a chain was computed. The intervals ({estimate.plan.interval}) hold, with "
        f"probability {confidence} or more, for the law of the chain after {steps:,} updates, which need not be "
        "close to the model's.",
    ]


def bias_text(estimate: Estimate) -> str:
    """The largest bias bound of all rows, rounded upwards."""
    largest = float(np.max(estimate.bias_bound))
    return "unknown" if math.isnan(largest) else rounded_up(largest)


def facts(estimate: Estimate) -> list[tuple[str, str]]:
    """The certificate, line by line."""
    made = estimate.plan
    at = f" (at confidence {percent(estimate.confidence)})" if made.method == "coalescence" else ""
    lines = [("Method", made.method)]
    if estimate.is_certified:
        lines.append(("Chosen because", made.reason))
    lines.append(("Largest bias bound", bias_text(estimate) + at))
    lines.append(("Widest interval", f"plus or minus {rounded_up(float(estimate.half_width.max()))}"))
    if made.method != "exact":
        lines.append(("Confidence", f"{percent(estimate.confidence)}, for all intervals at once"))
        lines.append(("Interval", f"{made.interval}, {made.intervals:,} at once"))
    if made.scan is not None:
        kind = "runs of sets of states" if made.method == "coalescence" else "chains"
        lines.append(("Work", f"{len(made.scan):,} steps x {_chains(estimate):,} {kind}, kernel {made.kernel}"))
    return lines


def curve_words(kind: str, variables: int, confidence: float | None) -> str:
    """What the curve of the bound shows."""
    if kind == "dobrushin":
        about = "the target" if variables == 1 else "a variable that the answer looks at"
        mean = "" if variables == 1 else f" (the average of {variables:,})"
        words = f"Dobrushin's bound on how much {about} can still depend on the start{mean}."
        return f"{words} It is proven: no chance is involved."
    about = "the target" if variables == 1 else f"some of the {variables:,} variables that the answer looks at"
    return (
        f"Upper limit on the probability that {about} still depends on the start, from runs made for this picture. All "
        f"points hold at once at confidence {percent(confidence or 0.0)}. The intervals above do not rest on it."
    )


def _chains(estimate: Estimate) -> int:
    return estimate.plan.chains if estimate.samples is None else estimate.samples.chains


def _verb(text: str, count: int) -> str:
    return text if count > 1 else text.replace(" hold", " holds", 1)


def rounded_up(value: float, digits: int = 3) -> str:
    """A few digits, rounded upwards.

    Examples
    --------
    >>> rounded_up(0.0014451), rounded_up(0.5), rounded_up(0.0)
    ('0.00145', '0.5', '0')
    """
    text = f"{value:.{digits}g}"
    if float(text) >= value:
        return text
    unit: Any = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    return f"{value + unit:.{digits}g}"
