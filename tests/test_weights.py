"""Bounded weights: bounds that are bounds, weights that never exceed 1, exact draws, intervals that hold."""

import copy
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from scipy import special, stats

import dobrushin as db
import reference
from dobrushin._coalescence import rejection
from dobrushin._estimate import weights as module
from dobrushin._estimate.bets import log_partition_limits, weighted_interval
from dobrushin._exact import minibuckets
from dobrushin._exact.minibuckets import NoState, TooDense, lay_out, make_minibuckets
from dobrushin._kernels import weights as loops
from dobrushin._sampling.weighted import Tries, draw_weighted
from dobrushin._shared.call import LateError
from models import FAMILIES, FAMILIES_WITH_ZEROS, all_states, random_model

# Every statistical check below fails by chance at most this often.
ALPHA = 1e-9


def make(model, bits, rounds=2):
    form = model._form.tables()
    return make_minibuckets(form, lay_out(form, bits), rounds)


def dense(made):
    """Mini-buckets as `reference.mini_buckets` takes them."""
    layout = made.layout
    sizes = tuple(layout.sizes.tolist())
    pairs = zip(layout.scopes, made.tables, strict=True)
    tables = [(scope, table.reshape([sizes[v] for v in scope])) for scope, table in pairs]
    buckets = [
        (b.variable, [k for g in b.groups for k in g.tables], [g.message for g in b.groups]) for b in layout.buckets
    ]
    return buckets, tables, made.tops, sizes


def check_bound(model, made):
    """U >= Z, f / q <= U, and the weights are f / (q U), at all joint states."""
    log_f = model.log_density(all_states(model))
    log_Z = special.logsumexp(log_f)
    assert log_Z <= made.log_bound + made.distortion
    log_q, log_C = reference.mini_buckets(*dense(made))
    log_q, worst = log_q.ravel(), max(float(c.max()) for c in log_C)
    assert worst <= made.distortion
    possible = log_f > -np.inf
    weight = sum(c.ravel() for c in log_C)
    assert (weight[~possible & (log_q > -np.inf)] == -np.inf).all()
    assert np.allclose(log_f[possible], (log_q + made.log_bound + weight)[possible], rtol=0, atol=1e-8)
    assert abs(special.logsumexp(log_q + weight) - (log_Z - made.log_bound)) < 1e-8
    return log_Z


def random_case(seed):
    rng = np.random.default_rng(seed)
    zeros = bool(rng.integers(2))
    family = rng.choice(FAMILIES_WITH_ZEROS if zeros else FAMILIES)
    strength = float(rng.choice([1e-3, 0.3, 1.0, 3.0, 40.0]))
    n = int(rng.integers(1, 8))
    return random_model(rng, family, n=n, zeros=zeros, strength=strength, density=0.8), float(rng.integers(2, 5))


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_bounds_against_enumeration(first):
    split = 0
    for seed in range(first, first + 50):
        model, bits = random_case(seed)
        made = make(model, bits)
        check_bound(model, made)
        split += not made.layout.is_exact
    assert split > 10


@pytest.mark.slow
def test_bounds_against_enumeration_of_many_models():
    refused = 0
    for seed in range(1000, 3000):
        model, bits = random_case(seed)
        try:
            made = make(model, bits)
        except TooDense:
            refused += 1
            continue
        check_bound(model, made)
    assert refused < 100


def frustrated(n=8, strength=0.8, seed=3):
    rng = np.random.default_rng(seed)
    pairs = [(i, j) for i in range(n) for j in range(i)]
    return db.Ising({pair: strength * float(rng.normal()) for pair in pairs}, fields=rng.normal(size=n) * 0.3)


def test_a_shift_that_does_not_sum_to_zero_is_caught(monkeypatch):
    """The negative control: the shift is added to one group and not taken from the other."""
    model = frustrated()
    check_bound(model, make(model, 3.0))
    original = minibuckets.MiniBuckets._product

    def unbalanced(self, b, r):
        product = original(self, b, r)
        return product - 0.05 if r == 1 else product

    monkeypatch.setattr(minibuckets.MiniBuckets, "_product", unbalanced)
    with pytest.raises(AssertionError):
        check_bound(model, make(model, 3.0))


