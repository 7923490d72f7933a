"""Counterfeits by somebody who has read the checker: each file was accepted once, or broke it."""

import io
import math
import sys
import zipfile

import numpy as np
import pytest
from scipy import stats

import dobrushin as db
from counterfeit import Counterfeit, bound, chains, exact, marginal, of_field, opened
from dobrushin.verify import certificates, sums, verify_proof
from dobrushin.verify.__main__ import main
from dobrushin.verify.counts import upper_tail
from dobrushin.verify.document import Budget, Rejected
from dobrushin.verify.model import Factors

PLENTY = Budget(1e9, 1e12)

FAIR = [((0,), [0.0, 0.0])]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "counterfeit.proof"


def rejected(verdict):
    assert verdict.exit_code == 1, verdict
    assert verdict.reason.endswith(".")
    return verdict.reason


def undecided(verdict):
    assert verdict.exit_code == 4, verdict
    assert verdict.reason.endswith(".")
    return verdict.reason


def test_a_counterfeit_of_a_true_claim_holds(path):
    """The control: what the tests below write is right but for what they change."""
    true = Counterfeit([2], FAIR, [marginal(0)], [[0.49, 0.49]], [[0.51, 0.51]], exact(1), order=[0])
    assert true.verdict(path).holds
    drawn = Counterfeit([2], FAIR, [marginal(0)], [[0.0, 0.0]], [[1.0, 1.0]], *chains(1, 64), scan=[0], places=[0],
                        counts=[[0, 0]])  # fmt: skip
    assert "differ from those of its chains" in rejected(drawn.verdict(path))


# -- numbers ---------------------------------------------------------------------------------------


def test_bounds_of_a_statistic_beside_a_large_offset(path):
    """What says nothing has to hold by itself: here the mean is 1e9 + 0.5."""
    question = {"kind": "linear", "name": "total", "variables": [0], "slope": 1, "offset": 10**9,
                "divisor": 1, "bounds": [1e9 + 0.9, 1e9 + 1.0]}  # fmt: skip
    false = Counterfeit([2], FAIR, [question], [[1e9 + 0.9]], [[1e9 + 1.0]], None)
    rejected(false.verdict(path))


def test_bounds_of_a_statistic_without_bounds(path):
    question = {"kind": "linear", "name": "total", "variables": [0], "slope": 10**308, "offset": 0,
                "divisor": 1, "bounds": [0.9, 1.0]}  # fmt: skip
    false = Counterfeit([3], [], [question], [[0.9]], [[1.0]], None)
    rejected(false.verdict(path))


def test_states_beyond_sixteen_bits(path):
    """State 40 000 of 50 000 is drawn nearly always, and a digit of 16 bits would not count it."""
    size = 50_000
    table = np.full(size, -30.0)
    table[40_000] = 0.0
    ends = np.full(size, 1.0)
    ends[40_000] = 0.5
    false = Counterfeit([size], [((0,), table)], [marginal(0)], [[0.0] * size], [ends.tolist()], *chains(1, 256),
                        scan=[0], places=[0], counts=np.zeros((1, size), dtype=np.int64))  # fmt: skip
    rejected(false.verdict(path))


def test_digits_that_are_lost(path):
    """A constant that changes no law, so large that 60 digits do not tell two states apart: a chance of 0.95."""
    factors = [((0,), [1e70] * 2), ((0,), [0.0, 3.0])]
    part, outcome = chains(1, 256)
    false = Counterfeit([2], factors, [marginal(0)], [[0.3, 0.3]], [[0.7, 0.7]], part, outcome, scan=[0],
                        places=[0], counts=[[0, 0]])  # fmt: skip
    try:
        false.arrays["counts"] = np.bincount(false.outcomes_of(path, 256)[0], minlength=2)[None]
    except Rejected:
        return
    rejected(false.verdict(path))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("constant", [1e308, 1e70])
def test_numbers_too_large_to_add(constant, path):
    """Constants that change no law make sums overflow: then every law is undefined, and like the others."""
    pair = np.array([[3.0, 0.0], [0.0, 3.0]])
    factors = [((0,), [constant] * 2), ((0,), [constant] * 2), ((0, 1), pair), ((1,), [0.0, 5.0])]
    part = {"method": "sums", "questions": [0], "order": "order", "border": "border", "sweep": "order", "sweeps": 1}
    # Beside x1 = 0 the chance of 0 is 0.95; in truth x1 is 1, and it is 0.05.
    false = Counterfeit([2, 2], factors, [marginal(0)], [[0.94, 0.0]], [[1.0, 0.06]], part, order=[0], border=[0, 0])
    rejected(false.verdict(path))


