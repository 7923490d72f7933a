"""Proofs beside model files: each true one is accepted beside its file, and what differs is charged to the claim."""

import gzip
import math

import numpy as np
import pytest

import dobrushin as db
from counterfeit import Counterfeit, exact, marginal
from dobrushin.io.folder import write_folder
from dobrushin.verify import NOT_COMPARED, verify_proof
from forger import Forgery
from models import FAMILIES, random_model


@pytest.fixture
def path(tmp_path):
    return tmp_path / "answer.proof"


def random_network(rng, count=7, zeros=False):
    """A network of tables with two to four states and up to three parents, some with numbers that are rounded."""
    sizes, tables = rng.integers(2, 5, count).tolist(), []
    for child in range(count):
        parents = rng.choice(child, min(child, int(rng.integers(4))), replace=False).tolist()
        rows = rng.dirichlet(np.ones(sizes[child]), [sizes[v] for v in parents])
        if zeros and child % 3 == 1:
            rows[..., 0] = 0.0
        rows = rows / rows.sum(axis=-1, keepdims=True)
        tables.append((parents, np.round(rows, 6) if child % 2 else rows))
    return sizes, tables


def bayes_text(sizes, tables):
    """A network in the format of the UAI competitions."""
    lines = ["BAYES", str(len(sizes)), " ".join(map(str, sizes)), str(len(sizes))]
    lines += [" ".join(map(str, [len(parents) + 1, *parents, child])) for child, (parents, _) in enumerate(tables)]
    for _, rows in tables:
        lines += [str(rows.size), " ".join(map(repr, rows.ravel().tolist()))]
    return "\n".join(lines) + "\n"


def bif_text(sizes, tables):
    """A network in the interchange format: a row for each joint state of the parents, or a table, or a default."""
    lines = ['network "a // network" { property "x; y" ; }', "/* Tables\n of numbers */"]
    for v, size in enumerate(sizes):
        states = ", ".join(f'"s {k}"' if k % 2 else f"s{k}" for k in range(size))
        lines.append(f"variable v{v} {{ type discrete [ {size} ] {{ {states} }}; }} // the states")
    for child, (parents, rows) in enumerate(tables):
        given = f" | {', '.join(f'v{v}' for v in parents)}" if parents else ""
        lines.append(f"probability ( v{child}{given} ) {{")
        names = [[f'"s {k}"' if k % 2 else f"s{k}" for k in range(sizes[v])] for v in parents]
        if not parents or child % 2:
            flat = np.moveaxis(rows, -1, 0).ravel().tolist()
            lines.append(f"  table {', '.join(map(repr, flat))};")
        for place in np.ndindex(rows.shape[:-1]) if parents and not child % 2 else ():
            head = ", ".join(own[k] for own, k in zip(names, place, strict=True))
            lines.append(f"  ({head}) {' '.join(map(repr, rows[place].tolist()))};")
        lines.append("}")
    return "\n".join(lines) + "\n"


def model_files(rng, folder, number):
    """Files of all formats that the checker reads, and the model of each."""
    family = FAMILIES[number % len(FAMILIES)]
    model = random_model(rng, family, n=5, strength=0.5, zeros=number % 2 == 1)
    sizes, tables = random_network(rng, zeros=number % 3 == 0)
    texts = {"bayes.uai": bayes_text(sizes, tables), "network.bif": bif_text(sizes, tables)}
    for name, text in texts.items():
        (folder / name).write_text(text)
        (folder / f"{name}.gz").write_bytes(gzip.compress(text.encode()))
    commented = "# Größe\n" + texts["bayes.uai"].replace("\n", " # ünicode\n", 3)
    (folder / "comment.uai").write_text(commented, encoding="utf-8")
    names = [*texts, *(f"{name}.gz" for name in texts), "comment.uai"]
    for name in ("model.uai", "model.uai.gz", "model.npz", "model.NPZ", "model.npz.gz"):
        db.write(model, folder / name)
        names.append(name)
    for name in names:
        yield folder / name, db.read(folder / name)
    if number % 2 == 0 and family in ("ising", "potts"):
        file = folder / f"folder{number}"
        write_folder(model, file)
        yield file, db.open_model(file)
    file = folder / f"tables{number}"
    if number % 2 == 0:
        write_folder(model.to_factor_graph(), file)
        yield file, db.open_model(file)


@pytest.mark.parametrize("number", range(10))
def test_a_true_proof_is_accepted_beside_its_file(number, path, tmp_path):
    """All formats that the checker reads, all methods, with and without evidence."""
    rng, answered = np.random.default_rng(number), 0
    for file, model in model_files(rng, tmp_path, number):
        labels = [model.labels[i] for i in range(min(5, model.n_variables))]
        for method in ("exact", "local", "dobrushin"):
            last = model.states(model.index(labels[-1]))[-1]
            evidence = {labels[-1]: last} if rng.random() < 0.4 else {}
            try:
                db.estimate(model, [labels[0], labels[1]], method=method, evidence=evidence, tolerance=0.3, proof=path)
            except (db.CertificateError, db.BudgetError, db.ArgumentError):
                continue
            verdict = verify_proof(path, file)
            assert verdict.holds, (file.name, method, verdict)
            assert verdict.assumptions[-1] == f"the model is that of {file}"
            answered += 1
    assert answered > 20