def test_a_bound_that_is_5_percent_too_small_is_caught():
    model = frustrated()
    made = make(model, 3.0)
    message = next(b for b in made.layout.buckets if b.is_split).groups[0].message
    made.tops[message] -= 0.05
    with pytest.raises(AssertionError):
        check_bound(model, made)


def test_matching_and_tightening_lower_the_bound():
    model = frustrated(n=12)
    form = model._form.tables()
    plain = minibuckets.MiniBuckets(form, lay_out(form, 4.0))
    first = plain.forward()
    matched = plain.forward(match=True)
    last = make_minibuckets(form, lay_out(form, 4.0)).log_bound
    assert last < matched - 0.1
    assert matched < first - 0.05


def test_a_round_that_is_cut_short_leaves_the_last_one_whole(monkeypatch):
    model = frustrated(n=10)
    form = model._form.tables()
    made = minibuckets.MiniBuckets(form, lay_out(form, 3.0))
    made.begin()
    bound, original = made.log_bound, minibuckets.MiniBuckets._tighten

    def late(self, bucket, products, messages):
        original(self, bucket, products, messages)
        raise LateError("Planning", 2.0, 1.0, "seconds or more", "")

    monkeypatch.setattr(minibuckets.MiniBuckets, "_tighten", late)
    made.improve()
    assert made.log_bound == bound
    check_bound(model, made)


def test_messages_are_those_of_the_reference():
    """Before tightening, messages are Hölder's."""
    model = frustrated(n=6)
    form = model._form.tables()
    made = minibuckets.MiniBuckets(form, lay_out(form, 3.0))
    made.forward()
    _, tables, tops, sizes = dense(made)
    for bucket in made.layout.buckets:
        groups = []
        for group in bucket.groups:
            product = sum((reference.spread(*tables[k], sizes) for k in group.tables), np.zeros(sizes))
            groups.append((tuple(range(len(sizes))), product))
        for group, message in zip(bucket.groups, reference.hoelder(groups, bucket.variable, sizes), strict=True):
            found = reference.spread(*tables[group.message], sizes) + tops[group.message]
            assert np.allclose(found, np.broadcast_to(message, sizes), atol=1e-9)


def test_models_that_need_no_splitting_have_weight_1():
    model = db.Ising.grid(3, 3, couplings=0.7)
    made = make(model, 12.0)
    assert made.layout.is_exact
    exact = special.logsumexp(model.log_density(all_states(model)))
    assert abs(made.log_bound - exact) <= made.distortion + 1e-12
    draws = draw_weighted(Tries.make(made, np.arange(9), 0.0), range(1000), np.random.SeedSequence(1))
    assert (draws.weights == 1.0).all()
    assert len(draws.weights) == draws.tries == 1000


def test_models_without_an_allowed_state():
    never = np.where(np.indices((2, 2)).sum(axis=0) == 1, 0.0, -np.inf)
    odd = db.FactorGraph([2, 2, 2], [((0, 1), never), ((1, 2), never), ((0, 2), never)])
    with pytest.raises(NoState):
        make(odd, 12.0)
    with pytest.raises(db.ArgumentError, match="allows some joint state"):
        db.estimate(odd, [0], method="weights")
    # Where it shows only in the weights, there are none.
    made = make(odd, 2.0) if _is_bounded(odd) else None
    if made is not None:
        draws = draw_weighted(Tries.make(made, np.arange(3), -np.inf), range(100), np.random.SeedSequence(1))
        assert not len(draws.weights)


def _is_bounded(model):
    try:
        make(model, 2.0)
    except NoState:
        return False
    return True


