"""Proofs of random clusters and of symmetries: true ones hold, and each check has a forgery that only it refuses."""

import numpy as np
import pytest

import dobrushin as db
from counterfeit import Counterfeit, first_part, marginal, opened
from dobrushin._coalescence import ferromagnet
from dobrushin.verify import clusters, verify_proof
from dobrushin.verify.clusters import check_clusters
from dobrushin.verify.document import TooLarge
from forger import Forgery
from test_clusters import KINDS, random_ferromagnet


@pytest.fixture
def path(tmp_path):
    return tmp_path / "answer.proof"


def rejected(path):
    verdict = verify_proof(path)
    assert verdict.exit_code == 1, verdict
    return verdict.reason


# -- what is true is verified ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_draws_of_clusters_hold(kind, path, tmp_path):
    """All kinds of ferromagnets, after relabelling and flipping, with fields, evidence, pairs, beside their files."""
    answered = 0
    for seed in range(25):
        rng = np.random.default_rng(seed)
        model = random_ferromagnet(rng, kind, n=int(rng.integers(2, 6)), fields=seed % 2 == 0)
        targets = [0] if seed % 2 == 0 else [0, db.Joint(0, 1)]
        evidence = {model.n_variables - 1: model.states(0)[1]} if seed % 5 == 4 and model.n_variables > 2 else {}
        try:
            db.estimate(
                model, targets, evidence=evidence, method="clusters", tolerance=0.1, seed=seed % 3 or None, proof=path
            )
        except db.CertificateError:  # a pair that is not connected, fields that disagree with the evidence
            continue
        db.write(model, tmp_path / "model.npz")
        verdict = verify_proof(path, tmp_path / "model.npz")
        assert verdict.holds, (seed, verdict)
        assert any("edges of random clusters" in line for line in verdict.checked)
        answered += 1
    assert answered > 10


def test_draws_that_stay_open_count_for_both(path, monkeypatch):
    """Rounds that end too soon leave wider intervals, and proofs of these hold."""
    from dobrushin._coalescence import clusters as finder

    monkeypatch.setattr(finder, "_LAST_ROUND_FACTOR", 1)
    monkeypatch.setattr(finder, "_LAST_ROUND_SWEEPS", 1)
    model = db.Ising.grid(6, 6, couplings=0.35, fields=0.01)
    with pytest.raises(db.CertificateError, match="had not coalesced") as caught:
        db.estimate(model, [0, 7], method="clusters", tolerance=0.1, proof=path)
    caught.value.result.write_proof(path)
    assert verify_proof(path).holds
    part = first_part(opened(path))
    assert sum(Forgery(path).arrays[part.outcome["counts"]].sum(axis=0)[1::2]) > 0


def test_some_draws_and_the_time_they_take(path):
    """Blocks are picked where all take too long; a file that asks for long rounds is not checked."""
    db.estimate(db.Ising.grid(8, 8, couplings=0.3, fields=0.05), [0], method="clusters", tolerance=0.03, proof=path)
    assert verify_proof(path, replay=5).exit_code == 3
    verdict = verify_proof(path, time_limit=0.05)
    assert (verdict.exit_code, "takes at least" in verdict.reason) == (4, True)
    for name in ("past", "rounds"):
        forged = Forgery(path)
        forged.document["plan"]["parts"][0] |= {"past": 2**20, "rounds": 30} | {name: 2**29 if name == "past" else 30}
        forged.save(path)
        assert verify_proof(path, time_limit=2.0).exit_code == 4


def test_searches_are_charged_as_they_are_made(path):
    """One sweep over a star takes the square of its size: no file gets that before it is counted."""
    n = 8000
    star = [((0, k), PAIR) for k in range(1, n)]
    magnet(path, star, states=(2,) * n, edges=range(n - 1), is_drawn=False)
    proof = opened(path, seconds=2.0)
    with pytest.raises(TooLarge, match="random clusters"):
        check_clusters(first_part(proof))
    assert 2.0 < proof.budget.spent < 2.2
    assert verify_proof(path, time_limit=2.0).exit_code == 4


def test_components_are_found_once_for_all_questions(path, monkeypatch):
    calls = []
    real = clusters.connected
    monkeypatch.setattr(clusters, "connected", lambda *some: calls.append(some) or real(*some))
    db.estimate(db.Ising.grid(6, 6, couplings=0.3, fields=0.1), "all", method="clusters", tolerance=0.2, proof=path)
    assert verify_proof(path).holds
    assert len(calls) == 1


def test_a_pair_with_a_field_has_no_proof(path):
    model = db.Ising.grid(4, 4, couplings=0.5, fields=0.1)
    with pytest.raises(db.CertificateError, match="single variables, and connected pairs"):
        db.estimate(model, db.Joint(0, 5), method="clusters", tolerance=0.1, proof=path)
    with pytest.raises(db.CertificateError, match="single variables, and connected pairs"):
        db.estimate(model, db.Statistic.total(model), method="clusters", tolerance=0.5, proof=path)


