"""Proofs about fields: true ones are verified, forged ones are not, and every bound is tried against quadrature."""

import itertools
import math

import numpy as np
import pytest
from typer.testing import CliRunner

import dobrushin as db
from counterfeit import first_part, of_field, opened
from dobrushin._fields import influence as finder
from dobrushin._fields.anchor import find_start
from dobrushin.cli.app import app
from dobrushin.verify import BELIEVED, fields, verify_proof
from field_reference import KINDS, Grid, random_field
from forger import Forgery, forgeries, put

TRUE = 1e-6  # more than the error of quadrature, as a share of what it is compared with


@pytest.fixture
def path(tmp_path):
    return tmp_path / "answer.proof"


def believed(path, model=None):
    verdict = verify_proof(path, model)
    assert (verdict.verdict, verdict.exit_code) == (BELIEVED, 3), verdict
    assert any("independent chains" in words for words in verdict.assumptions)
    assert any("drift" in words for words in verdict.assumptions)
    return verdict


def rejected(path, model=None):
    verdict = verify_proof(path, model)
    assert verdict.exit_code == 1, verdict
    assert verdict.reason.endswith(".")
    return verdict.reason


# -- answers ---------------------------------------------------------------------------------------


def random_case(rng, k):
    """A field, evidence, the field given it, and questions of all kinds about what is left."""
    n = int(rng.choice([1, 2, 3], p=[0.3, 0.6, 0.1]))
    field = random_field(rng, KINDS[k % len(KINDS)], n)
    if rng.random() < 0.3 and not field._form.is_finite[0]:
        field = field.normal({0: float(rng.normal())}, 2.0)
    labels = [f"site {i}" for i in range(n)] if k % 2 else list(range(n))
    field = field._form.to_model(labels)
    evidence = {}
    if n > 1 and rng.random() < 0.4:
        form, last = field._form, n - 1
        own = form.values_of(last)
        evidence = {labels[last]: float(own[0] if len(own) else np.clip(0.3, form.lower[last], form.upper[last]))}
    given = field.condition(evidence) if evidence else field
    return field, evidence, given


def truth(grid, target):
    """The mean of the first variable, of a statistic, or the chance of an event, by quadrature."""
    x, law = grid.points[0], grid.marginal(grid.law, 0)
    if isinstance(target, db.Statistic):
        states = np.stack([part.ravel() for part in np.meshgrid(*grid.points, indexing="ij")], axis=1)
        return float(grid.law.ravel() @ target.f(states))
    if isinstance(target, db.Exceeds | db.Between):
        low, high = target._ends
        return float(law[(x > low) & (x <= high)].sum())
    return float(x @ law)


def test_answers_hold_and_are_true(path):
    """Intervals at confidence 0.99999 hold what quadrature says: random fields, five kinds of questions."""
    rng, kinds, answered = np.random.default_rng(5), set(), 0
    for k in range(240):
        field, evidence, given = random_case(rng, k)
        first, deviations = given.labels[0], given._form.diagonal**-0.5
        slopes = 0.5 * deviations[0] / deviations
        size = db.Statistic(lambda x, s=slopes: np.abs(x @ s), dict(zip(given.labels, slopes, strict=True)),
                            (-math.inf, math.inf), name="size")  # fmt: skip
        choices = [first, db.Exceeds(first, 0.2), db.Between(first, -0.3, 0.4), db.Quantile(first, 0.3), size]
        asked = [choices[j] for j in rng.choice(5, 2, replace=False)]
        tolerance = 0.4 * (max(deviations[0], 0.5) if first in asked or size in asked else 1.0)
        try:
            db.estimate(field, asked, evidence=evidence, tolerance=tolerance, confidence=0.99999, proof=path, seed=k)
        except db.CertificateError:
            continue  # levels that are coupled too strongly
        believed(path)
        answered += 1
        claim = Forgery(path).document["claim"]
        grid = Grid(given, find_start(given._form))
        law = grid.marginal(grid.law, 0)
        for target, (low,), (high,) in zip(asked, claim["lower"], claim["upper"], strict=True):
            kinds.add(type(target))
            if isinstance(target, db.Quantile):
                low, high = (law[grid.points[0] <= end].sum() for end in (low, high))
                assert low - law.max() <= 0.3 <= high + law.max(), (k, target)
                continue
            room = law.max() if isinstance(target, db.Exceeds | db.Between) else TRUE * tolerance
            assert low - room <= truth(grid, target) <= high + room, (k, target)
    assert answered > 200
    assert kinds >= {int, str, db.Exceeds, db.Between, db.Quantile, db.Statistic}