def test_differences_that_are_rounded_away(path):
    """A neighbour among fifteen whose influence hides behind numbers of 1e16, for the bound without enumeration."""
    hidden = np.array([[1e16, 1e16], [-0.9, 0.9]])
    factors = [((1, 0), hidden), *(((k, 0), np.zeros((2, 2))) for k in range(2, 17))]
    question = {"kind": "distance", "variables": [0], "weights": [1.0]}
    part = bound()
    false = Counterfeit([2] * 17, factors, [question], [[0.0]], [[1e-3]], part, scan=[0])
    rejected(false.verdict(path))


def test_two_factors_of_one_neighbour(path):
    """Each has a middle of its own, and their sum has another one: the neighbour moves the variable by 0.548."""
    first = np.array([[-0.66804156, 0.00800989, -0.69101336], [2.08188077, -0.8428956, 0.62223569]])
    second = np.array([[0.68943527, -0.34309297], [1.14299552, -0.03488097], [-0.63106187, 0.6555276]])
    factors = [((0, 1), first), ((1, 0), second), ((0,), [-3.29995, -1.51412])]
    factors += [((k, 0), np.zeros((2, 2))) for k in range(2, 17)]
    question = {"kind": "distance", "variables": [0], "weights": [1.0]}
    part = bound()
    false = Counterfeit([2, 3] + [2] * 15, factors, [question], [[0.0]], [[0.4]], part, scan=[0])
    rejected(false.verdict(path))
    false.claim["upper"] = [[0.7]]
    assert false.verdict(path).holds


@pytest.mark.parametrize("seed", range(4))
def test_influence_without_enumeration(seed, monkeypatch):
    """The closed forms bound what enumeration finds, also for several factors of the same variables and for zeros."""
    rng = np.random.default_rng(seed)
    for _ in range(60):
        states = rng.integers(2, 4, 4).tolist()
        scopes, tables = [(0,)], [rng.normal(size=states[0])]
        for _ in range(4):
            scope = (0, *rng.choice([1, 2, 3], rng.integers(1, 3), replace=False).tolist())
            table = rng.normal(size=[states[v] for v in scope]) * rng.choice([0.1, 1.0, 5.0])
            table[rng.random(table.shape) < 0.05 * rng.integers(2)] = -np.inf
            scopes, tables = [*scopes, scope], [*tables, table]
        monkeypatch.setattr(certificates, "MAX_WORK", 1e9)
        exact_pairs, exact_cap = certificates.influence(Factors(states, zip(scopes, tables, strict=True), PLENTY), [0])[
            0
        ]
        monkeypatch.setattr(certificates, "MAX_WORK", 0.0)
        monkeypatch.setattr(certificates, "MAX_BINARY", -1)
        pairs, cap = certificates.influence(Factors(states, zip(scopes, tables, strict=True), PLENTY), [0])[0]
        assert cap >= exact_cap - 1e-12
        for (_, most), (_, value) in zip(pairs, exact_pairs, strict=True):
            assert most >= value - 1e-12


@pytest.mark.parametrize("at_once", [2, 16])
@pytest.mark.parametrize("seed", range(3))
def test_laws_by_elimination(seed, at_once, monkeypatch):
    """Enumeration is within the error that the checker states, for any order, zeros and batches of tables."""
    monkeypatch.setattr(sums, "MAX_AT_ONCE", at_once)
    rng, widest = np.random.default_rng(seed), 0.0
    for _ in range(20):
        states = rng.integers(2, 4, 6).tolist()
        scopes = [tuple(rng.choice(6, rng.integers(1, 4), replace=False).tolist()) for _ in range(rng.integers(4, 30))]
        tables = [rng.normal(size=[states[v] for v in scope]) for scope in scopes]
        tables[0][(0,) * tables[0].ndim] = -np.inf
        logs = sum(_spread(scope, table, 6) for scope, table in zip(scopes, tables, strict=True))
        joint = np.exp(np.broadcast_to(logs, states))
        groups = [tuple(rng.choice(6, size, replace=False).tolist()) for size in (1, 2, 3)]
        factors = Factors(states, zip(scopes, tables, strict=True), PLENTY)
        laws = sums.Elimination(factors, rng.permutation(6).tolist(), groups)
        for group in groups:
            expected = np.moveaxis(joint, group, range(len(group))).sum(axis=tuple(range(len(group), 6))) / joint.sum()
            chances, error = laws.law(group)
            assert (np.abs(chances - expected) <= error + 1e-14 * expected).all()
            widest = max(widest, float(error.max()))
    assert widest < 1e-11