# -- tries ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threshold", [0.0, math.log(0.3), -math.inf])
@pytest.mark.parametrize("case", ["spins", "zeros"])
def test_laws_of_tries(case, threshold):
    """The mean weight of each joint state is f / U; with threshold 1, completed tries are exact draws."""
    if case == "spins":
        model = frustrated(n=6)
    else:
        model = random_model(np.random.default_rng(5), "pairwise", n=5, zeros=True, strength=0.5, density=1.0)
    made = make(model, 3.0)
    assert not made.layout.is_exact
    n, cards = model.n_variables, model.cardinalities
    tries = 40000
    draws = draw_weighted(Tries.make(made, np.arange(n), threshold), range(tries), np.random.SeedSequence(7))
    assert (draws.weights <= 1.0).all()
    assert (draws.weights >= 0.0).all()
    log_f = model.log_density(all_states(model))
    mean = np.exp(log_f - made.log_bound)
    cells = np.ravel_multi_index(tuple(draws.states.astype(np.int64).T), tuple(cards))
    total = np.bincount(cells, weights=draws.weights, minlength=len(mean))
    variance = np.maximum(mean, 5.0 / tries)  # a weight is at most 1, so its mean square is at most its mean
    reach = stats.norm.isf(ALPHA / 2 / len(mean)) * np.sqrt(tries * variance) + 20
    assert (np.abs(total - tries * mean) <= reach).all()
    if threshold == 0.0:
        assert len(draws.weights) > 1000
        assert (draws.weights == 1.0).all()
        law = np.exp(log_f - special.logsumexp(log_f))
        often = len(cells) * law >= 5
        counts = np.bincount(cells, minlength=len(law))
        assert not counts[law == 0].any()
        observed = np.append(counts[often], counts[~often].sum())
        expected = len(cells) * np.append(law[often], law[~often].sum())
        kept = expected > 0
        assert stats.chisquare(observed[kept], expected[kept]).pvalue > ALPHA


def test_tries_belong_to_their_number():
    model = frustrated(n=8)
    made = make(model, 3.0)
    runner = Tries.make(made, np.array([0, 5]), -1.0)
    sequence = np.random.SeedSequence(11)
    whole = draw_weighted(runner, range(1000), sequence)
    first, rest = (draw_weighted(runner, numbers, sequence) for numbers in (range(300), range(300, 1000)))
    assert np.array_equal(whole.weights, np.concatenate([first.weights, rest.weights]))
    assert np.array_equal(whole.states, np.concatenate([first.states, rest.states]))


def test_only_what_matters_is_drawn():
    chain = {(i + 1, i): 0.5 for i in range(200)}
    block = {(i, j): 0.3 for i in range(8) for j in range(i)}
    made = make(db.Ising(chain | block), 4.0)
    runner = Tries.make(made, np.array([0]), -math.inf)
    assert not made.layout.is_exact
    assert runner.drawn < 12
    assert Tries.make(made, np.array([200]), -math.inf).drawn > 150


def test_tries_with_weight_one_are_exact_draws():
    model = frustrated(n=6)
    made = make(model, 3.0)
    runner = Tries.make(made, np.array([2, 4]), 0.0)
    found = draw_weighted(runner, range(20_000), np.random.SeedSequence(4))
    assert set(found.weights) == {1.0}
    assert len(found.states) > 4000
    assert float(runner.error[0]) * found.tries < 1e-8
    law = db.exact.distribution(model).reshape([2] * 6).sum(axis=(0, 1, 3, 5)).ravel()
    counts = np.bincount(found.states[:, 0] * 2 + found.states[:, 1], minlength=4)
    assert stats.chisquare(counts, len(found.states) * law).pvalue > ALPHA


def test_log_partition_limits_cover_and_a_smaller_bound_is_caught():
    model = frustrated(n=7)
    made = make(model, 3.0)
    truth = special.logsumexp(model.log_density(all_states(model)))
    runner, missed, missed_wrong = Tries.make(made, np.array([0]), -math.inf), 0, 0
    for seed in range(200):
        draws = draw_weighted(runner, range(1500), np.random.SeedSequence(seed))
        pilot = module.Pilot(0.5, 0.3)
        middle, low, high = log_partition_limits(made, draws, pilot, 0.05, 0.05)
        assert low <= middle <= high
        assert high - low < 0.5
        missed += not low <= truth <= high
        missed_wrong += not low - 0.25 <= truth <= high - 0.25
    assert stats.binom.sf(missed - 1, 200, 0.05) > ALPHA
    assert stats.binom.sf(missed_wrong - 1, 200, 0.05) < ALPHA