def test_every_way_to_a_proof(path):
    field = db.GaussianField([[2.0, -1.0], [-1.0, 2.0]], linear=[1.0, 0.0], labels=["a", "b"])
    answer = db.estimate(field, "a", tolerance=0.3, proof=path)  # "auto" would solve it, and that has no proof
    assert answer.plan.method == "dobrushin"
    believed(path)
    assert db.estimate(field, "a", tolerance=0.3, verify=True).proof == "bounds verified"
    later = path.with_name("later.proof")
    answer.write_proof(later)
    assert later.read_bytes() == path.read_bytes()
    for method in ("exact", "local"):
        with pytest.raises(db.ArgumentError, match="'dobrushin' for a proof about a field"):
            db.estimate(field, "a", tolerance=0.3, method=method, proof=path)
    with pytest.raises(db.ArgumentError, match="proof= or verify= was set beforehand"):
        db.estimate(field, "a", tolerance=0.3, method="dobrushin").write_proof(path)


def test_a_start_where_nothing_counts(path):
    """e^x of a variable that has no counts may leave the range of doubles."""
    field = db.GaussianField([[1.0, 0.1], [0.1, 1.0]], linear=[0.0, 2000.0], labels=["a", "b"]).poisson({"a": 3})
    assert np.isfinite(field._form.log_density(np.array([[0.0, 2000.0]]))).all()
    db.estimate(field, ["b"], tolerance=0.5, proof=path)
    believed(path)


@pytest.mark.parametrize("bounds", [(0.0, 0.2), (0.6, 0.60001), (2.0, math.inf)])
def test_bounds_of_a_statistic_are_not_in_a_proof(bounds, path):
    """They would cut the interval, and the checker does not know them."""
    field = db.GaussianField([[2.0, -1.0], [-1.0, 2.0]], linear=[1.0, 0.0])
    cut = db.Statistic(lambda x: np.clip(x[:, 0], *bounds), {0: 1.0}, bounds, name="cut")
    answer = db.estimate(field, [cut], tolerance=0.5, proof=path, seed=1)
    believed(path)
    assert answer.lower[0] < bounds[0]


@pytest.mark.parametrize("size", [1e3, 1e8])
def test_fields_far_from_zero(size, path):
    """The checker rounds a slope by a share of all its terms, however few they are."""
    fields_far = [
        (db.GaussianField([[1.0]], linear=[size]), {}),
        (db.GaussianField([[2.0, -0.8], [-0.8, 2.0]], linear=[size, 0.0]), {}),
        (db.GaussianField([[2.0, -0.8], [-0.8, 2.0]]), {0: size}),
        (db.GaussianField([[1.0]]).poisson({0: 10 * size}), {}),
    ]
    for field, evidence in fields_far:
        db.estimate(field, evidence=evidence, tolerance=0.3, proof=path, seed=1)
        believed(path)


def test_more_chains_than_draws_allow(path):
    """Means that need few chains, beside an event that needs so many that some of them may drift."""
    field = db.GaussianField(db.GaussianField.grid(6, 6, rho=0.9).precision * 1e4)
    asked = [*range(36), db.Exceeds(0, 0.0)]
    with pytest.raises(db.CertificateError, match="on the rounding of draws"):
        db.estimate(field, asked, tolerance=0.003, proof=path)
    assert db.plan(field, asked, tolerance=0.003, method="dobrushin").chains > 1e5