@pytest.mark.parametrize("scale", [1e-300, 1e-12, 1.0, 1e217, 1e300])
def test_weights_of_all_sizes(scale, path, tmp_path):
    file = tmp_path / "model.uai"
    tables = "".join(f"4\n{scale} {3 * scale} {2 * scale} {0.7 * scale}\n" for _ in range(40))
    scopes = "".join(f"2 {k} {k + 1}\n" for k in range(40))
    file.write_text(f"MARKOV\n41\n{'2 ' * 41}\n40\n{scopes}{tables}")
    for method in ("exact", "local"):
        db.estimate(db.read(file), [0, 20], method=method, tolerance=0.1, proof=path)
        assert verify_proof(path, file).holds, method


def drifted(count, weight, share):
    """A fair coin between leaves whose tables favour it, each by a share of its logarithm; and its model file."""
    top = math.log(weight)
    table = np.full((2, 2), top)
    table[1] += share * top
    factors = [((0, k), table) for k in range(1, count + 1)]
    shift = 0.5 * math.tanh(0.5 * count * share * top)
    low = 0.5 + 0.9 * shift
    claim = [[0.0, low]], [[1.0 - low, 1.0]]
    order = [*range(1, count + 1), 0]
    text = f"MARKOV\n{count + 1}\n{'2 ' * (count + 1)}\n{count}\n"
    text += "".join(f"2 0 {k}\n" for k in range(1, count + 1)) + f"4 {' '.join([repr(weight)] * 4)}\n" * count
    return Counterfeit([2] * (count + 1), factors, [marginal(0)], *claim, exact(1), order=order), text


@pytest.mark.parametrize("share", [0.99e-14, 0.99e-12])
def test_differences_are_added_up(share, path, tmp_path):
    """By itself the file proves its claim; the model file says that the coin is fair."""
    file = tmp_path / "model.uai"
    false, text = drifted(1500, 1e217, share)
    file.write_text(text)
    assert false.verdict(path).holds
    verdict = verify_proof(path, file)
    assert verdict.exit_code == 1, verdict
    assert "does not follow" in verdict.reason or "another factor" in verdict.reason


def test_what_a_large_number_hides(path, tmp_path):
    """1e16 + 0.9 is 1e16 in floating point; in the law 0.9 counts."""
    file = tmp_path / "model.npz"
    db.write(db.FactorGraph([2], [((0,), np.array([1e16, 1e16]))]), file)
    factors = [((0,), [1e16, 1e16]), ((0,), [0.9, -0.9])]
    false = Counterfeit([2], factors, [marginal(0)], [[0.8, 0.0]], [[1.0, 0.2]], exact(1), order=[0])
    assert false.verdict(path).holds
    assert "another factor" in verify_proof(path, file).reason


def test_a_field_is_no_discrete_model(path, tmp_path):
    file = tmp_path / "field.npz"
    db.write(db.GaussianField([[1.0]]), file)
    false = Counterfeit([2], [], [marginal(0)], [[0.49] * 2], [[0.51] * 2], exact(1), order=[0])
    assert false.verdict(path).holds
    assert verify_proof(path, file).exit_code == 1


def test_names_of_a_network_are_compared(path, tmp_path):
    file = tmp_path / "network.bif"
    file.write_text(bif_text(*random_network(np.random.default_rng(0))))
    db.estimate(db.read(file), ["v0"], method="exact", proof=path)
    assert verify_proof(path, file).holds
    for change in (lambda plan: plan["names"].__setitem__(0, "v9"), lambda plan: plan["states"]["0"].reverse()):
        forged = Forgery(path)
        change(forged.document["plan"])
        forged.save(tmp_path / "forged.proof")
        assert verify_proof(tmp_path / "forged.proof").holds
        assert "name" in verify_proof(tmp_path / "forged.proof", file).reason


STRANGE = {
    "model.xmlbif": b"<?xml version='1.0'?>",
    "model.uai": b"MARKOV\n1\n2\n1\n1 0\n2\n1.0",
    "model.npz": b"PK nothing of the kind",
    "model.bif": b"network x { } variable a { type discrete [ 2 ] { b, c }; }",
    "model.uai.gz": b"no gzip",
    "weights.uai": b"MARKOV\n1\n2\n1\n1 0\n2\n1.0 -3",
}


@pytest.mark.parametrize("name", STRANGE)
def test_a_file_that_cannot_be_compared(name, path, tmp_path):
    """That is no reason to call the proof false; and none to call it true of that model."""
    db.estimate(db.Ising.grid(3, 3, couplings=0.2), [0], method="exact", proof=path)
    (tmp_path / name).write_bytes(STRANGE[name])
    verdict = verify_proof(path, tmp_path / name)
    assert (verdict.verdict, verdict.exit_code) == (NOT_COMPARED, 4)
    assert name in verdict.reason
    assert verdict.assumptions[-1].startswith("the model is as the file says")
    forged = Forgery(path)
    forged.document["claim"]["lower"][0][0] += 0.01
    forged.save(path)
    assert verify_proof(path, tmp_path / name).exit_code == 1


@pytest.mark.parametrize("seed", [1, 4, 5, 6, 9])
def test_tiny_bounds_of_scans_beside_decimals(seed, path, tmp_path):
    """Bounds near 1e-14 are made of the rounding of the file's decimals, which the checker counts more coarsely."""
    rng, file = np.random.default_rng(seed), tmp_path / "model.uai"
    n = int(rng.integers(2, 8))
    edges = [(i, i + 1) for i in range(n - 1)]
    db.write(db.PairwiseMRF(rng.normal(size=(n, 2)), edges, rng.normal(size=(n - 1, 2, 2))), file)
    model = db.read(file)
    certificate = db.variation(model, db.Scan.systematic(n, 100 * n), [0])
    certificate.write_proof(path)
    assert certificate.value < 1e-13
    assert verify_proof(path, file).holds