@pytest.mark.parametrize("case", ["spins", "zeros", "grid"])
def test_exact_samples(monkeypatch, case):
    """Draws by rejection have the model's joint law; a proposal taken for the model does not."""
    monkeypatch.setattr(rejection, "_FEW_BITS", 3.0)
    monkeypatch.setattr(rejection, "_MANY_BITS", 4.0)
    if case == "spins":
        model = frustrated(n=6)
    elif case == "zeros":
        model = random_model(np.random.default_rng(5), "pairwise", n=5, zeros=True, strength=0.5, density=1.0)
    else:
        model = db.Ising.grid(3, 3, couplings=0.8)
    kept = model.labels[::2]
    found = db.exact_sample(model, kept, draws=5000, method="weights", seed=4)
    assert found.error < 1e-8
    cards = [len(model.states(model.index(label))) for label in kept]
    digits = (found.states + 1) // 2 if model._spins else found.states
    counts = np.bincount(np.ravel_multi_index(tuple(digits.T), cards), minlength=math.prod(cards))
    log_f = model.log_density(all_states(model))
    law = np.exp(log_f - special.logsumexp(log_f)).reshape(tuple(model.cardinalities))
    law = law.sum(axis=tuple(v for v in range(model.n_variables) if v % 2)).ravel()
    often = len(found.states) * law >= 5
    assert not counts[law == 0].any()
    wanted = 5000 * np.append(law[often], law[~often].sum() + 1e-12)
    seen = np.append(counts[often], counts[~often].sum())
    assert stats.chisquare(seen, wanted * seen.sum() / wanted.sum()).pvalue > ALPHA


def test_all_tries_of_a_proposal_are_no_exact_draws(monkeypatch):
    """The negative control: tries are kept whatever their weight."""
    monkeypatch.setattr(rejection, "_FEW_BITS", 3.0)
    monkeypatch.setattr(rejection, "_SOON_SECONDS", 1.0)
    model, real = frustrated(n=6, strength=1.5), Tries.make
    law = db.exact.marginals(model)[0]
    monkeypatch.setattr(rejection.Tries, "make", lambda made, asked, _: real(made, asked, -math.inf))
    found = db.exact_sample(model, [0], draws=5000, method="weights", seed=4)
    counts = np.array([(found.states == -1).sum(), (found.states == 1).sum()])
    assert stats.chisquare(counts, 5000 * law).pvalue < ALPHA


def test_exact_samples_that_cannot_be_had(monkeypatch):
    model = frustrated(n=6)
    with pytest.raises(db.ArgumentError, match=r"'scan' argument .* left out with method='weights'"):
        db.exact_sample(model, [0], draws=5, method="weights", scan=db.Scan([0]))
    with pytest.raises(db.ArgumentError, match=r"'max_steps' argument .* left out with method='weights'"):
        db.exact_sample(model, [0], draws=5, method="weights", max_steps=100)
    with pytest.raises(db.ArgumentError, match="in memory for method='weights'"):
        db.exact_sample(db.Ising.grid(10**5, 10**5, couplings=0.1), [0], draws=5, method="weights")
    monkeypatch.setattr(rejection, "_expect", lambda *_: 1e6)
    with pytest.raises(db.BudgetError, match="Ask for fewer draws, or set time_limit="):
        db.exact_sample(model, [0], draws=5, method="weights", seed=1)
    monkeypatch.setattr(rejection, "_expect", lambda *_: math.inf)
    with pytest.raises(db.CertificateError, match="weights: none of 500 tries of a pilot"):
        db.exact_sample(model, [0], draws=5, method="weights", seed=1)


# -- intervals -----------------------------------------------------------------------------------------------------


def test_the_wealth_is_that_of_the_reference():
    rng = np.random.default_rng(1)
    z = rng.random(300) ** 3
    y = z * rng.integers(2, size=300)
    bets = rng.random(300) * 3
    for sign in (1.0, -1.0):
        for p in (0.0, 0.2, 0.7, 1.0):
            found = loops.wealth(y, z, bets, 0.9, p, sign)
            assert found == pytest.approx(math.log(reference.weighted_wealth(y, z, bets, 0.9, p, sign)), abs=1e-9)