# -- bounds of scans -------------------------------------------------------------------------------


NARROW = db.GaussianField([[1.0, -1.0], [-1.0, 2.0]], linear=[0.0, 40.0], levels={1: [0.0, 0.2]})


def random_bound(rng, k, path, targets):
    """Write the proof of a bound on a short scan from a node of a grid; the grid, the start and the order."""
    n = int(rng.choice([1, 2, 3], p=[0.2, 0.7, 0.1]))
    field = NARROW if k % 8 == 7 else random_field(rng, KINDS[k % len(KINDS)], n)
    n, grid = field.n_variables, Grid(field, find_start(field._form))
    start = [int(rng.integers(len(points))) for points in grid.points]
    start = [0, 0] if field is NARROW else start
    order = rng.integers(n, size=rng.integers(1, 2 * n + 2)) if field is not NARROW else np.array([0])
    point = [points[node] for points, node in zip(grid.points, start, strict=True)]
    asked = (
        {"targets": [int(order[-1])]} if targets else {"weights": {i: float(w) for i, w in enumerate(rng.random(n))}}
    )
    db.variation(field, db.Scan(order), initial=point, **asked).write_proof(path)
    return grid, start, order


def real_distance(grid, start, order, forged):
    """What a bound is for: the total variation of the targets, or the largest bias of a signed sum, by quadrature."""
    question = forged.document["plan"]["questions"][0]
    own = forged.arrays["positions"][question["variables"]].tolist()
    law, others = grid.run(order, start), set(range(grid.n)) - set(own)
    if question["kind"] == "joint":
        return 0.5 * float(np.abs((law - grid.law).sum(axis=tuple(others))).sum())
    off = [points @ (grid.marginal(law, i) - grid.marginal(grid.law, i)) for i, points in enumerate(grid.points)]
    return float(np.abs(off) @ question["weights"])


def false_claims(path, targets, cases=160):
    """How many of these pass: all is as it was, but the bound that is claimed is below what quadrature says."""
    rng, passed, tried = np.random.default_rng(11), 0, 0
    for k in range(cases):
        try:
            grid, start, order = random_bound(rng, k, path, targets)
        except db.CertificateError:
            continue
        assert verify_proof(path).holds, k
        forged = Forgery(path)
        real = real_distance(grid, start, order, forged)
        assert real <= forged.document["claim"]["upper"][0][0] + 1e-9, k
        if real > 1e-3:
            forged.document["claim"]["upper"] = [[real * (1.0 - 1e-4)]]
            forged.save(path)
            passed, tried = passed + (verify_proof(path).exit_code != 1), tried + 1
    assert tried > cases // 3
    return passed


@pytest.mark.filterwarnings("ignore::dobrushin.VacuousBoundWarning")
@pytest.mark.parametrize("targets", [False, True])
def test_no_bound_is_below_the_truth(targets, path):
    assert false_claims(path, targets) == 0


def _weaker_rows(forward):
    def wrong(rows, order, error, initial, most):
        half = {i: ([(j, 0.5 * c) for j, c in pairs], cap) for i, (pairs, cap) in rows.items()}
        return forward(half, order, error, initial, most)

    return wrong


def _nearer_start(forward):
    return lambda rows, order, error, initial, most: forward(
        rows, order, error, {v: 0.5 * b for v, b in initial.items()}, most
    )


@pytest.mark.filterwarnings("ignore::dobrushin.VacuousBoundWarning")
@pytest.mark.parametrize("wrong", [_weaker_rows, _nearer_start])
def test_control_a_wrong_bound_would_be_seen(wrong, path, monkeypatch):
    """With half the influence, or half the distance of the start, a checker passes what quadrature refutes."""
    monkeypatch.setattr(fields, "forward", wrong(fields.forward))
    assert false_claims(path, False, 40) > 0


