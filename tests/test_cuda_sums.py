"""The sums of the GPU are those of the CPU but for rounding. Without a GPU, the same source runs on the host."""

import math

import numpy as np
import pytest

import dobrushin as db
from dobrushin._exact import device_sums as on_device
from dobrushin._exact import engine
from dobrushin._exact.engine import plan_sums
from dobrushin._shared import device
from dobrushin.errors import BudgetError
from models import FAMILIES, FAMILIES_WITH_ZEROS, random_model
from test_cuda import gpu  # noqa: F401
from test_sums import largest_excess, singles, treacherous

CASES = [(family, False) for family in FAMILIES] + [(family, True) for family in FAMILIES_WITH_ZEROS]
pytestmark = pytest.mark.usefixtures("gpu")


@pytest.mark.parametrize(("family", "zeros"), CASES)
def test_errors_are_within_their_bounds_in_many_digits(family, zeros):
    rng = np.random.default_rng([11, zeros, FAMILIES.index(family)])
    for strength in (0.3, 30.0):
        model = random_model(rng, family, n=int(rng.integers(1, 6)), zeros=zeros, strength=strength)
        tables = model._form.tables()
        sums = plan_sums(tables, singles(model), 1e9).run(tables, backend="cuda")
        assert sums.relative < 1e-9
        assert largest_excess(model, sums) <= 0


@pytest.mark.parametrize("limits", [(2**18, 64, 2**15, 256), (64, 2, 16, 3), (16, 1, 7, 2), (1, 1, 1, 2)])
def test_tables_in_parts_and_in_several_launches(limits, monkeypatch):
    """However the terms of a sum are shared out, and the parts added up."""
    for name, limit in zip(("_THREADS", "_LEAST_TERMS", "_MAX_PARTS", "_FEW_PARTS"), limits, strict=True):
        monkeypatch.setattr(on_device, name, limit)
    monkeypatch.setattr(on_device, "_PIECE", 300)
    rng = np.random.default_rng(2)
    scopes, sizes = [(0, 1, 2), (3, 1), (2, 3, 4)], [3, 4, 2, 5, 3]
    model = db.FactorGraph(sizes, [(scope, rng.normal(size=[sizes[v] for v in scope])) for scope in scopes])
    tables = model._form.tables()
    groups = [*singles(model), (0, 3), (4, 1)]
    plan = plan_sums(tables, groups, 1e9)
    here, there = (plan.run(tables, backend=backend) for backend in ("cpu", "cuda"))
    for a, b in zip(here.marginals, there.marginals, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13)
    assert there.log_partition == pytest.approx(here.log_partition, rel=1e-14)
    assert (there.relative, there.log_partition_error) == (here.relative, here.log_partition_error)


def test_what_underflows_is_not_lost():
    """Such sums are made again, with wide numbers, on the CPU."""
    model, plan = treacherous()
    sums = plan.run(model._form.tables(), backend="cuda")
    assert largest_excess(model, sums, [1]) <= 0
    assert sums.marginals[0][1] < 1e-4


def test_a_wrong_sum_is_seen(monkeypatch):
    """Negative control: the last term of every sum is left out."""
    order = on_device._order_axes

    def shorter(axes):
        rows, kept = order(axes)
        rows[kept:, 0] -= 1
        return rows, kept

    monkeypatch.setattr(on_device, "_order_axes", shorter)
    model = random_model(np.random.default_rng(1), "factors", n=5, strength=1.0)
    tables = model._form.tables()
    sums = plan_sums(tables, singles(model), 1e9).run(tables, backend="cuda")
    assert largest_excess(model, sums) > 0


def test_public_functions_take_a_backend(monkeypatch):
    model = db.Ising.grid(4, 5, couplings=0.3, fields=0.1)
    for a, b in zip(db.exact.marginals(model, backend="cpu"), db.exact.marginals(model, backend="cuda"), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13)
    here, there = (db.exact.log_partition(model, evidence={3: 1}, backend=name) for name in ("cpu", "cuda"))
    assert abs(here - there) <= here.error + there.error
    answer = db.estimate(model, "all", method="exact", run=db.RunOptions(backend="cuda"))
    assert "on the GPU" in answer.plan.reason
    monkeypatch.setattr(engine, "_ENTRIES_FOR_DEVICE", 1)
    monkeypatch.setattr(device, "is_available", lambda: True)
    assert "on the GPU" in db.estimate(db.Ising.grid(3, 3, couplings=0.3), "all", method="exact").plan.reason
    with pytest.raises(db.ArgumentError, match="backend"):
        db.exact.marginals(model, backend="tpu")


def test_what_does_not_fit_on_the_device_is_said(monkeypatch):
    model = db.Ising.grid(4, 4, couplings=0.3)
    monkeypatch.setattr(device, "free_memory", lambda: 100)
    with pytest.raises(BudgetError, match="bytes"):
        db.exact.marginals(model, backend="cuda")
    monkeypatch.setattr(engine, "_ENTRIES_FOR_DEVICE", 1)
    monkeypatch.setattr(device, "is_available", lambda: True)
    assert len(db.exact.marginals(model)) == 16  # on the CPU instead
    assert math.isfinite(db.exact.log_partition(model))