def _spread(scope, table, count):
    """A table with an axis for each of the variables."""
    order = np.argsort(scope)
    sizes = [table.shape[scope.index(v)] if v in scope else 1 for v in range(count)]
    return np.transpose(table, order).reshape(sizes)


def test_tails_are_from_above_and_near():
    rng = np.random.default_rng(0)
    for _ in range(300):
        n, p = int(10 ** rng.uniform(0, 6)), float(rng.choice([rng.random(), 10 ** rng.uniform(-6, 0)]))
        k = min(n, max(0, round(n * p + rng.uniform(-1, 8) * np.sqrt(n * p + 0.1))))
        tail, exact = upper_tail(k, n, p, PLENTY), stats.binom.sf(k - 1, n, p)
        assert tail == 1.0 if k <= n * p else exact <= tail <= exact * (1 + 1e-8) + 1e-50


def test_steps_see_what_is_left_out(path):
    """Given x1 the law of x0 is not its own one, though x1 sums to a constant: after one step it is off by 0.4."""
    table = np.log([[0.9, 0.1], [0.1, 0.9]])
    question = {"kind": "distance", "variables": [0], "weights": [1.0]}
    false = Counterfeit([2, 2], [((0, 1), table)], [question], [[0.0]], [[1e-6]], bound(), scan=[0])
    false.plan["dropped"] = [1]
    rejected(false.verdict(path))
    false.plan["dropped"], false.claim["upper"] = [], [[0.81]]
    assert false.verdict(path).holds


# -- what was chosen after the words were known ----------------------------------------------------


def fair_draws(name="0", **changes):
    """A fair coin, 64 times; the claim is that it is not fair."""
    part, outcome = chains(1, 64, confidence=0.9, **changes)
    fake = Counterfeit([2], FAIR, [marginal(0)], [[0.51, 0.0]], [[1.0, 0.49]], part, outcome, scan=[0],
                       places=[0], counts=[[0, 0]])  # fmt: skip
    fake.plan["names"] = [name]
    return fake


def grind(path, fakes):
    """Try one after the other until the false claim passes."""
    for fake in fakes:
        fake.arrays["counts"] = np.bincount(fake.outcomes_of(path, 64)[0], minlength=2)[None]
        if fake.arrays["counts"][0, 0] > 41:
            return fake.verdict(path)
    pytest.fail("no luck")


def test_a_plan_can_be_ground(path):
    """Nothing prevents that; so the checker says that it was not done."""
    verdict = grind(path, (fair_draws(str(k)) for k in range(1000)))
    assert "the plan was not chosen by looking at what it gives" in verdict.assumptions


def test_the_number_of_a_run_is_no_nonce(path):
    """Behind parts that draw nothing, one that draws once could choose among the words of all their numbers."""
    seeds = [opened(fair_draws(run=run).write(path)).document.seed_of_plan() for run in range(2)]
    assert seeds[0] != seeds[1]
    fake = fair_draws()
    fake.outcomes["parts"][0]["run"] = fake.plan["parts"][0].pop("run")
    assert "entries: run" in rejected(fake.verdict(path))


def test_a_key_of_a_seed_is_named(path):
    fake = fair_draws()
    fake.outcomes["seed"] = [5, 123]
    fake.arrays["counts"] = np.bincount(fake.outcomes_of(path, 64)[0], minlength=2)[None]
    fake.claim |= {"lower": [[0.0, 0.0]], "upper": [[1.0, 1.0]]}
    assert "the seed 5, 123 and the plan were not chosen by looking at what they give" in fake.verdict(path).assumptions