def weights_of(rng, p, tries, scale=0.2):
    """Weights that say more where the event happens, so that plain means are wrong: p under the weighted law."""
    event = rng.random(tries) < 0.5
    z = np.where(event, p, 1.0 - p) * 2 * scale * rng.random(tries)
    return z * event, z


def test_intervals_cover_and_a_biased_weight_is_caught():
    """2000 runs; the negative control multiplies weights of the event by 0.8, as a bound that fails there would."""
    rng = np.random.default_rng(2)
    error, missed, missed_biased, widths = 0.05, 0, 0, []
    for _ in range(2000):
        y, z = weights_of(rng, 0.3, 400)
        before = 100 * np.array([0.1, 0.05, 0.005])
        mean, low, high = weighted_interval(y, z, 0.05, error, before)
        assert low <= mean <= high
        missed += not low <= 0.3 <= high
        widths.append(high - low)
        z = np.where(y > 0, 0.5 * z, z)
        _, low, high = weighted_interval(0.5 * y, z, 0.05, error, before)
        missed_biased += not low <= 0.3 <= high
    assert stats.binom.sf(missed - 1, 2000, error) > ALPHA
    assert stats.binom.sf(missed_biased - 1, 2000, error) < ALPHA
    assert np.mean(widths) < 0.3


def test_intervals_hold_at_every_number_of_tries_at_once():
    rng = np.random.default_rng(3)
    error, missed = 0.1, 0
    for _ in range(300):
        y, z = weights_of(rng, 0.4, 600)
        before = 100 * np.array([0.1, 0.05, 0.005])
        ends = [weighted_interval(y[:k], z[:k], 0.05, error, before)[1:] for k in range(10, 600, 20)]
        missed += not all(low <= 0.4 <= high for low, high in ends)
    assert stats.binom.sf(missed - 1, 300, error) > ALPHA


def test_nothing_and_one_sided_evidence():
    before = 100 * np.array([0.1, 0.05, 0.005])
    nothing = np.empty(0)
    assert weighted_interval(nothing, nothing, 0.05, 0.01, before) == (0.5, 0.0, 1.0)
    ones = np.ones(1000)
    mean, low, high = weighted_interval(ones, ones, 0.05, 0.01, before)
    assert (mean, high) == (1.0, 1.0)
    assert 0.9 < low < 1.0
    assert weighted_interval(0 * ones, ones, 0.05, 0.01, before)[:2] == (0.0, 0.0)


# -- estimates -----------------------------------------------------------------------------------------------------


def small_buckets(monkeypatch, few=3.0, many=4.0):
    monkeypatch.setattr(module, "_FEW_BITS", few)
    monkeypatch.setattr(module, "_MANY_BITS", many)


@pytest.mark.parametrize("family", FAMILIES)
def test_estimates_contain_the_truth(monkeypatch, family):
    small_buckets(monkeypatch)
    for seed in range(6):
        rng = np.random.default_rng(seed)
        zeros = family in FAMILIES_WITH_ZEROS and seed % 2 == 1
        model = random_model(rng, family, n=6, zeros=zeros, strength=float(rng.choice([0.3, 1.0])), density=0.9)
        joint = db.Joint(model.labels[3], model.labels[0])
        targets = [*model.labels, joint, db.Statistic.total(model)]
        try:
            found = db.estimate(model, targets, tolerance=0.3, confidence=1 - ALPHA, method="weights", seed=seed)
        except db.CertificateError as error:
            found = error.result
        exact = db.estimate(model, targets, method="exact")
        assert (found.lower <= exact.value + 1e-9).all()
        assert (exact.value - 1e-9 <= found.upper).all()
        assert found.plan.method == "weights"


def test_evidence(monkeypatch):
    small_buckets(monkeypatch)
    model = frustrated(n=9)
    known = {0: 1, 4: -1}
    found = db.estimate(model, [1, db.Joint(2, 3)], evidence=known, tolerance=0.1, method="weights", seed=1)
    exact = db.estimate(model, [1, db.Joint(2, 3)], evidence=known, method="exact")
    assert (found.lower <= exact.value).all()
    assert (exact.value <= found.upper).all()
    assert found.half_width.max() <= 0.1