@pytest.mark.filterwarnings("ignore::dobrushin.VacuousBoundWarning")
def test_control_a_wrong_total_variation_would_be_seen(path, monkeypatch):
    class Wrong(fields.Field):
        def __init__(self, part, order):
            super().__init__(part, order)
            self.tilt = {v: 0.5 * tilt for v, tilt in self.tilt.items()}

    monkeypatch.setattr(fields, "Field", Wrong)
    assert false_claims(path, True, 40) > 0


def test_control_a_finder_with_a_wrong_variance_is_refused(path, monkeypatch):
    field = db.GaussianField([[2.0, -1.0], [-1.0, 2.0]], linear=[1.0, 0.0])
    real = finder.conditional_variances
    wrong = lambda form, positions: real(form, positions)._replace(values=0.5 * real(form, positions).values)  # noqa: E731
    monkeypatch.setattr(finder, "conditional_variances", wrong)
    db.variation(field, db.Scan.systematic(2, 3), weights={0: 1.0}).write_proof(path)
    assert "does not follow" in rejected(path) or "farther" in rejected(path)


def field_of(path):
    """What the checker knows of a field, and the steps."""
    proof = opened(path)
    part = first_part(proof)
    order = part.scan()
    return fields.Field(part, order), order, proof.questions[0]


@pytest.mark.filterwarnings("ignore::dobrushin.VacuousBoundWarning")
def test_no_random_error_is_above_its_proxy(path):
    """The logarithm of the moment generating function is at most the proxy's, and near to it for single updates."""
    rng, tightest = np.random.default_rng(3), 0.0
    for k in range(60):
        try:
            grid, start, order = random_bound(rng, k, path, False)
        except db.CertificateError:
            continue
        field, steps, question = field_of(path)
        law, proxy = grid.run(order, start), field.spread(question, steps)
        mesh = np.stack(np.meshgrid(*grid.points, indexing="ij"), axis=-1)
        values = mesh[..., question.variables] @ np.array(question.weights)
        values = values - (law * values).sum()
        for t in (-2.0, -0.5, 0.1, 1.0, 2.0):
            rate = t / math.sqrt(proxy)
            spread = 2.0 * math.log((law * np.exp(rate * values)).sum()) / rate**2
            assert spread <= proxy * (1.0 + 1e-4) + 1e-9, (k, t)
            tightest = max(tightest, spread / proxy)
    assert tightest > 0.9  # so half of it would be too small


@pytest.mark.filterwarnings("ignore::dobrushin.VacuousBoundWarning")
def test_scans_that_were_found(path):
    field = db.GaussianField.grid(3, 3, rho=0.8, lower=-1.0, linear=0.3)
    for result in (
        db.shortest_scan(field, [4], tolerance=0.05),
        db.greedy_scan(field, weights={0: 1.0, 4: 2.0}, steps=30),
        db.optimize_scan(field, db.Scan.systematic(9, 60), [0, 8]),
    ):
        result.write_proof(path)
        assert verify_proof(path).holds
    with pytest.raises(db.ArgumentError, match="fixed scan"):
        db.variation(field, db.Scan.uniform(9, 60), weights={0: 1.0}).write_proof(path)


# -- forgeries -------------------------------------------------------------------------------------


CHAIN = db.GaussianField([[2.0, -0.8, 0.0], [-0.8, 2.0, 0.5], [0.0, 0.5, 1.0]], linear=[1.0, 0.0, -1.0])


def real_bias(forged):
    """The bias of a forged file about a Gaussian field, solved; None where it is none any more."""
    m, linear, exposure, trials, lower, upper, point = forged.arrays["sites"][:7]
    if (
        exposure.any()
        or trials.any()
        or np.isfinite([lower, upper]).any()
        or forged.document["plan"]["parts"][0]["levels"]
    ):
        return None
    precision, tables = np.diag(m), forged.arrays["tables"].reshape(-1, 4)
    for (i, j), q in zip(forged.arrays["scope"].reshape(-1, 2).tolist(), -tables[:, 3], strict=True):
        precision[i, j] += q
        precision[j, i] += q
    mean, part = point.copy(), forged.document["plan"]["parts"][0]
    for i in itertools.islice(itertools.cycle(forged.arrays["scan"].tolist()), part["steps"]):
        mean[i] = (linear[i] - precision[i] @ mean + m[i] * mean[i]) / m[i]
    question = forged.document["plan"]["questions"][0]
    off = np.abs(mean - np.linalg.solve(precision, linear))
    return float(off[question["variables"]] @ question["weights"])