def test_what_is_planned_is_not_among_the_outcomes(path):
    """An array that the seed does not follow from can be chosen after the words are known."""
    fake = fair_draws(start="counts_start")
    fake.arrays["counts_start"] = np.array([0])
    fake.claim |= {"lower": [[0.0, 0.0]], "upper": [[1.0, 1.0]]}
    assert "is missing" in rejected(fake.verdict(path))


def test_draws_do_not_give_certainty(path):
    part, outcome = chains(1, 6400, confidence=1.0 - 2.0**-52)
    fake = Counterfeit([2], FAIR, [marginal(0)], [[0.3, 0.3]], [[0.7, 0.7]], part, outcome, scan=[0],
                       places=[0], counts=[[0, 0]])  # fmt: skip
    fake.plan["confidence"] = 1.0
    fake.arrays["counts"] = np.bincount(fake.outcomes_of(path, 6400)[0], minlength=2)[None]
    assert "exceed what the confidence allows" in rejected(fake.verdict(path))


# -- words -----------------------------------------------------------------------------------------


def test_names_are_not_exchanged(path):
    """The model file has no names: the words say which variable is meant."""
    factors = [((0,), [0.0, 5.0]), ((1,), [5.0, 0.0])]
    fake = Counterfeit([2, 2], factors, [marginal(1)], [[0.99, 0.0]], [[1.0, 0.01]], exact(1), order=[1])
    fake.plan["names"] = ["1", "0"]
    assert "'0' (variable 1)" in fake.verdict(path).claim[0]


def test_names_say_nothing_else(path):
    for name in ("0 = 0: from 0.1 to 0.2\nprobability of 1", "\ud800", "\x1b[2J", "0 = 1, 1"):
        fake = Counterfeit([2], FAIR, [marginal(0)], [[0.0, 0.0]], [[1.0, 1.0]], exact(1), order=[0])
        fake.plan["names"] = [name]
        verdict = fake.verdict(path)
        assert all(line.isprintable() and line.startswith("P('") for line in verdict.claim[:2])
        str(verdict).encode()


def test_names_on_a_plain_terminal(path, monkeypatch):
    fake = Counterfeit([2], FAIR, [marginal(0)], [[0.0, 0.0]], [[1.0, 1.0]], exact(1), order=[0])
    fake.plan["names"] = ["\u00e9"]
    fake.write(path)
    monkeypatch.setattr(sys, "argv", ["verify", str(path)])
    shown = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", shown)
    assert main() == 0
    shown.flush()
    assert b"P('\\xe9'" in shown.buffer.getvalue()


def test_weights_are_in_the_words(path):
    """A distance that is weighted with 1e-6 is no distance."""
    question = {"kind": "distance", "variables": [0], "weights": [1e-6]}
    part = bound()
    factors = [((0, 1), [[9.0, 0.0], [0.0, 9.0]])]
    fake = Counterfeit([2, 2], factors, [question], [[0.0]], [[1e-6]], part, scan=[0])
    assert "of variable 0, with weights [1e-06]" in fake.verdict(path).claim[0]


def test_a_statistic_is_in_the_words(path):
    question = {"kind": "linear", "name": "total", "variables": [0, 2, 3], "slope": 2, "offset": -3,
                "divisor": 3, "bounds": [-1.0, 1.0]}  # fmt: skip
    part = None
    fake = Counterfeit([2] * 4, [], [question], [[-1.0]], [[1.0]], part)
    shown = "variable 0, variable 2, variable 3"
    words = f"mean of 'total', (-3 + 2 times the sum of the state numbers, from 0, of {shown}) / 3: from -1.0 to 1.0"
    assert fake.verdict(path).claim[0] == words
    question["bounds"][1] = math.nextafter(1.0, 0.0)
    rejected(fake.verdict(path))