@pytest.mark.parametrize("model", [db.Ising.grid(20, 20, couplings=0.7), db.Potts.grid(6, 6, 3, couplings=-2.0)])
def test_symmetries_hold(model, path, tmp_path):
    answer = db.estimate(model, [0, 7], method="symmetry", proof=path)
    verdict = verify_proof(path)
    assert verdict.holds, verdict
    assert "symmetry of all factors" in verdict.checked[0]
    assert answer.upper.max() - answer.lower.min() < 1e-12
    for ending in ("npz", "uai"):
        db.write(model, tmp_path / f"model.{ending}")
        db.estimate(db.read(tmp_path / f"model.{ending}"), [0, 7], method="symmetry", proof=path)
        assert verify_proof(path, tmp_path / f"model.{ending}").holds


def test_auto_proves_what_symmetry_answers(path):
    torus = db.Ising.grid(40, 40, couplings=0.6, periodic=True)
    assert db.estimate(torus, [0], tolerance=0.02, verify=True, proof=path).plan.method == "symmetry"


# -- a finder that is wrong ------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", ["states", "strength"])
def test_draws_of_another_model_are_noticed(wrong, path, monkeypatch):
    """Clusters with the wrong number of states, or couplings that are 20 % too strong: counts of blocks tell."""
    real = ferromagnet._thresholds
    change = {"states": lambda K, q: real(K, q + 1), "strength": lambda K, q: real(1.2 * K, q)}
    monkeypatch.setattr(ferromagnet, "_thresholds", change[wrong])
    model = db.Potts.grid(5, 5, 3, couplings=0.5)
    db.estimate(model, [0, db.Joint(0, 1)], method="clusters", tolerance=0.02, proof=path)
    assert "differ from those of its chains" in rejected(path)


# -- forgeries -------------------------------------------------------------------------------------

PAIR = np.array([[0.8, 0.0], [0.0, 0.8]])


def magnet(path, factors, states=(2, 2, 2), edges=(0, 1), questions=((0,),), colours=None, is_drawn=True, **part):
    """A file about draws of clusters whose counts are what the checker draws, where it can read the model at all."""
    plan = {"method": "clusters", "questions": list(range(len(questions))), "confidence": 0.99, "chains": 64,
            "trials": 64, "aim": 0.1, "kernel": "clusters", "past": 4, "rounds": 4, "edges": "edges",
            "colours": "colours"} | part  # fmt: skip
    outcome = {"drawn": 64, "block": 64, "counts": "counts", "means": []}
    asked = [{"kind": "law", "variables": list(own)} for own in questions]
    sizes = [int(np.prod([states[v] for v in own])) for own in questions]
    false = Counterfeit(list(states), factors, asked, [[0.0] * k for k in sizes], [[1.0] * k for k in sizes], plan,
                        outcome, edges=np.array([*edges], dtype=np.int64),
                        colours=np.tile(np.arange(states[0]), (len(states), 1)) if colours is None else colours,
                        counts=np.zeros((1, 2 * len(questions)), dtype=np.int64))  # fmt: skip
    false.write(path)
    if not is_drawn:
        return false
    try:
        own = first_part(opened(path))
        proof = own.proof
        ends = clusters.Magnet(own, np.array([*edges]), proof.array("colours", "i", len(states), -1))
        draws = clusters.ClusterReplay(own, ends)
        counts = clusters.LinkCounts.__new__(clusters.LinkCounts)
        found, rows = draws.outcomes(np.arange(64)), {v: k for k, v in enumerate(draws.looked_at)}
        cells = [counts.cells(None, found[[rows[v] for v in own_question]]) for own_question in questions]
        false.arrays["counts"] = np.array([[int((cell == kind).sum()) for cell in cells for kind in (0, 1)]])
    except Exception:
        pass
    false.write(path)
    return false


CHAIN = [((0, 1), PAIR), ((1, 2), PAIR), ((0,), [0.5, 0.0])]


def test_the_control(path):
    """What the forgeries change is all that is wrong with them."""
    true = magnet(path, CHAIN)
    assert verify_proof(path).holds, verify_proof(path)
    law = db.estimate(db.FactorGraph([2] * 3, [(scope, np.array(table)) for scope, table in CHAIN]), [0]).value
    true.claim = {"lower": [[0.0, 0.0]], "upper": [[1.0, float(law[1]) - 0.001]]}
    assert "does not follow" in true.verdict(path).reason


