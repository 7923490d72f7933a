"""Planning keeps to its limit: what work is expected to take, and what becomes of a search that runs out of time."""

import contextlib

import numpy as np
import pytest

import dobrushin as db
from dobrushin._coalescence.sets import SET_KERNELS, choose_sets
from dobrushin._estimate import coalescence, dobrushin, query
from dobrushin._influence.matrix import known_influence
from dobrushin._models.couplings import symmetric
from dobrushin._optimize import guide, shortest
from dobrushin._sampling.kernel import KERNELS, choose_kernel
from dobrushin._shared import compile as pieces
from dobrushin._shared.arrays import distinct
from dobrushin._shared.call import Deadline, checked


def star(leaves, strength=0.5):
    hub, rays = np.zeros(leaves, dtype=np.int64), np.arange(1, leaves + 1)
    return db.Ising(symmetric(hub, rays, np.full(leaves, strength), leaves + 1))


@pytest.fixture
def little_work(monkeypatch):
    """Planning that expects every step to take long, with a clock that stands still."""
    monkeypatch.setattr(pieces, "_SECONDS_PER_OPERATION", 1.0)
    monkeypatch.setattr(pieces, "PIECE", 1000)
    monkeypatch.setattr(Deadline, "spent", 0.0)


class TestPrices:
    @pytest.mark.parametrize("name", ["set field", "set race"])
    def test_a_hub_costs_what_its_neighbours_cost(self, name):
        prices = []
        for leaves in (1000, 4000):
            model = star(leaves)
            form, region = model._region(np.array([0]))
            prices.append(SET_KERNELS[name].make(form, region).seconds(1e9, db.Scan([0])))
        assert 3.0 < prices[1] / prices[0] < 5.0

    @pytest.mark.parametrize("name", ["field", "factors"])
    def test_the_same_for_chains(self, name):
        prices = [choose_kernel(star(n), db.Scan([0]), 64, name).seconds(1e9, db.Scan([0])) for n in (1000, 4000)]
        assert 3.0 < prices[1] / prices[0] < 5.0

    def test_a_scan_is_priced_by_its_own_steps(self):
        model = star(1000)
        order = np.arange(1001)
        often = np.concatenate([order, np.zeros(1000, dtype=np.int64)])
        seldom = np.concatenate([order, np.arange(1, 1001)])
        kernel = choose_sets(model, db.Scan(often))
        assert kernel.seconds(1e9, db.Scan(often)) > 20 * kernel.seconds(1e9, db.Scan(seldom))

    def test_a_wide_factor_costs_its_cells(self):
        prices = []
        for members in (8, 12):
            model = db.FactorGraph([2] * members, [(range(members), np.zeros((2,) * members))])
            prices.append(choose_sets(model, db.Scan(range(members))).cost)
        assert prices[1] > 8 * prices[0]

    def test_states_of_potts_models_count(self):
        few, many = (choose_kernel(db.Potts.grid(4, 4, k, 0.1), db.Scan([5]), 64, "potts").cost for k in (3, 300))
        assert many > 20 * few

    def test_all_costs_are_positive_numbers(self):
        models = [db.Ising.grid(3, 3, 0.1), db.Potts.grid(3, 3, 3, 0.1), db.Ising.grid(3, 3, 0.1).to_factor_graph()]
        models.append(db.Ising({(0, 1): 0.1, (2, 3): 0.1}))
        for model in models:
            scan = db.Scan(range(model.n_variables))
            form, region = model._region(scan._updates(model.n_variables))
            runners = [k.make(form, region) for k in KERNELS.values() if k.fits(form, scan, region)]
            runners += [k.make(form, region) for k in SET_KERNELS.values() if k.fits(form)]
            for runner in runners:
                assert runner.costs.shape == (region.size,)
                assert (runner.costs > 0).all()
                assert np.isfinite(runner.costs).all()
                assert 0 < runner.seconds(1e3, scan) < runner.seconds(1e6, scan) < np.inf


class TestLimits:
    def test_a_search_that_is_too_long_is_refused_by_expected_work(self, little_work):
        del little_work
        with pytest.raises(db.BudgetError, match=r"planning .*needs .* seconds or more, over the limit of 11.2"):
            db.plan(db.Ising.grid(60, 60, couplings=0.24), "all", tolerance=0.001, method="dobrushin")

    def test_it_is_refused_at_the_same_place_every_time(self, little_work):
        del little_work
        texts = []
        for _ in range(2):
            with pytest.raises(db.BudgetError) as caught:
                db.plan(db.Ising.grid(60, 60, couplings=0.24), "all", tolerance=0.001, method="dobrushin")
            texts.append(str(caught.value))
        assert texts[0] == texts[1]

    def test_auto_goes_on_with_the_next_method(self, little_work):
        del little_work
        model = db.Potts({(i, i + 1): 0.8 for i in range(3000)}, 3, {0: [0.1, 0.0, 0.0]})
        assert db.plan(model, "all", tolerance=0.001).method == "exact"

    def test_what_was_found_before_the_end_is_kept(self, monkeypatch):
        model = db.Ising.grid(30, 30, couplings=0.2)
        full = db.plan(model, [0], tolerance=0.01, method="dobrushin")
        monkeypatch.setattr(shortest, "SECONDS_PER_STEP", 2.5 / len(full.scan))
        early = db.plan(model, [0], tolerance=0.01, method="dobrushin")
        assert early.scan is not None
        assert len(early.scan) < len(full.scan)
        assert early.bias < 0.01

    def test_pilots_are_priced_before_they_run(self, monkeypatch):
        ran = []
        monkeypatch.setattr(coalescence, "run_sets", lambda *args, **_: ran.append(args))
        monkeypatch.setattr(SET_KERNELS["set field"], "rate", 1.0)
        with pytest.raises(db.BudgetError, match=r"Planning \(a pilot of .* steps\)"):
            db.plan(star(200), [0], tolerance=0.05, method="coalescence")
        assert not ran

    def test_the_clock_is_the_last_guard(self, monkeypatch):
        monkeypatch.setattr(Deadline, "spent", 40.0)
        with pytest.raises(db.BudgetError, match=r"needs 40 seconds or more, over the limit of 0"):
            db.plan(db.Ising.grid(30, 30, couplings=0.2), [0], tolerance=0.01, method="dobrushin")

    def test_an_exact_search_that_ran_out_of_time_is_made_again(self, monkeypatch):
        model = db.Ising.grid(6, 6, couplings=0.2)
        with monkeypatch.context() as patch:
            patch.setattr(Deadline, "spent", 40.0)
            with contextlib.suppress(db.BudgetError):
                db.plan(model, [0], method="exact")
        assert db.plan(model, [0], method="exact").method == "exact"