def test_the_same_answer_wherever_it_is_run(monkeypatch, tmp_path):
    small_buckets(monkeypatch)
    how = {"targets": [0, 3], "tolerance": 0.1, "method": "weights", "seed": 5}
    first = db.estimate(frustrated(n=9), **how)
    with ThreadPoolExecutor(3) as pool:
        other = db.estimate(frustrated(n=9), **how, run=db.RunOptions(executor=pool))
    saved = db.estimate(frustrated(n=9), **how, run=db.RunOptions(checkpoint=tmp_path / "state"))
    again = db.estimate(frustrated(n=9), **how, run=db.RunOptions(checkpoint=tmp_path / "state"))
    for answer in (other, saved, again):
        assert np.array_equal(answer.lower, first.lower)
        assert np.array_equal(answer.upper, first.upper)
        assert answer.chains == first.chains


def test_strong_couplings_certified_where_nothing_else_is():
    rng = np.random.default_rng(1)
    signs = {edge: 0.5 * float(rng.choice([-1, 1])) for edge in _edges(16)}
    found = db.estimate(db.Ising(signs), db.Joint(0, 1), tolerance=0.1, method="weights", seed=1)
    assert found.half_width.max() <= 0.1
    assert found.is_certified
    assert not found.plan.is_certain
    assert "weight" in found.assumptions[0]


def _edges(side):
    for i in range(side):
        for j in range(side):
            yield i * side + j, i * side + (j + 1) % side
            yield i * side + j, (i + 1) % side * side + j


def test_a_wrong_bound_is_caught_in_estimates(monkeypatch):
    """Coverage of whole answers; the negative control lowers the messages where a variable is in its first state."""
    small_buckets(monkeypatch)
    model = frustrated(n=7, strength=1.0)
    form = model._form.tables()
    made = make_minibuckets(form, lay_out(form, 3.0))
    bucket = next(b for b in made.layout.buckets if b.is_split)
    group = bucket.groups[0]
    v = group.scope[0]
    truth = db.estimate(model, [v], method="exact").value
    pilot = module.Pilot(0.3, 0.2)
    missed = {"right": 0, "wrong": 0}
    for name in missed:
        if name == "wrong":
            table = made.tables[group.message].reshape([2] * len(group.scope)).copy()
            index = [slice(None)] * len(group.scope)
            index[0] = 0
            table[tuple(index)] += 1.0  # a weight that is too small there, and a law that is no longer the model's
            made = with_another_message(made, bucket, group, table.ravel())
        runner = Tries.make(made, np.array([v]), -math.inf)
        for seed in range(300):
            draws = draw_weighted(runner, range(2000), np.random.SeedSequence(seed))
            values = (draws.states[:, 0] == 0).astype(float)
            before = 100 * np.array([pilot.mean, pilot.mean / 2, pilot.square / 4])
            _, low, high = weighted_interval(draws.weights * values, draws.weights, 0.05, 0.05, before)
            missed[name] += not low <= truth[0] <= high
    assert stats.binom.sf(missed["right"] - 1, 300, 0.05) > ALPHA
    assert stats.binom.sf(missed["wrong"] - 1, 300, 0.05) < ALPHA


def with_another_message(made, bucket, group, table):
    """The same mini-buckets, but a message is another one where it is compared with the sum of its bucket."""
    wrong = copy.copy(made)
    wrong.tables, wrong.tops = [*made.tables, table], [*made.tops, made.tops[group.message]]
    wrong.layout = copy.deepcopy(made.layout)
    wrong.layout.scopes.append(group.scope)
    place, which = made.layout.buckets.index(bucket), bucket.groups.index(group)
    wrong.layout.buckets[place].groups[which].message = len(made.tables)
    return wrong


def test_refusals(monkeypatch, tmp_path):
    small_buckets(monkeypatch)
    model = frustrated(n=9)
    with pytest.raises(db.CertificateError, match="no proof") as caught:
        db.estimate(model, [0], method="weights", proof=tmp_path / "p", seed=1)
    assert "or pass method='symmetry' or 'dobrushin' or 'local'" in str(caught.value)
    with pytest.raises(db.CertificateError, match="too dense: mini-buckets"):
        db.estimate(db.Potts({(i, j): 0.1 for i in range(60) for j in range(i)}, 3), [0], method="weights", seed=1)
    strong = db.Ising({(i, j): 3.0 * (-1) ** (i * j % 3) for i in range(14) for j in range(i)})
    monkeypatch.setattr(module, "_MOST_GAP", 0.01)
    with pytest.raises(db.CertificateError, match="mini-buckets of 3 bits"):
        db.estimate(strong, [0], method="weights", seed=1)