REFUSED = {
    "a pair that favours different states": ({"factors": [((0, 1), -PAIR), *CHAIN[1:]]}, "does not reward equal"),
    "a field against the others": ({"factors": [*CHAIN, ((2,), [0.0, 0.1])]}, "favour different states"),
    "colours that are no permutation": ({"factors": CHAIN, "colours": np.array([[0, 0]] * 3)}, "not one to one"),
    "three variables": ({"factors": [*CHAIN, ((0, 1, 2), np.zeros((2, 2, 2)))]}, "one or two variables of q states"),
    "forbidden states": ({"factors": [((0, 1), np.array([[0.0, -np.inf], [-np.inf, 0.0]])), *CHAIN[1:]]}, "forbids"),
    "a pair without an edge": ({"factors": CHAIN, "edges": (0, -1)}, "has no edge"),
    "too few edges": ({"factors": CHAIN, "edges": (0,)}, "has no edge"),
    "too many edges": ({"factors": CHAIN, "edges": (0, 1, 2)}, "longer than that of pair factors"),
    "one edge for two pairs": ({"factors": CHAIN, "edges": (0, 0)}, "two pairs of variables"),
    "edges with a gap": ({"factors": CHAIN, "edges": (0, 2)}, "numbered"),
    "another number of states": ({"factors": [((0, 1), np.zeros((2, 3))), CHAIN[2]], "states": (2, 3, 2),
                                  "edges": (0,)}, "of q states"),
    "a pair with a field": ({"factors": CHAIN, "questions": ((0, 1),)}, "Connections do not decide"),
    "a pair that is not connected": ({"factors": CHAIN[:1], "edges": (0,), "questions": ((0, 2),)}, "do not decide"),
    "three targets": ({"factors": CHAIN[:2], "questions": ((0, 1, 2),)}, "one or two"),
    "no rounds": ({"factors": CHAIN, "rounds": 0}, "rounds is out of range"),
    "another kernel": ({"factors": CHAIN, "kernel": "factors"}, "different numbers of states"),
    "labels that tell pairs apart": ({"factors": [((0, 1), np.diag([1.0, 1.0, 0.9]))], "states": (3, 3),
                                      "edges": (0,)}, "depends on more than"),
    "a field for two labels": ({"factors": [((0, 1), np.eye(3)), ((0,), [1.0, 0.5, 0.0])], "states": (3, 3),
                                "edges": (0,)}, "more than one state"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_model_that_is_read_wrongly(case, path):
    changes, why = REFUSED[case]
    magnet(path, **changes)
    assert why in rejected(path)


def test_the_claim_of_each_row_is_made_of_the_connections(path):
    """Ends that only hold for a steeper slope, another base, or the other state do not follow."""
    db.estimate(
        db.Potts.grid(4, 4, 3, couplings=0.5), [0, db.Joint(0, 1)], method="clusters", tolerance=0.1, proof=path
    )
    assert verify_proof(path).holds
    honest = Forgery(path)
    for number, rows in enumerate(honest.document["claim"]["lower"]):
        for row in range(len(rows)):
            for side, sign in (("lower", 1), ("upper", -1)):
                forged = honest.copy()
                ends = forged.document["claim"]
                width = ends["upper"][number][row] - ends["lower"][number][row]
                ends[side][number][row] += sign * max(1e-5 * width, 1e-8)
                forged.save(path)
                assert rejected(path), (number, row, side)


SHIFTED = {
    "a field": [((0,), [0.0, 1e-12])],
    "a pair": [((0, 1), np.array([[0.5, 0.0], [0.0, 0.4]]))],
    "a field far away": [((0, 1), PAIR), ((1, 2), PAIR), ((2,), [0.1, 0.0])],
    "other sizes": [((0, 1), np.zeros((2, 3)))],
    "a forbidden state": [((0, 1), np.array([[0.0, -np.inf], [0.0, 0.0]]))],
}


@pytest.mark.parametrize("case", SHIFTED)
def test_what_is_not_symmetric(case, path):
    states = [2, 3, 2] if case == "other sizes" else [2, 2, 2]
    part = {"method": "symmetry", "questions": [0]}
    false = Counterfeit(states, SHIFTED[case], [marginal(0)], [[0.49] * 2], [[0.51] * 2], part)
    assert "shift of all states" in false.verdict(path).reason


def test_what_a_symmetry_does_not_tell(path):
    part = {"method": "symmetry", "questions": [0]}
    cases = (({"kind": "law", "variables": [0, 1]}, 4, "a single variable"), (marginal(0), 2, "does not follow"))
    for question, cells, why in cases:
        claim = [[0.26] * cells], [[0.3] * cells] if cells == 4 else [[0.49] * cells]
        false = Counterfeit([2, 2], [((0, 1), PAIR)], [question], *claim, part)
        assert why in false.verdict(path).reason
    apart = [((0, 1), PAIR), ((2,), [0.0, 3.0])]
    true = Counterfeit([2, 2, 2], apart, [marginal(0)], [[0.5 - 1e-9] * 2], [[0.5 + 1e-9] * 2], part)
    assert true.verdict(path).holds


def test_a_symmetry_beside_a_file_that_has_none(path, tmp_path):
    """What the comparison tolerates is added to the claim."""
    db.estimate(db.Ising({(0, 1): 0.5}), [0], method="symmetry", proof=path)
    file = tmp_path / "model.npz"
    db.write(db.Ising({(0, 1): 0.5}, fields=[1e-10, 0.0]), file)
    assert verify_proof(path, file).exit_code == 1
