"""Models that fall apart: each component by its own best method, and an easy part is not lost to a hard one."""

import os
from concurrent.futures import Executor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import dobrushin as db
from dobrushin._estimate import parts
from dobrushin._estimate.method import METHODS
from dobrushin._estimate.parts import _split
from dobrushin._estimate.query import make_query, read_settings

DATA = os.environ.get("DOBRUSHIN_DATA")
SETTINGS = read_settings(db.Ising({(0, 1): 0.1}), 0.05, 0.99, "auto", None, None)


def shifted(model, first):
    """Couplings and fields of an Ising model on positions from `first`."""
    couplings = model.couplings.tocoo()
    pairs = {
        (int(i) + first, int(j) + first): float(w)
        for i, j, w in zip(*couplings.coords, couplings.data, strict=True)
        if i < j
    }
    return pairs, {first + i: float(f) for i, f in enumerate(model.fields)}


def together(*parts):
    """One Ising model of several that do not know of each other."""
    pairs, fields, first = {}, {}, 0
    for part in parts:
        own_pairs, own_fields = shifted(part, first)
        pairs |= own_pairs
        fields |= own_fields
        first += part.n_variables
    return db.Ising(pairs, fields)


CHAIN = db.Ising({(k, k + 1): 2.0 for k in range(19)}, fields=np.linspace(-0.3, 0.5, 20))
TINY = db.Ising({(0, 1): 3.0, (1, 2): -2.0}, fields=[0.4, 0.0, 0.1])
UNEVEN = np.resize([0.02, 0.0, -0.01], (30, 30))  # fields, without which marginals are known by symmetry
WEAK = db.Ising.grid(30, 30, couplings=0.15, fields=UNEVEN)
HARD = db.Ising.grid(30, 30, couplings=np.resize([1.0, 1.0, -1.0], 1800), fields=UNEVEN, periodic=True)


def test_an_easy_part_is_not_lost_to_one_that_is_sampled(monkeypatch):
    monkeypatch.setattr(METHODS["local"], "in_auto", False)
    model = together(CHAIN, WEAK, TINY)
    with pytest.raises(db.CertificateError):
        db.estimate(model, "all", tolerance=0.1, method="dobrushin")
    answer = db.estimate(model, "all", tolerance=0.1, seed=1, method="parts")
    assert answer.plan.method == "parts"
    assert answer.plan.reason == "3 parts, each answered separately: exact for 2, dobrushin for 1"
    assert answer.is_certified
    assert answer.confidence == 0.99
    assert answer.targets == [i for i in range(923) for _ in range(2)]
    assert answer.half_width.max() <= 0.1
    exact = np.concatenate(db.exact.marginals(CHAIN) + db.exact.marginals(TINY))
    rows = np.r_[0:40, 2 * 920 : 2 * 923]
    np.testing.assert_allclose(answer.value[rows], exact, atol=1e-9)
    assert answer.half_width[rows].max() < 1e-9
    assert (answer.lower[40:1840] <= 0.5).all()  # no fields: both states are as likely
    assert (answer.upper[40:1840] >= 0.5).all()
    assert answer.half_width[40:1840].min() > 0.01
    again = db.estimate(model, "all", tolerance=0.1, seed=1, method="parts")
    np.testing.assert_array_equal(answer.value, again.value)


def test_a_part_that_fails_leaves_the_others(monkeypatch):
    monkeypatch.setattr(METHODS["coalescence"], "in_auto", False)
    monkeypatch.setattr(METHODS["weights"], "in_auto", False)
    model = together(TINY, HARD, CHAIN)
    with pytest.raises(db.CertificateError, match=r"parts: the part of 3 \(900 variables\)") as caught:
        db.estimate(model, "all", tolerance=0.05)
    answer = caught.value.result
    truth = np.concatenate(db.exact.marginals(TINY) + [np.full(2, 0.5)] * 900 + db.exact.marginals(CHAIN))
    failed = np.zeros(len(truth), dtype=bool)
    failed[6:1806] = True
    # The failed part has what local sums found, which is certain.
    assert (answer.lower <= truth).all()
    assert (answer.upper >= truth).all()
    assert answer.half_width[failed].min() > 0.05
    assert answer.confidence == 1.0
    np.testing.assert_allclose(answer.value[~failed], truth[~failed], atol=1e-9)
    assert answer.half_width[~failed].max() < 1e-9
    assert not answer.plan.reaches_tolerance
    # Without the hard part all is as it was.
    assert db.estimate(model, [0, 920], tolerance=0.05).plan.is_certain
    with pytest.raises(db.CertificateError) as caught:
        db.estimate(together(HARD, HARD), "all")
    assert set(caught.value.reasons) == {"dobrushin", "local", "walks", "exact", "parts"}
    assert caught.value.result.half_width.min() > 0.05


def test_shares_of_the_error_add_up_and_rows_are_all_there():
    model = together(CHAIN, TINY, CHAIN, TINY)
    targets = [25, db.Joint(0, 21), 3, 1, 44, 22, db.Statistic.event([45], lambda x: x[..., 0] == 1)]
    query = make_query(model, targets, {}, SETTINGS)
    pieces = _split(query)
    # The second question joins the first chain and the first small part; the other small part is by itself.
    assert sorted(sorted(piece.query.model.labels) for piece in pieces) == [
        [*range(23)], [*range(23, 43)], [43, 44, 45],
    ]  # fmt: skip
    assert sorted(np.concatenate([piece.rows for piece in pieces])) == list(range(sum(map(len, query.questions))))
    error = sum((1 - piece.query.confidence) for piece in pieces)
    assert 0.0099 < error <= 0.01 + 1e-15
    assert sum(piece.query.intervals for piece in pieces) == query.intervals
    answer = db.estimate(model, targets, method="parts")
    wanted = db.estimate(model, targets, method="exact")
    np.testing.assert_allclose(answer.value, wanted.value, atol=1e-9)
    assert answer.targets == wanted.targets
    assert answer.states == wanted.states
    assert answer.confidence == 1
    assert answer.plan.is_certain


