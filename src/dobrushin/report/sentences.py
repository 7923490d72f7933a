"""What a certificate says, in plain words."""

from __future__ import annotations

from dobrushin._estimate import Estimate
from dobrushin._estimate.method import method_of
from dobrushin._shared.text import percent, rounded_up


def verdict(estimate: Estimate) -> dict[str, str]:
    """The one thing to know: whether to believe the numbers."""
    count = len(estimate)
    rows = {1: "the interval", 2: "both intervals"}.get(count, f"all {count:,} intervals")
    widest = estimate.widest
    if not estimate.is_certified:
        text = (
            "Nothing is known about how far the sampler is from the model. The intervals cover chance only; the bias "
            "is left out of them, and the true values may lie far outside."
        )
        return {"level": "bad", "headline": "NOT CERTIFIED: the bias is unknown", "text": text}
    if estimate.plan.is_certain:
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


def facts(estimate: Estimate) -> list[tuple[str, str]]:
    """The certificate, line by line."""
    plan, method = estimate.plan, method_of(estimate.plan)
    lines = [("Method", plan.method)]
    if estimate.is_certified:
        lines.append(("Chosen because", plan.reason))
    at = "" if method.bias_is_proven else f" (at confidence {estimate.confidence_text})"
    lines.append(("Largest bias bound", estimate.bias_text + at))
    lines.append(("Widest interval", f"plus or minus {rounded_up(float(estimate.half_width.max()))}"))
    if not plan.is_certain:
        lines.append(("Confidence", f"{estimate.confidence_text}, for all intervals at once"))
        lines.append(("Interval", f"{plan.interval}, {plan.intervals:,} at once"))
    if plan.scan is not None:
        work = f"{estimate.steps:,} steps x {estimate.chains:,} {method.outcomes}, kernel {plan.kernel}"
        lines.append(("Work", work))
    if estimate.evidence_text:
        lines.append(("Evidence", estimate.evidence_text))
    return lines


def _verb(text: str, count: int) -> str:
    return text if count > 1 else text.replace(" hold", " holds", 1)