def test_runs_on_sets_say_what_they_bound(path):
    """Two variables that are always equal are open together: a sum of both is off by twice as much as their law."""
    factors = [((0, 1), 30.0 * np.eye(2)), ((1, 2), np.eye(2))]
    part, outcome = chains(1, 640, method="coalescence", kernel="set race", steps=2, words=2, attempt=-1)
    outcome["attempt"] = part.pop("attempt")
    fake = Counterfeit([2, 2, 2], factors, [{"kind": "joint", "variables": [0, 1]}], [[0.0]], [[0.0]], part, outcome,
                       scan=[1, 0], places=[0, 1, 2], counts=[[0]])  # fmt: skip
    is_open = fake.outcomes_of(path, 640) < 0
    assert (is_open[0] == is_open[1]).all()
    fake.arrays["counts"] = np.array([[is_open[0].sum()]])
    fake.claim["upper"] = [[is_open[0].mean() + 0.1]]
    assert (
        fake.verdict(path)
        .claim[0]
        .startswith("total variation between the joint laws of variable 0, variable 1 after the scan")
    )
    fake.plan["questions"] = [{"kind": "distance", "variables": [0, 1], "weights": [1.0, 1.0]}]
    rejected(fake.verdict(path))


# -- beside the model ------------------------------------------------------------------------------


def test_a_factor_that_is_rounded_away(path, tmp_path):
    """1e16 + t - 1e16 is 0 in floating point, but the law has t in it."""
    model = tmp_path / "model.uai"
    db.write(
        db.FactorGraph([2, 2], [((0,), np.array([0.0, 1.0])), ((0, 1), np.array([[0.5, 0.0], [0.0, 0.5]]))]), model
    )
    factors = [((0,), [0.0, 1.0]), ((0, 1), np.diag([0.5, 0.5]))]
    hidden = [((1,), [1e16, 1e16]), ((1,), [-0.9, 0.9]), ((1,), [-1e16, -1e16])]
    arguments = [marginal(1)], [[0.0, 0.0]], [[1.0, 1.0]], exact(1)
    assert Counterfeit([2, 2], factors, *arguments, order=[0, 1]).verdict(path, model).holds
    rejected(Counterfeit([2, 2], [*factors, *hidden], *arguments, order=[0, 1]).verdict(path, model))


def test_a_share_of_a_large_number(path, tmp_path):
    """1e16 + 64 is 1e16 to fifteen digits, and the state is certain instead of fair."""
    model = tmp_path / "model.npz"
    db.write(db.FactorGraph([2], [((0,), np.array([1e16, 1e16]))]), model)
    arguments = [marginal(0)], [[0.0, 0.0]], [[1.0, 1.0]], exact(1)
    assert Counterfeit([2], [((0,), [1e16, 1e16])], *arguments, order=[0]).verdict(path, model).holds
    rejected(Counterfeit([2], [((0,), [1e16, 1e16 + 64.0])], *arguments, order=[0]).verdict(path, model))


def test_variables_of_one_state_are_not_counted(path, tmp_path):
    """Variable 1 of the proof is the one that the file calls 2; the verdict says how it counts."""
    model = tmp_path / "model.uai"
    model.write_text("MARKOV\n3\n1 2 2\n2\n1 1\n1 2\n2\n0.9 0.1\n2\n0.1 0.9\n")
    fake = Counterfeit([2], [((0,), np.log([0.1, 0.9]))], [marginal(0)], [[0.0, 0.89]], [[0.11, 1.0]], exact(1),
                       order=[0], positions=[1])  # fmt: skip
    fake.plan |= {"variables": 2, "names": ["1"]}
    assert fake.verdict(path, model).checked[-1].endswith(f"{model} (not counting variables of one state)")


def test_a_model_file_that_ends_early(path, tmp_path):
    model = tmp_path / "model.uai"
    model.write_text("MARKOV\n1\n2\n1\n1 0\n2\n1.0")
    fake = Counterfeit([2], FAIR, [marginal(0)], [[0.0, 0.0]], [[1.0, 1.0]], exact(1), order=[0])
    assert "ends early" in undecided(fake.verdict(path, model))


# -- files that break the reader -------------------------------------------------------------------


def members(path):
    with zipfile.ZipFile(path) as archive:
        return [(info.filename, archive.read(info)) for info in archive.infolist()]


def test_a_broken_stream(path):
    """The sizes and names are right, and the compressed bytes are not."""
    fake = Counterfeit([2], FAIR, [marginal(0)], [[0.0, 0.0]], [[1.0, 1.0]], exact(1), order=[0])
    fake.write(path)
    with zipfile.ZipFile(path) as archive:
        start = archive.getinfo("proof.json").header_offset + 40
    data = bytearray(path.read_bytes())
    data[start : start + 60] = b"\xff" * 60
    path.write_bytes(data)
    rejected(verify_proof(path))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_header_that_is_no_python(path):
    fake = Counterfeit([2], FAIR, [marginal(0)], [[0.0, 0.0]], [[1.0, 1.0]], exact(1), order=[0])
    fake.write(path)
    own = members(path)
    header = b"{'descr': (((((" + b" " * 46 + b"\n"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in own:
            broken = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
            archive.writestr(name, broken if name == "order.npy" else data)
    rejected(verify_proof(path))