class TestVeryManyTargets:
    @pytest.fixture(autouse=True)
    def few_are_many(self, monkeypatch):
        monkeypatch.setattr(query, "_MANY_TARGETS", 50)

    def test_sweeps_are_certified_and_no_dearer(self, monkeypatch):
        model = db.Ising.grid(10, 10, couplings=0.2)
        sweeps = db.plan(model, "all", tolerance=0.05, method="dobrushin")
        monkeypatch.setattr(query, "_MANY_TARGETS", 10**5)
        searched = db.plan(model, "all", tolerance=0.05, method="dobrushin")
        assert len(sweeps.scan) % 100 == 0
        assert sweeps.updates < 1.5 * searched.updates
        assert db.variation(model, sweeps.scan, range(100)).per_variable.max() <= sweeps.bias < 0.05

    @pytest.mark.filterwarnings("ignore::dobrushin.VacuousBoundWarning")
    def test_no_number_of_sweeps_is_cheaper(self):
        model = db.Ising.grid(10, 10, couplings=0.2, fields=0.3)
        found = dobrushin.cheapest_scan(_query(model, 0.05))

        def cost(sweeps):
            scan = db.Scan.systematic(100, 100 * sweeps)
            left = 0.05 - db.variation(model, scan, range(100)).per_variable.max()
            return sweeps / left**2 if left > 0 else np.inf

        best = min(range(2, 40), key=cost)
        assert len(found) == 100 * best

    def test_none_where_sweeps_do_not_help(self):
        assert dobrushin.cheapest_scan(_query(db.Ising.grid(10, 10, couplings=1.0), 0.05)) is None

    def test_answers_hold(self):
        model = db.Ising.grid(8, 8, couplings=0.15, fields=0.2)
        answer = db.estimate(model, "all", tolerance=0.03, seed=1, method="dobrushin")
        truth = np.concatenate(list(db.exact.marginals(model)))
        assert (answer.lower <= truth + 1e-12).all()
        assert (truth <= answer.upper + 1e-12).all()

    def test_pilots_of_sets_sweep(self):
        model = db.Ising.grid(8, 8, couplings=0.3)
        plan = db.plan(model, "all", tolerance=0.1, method="coalescence")
        assert len(plan.scan) % 64 == 0


def _query(model, tolerance):
    settings = query.Settings(tolerance, 0.99, "dobrushin", None)
    return query.make_query(model, "all", {}, settings)


def test_distinct_positions():
    rng = np.random.default_rng(1)
    for n, size in ((1000, 10), (1000, 900), (1000, 5000), (5, 0), (1, 3)):
        positions = rng.integers(0, n, size)
        assert distinct(positions, n).tolist() == np.unique(positions).tolist()


def test_the_influence_around_targets_is_a_part_of_the_whole():
    model = db.Ising.grid(90, 90, couplings=0.3)
    known = known_influence(model)
    around = guide.influence_around(known, np.array([4000]))
    assert guide._EXACT_RADIUS_VARIABLES <= len(around.positions) < model.n_variables
    inside = known.whole.matrix[around.positions][:, around.positions].toarray()
    np.fill_diagonal(inside, around.matrix.diagonal())
    assert (inside == around.matrix.toarray()).all()
    assert around.matrix.sum(axis=1) == pytest.approx(known.whole.matrix.sum(axis=1)[around.positions])
    assert guide.radius_around(known, around) == pytest.approx(known.whole.spectral_radius(), rel=0.02)


def test_the_influence_around_a_hub_is_cut():
    known = known_influence(star(50_000))
    around = guide.influence_around(known, np.array([0]))
    assert len(around.positions) <= guide._MAX_VARIABLES_AROUND + 1
    assert 0 in around.positions


def test_loops_are_watched(monkeypatch):
    looks = []
    monkeypatch.setattr(Deadline, "check", lambda _, stage: looks.append(stage))
    assert list(checked(range(3000), "a loop")) == list(range(3000))
    assert looks == ["a loop"] * 3