@pytest.mark.parametrize("strength", [1e-300, 1e-8, 50.0, 1e6])
def test_huge_and_tiny_couplings(monkeypatch, strength):
    small_buckets(monkeypatch)
    model = db.Ising({(i, j): strength for i in range(6) for j in range(i)})
    made = make(model, 3.0)
    assert math.isfinite(made.log_bound)
    exact = special.logsumexp(model.log_density(all_states(model)))
    assert exact <= made.log_bound + made.distortion
    found = db.estimate(model, [0], tolerance=0.2, method="weights", seed=1)
    assert found.lower[0] <= 0.5 <= found.upper[0]


def test_one_variable_and_disconnected_models(monkeypatch):
    small_buckets(monkeypatch)
    one = db.FactorGraph([3], [((0,), [0.0, 1.0, -np.inf])])
    law = np.array([1.0, math.e, 0.0]) / (1 + math.e)
    found = db.estimate(one, [0], tolerance=0.1, method="weights", seed=1)
    assert (found.lower <= law).all()
    assert (law <= found.upper).all()
    free = db.Ising({(0, 1): 0.4, (3, 4): -0.9}, fields=[0.0, 0.2, 0.0, 0.0, -0.5, 1.0])
    found = db.estimate(free, "all", tolerance=0.1, method="weights", seed=1)
    exact = db.estimate(free, "all", method="exact")
    assert (found.lower <= exact.value).all()
    assert (exact.value <= found.upper).all()


def test_time_limits_end_a_run_with_valid_intervals(monkeypatch):
    small_buckets(monkeypatch)
    model = frustrated(n=12, strength=0.6)
    original = module._WeightRun.draw

    def late(self):
        self.running = replace(self.running, deadline=_Over())
        original(self)

    monkeypatch.setattr(module._WeightRun, "draw", late)
    found = db.estimate(model, [0], tolerance=0.001, method="weights", seed=1, time_limit=1000)
    assert found.stopped_by == "the time limit"
    assert (found.lower <= found.value).all()


class _Over:
    """A deadline that is over."""

    left, is_over, limit = 0.0, True, 0.0


def test_a_budget_is_kept_and_half_of_the_plan_may_be_enough():
    rng = np.random.default_rng(4)
    model = db.Ising.grid(7, 7, couplings=rng.choice([-0.9, 0.9], size=84), fields=0.3 * rng.normal(size=49))
    how = {"tolerance": 0.02, "method": "weights", "seed": 1}
    planned = db.plan(model, [0], tolerance=0.02, method="weights").updates
    for share in (0.55, 0.8, 1.5):
        budget = int(share * planned)
        try:
            found = db.estimate(model, [0], budget=budget, **how)
        except db.CertificateError as error:
            found = error.result
        assert 0 < found.plan.updates <= budget
        assert found.half_width.max() < 0.1
    with pytest.raises(db.BudgetError):
        db.estimate(model, [0], budget=planned // 3, **how)


@pytest.mark.parametrize("tolerance", [1e-300, 5e-324, 1e-17])
def test_tolerances_below_the_rounding_of_weights_are_refused(tolerance):
    with pytest.raises(db.CertificateError, match=r"weights: rounding of the weights reaches .*, above the tolerance"):
        db.estimate(db.Ising.grid(3, 3, couplings=0.6), [0], method="weights", tolerance=tolerance, seed=1)


@pytest.mark.parametrize("coupling", [1e16, 1e99, -1e99])
def test_potentials_of_which_nothing_is_left_are_refused(coupling):
    model = db.Ising({(0, 1): coupling, (1, 2): 0.5}, fields={0: 1e99})
    with pytest.raises(db.CertificateError, match="weights: rounding of the weights reaches"):
        db.estimate(model, [2], method="weights", seed=1)
