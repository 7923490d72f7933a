"""Bad input: one sentence with the argument, the value and the place."""

import pickle
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy import sparse

import dobrushin as db
from dobrushin._shared.call import current, guarded, public
from sentences import check_sentence

MODEL = db.Ising.grid(3, 3, couplings=0.1)
SCAN = db.Scan.systematic(9, 18)
NAN, INF = float("nan"), float("inf")

CASES = {
    "asymmetric couplings": (lambda: db.Ising([[0, 1], [2, 0]]), "'couplings' .* symmetric .* (1.0, 2.0) at indices (0, 1) and (1, 0)"),
    "NaN coupling": (lambda: db.Ising([[0, NAN], [NAN, 0]]), "'couplings' .* finite, at most 1e100 in size. Got nan at index (0, 1)"),
    "self-coupling": (lambda: db.Ising([[1.0, 0], [0, 0]]), "'couplings' .* zero on the diagonal. Got 1.0 at index (0, 0)"),
    "not square": (lambda: db.Ising(np.zeros((2, 3))), "'couplings' .* square .* (2, 3)"),
    "couplings as text": (lambda: db.Ising("abc"), "'couplings' .* real numbers. Got 'abc'"),
    "both orders": (lambda: db.Ising({(0, 1): 1, (1, 0): 1}), "'couplings' .* once for each unordered pair. Got (0, 1)"),
    "a key that is no pair": (lambda: db.Ising({(0, 1, 2): 1}), "'couplings' .* pairs of distinct labels. Got (0, 1, 2)"),
    "text as strength": (lambda: db.Ising({(0, 1): "x"}), "'couplings' .* finite, at most 1e100 in size. Got 'x' at key (0, 1)"),
    "fields of another size": (lambda: db.Ising([[0, 1], [1, 0]], fields=[1, 2, 3]), "'fields' .* (2,). Got shape (3,)"),
    "field of an unknown label": (lambda: db.Ising([[0, 1], [1, 0]], fields={"q": 1}), "'fields' .* labels of the model (0 to 1). Got 'q'"),
    "infinite field": (lambda: db.Ising([[0, 1], [1, 0]], fields=[0, INF]), "'fields' .* finite, at most 1e100 in size. Got inf at index 1"),
    "empty model": (lambda: db.Ising({}), "'couplings' .* at least one variable. Got 0"),
    "empty factor graph": (lambda: db.FactorGraph([], []), "'cardinalities' .* at least one variable"),
    "empty spins": (lambda: db.SpinMRF({}), "'terms' .* at least one variable"),
    "zero rows": (lambda: db.Ising.grid(0, 3), "'rows' .* a whole number, at least 1. Got 0"),
    "grid edges": (lambda: db.Ising.grid(2, 2, couplings=[1, 2, 3]), "'couplings' .* 4 edges .* shape (3,)"),
    "double edges": (lambda: db.Ising.grid(2, 5, couplings=0.1, periodic=True), "'periodic' .* double. Got (2, 5)"),
    "one state": (lambda: db.Potts({(0, 1): 1.0}, states=1), "'states' .* at least 2. Got 1"),
    "no state": (lambda: db.Potts.grid(2, 2, states=0), "'states' .* at least 2. Got 0"),
    "cardinality 1": (lambda: db.FactorGraph([2, 1], []), "'cardinalities' .* at least 2. Got 1 at index 1"),
    "cardinality 0": (lambda: db.FactorGraph([0], []), "'cardinalities' .* at least 2. Got 0 at index 0"),
    "unary of one state": (lambda: db.PairwiseMRF([[0.0], [0, 0]], [], []), "'unaries' .* at least 2 .* shape (1,) at index 0"),
    "shape against scope": (lambda: db.FactorGraph([2, 3], [((0, 1), np.zeros((3, 2)))]), "'factors' .* shape (2, 3) of their scope (0, 1). Got shape (3, 2) at factor 0"),
    "scope out of range": (lambda: db.FactorGraph([2, 3], [((0, 2), np.zeros((2, 2)))]), "'factors' .* 0 to 1. Got (0, 2) at factor 0"),
    "scope twice": (lambda: db.FactorGraph([2, 3], [((0, 0), np.zeros((2, 2)))]), "'factors' .* distinct .* (0, 0) at factor 0"),
    "infinite potential": (lambda: db.FactorGraph([2], [((0,), [0, INF])]), "'factors' .* finite, at most 1e100 in size, or -inf .* inf at factor 0"),
    "edge twice": (lambda: db.PairwiseMRF(np.zeros((3, 2)), [(0, 1), (1, 0)], np.zeros((2, 2))), "'edges' .* distinct unordered pairs"),
    "edge out of range": (lambda: db.PairwiseMRF(np.zeros((3, 2)), [(0, 3)], np.zeros((2, 2))), "'edges' .* 0 to 2. Got 3 at index (0, 1)"),
    "table of another shape": (lambda: db.PairwiseMRF(np.zeros((3, 2)), [(0, 1)], [np.zeros((2, 3))]), "'tables' .* (2, 2) for edge (0, 1). Got shape (2, 3) at index 0"),
    "NaN in a table": (lambda: db.PairwiseMRF(np.zeros((3, 2)), [(0, 1)], [[[0, NAN], [0, 0]]]), "'tables' .* Got nan at index 0"),
    "single term": (lambda: db.SpinMRF({(0,): 1.0}), "'terms' .* two or more distinct labels .* (0,)"),
    "same set twice": (lambda: db.SpinMRF({(0, 1): 1.0, (1, 0): 1.0}), "'terms' .* once for each set"),
    "unknown label": (lambda: MODEL.index(9), "'label' .* labels of the model (0 to 8). Got 9"),
    "state of another kind": (lambda: MODEL.log_density([0] * 9), "'states' .* -1 or +1. Got 0.0 at index 0"),
    "states of another size": (lambda: MODEL.log_density([1, 1]), "'states' .* (..., 9). Got shape (2,)"),
    "evidence off the states": (lambda: MODEL.condition({2: 0}), "'evidence' .* -1, +1 of 2. Got 0 at label 2"),
    "evidence on a stranger": (lambda: MODEL.condition({"x": 1}), "'evidence' .* labels of the model .* 'x'"),
    "overlapping groups": (lambda: MODEL.merge([[0, 1], [1, 2]]), "'groups' .* disjoint. Got 1 at group 1"),
    "negative influence": (lambda: db.Influence([[0, -0.1], [0, 0]]), "'matrix' .* non-negative and finite. Got -0.1 at index (0, 1)"),
    "influence not square": (lambda: db.Influence(np.zeros((2, 3))), "'matrix' .* square"),
    "unknown method": (lambda: db.influence(MODEL, method="bets"), "'method' .* 'best', 'paper', 'exact' (the nearest is 'best'). Got 'bets'"),
    "influence of no model": (lambda: db.influence(3), "'model' .* networkx, PyMC or thrml. Got 3"),
    "rows out of range": (lambda: db.influence(MODEL, rows=[10]), "'rows' .* 0 to 8). Got 10 at index 0"),
    "zero steps": (lambda: db.Scan.systematic(5, 0), "'steps' .* at least 1. Got 0"),
    "empty scan": (lambda: db.Scan([]), "'order' .* at least one step"),
    "negative position": (lambda: db.Scan([0, -1]), "'order' .* non-negative positions. Got -1 at index 1"),
    "fractional position": (lambda: db.Scan([0.5]), "'order' .* positions. Got [0.5]"),
    "probabilities": (lambda: db.Scan.random([0.5, 0.6], 3), "'probabilities' .* sum to 1"),
    "order of a random scan": (lambda: db.Scan.uniform(3, 3).order, "'scan' .* a fixed order"),
    "index in the scan": (lambda: db.variation(MODEL, db.Scan([0, 9])), "'scan' .* 0 to 8. Got 9 at step 1"),
    "scan of a larger model": (lambda: db.variation(MODEL, db.Scan.uniform(10, 3)), "'scan' .* over 9 variables. Got 10 variables"),
    "scan in the wrong place": (lambda: db.variation(SCAN, MODEL), "'model' .* a model or an Influence"),
    "number as a scan": (lambda: db.variation(MODEL, 7), "'scan' .* a Scan, a ScanResult or variables in the order of their updates. Got 7"),
    "unknown label in a scan": (lambda: db.variation(MODEL, [0, "x"]), "'scan' .* of labels of the model (0 to 8). Got 'x' at step 1"),
    "target out of range": (lambda: db.variation(MODEL, SCAN, targets=[3, 9]), "'targets' .* 0 to 8). Got 9 at index 1"),
    "target twice": (lambda: db.variation(MODEL, SCAN, targets=[3, 3]), "'targets' .* distinct labels. Got 3"),
    "no target": (lambda: db.variation(MODEL, SCAN, targets=[]), "'targets' .* at least one label"),
    "negative weight": (lambda: db.variation(MODEL, SCAN, weights=[1] * 7 + [-0.3, 1]), "'weights' .* non-negative and finite. Got -0.3 at index 7"),
    "NaN weight": (lambda: db.optimize_scan(MODEL, SCAN, weights=[NAN] * 9), "'weights' .* dobrushin.optimize_scan .* Got nan at index 0"),
    "all weights zero": (lambda: db.optimize_scan(MODEL, SCAN, weights=[0] * 9), "'weights' .* positive for some variable"),
    "targets and weights": (lambda: db.variation(MODEL, SCAN, targets=[0], weights=[1] * 9), "'weights' .* None when 'targets' is given"),
    "disagreement above 1": (lambda: db.variation(MODEL, SCAN, initial_disagreement=1.5), "'initial_disagreement' .* between 0 and 1. Got 1.5"),
    "negative error": (lambda: db.variation(MODEL, SCAN, update_error=-1e-9), "'update_error' .* between 0 and 1. Got -1e-09"),
    "tolerance": (lambda: db.shortest_scan(MODEL, tolerance=0), "'tolerance' .* positive finite number. Got 0"),
    "NaN tolerance": (lambda: db.shortest_scan(MODEL, tolerance=NAN), "'tolerance' .* positive finite number. Got nan"),
    "criterion": (lambda: db.shortest_scan(MODEL, tolerance=1, criterion="mean"), "'criterion' .* 'sum', 'max'. Got 'mean'"),
    "max_steps": (lambda: db.shortest_scan(MODEL, tolerance=1, max_steps=0), "'max_steps' .* at least 1. Got 0"),
    "steps": (lambda: db.greedy_scan(MODEL, steps=-3), "'steps' .* at least 1. Got -3"),
    "iterations": (lambda: db.optimize_scan(MODEL, SCAN, iterations="often"), "'iterations' .* Got 'often'"),
    "absurd coupling": (lambda: db.Ising({(0, 1): 1e101}), "'couplings' .* at most 1e100 in size. Got 1e+101"),
    "far position": (lambda: db.Ising({(0, 10**15): 0.1}), "'couplings' .* positions if they are whole numbers .* Got 1000000000000000"),
    "scope of fractions": (lambda: db.FactorGraph([2, 2], [((0.7, 1), np.zeros((2, 2)))]), "'factors' .* a scope of positions"),
    "complex couplings": (lambda: db.Ising(sparse.csr_array([[0, 1j], [1j, 0]])), "'couplings' .* real numbers"),
    "complex influence": (lambda: db.Influence(sparse.csr_array([[0, 1j], [1j, 0]])), "'matrix' .* real numbers"),
    "influence in one dimension": (lambda: db.Influence(sparse.coo_array(np.ones(3))), "'matrix' .* a matrix of real numbers"),
    "unhashable labels": (lambda: db.Influence(np.zeros((2, 2)), labels=[[0], [1]]), "'labels' .* hashable"),
    "unhashable targets": (lambda: db.variation(db.Ising({("a", "b"): 0.1}), SCAN, targets=(["a"], ["b"])), "'targets' .* labels of the model"),
    "evidence as an array": (lambda: MODEL.condition({0: np.array([1, 2])}), "'evidence' .* Got array"),
    "evidence as a complex number": (lambda: MODEL.condition({0: 1 + 0j}), "'evidence' .* Got (1+0j)"),
    "groups as a number": (lambda: MODEL.merge(5), "'groups' .* a list of lists of labels. Got 5"),
    "fractional variable": (lambda: MODEL.conditional(0.5, [1] * 9), "'i' .* a position from 0 to 8. Got 0.5"),
    "states of a stranger": (lambda: MODEL.states(99), "'i' .* a position from 0 to 8. Got 99"),
    "exact of no model": (lambda: db.exact.marginals("x"), "'model' .* no such file). Got 'x'"),
    "ragged order": (lambda: db.Scan([[0], [1, 2]]), "'order' .* a sequence of positions"),
    "wrapped position": (lambda: db.Scan(np.array([2**64 - 1], dtype=np.uint64)), "'order' .* Got 18446744073709551615 at index 0"),
    "step before the first": (lambda: SCAN.step_probabilities(-1), "'t' .* from 0 to 17. Got -1"),
    "endless scan": (lambda: db.Scan.systematic(3, 10**30), "'steps' .* a whole number"),
    "every": (lambda: db.variation(MODEL, SCAN, weights=np.ones(9)).curve(every=0), "'every' .* at least 1. Got 0"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_one_clear_sentence(name):
    check_sentence(*CASES[name])


def test_budget_errors_carry_the_numbers():
    with pytest.raises(db.BudgetError) as caught:
        db.Ising.grid(5, 5).merge([range(25)])
    assert caught.value.required == 2.0**25
    assert caught.value.limit < caught.value.required


class Clock(db.Model):
    """A family of a user's."""

    def __init__(self, hours):
        raise db.ArgumentError("hours", "a whole number", hours)

    @public()
    def strike(self, times):
        return _check(times)

    @classmethod
    @public()
    def at(cls, hour):
        return _check(hour)


def _check(value):
    raise db.ArgumentError("times", "less than 12", value)


@public(name="clocks.compare")
def compare(call):
    return call()


def _function_of(call):
    with pytest.raises(db.ArgumentError) as caught:
        call()
    assert (f" of dobrushin.{caught.value.function} must" in str(caught.value)) == bool(caught.value.function)
    return caught.value.function


def test_errors_name_the_innermost_public_function_that_they_leave():
    clock = object.__new__(Clock)
    assert _function_of(lambda: clock.strike(13)) == "Clock.strike"
    assert _function_of(lambda: Clock.at(13)) == "Clock.at"
    assert _function_of(lambda: compare(lambda: clock.strike(13))) == "Clock.strike"
    assert _function_of(lambda: compare(lambda: _check(13))) == "clocks.compare"
    assert _function_of(lambda: _check(13)) == ""
    assert _function_of(lambda: db.Ising.grid(0, 3)) == "Ising.grid"
    assert _function_of(lambda: db.Ising.grid(3, 3, couplings="x")) == "Ising.grid"
    assert _function_of(lambda: db.Ising("x")) == "Ising"
    assert current().name == ""


def test_errors_made_by_workers_name_the_call_and_keep_its_name():
    def threads():
        with ThreadPoolExecutor(1) as pool:
            pool.submit(_check, 13).result()

    assert _function_of(lambda: compare(threads)) == "clocks.compare"
    with pytest.raises(db.ArgumentError) as caught:
        compare(lambda: _check(13))
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.function, str(again)) == ("clocks.compare", str(caught.value))


def test_missing_matplotlib_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.axes", None)
    with pytest.raises(ImportError, match=r"pip install 'dobrushin\[plots\]'"):
        db.plots.influence(db.influence(MODEL))


def test_descriptions_stand_without_quotes_and_values_with_them():
    described = db.ArgumentError("data", "a matrix", got="shape (2,)", where="index 3", function="fit")
    assert str(described) == "The 'data' argument of dobrushin.fit must be a matrix. Got shape (2,) at index 3."
    assert str(db.ArgumentError("data", "a matrix", "shape")).endswith("Got 'shape'.")
    again = pickle.loads(pickle.dumps(described))
    assert (str(again), again.argument, again.value) == (str(described), "data", None)


@pytest.mark.parametrize(("cause", "expected"), [(KeyboardInterrupt, KeyboardInterrupt), (MemoryError, db.BudgetError)])
def test_what_compiled_code_is_interrupted_by_comes_out_as_itself(cause, expected):
    def call():
        try:
            raise SystemError("returned a result with an exception set") from cause()
        except SystemError as error:
            raise SystemError("and another one") from error

    with pytest.raises(expected), guarded():
        call()


def test_other_system_errors_stay_what_they_are():
    def call():
        raise SystemError("broken")

    with pytest.raises(SystemError, match="broken"), guarded():
        call()


def test_limits_are_printed_as_they_are_compared():
    assert "needs 7.5004 seconds, over the limit of 7.5." in str(db.BudgetError("It", 7.5004, 7.5, "seconds", ""))
    assert "needs 12 bytes, over the limit of 1.5." in str(db.BudgetError("It", 12.0, 1.5, "bytes", ""))
    assert "needs 2 bytes, over the limit of 2." in str(db.BudgetError("It", 2.0, 2.0, "bytes", ""))


def test_tracebacks_show_no_wrappers():
    wrapper = public.__code__.co_filename
    for call in (lambda: db.sample(MODEL, SCAN, chains=0), lambda: db.Ising.grid(0, 3)):
        with pytest.raises(db.ArgumentError) as caught:
            call()
        files = [entry.filename for entry in traceback.extract_tb(caught.value.__traceback__)]
        assert files.count(__file__) == 2
        assert wrapper not in files


def test_warnings_are_about_the_line_of_the_caller():
    strong = db.Ising.grid(4, 4, couplings=2.0)
    for call in (
        lambda: db.variation(strong, db.Scan.systematic(16, 16)),
        lambda: db.sample(strong, db.Scan.systematic(16, 16), seed=1).variation(strong),
    ):
        with pytest.warns(db.VacuousBoundWarning) as caught:
            call()
        assert [(warning.filename, warning.lineno) for warning in caught] == [(__file__, call.__code__.co_firstlineno)]


@pytest.mark.parametrize("method", ["exact", "dobrushin", "local"])
def test_underflow_is_no_error(method):
    """People who make it one still get answers: bounds count with it."""
    model = db.Ising.grid(4, 4, couplings=0.1, fields=[500.0, -400.0] * 8)
    with np.errstate(all="raise"):
        answer = db.estimate(model, [0], method=method, seed=1)
    assert answer.is_certified