def test_forged_bounds(path):
    """What passes is a bound on the bias in the field, from the start and after the scan that the file says."""
    passed = failed = 0
    for seed in range(12):
        db.variation(CHAIN, db.Scan([0, 1, 2, 0]), weights={0: 1.0, 2: 0.5}, initial=[0.0, 4.0, -4.0]).write_proof(path)
        for what, forged, is_strict in forgeries(path, np.random.default_rng(seed)):
            forged.save(path)
            if verify_proof(path).exit_code == 1:
                failed += 1
                continue
            passed += 1
            assert not is_strict, what
            real = real_bias(forged)
            assert real is None or real <= forged.document["claim"]["upper"][0][0], what
    assert failed > 2 * passed > 0


def test_forged_answers(path):
    """No end of an interval moves inwards, whatever else is changed."""
    size = db.Statistic(lambda x: np.abs(x[:, 0]), {0: 1.0}, (-math.inf, math.inf), name="size")
    asked = [0, db.Exceeds(0, 0.3), db.Between(1, -1.0, 1.0), db.Quantile(0, 0.4), size]
    for seed, evidence in enumerate(({}, {2: 0.5})):
        db.estimate(CHAIN, asked, evidence=evidence, tolerance=0.3, proof=path, seed=seed)
        believed(path)
        honest, own = Forgery(path), path.with_name("forged.proof")
        honest.copy().save(own)
        believed(own)  # the forger's words are the file's
        for what, forged, is_strict in forgeries(path, np.random.default_rng(seed)):
            forged.save(own)
            assert not is_strict or verify_proof(own).exit_code == 1, what


def changed(path, place, value):
    """The file with one number changed, of the document or of a variable, and words made right."""
    forged, own = Forgery(path), path.with_name("forged.proof")
    if place[0] == "sites":
        forged.arrays["sites"][place[1:]] = value
    else:
        put(forged.document, place, value if callable(value) else lambda _: value)
    forged.save(own)
    return own