def test_one_component_is_no_case_for_it():
    with pytest.raises(db.CertificateError, match="all targets depend on the same variables"):
        db.estimate(CHAIN, "all", method="parts")
    assert db.estimate(together(CHAIN, TINY), "all").plan.method == "exact"
    # Small components are answered together.
    with pytest.raises(db.CertificateError, match="all targets depend on the same variables"):
        db.estimate(together(TINY, TINY), "all", method="parts")


def test_a_budget_is_shared():
    model = together(WEAK, db.Ising.grid(30, 31, couplings=0.15, fields=0.01))
    plan = db.plan(model, "all", tolerance=0.1, method="parts")
    assert plan.reason == "2 parts, each answered separately: dobrushin for 2"
    with pytest.raises((db.CertificateError, db.BudgetError)):
        db.estimate(model, "all", tolerance=0.1, method="parts", budget=1000)


def test_the_report_and_the_file(tmp_path):
    model = together(CHAIN, WEAK)
    path = tmp_path / "run"
    first = db.estimate(model, "all", tolerance=0.1, method="parts", run=db.RunOptions(checkpoint=path), seed=7)
    again = db.estimate(model, "all", tolerance=0.1, method="parts", run=db.RunOptions(checkpoint=path))
    np.testing.assert_array_equal(first.value, again.value)
    assert again.seed == 7
    first.report(tmp_path / "page.html", model=model, diagnosis=False)
    assert "Targets that depend on the same variables form a part" in (tmp_path / "page.html").read_text()


def test_an_interruption_leaves_the_parts_that_are_there(monkeypatch):
    class Ended(Executor):
        """Interrupts the first run of chains."""

        def submit(self, *_, **__):
            raise KeyboardInterrupt

    monkeypatch.setattr(METHODS["local"], "in_auto", False)
    rng = np.random.default_rng(1)
    tangle = db.Ising({(i, int(j)): 0.05 for i in range(400) for j in rng.choice(400, 4) if i < j}, fields=0.01)
    model = together(TINY, tangle)
    with pytest.raises(db.Interrupted) as caught:
        db.estimate(model, "all", tolerance=0.1, run=db.RunOptions(executor=Ended()), method="parts")
    answer = caught.value.result
    truth = np.concatenate(db.exact.marginals(TINY))
    assert answer.stopped_by == "Ctrl-C"
    np.testing.assert_allclose(answer.value[: len(truth)], truth, atol=1e-9)
    assert answer.half_width[: len(truth)].max() < 1e-9
    assert answer.half_width[len(truth) :].max() == 0.5


@pytest.mark.skipif(not DATA, reason="DOBRUSHIN_DATA, the folder of real files, is not set")
def test_all_marginals_of_munin1_are_exact_in_parts():
    model = db.read(Path(DATA) / "bif" / "munin1.bif.gz")
    answer = db.estimate(model, "all", method="parts")
    assert answer.plan.is_certain
    assert answer.half_width.max() < 1e-8
    for label in model.labels[::40]:
        np.testing.assert_allclose(answer[label].value, db.estimate(model, [label], method="exact").value, atol=1e-12)


def test_the_plan_of_parts_can_be_their_budget():
    pairs = {(i, j): 0.01 if i < 60 else 0.011 for i in range(120) for j in range(i) if (i < 60) == (j < 60)}
    model = db.Ising(pairs, fields=0.001)
    plan = db.plan(model, [0, 60], method="parts", tolerance=0.05)
    assert plan.updates > 0
    answer = db.estimate(model, [0, 60], method="parts", tolerance=0.05, budget=plan.updates, seed=1)
    assert answer.half_width.max() <= 0.05


def test_a_confidence_that_rounding_takes_for_certainty_is_refused():
    for method in ("coalescence", "parts", "dobrushin"):
        with pytest.raises(db.ArgumentError, match=r"at most 1 - 1e-12"):
            db.estimate(TINY, [0], method=method, confidence=1 - 1e-16)


def test_parts_are_not_planned_further_once_they_take_as_long_as_the_whole(monkeypatch):
    model = together(*(db.Ising.grid(1, 21 + k, couplings=0.2, fields=0.1) for k in range(5)))
    pieces = _split(make_query(model, list(model.labels), {}, SETTINGS))
    assert len(pieces) == 5
    asked = []

    def choose(query):
        asked.append(query.model.n_variables)
        plan = SimpleNamespace(seconds=1.0, reaches_tolerance=True)
        return SimpleNamespace(plan=plan, needed_updates=lambda: 0)

    monkeypatch.setattr(parts, "choose", choose)
    assert parts._plan_faster(pieces, None, 2.5) is None
    assert asked == [25, 24, 23]
    faster = parts._plan_faster(pieces, None, 5.5)
    assert [piece.rows.tolist() for piece in faster] == [piece.rows.tolist() for piece in pieces]