def test_strange_keys_can_be_printed(path):
    fake = Counterfeit([2], FAIR, [marginal(0)], [[0.0, 0.0]], [[1.0, 1.0]], exact(1), order=[0])
    fake.plan["\ud800\n"] = 1
    verdict = fake.verdict(path)
    rejected(verdict)
    str(verdict).encode()


# -- files that are too much -----------------------------------------------------------------------


def test_blocks_that_are_longer_than_the_run(path):
    """64 chains in a block of 2^40: what follows them is drawn as well, and counts for nothing."""
    assert "chains the check takes" in undecided(fair_draws(block=2**40).verdict(path))


@pytest.mark.parametrize("packing", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_a_strange_packing(packing, path):
    """Some unpack to whatever they like, whatever size the file says."""
    Counterfeit([2], FAIR, [marginal(0)], [[0.0, 0.0]], [[1.0, 1.0]], exact(1), order=[0]).write(path)
    own = members(path)
    with zipfile.ZipFile(path, "w", packing) as archive:
        for name, data in own:
            archive.writestr(name, data)
    assert "packing" in rejected(verify_proof(path))


@pytest.mark.parametrize(("count", "code"), [(2**34, 4), (2**51, 1)])
def test_too_many_chains(count, code, path):
    changes = {"trials": count, "block": count, "drawn": count, "chains": count}
    assert fair_draws(**changes).verdict(path).exit_code == code


def test_too_many_chains_for_a_mean(path):
    question = {
        "kind": "linear",
        "name": "total",
        "variables": [0],
        "slope": 1,
        "offset": 0,
        "divisor": 1,
        "bounds": [0.0, 1.0],
    }
    part, outcome = chains(1, 0, chains=2**34, drawn=2**34, means=[2**34], counts="", block=1)
    fake = Counterfeit([2], FAIR, [question], [[0.0]], [[1.0]], part, outcome, scan=[0], places=[0])
    undecided(fake.verdict(path))


def test_too_many_sweeps(path):
    about = {"order": "order", "border": "border", "sweep": "sweep", "sweeps": 10_000}
    part = {"method": "sums", "questions": [0], **about}
    factors = [((0, 1), np.eye(2))]
    fake = Counterfeit([2, 2], factors, [marginal(0)], [[0.0, 0.0]], [[1.0, 1.0]], part, order=[0], border=[0, 0],
                       sweep=np.zeros(2**20, dtype=np.int8))  # fmt: skip
    undecided(fake.verdict(path))


def test_sums_that_are_too_large(path):
    """Three hundred cliques of 2^28 states: minutes each, and messages of 1 GB."""
    width, count = 28, 300
    order = list(range(count))
    factors = [((k, k + d), np.zeros((2, 2))) for k in order for d in range(1, width) if k + d < count]
    fake = Counterfeit([2] * count, factors, [marginal(0)], [[0.0, 0.0]], [[1.0, 1.0]], exact(1), order=order)
    assert "joint states" in undecided(fake.verdict(path))


def test_numbers_that_are_too_small_for_the_checker(path):
    """A true claim about a chain of huge potentials is undecided, not false."""
    rng = np.random.default_rng(3)
    tables = [300.0 * rng.normal() * np.array([[1.0, -0.5], [-1.0, 1 / 3]]) for _ in range(29)]
    own = [150.0 * rng.normal(size=2) for _ in range(30)]
    factors = [((i, i + 1), table) for i, table in enumerate(tables)] + [((i,), row) for i, row in enumerate(own)]
    db.estimate(db.FactorGraph([2] * 30, factors), [0, 1], method="exact", proof=path)
    assert "too small for the checker" in undecided(verify_proof(path))


def test_many_neighbours(path):
    """More joint states than a float can count."""
    factors = [((0, k), np.zeros((2, 2))) for k in range(1, 1100)]
    question = {"kind": "distance", "variables": [0], "weights": [1.0]}
    part = bound()
    assert Counterfeit([2] * 1100, factors, [question], [[0.0]], [[1e-6]], part, scan=[0]).verdict(path).holds


def test_many_factors_at_one_variable(path):
    """More tables than NumPy multiplies at once."""
    factors = [((0, k), np.eye(2)) for k in range(1, 100)]
    true = Counterfeit([2] * 100, factors, [marginal(0)], [[0.49] * 2], [[0.51] * 2], exact(1), order=range(99, -1, -1))
    assert true.verdict(path).holds
    true.claim |= {"lower": [[0.51, 0.0]], "upper": [[1.0, 0.49]]}
    rejected(true.verdict(path))


# -- fields ----------------------------------------------------------------------------------------


BIAS = {"kind": "bias", "variables": [0], "weights": [1.0]}
WIDE = {"m": 1e-30, "lower": -1e13, "upper": 1e13, "point": 1e13}


def test_a_counterfeit_of_a_true_bound_on_a_field_holds(path):
    assert of_field([{}], {}, BIAS, 0.0, 1e-290).verdict(path).holds
    assert of_field([{"far": 31.5}, WIDE], {(0, 1): 1e-12}, BIAS, 0.0, 20.01).verdict(path).holds


def test_a_coupling_that_is_left_out(path):
    """It sums to a constant on 0 and 1, to 1e-11, and moves the mean by 10 where the other variable is 1e13."""
    false = of_field([{}, WIDE], {(0, 1): 1e-12}, BIAS, 0.0, 1e-290)
    false.plan["dropped"] = [1]
    assert "does not describe chains of a field" in rejected(false.verdict(path))


def test_the_square_of_a_small_number(path):
    """A slope of 1e-170 of a variable of size 1e50: its square is no number, and the random error is one."""
    about = {"kind": "statistic", "variables": [0], "name": "f", "weights": [1e-170]}
    false = of_field([{"m": 1e-100, "far": 1.1e50}], {}, about, -1e-130, 1e-130, [0.0])
    assert "does not follow" in rejected(false.verdict(path))
    assert of_field([{"m": 1e-100, "far": 1.1e50}], {}, about, -1e-119, 1e-119, [0.0]).verdict(path).exit_code == 3


@pytest.mark.parametrize(("level", "numbers"), [(0.5, [0.0, 900.0, 1e9, 2e9]), (-5.0, [1.0, 1.0, 0.0, 2e9])])
def test_ranks_and_levels_that_are_none(level, numbers, path):
    about = {"kind": "quantile", "variables": [0], "level": level}
    lowest = 1e9 if level > 0 else 0.0
    false = of_field([{"lower": 0.0 if level < 0 else -math.inf}], {}, about, lowest, 2e9, numbers, chains=1000)
    assert "quantile" in rejected(false.verdict(path))


@pytest.mark.parametrize(
    ("about", "low", "high", "numbers"),
    [({"kind": "above", "threshold": -9.0}, 0.9, 1.0, [1000.0, 1000.0]), ({"kind": "mean"}, 5.0, 1e300, [0.0])],
)
def test_what_is_of_one_variable_asked_of_several(about, low, high, numbers, path):
    """The first variable is updated, or has a lower end; the second is far from its start."""
    sites = [{"lower": 5.0, "point": 5.0, "far": 9.0}, {"far": 1e9, "point": -1e8, "linear": -1e8}]
    assert of_field(sites, {}, about | {"variables": [0]}, low, high, numbers, chains=1000).verdict(path).exit_code == 3
    false = of_field(sites, {}, about | {"variables": [0, 1]}, low, high, numbers, chains=1000)
    assert "names several" in rejected(false.verdict(path))


def test_couplings_count_as_often_as_they_stand(path):
    """Two factors over a pair are added up; one over a variable with itself is none."""
    sites = [{"far": 2.1}, {"lower": 0.0, "upper": 1.0}]
    twice = of_field(sites, {(0, 1): 0.4, (1, 0): 0.4}, BIAS, 0.0, 0.5)
    assert "does not follow" in twice.verdict(path).reason
    assert "twice" in of_field([{}], {(0, 0): 0.4}, BIAS, 0.0, 1e-290).verdict(path).reason