PART, NUMBERS = ("plan", "parts", 0), ("outcomes", "parts", 0, "numbers")
# Of a mean, an event and a quantile: where something is changed, and what is written there.
FORGED = {
    "fewer chains": ((*PART, "chains"), lambda chains: chains // 2),
    "a mean moved": ((*NUMBERS, 0, 0), lambda mean: mean + 0.05),
    "a count lowered": ((*NUMBERS, 1, 0), lambda count: count - 2.0),
    "a share of a chain": ((*NUMBERS, 1, 0), lambda count: count + 0.5),
    "more surely than perhaps": ((*NUMBERS, 1), lambda counts: [counts[1] + 1.0, counts[1]]),
    "more than all": ((*NUMBERS, 1, 1), 1e6),
    "a higher rank": ((*NUMBERS, 2, 0), lambda rank: rank + 2.0),
    "a value moved": ((*NUMBERS, 2, 2), lambda value: value - 0.05),
    "numbers of another kind": ((*NUMBERS, 0), [0.5, 0.5]),
    "no numbers": (NUMBERS, []),
    "draws err often": ((*PART, "slip"), 1e-3),
    "draws err less than never": ((*PART, "slip"), -1e-3),
    "a shorter scan": ((*PART, "steps"), 1),
    "a part with less confidence": ((*PART, "confidence"), 0.9),
    "a seed": (("outcomes", "seed"), [1]),
    "a variable left out": (("plan", "dropped"), [2]),
    "levels of a continuous variable": ((*PART, "levels"), {"0": [-1.0, 1.0]}),
    "levels of no variable": ((*PART, "levels"), {"7": [0.0]}),
    "a drift": (("sites", 8, 0), 0.01),
    "a start moved": (("sites", 6, 0), 5.0),
    "a start nearer": (("sites", 7, 0), 0.1),
    "not a number": (("sites", 1, 0), math.nan),
    "an infinite start": (("sites", 7, 0), math.inf),
    "an empty box": (("sites", 5, 0), -50.0),
    "a weaker diagonal": (("sites", 0, 0), 1.5),
    "a diagonal below zero": (("sites", 0, 0), -2.0),
    "exposure below zero": (("sites", 2, 0), -1.0),
    "trials below zero": (("sites", 3, 0), -1.0),
    "counts that overflow": (("sites", slice(2, 7, 4), 0), (1.0, 800.0)),
}


@pytest.mark.parametrize("name", FORGED)
def test_named_forgeries(name, path):
    db.estimate(CHAIN, [0, db.Exceeds(0, 0.3), db.Quantile(0, 0.4)], tolerance=0.3, proof=path, seed=3)
    believed(path)
    rejected(changed(path, *FORGED[name]))


PASSES = {
    "more chains": ((*PART, "chains"), lambda chains: chains + 1),
    "no drift": (("sites", 8), 0.0),
}


@pytest.mark.parametrize("name", PASSES)
def test_forgeries_that_are_assumptions(name, path):
    """They pass, as proofs of the same claim, and the list of assumptions has the forged number."""
    db.estimate(CHAIN, [0], tolerance=0.3, proof=path, seed=3)
    before, after = believed(path), believed(changed(path, *PASSES[name]))
    assert after.claim == before.claim
    assert after.assumptions != before.assumptions


def random_gaussian(rng):
    """Precision, linear term, start and what a file may say of its distance: enough, or not."""
    n = int(rng.integers(1, 4))
    size = 10.0 ** rng.uniform(-6, 6, n)
    couplings = np.triu(rng.normal(size=(n, n)) * rng.choice([0.1, 0.4, 1.0]), 1)
    precision = (np.eye(n) + couplings + couplings.T) * np.sqrt(np.outer(size, size))
    linear = rng.normal(size=n) * np.sqrt(size) * 10.0 ** rng.uniform(-2, 3)
    start = rng.normal(size=n) / np.sqrt(size) * 10.0 ** rng.uniform(-2, 3)
    influence = np.abs(precision) / size[:, None]
    rest = np.abs(precision @ start - linear) / size + size**-0.5
    far = np.abs(np.linalg.solve(2.0 * np.eye(n) - influence, rest)) * rng.choice([0.5, 1 - 1e-6, 1 + 1e-6, 1.5])
    return precision, linear, start, far


def test_random_files_about_gaussian_fields(path):
    """Whatever a file says of the distance of its start: what passes is about a field, and its bounds are true."""
    rng, accepted, nearest, widest = np.random.default_rng(1), 0, 0.0, 0.0
    for _ in range(250):
        precision, linear, start, far = random_gaussian(rng)
        n, m, order = len(far), np.diag(precision), rng.integers(len(far), size=rng.integers(1, 7))
        rows = zip(m, linear, start, far, strict=True)
        sites = [dict(zip(("m", "linear", "point", "far"), row, strict=True)) for row in rows]
        couplings = {(i, j): precision[i, j] for i in range(n) for j in range(i)}
        weights = 10.0 ** rng.uniform(-3, 3, n)
        about = {"kind": "bias", "variables": list(range(n)), "weights": weights.tolist()}
        file = of_field(sites, couplings, about, 0.0, 1e300, steps=len(order))
        file.arrays["scan"] = order
        if file.verdict(path).exit_code == 1:
            continue
        accepted += 1
        assert np.linalg.eigvalsh(precision)[0] > 0.0
        field, steps, question = field_of(path)
        bounds = fields.forward(field.rows, steps, {}, field.far, math.inf)
        mean, spread = start.copy(), np.zeros((n, n))
        for i in order:
            update = np.eye(n)
            update[i] -= precision[i] / m[i]
            mean, spread = update @ mean, update @ spread @ update.T
            mean[i], spread[i, i] = mean[i] + linear[i] / m[i], spread[i, i] + 1.0 / m[i]
        real = np.linalg.solve(precision, linear)
        off = np.abs(mean - real) / (np.array([bounds[i] for i in range(n)]) + 1e-9 * np.abs(real))
        share = weights @ spread @ weights / field.spread(question, steps)
        assert (off <= 1.0 + 1e-6).all()
        assert share <= 1.0 + 1e-9
        nearest, widest = max(nearest, off.max()), max(widest, share)
    assert accepted > 60
    assert nearest > 0.9
    assert widest > 0.9


# -- model files -----------------------------------------------------------------------------------


def test_a_model_file_tells_fields_apart(path, tmp_path):
    """Every number that the claim rests on is compared: also boxes of neighbours that are never updated."""
    matrix = np.diag([2.0, 2.0, 2.0]) - 0.5 * (np.eye(3, k=1) + np.eye(3, k=-1))
    field = db.GaussianField(matrix, lower={"b": -1.0}, upper={"b": 1.0}, labels=list("abc")).poisson({"a": 2})
    model, other = tmp_path / "field.npz", tmp_path / "other.npz"
    db.write(field, model)
    db.variation(field, db.Scan([0]), weights={"a": 1.0}).write_proof(path)
    assert Forgery(path).arrays["positions"].tolist() == [0, 1]
    assert verify_proof(path, model).holds
    with np.load(model) as file:
        arrays = dict(file)
    changes = {"diagonal": 0, "linear": 0, "exposure": 0, "trials": 0, "lower": 1, "upper": 1, "couplings": 0}
    for name, at in changes.items():
        array = arrays[name].copy()
        array[at] = np.nextafter(array[at], 9.0)
        np.savez(other, **(arrays | {name: array}))
        assert "has another factor" in (reason := rejected(path, other)) or "has other boxes" in reason, name
    without = {name: arrays[name][1:] for name in ("i", "j", "couplings")}
    np.savez(other, **(arrays | without))
    assert "has another factor" in rejected(path, other)
    runner = CliRunner()
    assert runner.invoke(app, ["verify", str(path), str(model)]).exit_code == 0
    assert runner.invoke(app, ["verify", str(path), str(other)]).exit_code == 1


def test_evidence_beside_a_model_file(path, tmp_path):
    """What is given is any value of the box; a neighbour that is said to be given is told in words."""
    model = tmp_path / "field.npz"
    field = db.GaussianField([[1.0, -0.5], [-0.5, 1.0]], lower={1: -1.0}, upper={1: 1.0})
    db.write(field, model)
    db.estimate(field, [0], evidence={1: 0.5}, tolerance=0.3, proof=path)
    assert "given variable 1 = 0.5" in believed(path, model).claim
    forged = Forgery(path)
    forged.arrays["sites"][4:8] = np.array([[-math.inf, math.inf, 0.25, 9.0], [3.0, 3.0, 3.0, 0.0]]).T
    forged.save(path)
    assert "boxes" in rejected(path, model)


def test_the_command_line(tmp_path):
    model, path = tmp_path / "field.npz", tmp_path / "answer.proof"
    db.write(db.GaussianField.grid(3, 3, rho=0.5, linear=0.2), model)
    runner = CliRunner()
    words = ["estimate", str(model), "--target", "4", "--target", "4>0.5", "--tolerance", "0.2", "--proof", str(path)]
    asked = runner.invoke(app, words)
    assert asked.exit_code == 0, asked.output
    done = runner.invoke(app, ["verify", str(path), str(model)])
    assert (done.exit_code, BELIEVED in done.output) == (3, True), done.output
