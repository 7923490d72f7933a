"""Answers that carry their proof: all of them are verified, and no forgery is."""

import ast
import io
import pickle
import subprocess
import sys
import zipfile
from dataclasses import replace
from itertools import chain

import numpy as np
import pytest

import dobrushin as db
import rooms
from dobrushin._estimate import runs
from dobrushin._sampling.kernel import choose_kernel
from dobrushin.io.folder import write_folder
from dobrushin.verify import BELIEVED, verify_proof
from forger import Forgery, forgeries, insider_forgeries, name_forgeries, size_forgeries
from models import FAMILIES, random_model

CHECKER = sorted((rooms.SOURCE / "verify").glob("*.py"))
GRID = db.Ising.grid(5, 5, couplings=0.2, fields=0.1)
LABELS = db.Potts.grid(4, 4, states=3, couplings=0.3)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "answer.proof"


def holds(path, model=None):
    verdict = verify_proof(path, model)
    assert verdict.verdict == "holds", verdict
    assert verdict.exit_code == 0
    return verdict


# -- the checker by itself -------------------------------------------------------------------------


def test_the_checker_is_alone():
    allowed = {*sys.stdlib_module_names, "numpy"}
    for file in CHECKER:
        for module in rooms.imported_modules(file):
            assert module.split(".")[0] in allowed or module.startswith("dobrushin.verify"), (file, module)


def test_the_checker_shares_no_function_with_the_finder():
    """No function of the checker is a copy of one of the library."""
    own = {ast.dump(node) for file in CHECKER for node in _functions(file)}
    others = {ast.dump(node) for file in rooms.files() if rooms.room(file) != "verify" for node in _functions(file)}
    assert not own & others


def _functions(file):
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.FunctionDef):
            body = [part for part in node.body if not isinstance(part, ast.Expr)]
            if len(body) > 3:
                yield ast.Module(body=body, type_ignores=[])


