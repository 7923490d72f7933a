"""The limit on planning, with a clock that is moved by hand."""

import math
import pickle

import numpy as np
import pytest

import dobrushin as db
from dobrushin._sampling import start
from dobrushin._sampling.start import allowed_state
from dobrushin._shared.call import (
    NO_DEADLINE,
    PLANNING,
    Deadline,
    LateError,
    current_deadline,
    limited,
    planning_deadline,
)
from dobrushin.errors import BudgetError


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_runs_from_the_moment_it_is_made():
    clock = Clock()
    deadline = Deadline(30.0, clock=clock)
    deadline.check()
    clock.now += 20.0
    assert (deadline.spent, deadline.left, deadline.is_over) == (20.0, 10.0, False)
    clock.now += 20.0
    assert (deadline.left, deadline.is_over) == (0.0, True)
    with pytest.raises(BudgetError, match=r"Planning \(the pilot\) needs 40 seconds or more, over the limit of 30"):
        deadline.check("the pilot")


def test_a_part_shares_the_clock():
    clock = Clock()
    deadline = Deadline(30.0, clock=clock)
    clock.now += 10.0
    part = deadline.part(0.25)
    assert part.limit == 10.0
    clock.now += 11.0
    assert part.is_over
    assert not deadline.is_over


def test_expected_work_decides_whatever_the_clock_says():
    deadline = Deadline(30.0, work=15.0, clock=Clock())
    part = deadline.part(0.5)
    part.charge(5.0)
    assert (part.work_left, deadline.work_left) == (2.5, 10.0)
    with pytest.raises(LateError, match="the search"):
        part.charge(3.0, "the search")
    assert part.work_left == 2.5  # what is refused is not done
    deadline.charge(10.0)
    with pytest.raises(LateError):
        deadline.charge(0.1)
    Deadline(30.0, clock=Clock()).charge(1e9)  # by the clock alone


def test_errors_travel():
    with pytest.raises(LateError) as caught:
        Deadline(-1.0).check("a stage")
    again = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(again, LateError)
    assert str(again) == str(caught.value)


def test_the_current_one_is_that_of_the_innermost_with():
    assert current_deadline() is NO_DEADLINE
    with Deadline(30.0) as outer:
        with outer.part(0.5) as inner:
            assert current_deadline() is inner
        assert current_deadline() is outer
        with pytest.raises(ZeroDivisionError), outer:
            raise ZeroDivisionError
        assert current_deadline() is outer
    assert current_deadline() is NO_DEADLINE
    assert NO_DEADLINE.left == math.inf


def test_a_call_with_little_time_plans_for_less():
    assert planning_deadline(None).limit == 0.85 * PLANNING
    assert planning_deadline(8.0).limit == 0.85 * 2.0
    assert planning_deadline(400.0).limit == 0.85 * 100.0  # a quarter of what the user allows, not 30 s
    assert planning_deadline(math.inf).limit == 0.85 * PLANNING


def test_a_limit_stands_still_while_code_is_compiled(monkeypatch):
    from dobrushin._shared import clock
    from dobrushin._shared.compile import kernel

    now = [100.0]
    monkeypatch.setattr(clock.time, "monotonic", lambda: now[0])
    before = clock.seconds()
    clock.PAUSES.begin()
    now[0] += 5.0
    clock.PAUSES.begin()
    now[0] += 5.0
    assert clock.seconds() == before
    clock.PAUSES.end()
    now[0] += 5.0
    clock.PAUSES.end()
    assert clock.seconds() == before
    now[0] += 5.0
    assert clock.seconds() == before + 5.0
    pauses = []
    monkeypatch.setattr(clock.PAUSES, "begin", lambda: pauses.append("begin"))
    monkeypatch.setattr(clock.PAUSES, "end", lambda: pauses.append("end"))

    def add(a, b):
        return a + b

    assert kernel(add)(1, 2) == 3
    assert pauses[0] == "begin"
    assert pauses.count("begin") == pauses.count("end")


def test_a_call_without_a_limit_keeps_that_of_the_call_around_it():
    with Deadline(30.0) as outer:
        with limited(NO_DEADLINE):
            assert current_deadline() is outer
        with limited(outer.part(0.5)) as inner:
            assert current_deadline() is inner
    assert current_deadline() is NO_DEADLINE


def satisfiability(n):
    """Return a model of random clauses of three variables, 4.2 for each variable, which takes a long search."""
    rng = np.random.default_rng(0)
    clauses = []
    for _ in range(21 * n // 5):
        table = np.zeros((2, 2, 2))
        table[tuple(rng.integers(0, 2, 3))] = -np.inf
        clauses.append((tuple(rng.choice(n, 3, replace=False).tolist()), table))
    return db.FactorGraph([2] * n, clauses)


def test_the_search_for_an_allowed_state_keeps_to_the_limit():
    form = satisfiability(300)._form
    clock = Clock()
    with Deadline(1.0, clock=clock) as deadline:
        clock.now += 2.0
        with pytest.raises(LateError, match="search for an allowed state"):
            allowed_state(form)
    assert deadline.is_over


@pytest.mark.parametrize(
    "call",
    [
        lambda model: db.sample(model, db.Scan.systematic(300, 300), time_limit=1e-9),
        lambda model: db.coalescence(model, db.Scan.systematic(300, 300), time_limit=1e-9),
        lambda model: db.exact_sample(model, [0], draws=1, time_limit=1e-9),
    ],
    ids=["sample", "coalescence", "exact_sample"],
)
def test_calls_that_search_for_an_allowed_state_keep_their_time_limit(call, monkeypatch):
    monkeypatch.setattr(start, "_MAX_LOOKS", 0)
    monkeypatch.setattr(start, "_MAX_REPAIRS", 0)  # a search that is not ended by the limit gives up
    with pytest.raises(
        db.BudgetError, match=r"search for an allowed state needs .* seconds or more.*A longer 'time_limit'"
    ):
        call(satisfiability(300))
