"""Numbers as people read them are statements: what is written, read back, holds wherever the number itself does."""

from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dobrushin as db
from dobrushin._shared.text import exact_text, in_full, interval_texts, percent, rounded_up

NUMBERS = st.floats(min_value=-1e14, max_value=1e14)
WIDTHS = st.floats(min_value=0.0, max_value=1e3)


@given(mean=NUMBERS, below=WIDTHS, above=WIDTHS)
def test_intervals_are_written_no_narrower_than_they_are(mean, below, above):
    lower, upper = mean - below, mean + above
    texts = interval_texts(mean, lower, upper)
    assert float(texts[1]) <= lower
    assert float(texts[2]) >= upper
    assert Decimal(texts[1]) <= Decimal(texts[0]) <= Decimal(texts[2])
    number, _, off = exact_text(mean, lower, upper).partition(", exact to ")
    assert float(Decimal(number) - Decimal(off)) <= lower
    assert float(Decimal(number) + Decimal(off)) >= upper


@given(value=NUMBERS, digits=st.integers(1, 9))
def test_bounds_are_rounded_to_their_side(value, digits):
    assert value <= float(rounded_up(value, digits))
    assert float(rounded_up(value, digits)) == pytest.approx(value, rel=10.0 ** (1 - digits), abs=1e-320)


@given(error=st.floats(min_value=1e-15, max_value=0.999))
def test_only_certain_answers_have_a_confidence_of_100_percent(error):
    confidence = 1.0 - error
    assert Decimal(percent(confidence).removesuffix("%")) <= 100 * Decimal(repr(confidence))
    assert (percent(confidence) == "100%") == (confidence == 1.0)


@given(value=st.floats(allow_nan=False))
def test_parameters_are_written_in_full(value):
    assert float(in_full(value)) == value


def test_printed_rows_hold_what_was_proved():
    """Of rows rounded to the nearest digit, about half say too much."""
    rng = np.random.default_rng(1)
    model = db.Ising.grid(6, 6, couplings=rng.uniform(-0.3, 0.3, 60), fields=rng.normal(size=(6, 6)))
    for method in ("exact", "dobrushin"):
        answer = db.estimate(model, range(8), method=method, tolerance=0.05, seed=1)
        rows = [line.split() for line in str(answer).splitlines()[2:18]]
        for k, (_, _, mean, lower, upper, bias) in enumerate(rows):
            assert float(lower) <= answer.lower[k] <= answer.upper[k] <= float(upper)
            assert float(lower) <= float(mean) <= float(upper)
            assert float(bias) >= answer.bias_bound[k]


def test_thresholds_and_confidences_are_not_rounded_to_other_ones():
    field = db.GaussianField([[1.0]], linear=[0.5])
    assert db.estimate(field, db.Exceeds(0, 1000000.5), seed=1).headline.startswith("P(0 > 1000000.5) = ")
    assert db.estimate(field, db.Between(0, 0.1234567, 2), seed=1).headline.startswith("P(0.1234567 <= 0 <= 2) = ")
    plan = db.plan(db.Ising.grid(3, 3, couplings=0.1), [0], confidence=1 - 2e-12, method="dobrushin", tolerance=0.1)
    assert "100%" not in str(plan)