def test_from_the_shell(path):
    db.estimate(GRID, [0], method="dobrushin", tolerance=0.05, proof=path)
    done = subprocess.run([sys.executable, "-m", "dobrushin.verify", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stdout.startswith("Verdict: holds\n")
    assert subprocess.run([sys.executable, "-m", "dobrushin.verify"], capture_output=True, check=False).returncode == 2


def test_the_verb(path):
    from typer.testing import CliRunner

    from dobrushin.cli.app import app

    runner = CliRunner()
    asked = runner.invoke(app, ["estimate", "--tolerance", "0.05", "--method", "dobrushin", "--proof", str(path)])
    assert asked.exit_code == 0, asked.output
    done = runner.invoke(app, ["verify", str(path)])
    assert (done.exit_code, "Verdict: holds" in done.output) == (0, True), done.output
    assert runner.invoke(app, ["verify", str(path), "--replay", "2"]).exit_code == 3
    assert runner.invoke(app, ["verify", str(path), "--replay", "none"]).exit_code == 2
    forged = Forgery(path)
    forged.document["claim"]["lower"][0][0] += 0.01
    forged.save(path)
    assert runner.invoke(app, ["verify", str(path)]).exit_code == 1


# -- what is true is verified ----------------------------------------------------------------------


@pytest.mark.parametrize(("method", "models"), [("dobrushin", 90), ("coalescence", 6), ("exact", 150), ("local", 120)])
@pytest.mark.parametrize("family", FAMILIES)
def test_answers_hold(family, method, models, path):
    rng = np.random.default_rng(FAMILIES.index(family))
    answered = 0
    for k in range(models):
        model = random_model(rng, family, zeros=k % 2 == 1, strength=0.4, labels=k % 3 == 0)
        labels = list(model.labels)
        targets = [labels[0], db.Statistic.total(model, labels[:2])]
        targets += [db.Joint(*labels[:2])] if len(labels) > 1 else []
        evidence = {labels[-1]: model.states(len(labels) - 1)[0]} if len(labels) > 2 and k % 2 == 0 else {}
        try:
            db.estimate(model, targets, evidence=evidence, method=method, tolerance=0.2, proof=path)
        except db.CertificateError:
            continue
        holds(path)
        answered += 1
    assert answered >= models / 3


@pytest.mark.parametrize("name", ["bits", "counts", "table", "field", "dense", "conditional", "factors"])
def test_kernels_are_replayed(name, path, monkeypatch):
    monkeypatch.setattr(runs, "choose_kernel", lambda model, scan, chains: choose_kernel(model, scan, chains, name))
    answer = db.estimate(GRID, [0, 7], method="dobrushin", tolerance=0.1, seed=1, proof=path)
    assert answer.plan.kernel == name
    holds(path)


def test_the_seed_follows_from_the_plan_or_is_an_assumption(path):
    answer = db.estimate(GRID, [0], method="dobrushin", tolerance=0.1, proof=path)
    assert db.estimate(GRID, [0], method="dobrushin", tolerance=0.1, proof=path).seed == answer.seed
    assert not any("the seed" in line and "chosen" in line for line in holds(path).assumptions)
    db.estimate(GRID, [0], method="dobrushin", tolerance=0.1, seed=answer.seed + 1).write_proof(path)
    assert any("the seed" in line and "chosen" in line for line in holds(path).assumptions)


def test_parts_and_components(path):
    rng = np.random.default_rng(3)
    couplings = {(i, j): 0.5 * rng.normal() for i in range(20) for j in range(i) if rng.random() < 0.4}
    couplings |= {(20 + i, 20 + j): 0.2 * rng.normal() for i in range(20) for j in range(i) if rng.random() < 0.4}
    model = db.Ising(couplings)
    answer = db.estimate(model, [0, 20, 21], method="parts", tolerance=0.1, proof=path)
    assert answer.plan.method == "parts"
    holds(path)


def test_what_does_not_matter_is_left_out(path):
    """A chain of conditional tables: what is downstream sums to one."""
    rng = np.random.default_rng(0)
    tables = [((0,), np.log([0.3, 0.7]))]
    for i in range(1, 8):
        rows = rng.random((2, 2)) + 0.1
        tables.append(((i - 1, i), np.log(rows / rows.sum(axis=1, keepdims=True))))
    model = db.FactorGraph([2] * 8, tables)
    for method in ("exact", "dobrushin", "local"):
        answer = db.estimate(model, [3], method=method, tolerance=0.1, proof=path)
        assert answer.plan.relevance
        assert any("sum to a constant" in line for line in holds(path).checked)


def test_a_variable_without_factors(path):
    model = db.FactorGraph([3, 2], [((1,), np.array([0.0, 1.0]))])
    for method in ("exact", "local", "dobrushin", "coalescence"):
        db.estimate(model, [0], method=method, tolerance=0.1, proof=path)
        holds(path)


def test_local_models(path):
    model = db.Ising.grid(10**5, 10**5, couplings=0.15)
    for method in ("local", "dobrushin"):
        db.estimate(model, [5 * 10**9 + 7], method=method, evidence={5 * 10**9 + 8: 1}, tolerance=0.05, proof=path)
        holds(path)
        assert path.stat().st_size < 50_000


def test_a_run_that_was_ended_early(path):
    with pytest.raises(db.BudgetError) as error:
        db.estimate(GRID, db.Statistic.total(GRID), method="dobrushin", tolerance=0.5, budget=2e5, seed=1)
    error.value.result.write_proof(path)
    holds(path)


@pytest.mark.parametrize("method", ["auto", "exact", "local", "dobrushin", "coalescence", "parts"])
def test_a_proof_afterwards_is_written_from_the_same_answer_made_again(path, method):
    """Results hold no methods and runs unless a proof was asked for; the proof is the same, byte by byte."""
    islands = db.Ising({(i, i + 1): 0.3 for i in range(39) if i != 19}, fields=0.1)  # two chains
    how = {"method": method, "tolerance": 0.1, "seed": 5, "evidence": {1: 1}}
    told = db.estimate(islands, iter([0, 30]), **how, proof=path)
    assert told.asked.transcript is not None
    first = path.read_bytes()
    answer = db.estimate(islands, iter([0, 30]), **how)
    assert answer.asked.transcript is None
    answer.write_proof(path)
    assert path.read_bytes() == first
    told.write_proof(path)
    assert path.read_bytes() == first
    holds(path)
    many = db.estimate_many(islands, [([0, 30], {1: 1})], method=method, tolerance=0.1, seed=5)
    many[0].write_proof(path)
    holds(path)


def test_an_answer_that_cannot_be_made_again_has_no_proof_afterwards(path):
    answer = db.estimate(GRID, [0], method="dobrushin", tolerance=0.1, seed=1)
    other = replace(answer, value=answer.value + 0.01)
    with pytest.raises(db.ArgumentError, match="proof= or verify= was set beforehand"):
        other.write_proof(path)
    assert not path.exists()


def test_certificates(path):
    scan = db.Scan.systematic(25, 60)
    db.variation(GRID, scan, targets=[0, 3]).write_proof(path)
    holds(path)
    db.variation(GRID, scan, weights={0: 2.0, 4: 0.5}, initial_disagreement=0.5, update_error=1e-9).write_proof(path)
    assert (verify_proof(path).verdict, verify_proof(path).exit_code) == (BELIEVED, 3)
    matrix = db.Influence(np.array([[0, 0.3, 0.1], [0.2, 0, 1.4], [0.1, 0.1, 0]]))
    db.variation(matrix, db.Scan.systematic(3, 30), [0]).write_proof(path)
    assert (verify_proof(path).verdict, verify_proof(path).exit_code) == (BELIEVED, 3)
    assert any("matrix" in line for line in verify_proof(path).assumptions)
    db.shortest_scan(GRID, targets=[0], tolerance=0.05).write_proof(path)
    holds(path)
    db.coalescence(GRID, scan, targets=[0, 1], runs=300, seed=1).write_proof(path)
    holds(path)


def test_certificates_without_a_proof_say_why(path):
    with pytest.raises(db.ArgumentError, match="fixed scan"):
        db.variation(GRID, db.Scan.uniform(25, 500), targets=[0]).write_proof(path)
    local = db.Ising.grid(10**5, 10**5, couplings=0.1)
    with pytest.raises(db.ArgumentError, match="LocalModel"):
        db.shortest_scan(local, targets=[7], tolerance=0.05).write_proof(path)


def test_states_are_called_by_their_names(path):
    names = {0: ("no", "yes"), 1: ("dry", "wet")}
    model = db.FactorGraph([2, 2], [((0, 1), np.array([[0.5, 0.0], [0.0, 0.7]]))], state_names=names)
    db.estimate(model, [0], evidence={1: "wet"}, proof=path)
    claim = holds(path).claim
    assert claim[0].startswith("P(variable 0 = 'no' (state 0)): from")
    assert claim[2] == "given variable 1 = 'wet' (state 1)"
    forged = Forgery(path)
    forged.document["plan"]["states"]["1"] = ["wet", "dry"]
    forged.save(path)
    assert "given variable 1 = 'dry' (state 1)" in verify_proof(path).claim


def test_some_blocks(path):
    db.estimate(GRID, [0], method="dobrushin", tolerance=0.05, proof=path)
    verdict = verify_proof(path, replay=2)
    assert verdict.exit_code == 3
    assert verdict.verdict == "holds if the blocks that were not replayed are like those that were"
    assert verify_proof(path, replay="all").holds
    with pytest.raises(ValueError, match="replay"):
        verify_proof(path, replay=0)


def test_estimate_can_verify(path):
    assert db.estimate(GRID, [0], verify=True, tolerance=0.1).proof == "verified"
    answer = db.estimate(GRID, [0], verify=True, tolerance=0.1, proof=path, method="dobrushin")
    assert answer.footer.endswith(f"proof: verified (dobrushin verify {path})")
    assert "proof: verified (dobrushin verify" in answer._repr_html_()
    holds(path)
    page = path.with_suffix(".html")
    answer.report(page, GRID)
    assert "dobrushin verify" in page.read_text()


def test_what_has_no_proof(path):
    with pytest.raises(db.ArgumentError, match="cannot travel"):
        db.estimate(GRID, db.Statistic.event([0], lambda x: x[:, 0] > 0), method="dobrushin", proof=path)
    with pytest.raises(db.ArgumentError, match="write_proof"):
        db.estimate(GRID, [0], method="uncertified", tolerance=0.1).write_proof(path)
    answer = pickle.loads(pickle.dumps(db.estimate(GRID, [0], tolerance=0.1)))
    with pytest.raises(db.ArgumentError, match="in this process"):
        answer.write_proof(path)
    assert not path.exists()


# -- with a model file -----------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("ending", ["uai", "npz"])
def test_the_model_file_is_compared(family, ending, path, tmp_path):
    model = random_model(np.random.default_rng(5), family, n=5, strength=0.5, zeros=family == "factors")
    file, other = tmp_path / f"model.{ending}", tmp_path / f"other.{ending}"
    db.write(model, file)
    db.write(random_model(np.random.default_rng(6), family, n=5, strength=0.5), other)
    db.estimate(db.read(file), [0], method="exact", proof=path)
    assert holds(path, file).assumptions[-1] == f"the model is that of {file}"
    assert verify_proof(path, other).exit_code == 1
    assert "relative" not in holds(path).assumptions[-1]


def test_a_folder_is_compared(path, tmp_path):
    file, other = tmp_path / "model", tmp_path / "other"
    write_folder(GRID, file)
    write_folder(db.Ising.grid(5, 5, couplings=0.21, fields=0.1), other)
    db.estimate(db.open_model(file), [12], method="dobrushin", tolerance=0.1, proof=path)
    holds(path, file)
    assert verify_proof(path, other).exit_code == 1


@pytest.mark.parametrize("comment", ["", "# a grid\n", "#\n# 7 MARKOV 3\n"])
def test_comments_in_model_files(comment, path, tmp_path):
    file = tmp_path / "model.uai"
    db.write(GRID, file)
    db.estimate(db.read(file), [0], method="exact", proof=path)
    file.write_text(comment + file.read_text().replace("\n", " # 5\n"))
    assert verify_proof(path, file).holds
    file.write_text(file.read_text().replace("\n2 0 1 ", "\n2 0 7 "))
    assert verify_proof(path, file).exit_code == 1


def test_a_removed_factor_is_noticed_with_the_model(path, tmp_path):
    """By itself such a file proves a claim about another model; beside the model it does not."""
    file = tmp_path / "model.uai"
    db.write(GRID, file)
    db.estimate(db.read(file), [0], method="exact", proof=path)
    forged = Forgery(path)
    forged.arrays["tables"] = forged.arrays["tables"] * 0.9
    forged.save(path)
    assert verify_proof(path, file).exit_code == 1


# -- what is forged is not -------------------------------------------------------------------------

ANSWERS = {
    "marginals": lambda: db.estimate(GRID, [0, db.Joint(1, 2)], method="dobrushin", tolerance=0.1, seed=1),
    "labels": lambda: db.estimate(LABELS, [0], method="dobrushin", tolerance=0.1, seed=1),
    "mean": lambda: db.estimate(GRID, db.Statistic.total(GRID, [0, 1]), method="dobrushin", tolerance=0.5, seed=1),
    "runs": lambda: db.estimate(GRID, [0], method="coalescence", tolerance=0.1, seed=1),
    "sums": lambda: db.estimate(GRID, [0, db.Joint(1, 2)], method="exact", seed=1),
    "extremes": lambda: db.estimate(GRID, [12], method="local", evidence={7: 1}, seed=1),
    "region": lambda: db.estimate(LABELS, [0], method="local", tolerance=0.1, seed=1),
    "clusters": lambda: db.estimate(GRID, [0, 7], method="clusters", tolerance=0.1, seed=1),
    "pairs of clusters": lambda: db.estimate(LABELS, [0, db.Joint(0, 1)], method="clusters", tolerance=0.02, seed=1),
    "symmetry": lambda: db.estimate(LABELS, [0], method="symmetry"),
    "bound": lambda: db.variation(GRID, db.Scan.systematic(25, 50), [0, 1]),
    "limit": lambda: db.coalescence(GRID, db.Scan.systematic(25, 100), [0, 1], runs=256, seed=3),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ANSWERS)
def test_forgeries_fail(kind, path, tmp_path):
    """What passes is a proof by itself: of a claim that is true of the factors in the file."""
    ANSWERS[kind]().write_proof(path)
    holds(path)
    forged_path, passed, rounds = tmp_path / "forged.proof", 0, 4
    for what, forged, is_strict in chain.from_iterable(
        forgeries(path, np.random.default_rng(k)) for k in range(rounds)
    ):
        forged.save(forged_path)
        verdict = verify_proof(forged_path)
        if verdict.exit_code != 1:
            assert not is_strict, what
            assert is_true(forged), what
            passed += 1
    assert passed < 40 * rounds


def is_true(forged):
    """Whether the claim holds for the factors in the file, by enumeration of a clique tree."""
    plan, claim = forged.document["plan"], forged.document["claim"]
    if any(question["kind"] in ("distance", "joint") for question in plan["questions"]):
        return True  # a bound that the checker has made again
    states, evidence = forged.arrays["states"].astype(int), dict(plan["evidence"])
    scopes = np.split(forged.arrays["scope"].astype(int), np.cumsum(forged.arrays["arity"])[:-1])
    factors, at = [], 0
    for scope in scopes:
        size = int(np.prod(states[scope]))
        factors.append((tuple(scope.tolist()), forged.arrays["tables"][at : at + size].reshape(states[scope])))
        at += size
    model = db.FactorGraph(states, factors)
    for question, low, high in zip(plan["questions"], claim["lower"], claim["upper"], strict=True):
        variables = question["variables"]
        given = model.condition(evidence) if evidence else model
        names = [given.index(v) for v in variables]
        law = db.exact.marginals(given)[names[0]] if len(names) == 1 else _joint(given, variables)
        value = np.ravel(law)
        if question["kind"] == "linear":
            digits = np.indices(np.shape(law)).reshape(len(variables), -1)
            own = question["offset"] + question["slope"] * digits.sum(axis=0)
            value = np.array([value @ own / question["divisor"]])
        if not ((np.array(low) <= value + 1e-12) & (value - 1e-12 <= np.array(high))).all():
            return False
    return True


def _joint(model, variables):
    answer = db.estimate(model, db.Joint(*variables), method="exact")
    return answer.value.reshape([model.cardinalities[model.index(v)] for v in variables])


INSIDE = {
    "a star": (db.Ising({(0, k): 0.1 * (-1) ** k for k in range(1, 40)}, fields=0.2), "uai"),
    "a grid": (GRID, "npz"),
    "labels": (LABELS, "uai"),
}


@pytest.mark.parametrize("name", INSIDE)
def test_forgers_who_have_the_model_file(name, path, tmp_path):
    """Tables that drift within what a comparison tolerates, and claims that follow: none passes beside the file."""
    model, ending = INSIDE[name]
    file, forged_path, rng = tmp_path / f"model.{ending}", tmp_path / "forged.proof", np.random.default_rng(0)
    db.write(model, file)
    db.estimate(db.read(file), [0, 5], method="exact", proof=path)
    holds(path, file)
    laws, tried = db.exact.marginals(db.read(file)), 0
    for _ in range(5):
        for what, forged in insider_forgeries(path, {0: laws[0].tolist(), 1: laws[5].tolist()}, rng):
            forged.save(forged_path)
            assert verify_proof(forged_path, file).exit_code == 1, what
            tried += 1
    assert tried > 40


def test_forgers_who_supply_the_bound(path, tmp_path):
    file, forged_path = tmp_path / "model.uai", tmp_path / "forged.proof"
    db.write(GRID, file)
    db.variation(db.read(file), db.Scan.systematic(25, 50), [0, 1]).write_proof(path)
    holds(path, file)
    verdicts = set()
    for seed in range(10):
        for what, forged in insider_forgeries(path, {}, np.random.default_rng(seed)):
            forged.save(forged_path)
            verdicts.add(verdict := verify_proof(forged_path, file).exit_code)
            assert verdict in (1, 3), what
    assert verdicts == {1, 3}


@pytest.mark.parametrize("kind", ["marginals", "region", "runs", "bound"])
def test_forgers_who_ask_for_too_much(kind, path, tmp_path):
    """Each file is refused, answered, or not checked; nothing is raised, and no text of theirs becomes a line."""
    ANSWERS[kind]().write_proof(path)
    forged_path, rng = tmp_path / "forged.proof", np.random.default_rng(0)
    for what, forged in size_forgeries(path, rng):
        forged.save(forged_path)
        assert verify_proof(forged_path, time_limit=1.0).exit_code in (0, 1, 3, 4), what
    for what, forged in name_forgeries(path, rng):
        forged.save(forged_path)
        lines = str(verify_proof(forged_path)).splitlines()
        assert [line for line in lines if not line.startswith("  ")][1:] == ["Claim:", "Checked:", "Assumed:"], what
        assert all(map(str.isprintable, lines)), what


def test_the_truth_check_can_fail(path):
    """The control: a claim that was moved is found to be false."""
    ANSWERS["sums"]().write_proof(path)
    forged = Forgery(path)
    assert is_true(forged)
    forged.document["claim"]["lower"][0][0] += 0.01
    assert not is_true(forged)


def test_checksums_and_words_are_not_what_holds_it(path):
    ANSWERS["sums"]().write_proof(path)
    forged = Forgery(path)
    forged.document["claim"]["upper"][0][0] -= 1e-10
    forged.document["claim"]["lower"][0][0] -= 0.1
    forged.save(path)
    assert "does not follow" in verify_proof(path).reason


def test_chains_may_not_start_in_a_forbidden_state(path):
    table = np.array([[0.0, 0.2], [0.1, -np.inf]])
    model = db.PairwiseMRF(np.zeros((3, 2)), [(0, 1), (1, 2)], np.stack([table, table]))
    db.estimate(model, [0], method="dobrushin", tolerance=0.3, proof=path)
    holds(path)
    forged = Forgery(path)
    name = forged.document["plan"]["parts"][0]["start"]
    forged.document["plan"]["parts"][0]["start"] = ""
    del forged.arrays[name]
    forged.save(path)
    assert "forbidden" in verify_proof(path).reason


def test_a_claim_copied_from_another_model(path, tmp_path):
    other = tmp_path / "other.proof"
    for method in ("exact", "dobrushin"):
        db.estimate(GRID, [0], method=method, tolerance=0.1, proof=path)
        db.estimate(db.Ising.grid(5, 5, couplings=0.2, fields=0.3), [0], method=method, tolerance=0.1, proof=other)
        forged = Forgery(path)
        forged.document["claim"] = Forgery(other).document["claim"]
        forged.save(path)
        assert verify_proof(path).exit_code == 1


# -- tricks with the file --------------------------------------------------------------------------


def rewrite(path, change):
    """Write the members of a proof again, changed."""
    with zipfile.ZipFile(path) as archive:
        members = [(info.filename, archive.read(info)) for info in archive.infolist()]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in change(members):
            archive.writestr(name, data)


def _pickled(members):
    buffer = io.BytesIO()
    np.save(buffer, np.array([print], dtype=object), allow_pickle=True)
    return [(name, buffer.getvalue() if name == "tables.npy" else data) for name, data in members]


TRICKS = {
    "a path": lambda members: [*members, ("../evil.npy", b"")],
    "a folder": lambda members: [*members, ("folder/x.npy", b"")],
    "a stranger": lambda members: [*members, ("more.npy", b"")],
    "no document": lambda members: [(name, data) for name, data in members if name != "proof.json"],
    "an array less": lambda members: [(name, data) for name, data in members if name != "scope.npy"],
    "a pickle": _pickled,
    "no JSON": lambda members: [(name, b"{" if name == "proof.json" else data) for name, data in members],
    "no number": lambda members: [(name, data.replace(b"0.99", b"NaN")) for name, data in members],
    "infinite": lambda members: [(name, data.replace(b"0.99", b"1e999")) for name, data in members],
    "a name twice": lambda members: [
        (name, data.replace(b'"evidence":', b'"evidence": [], "evidence":')) for name, data in members
    ],
    "deep": lambda members: [(name, b"[" * 10**5 if name == "proof.json" else data) for name, data in members],
    "a long array": lambda members: [
        (name, data + bytes(10**5) if name == "scope.npy" else data) for name, data in members
    ],
    "a cut array": lambda members: [(name, data[:-3] if name == "scope.npy" else data) for name, data in members],
}


@pytest.mark.parametrize("trick", TRICKS)
def test_tricks_with_the_file(trick, path):
    db.estimate(GRID, [0], method="dobrushin", tolerance=0.1, proof=path)
    rewrite(path, TRICKS[trick])
    verdict = verify_proof(path)
    assert verdict.exit_code == 1, trick
    assert verdict.reason.endswith("."), verdict.reason


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_member_twice(path):
    db.estimate(GRID, [0], method="dobrushin", tolerance=0.1, proof=path)
    rewrite(path, lambda members: [*members, members[0]])
    assert verify_proof(path).exit_code == 1


@pytest.mark.parametrize("shape", [2**40, 2**26])
def test_a_bomb(shape, path):
    """A header that says more than there is; and more zeros than the checker takes, in a few kilobytes."""
    db.estimate(GRID, [0], method="exact", proof=path)
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "|i1", "fortran_order": False, "shape": (shape,)})
    bomb = header.getvalue() + (bytes(shape) if shape < 2**30 else b"")
    rewrite(path, lambda members: ((name, bomb if name == "order.npy" else data) for name, data in members))
    assert path.stat().st_size < 100_000
    assert verify_proof(path).exit_code == (1 if shape > 2**30 else 4)


def test_no_zip_at_all(path):
    path.write_bytes(b"PK\x03\x04 nothing of the kind")
    assert verify_proof(path).exit_code == 1
    with pytest.raises(FileNotFoundError):
        verify_proof(path.with_name("missing"))
