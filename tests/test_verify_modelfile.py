"""Proofs beside model files: each true one is accepted beside its file, and what differs is charged to the claim."""

import gzip
import json
import math
import random
import struct

import numpy as np
import pytest

import dobrushin as db
from counterfeit import Counterfeit, exact, marginal
from dobrushin.io.folder import write_folder
from dobrushin.io.formats import FORMATS
from dobrushin.verify import NOT_COMPARED, verify_proof
from dobrushin.verify.readers import ENDINGS
from forger import Forgery
from fuzz_deepdive import random_graph, write_graph
from fuzz_networks import make_hugin, make_xmlbif
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


def test_every_format_has_a_reader_in_the_checker():
    endings = {ending for kind in FORMATS.values() for ending in kind.extensions}
    assert endings == set(ENDINGS)


def written(folder, name, data):
    """A file, and the same one packed."""
    (folder / name).write_bytes(data)
    (folder / f"{name}.gz").write_bytes(gzip.compress(data))
    return folder / name, folder / f"{name}.gz"


def accepted(path, file, model, beta=1.0, evidence=None):
    """How many proofs about the first variables of a model are accepted beside its file."""
    count = 0
    if evidence is None:
        evidence = {model.labels[-1]: model.states(model.n_variables - 1)[-1]} if model.n_variables > 2 else {}
    for method in ("exact", "local", "dobrushin"):
        try:
            db.estimate(model, model.labels[:2], method=method, evidence=evidence, tolerance=0.3, proof=path)
        except (db.CertificateError, db.ArgumentError):  # no certificate, or evidence that the model forbids
            continue
        verdict = verify_proof(path, file, beta=beta)
        assert verdict.holds, (file.name, method, verdict)
        at = f" at the inverse temperature {beta}" if beta != 1.0 else ""
        assert verdict.assumptions[-1] == f"the model is that of {file}{at}"
        count += 1
    return count


@pytest.mark.parametrize("seed", range(20))
def test_graphs_of_deepdive(seed, path, tmp_path):
    """All functions of factors, with and without domains; files may be packed; another weight is found."""
    rng = random.Random(seed)
    weights, variables, factors, domains = random_graph(rng)
    if not domains and seed % 2:
        domains = None
    file = write_graph(tmp_path, weights, variables, factors, domains)
    model, observed = db.read(file), db.read_evidence(file)
    evidence = {label: observed[label] for label in model.labels[2:] if label in observed}
    assert accepted(path, file, model, evidence=evidence) > 0
    if seed % 3 == 0:
        for ending in (".meta", ".factors", ".weights", ".domains"):
            plain = file.with_suffix(ending)
            plain.with_name(f"{plain.name}.gz").write_bytes(gzip.compress(plain.read_bytes()))
            plain.unlink()
        file = file.with_name("graph.meta.gz")
        assert accepted(path, file, model, evidence=evidence) > 0
    db.estimate(model, method="exact", proof=path)  # of all variables, so that every factor matters
    assert verify_proof(path, file).holds
    other = write_graph(tmp_path, [weight + 1e-3 for weight in weights], variables, factors, domains)
    assert "another factor over" in verify_proof(path, other).reason


@pytest.mark.parametrize("ending", [".weights", ".variables", ".factors"])
@pytest.mark.parametrize(
    "damage", [lambda data: data[:-1], lambda data: data + data[-26:], lambda data: b"\xff" * len(data)]
)
def test_a_damaged_graph_is_not_compared(ending, damage, path, tmp_path):
    file = write_graph(tmp_path, *random_graph(random.Random(1)))
    db.estimate(db.read(file), method="exact", proof=path)
    other = file.with_suffix(ending)
    other.write_bytes(damage(other.read_bytes()))
    verdict = verify_proof(path, file)
    assert verdict.exit_code == 4
    assert "cannot be read as a model file" in verdict.reason


def test_small_files_of_a_graph_that_promise_much(path, tmp_path):
    """Neither the numbers of the .meta file nor large tables take more memory than the check may."""
    variables = [(0, 0, 2)] * 3
    file = write_graph(tmp_path, [0.5], variables, [(1, [(0, 1), (1, 1), (2, 1)], 0, 1.0)])
    db.estimate(db.read(file), method="exact", proof=path)
    meta = file.read_bytes()
    file.write_bytes(b"1000000000000,3,1,3\n")
    assert "its records are not those" in verify_proof(path, file).reason
    file.write_bytes(meta)
    for states, reason in ((2**20, "the tables of the model file the check takes"), (-(2**60), "empty or too large")):
        write_graph(tmp_path, [0.5], [(0, 0, states), *variables[1:]], [(1, [(0, 1)], 0, 1.0)] * 40)
        verdict = verify_proof(path, file, memory_limit=2**28)
        assert verdict.exit_code == 4
        assert reason in verdict.reason


@pytest.mark.parametrize(
    ("domains", "value", "exit_code"),
    [(None, 1, 0), ({0: [0, 1]}, 1, 0), ({0: [-5, 3]}, 3, 1), ({0: [1, 0]}, 0, 4), ({0: [0, 0]}, 0, 4)],
)
@pytest.mark.parametrize("is_observed", [False, True])
def test_values_of_a_graph_are_those_of_the_claim(domains, value, exit_code, is_observed, path, tmp_path):
    """The tables are the same, but the state with the number 0 may be another value."""

    def graph(domains, value):
        return write_graph(tmp_path, [0.8], [(0, 0, 2)] * 2, [(15, [(0, value), (1, 1)], 0, 1.0)], domains)

    file = graph(None, 1)
    how = {"targets": [1], "evidence": {0: 1}} if is_observed else {"targets": [0]}
    db.estimate(db.read(file), **how, method="exact", proof=path)
    assert verify_proof(path, file).holds
    verdict = verify_proof(path, graph(domains, value))
    assert verdict.exit_code == exit_code
    named = db.read(graph({0: [-5, 3]}, 3))
    db.estimate(named, targets=[0], method="exact", proof=path)
    assert "other names for the states" in verify_proof(path, graph(None, 1)).reason


@pytest.mark.parametrize("ending", [".weights", ".variables", ".factors"])
def test_a_missing_file_of_a_graph_is_named(ending, path, tmp_path):
    file = write_graph(tmp_path, *random_graph(random.Random(1)))
    db.estimate(db.read(file), method="exact", proof=path)
    file.with_suffix(ending).unlink()
    verdict = verify_proof(path, file)
    assert verdict.exit_code == 4
    assert f"({file.with_suffix(ending)}, which belongs to it, is missing)" in verdict.reason


@pytest.mark.parametrize("pairs", [[], [(2, 1)], [(-1, 1)]])
def test_variables_of_a_graph_are_those_that_it_has(pairs, path, tmp_path):
    graph = [0.5], [(0, 0, 2)] * 2, [(1, [(0, 1), (1, 1)], 0, 1.0)]
    file = write_graph(tmp_path, *graph)
    db.estimate(db.read(file), method="exact", proof=path)
    more = [*graph[2], (1, pairs, 0, 1.0)]
    verdict = verify_proof(path, write_graph(tmp_path, *graph[:2], more))
    assert verdict.exit_code == 4
    assert "one that the graph does not have" in verdict.reason


@pytest.mark.parametrize("weight", [float("nan"), float("inf"), -1e301])
def test_weights_of_a_graph_are_finite(weight, path, tmp_path):
    graph = [0.5], [(0, 0, 2)] * 2, [(1, [(0, 1), (1, 1)], 0, 1.0)]
    file = write_graph(tmp_path, *graph)
    db.estimate(db.read(file), method="exact", proof=path)
    verdict = verify_proof(path, write_graph(tmp_path, [weight], *graph[1:]))
    assert verdict.exit_code == 4
    assert "weight and feature is too large" in verdict.reason


def test_numbers_of_a_graph_are_decimal(path, tmp_path):
    file = write_graph(tmp_path, *random_graph(random.Random(1)))
    db.estimate(db.read(file), method="exact", proof=path)
    counts = file.read_bytes().split(b",")
    file.write_bytes(b",".join([counts[0][:1] + b"_" + counts[0], *counts[1:]]))
    with pytest.raises(db.FormatError, match="numbers of weights"):
        db.read(file)
    assert "not a decimal number" in verify_proof(path, file).reason


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(("make", "ending"), [(make_xmlbif, "xml"), (make_xmlbif, "bifxml"), (make_hugin, "net")])
def test_networks_in_other_formats(make, ending, seed, path, tmp_path):
    data = make(random.Random(seed))
    for file in written(tmp_path, f"network.{ending}", data):
        try:
            model = db.read(file)
        except db.FormatError:  # no variable has two states
            continue
        assert accepted(path, file, model) > 0
        forged = Forgery(path)
        forged.document["plan"]["names"][0] = "another"
        forged.save(path)
        assert "another name" in verify_proof(path, file).reason


def energies(seed):
    """A random model of energies: labels, biases of variables, and of pairs."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 7))
    pairs = [(i, j) for i in range(n) for j in range(i + 1, n) if rng.random() < 0.6] or [(0, 1)]
    single, double = rng.normal(size=n), rng.normal(size=len(pairs))
    if seed % 2:
        single, double = single.round(), double.round(1)
    return n, single.tolist(), dict(zip(pairs, double.tolist(), strict=True))


def bqm_bytes(n, single, pairs, vartype, version, types=("float64", "int32"), labels=None):
    """The file of dimod, made by hand."""
    bias, index = (np.dtype(kind).newbyteorder("<") for kind in types)
    near = [sorted((b if a == v else a, x) for (a, b), x in pairs.items() if v in (a, b)) for v in range(n)]
    header = {"shape": [n, len(pairs)], "dtype": types[0], "itype": types[1], "ntype": types[1], "vartype": vartype,
              "type": "BinaryQuadraticModel", "variables": labels is not None}  # fmt: skip
    if version == 1:
        header["variables"] = labels or []
    text, start = json.dumps(header).encode(), np.cumsum([0, *map(len, near)])
    data = b"DIMODBQM" + bytes([version, 0]) + struct.pack("<I", len(text)) + text + np.zeros(1, bias).tobytes()
    data += b"".join(index.type(start[v]).tobytes() + bias.type(single[v]).tobytes() for v in range(n))
    data += b"".join(index.type(v).tobytes() + bias.type(x).tobytes() for own in near for v, x in own)
    if version == 2 and labels is not None:
        more = json.dumps(labels).encode()
        data += b"VARS" + struct.pack("<I", len(more)) + more
    return data


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("vartype", ["SPIN", "BINARY"])
def test_energies(vartype, seed, path, tmp_path):
    """Energies of spins and of bits, at several temperatures, with and without labels."""
    n, single, pairs = energies(seed)
    beta, answered = (1.0, 0.5, 0.3)[seed % 3], 0
    terms = [*((v, v, x) for v, x in enumerate(single)), *((i, j, x) for (i, j), x in pairs.items())]
    lines = [f"# vartype={vartype}", *(f"{7 * i} {7 * j} {x!r}" for i, j, x in terms), f"0 7 {0.1!r}"]
    labels = [[["a", k], "b", k, 2.5][k % 4] if k < 4 else f"x{k}" for k in range(n)]
    files = {
        "model.coo": "\n".join(lines).encode(),
        "model.bqm": bqm_bytes(n, single, pairs, vartype, 2),
        "labels.bqm": bqm_bytes(n, single, pairs, vartype, 2, ("float32", "uint16"), labels),
        "first.bqm": bqm_bytes(n, single, pairs, vartype, 1, ("float64", "int64"), labels),
    }
    if vartype == "SPIN":
        edges = "".join(f"{j + 1} {i + 1} {x!r}\n" for (i, j), x in pairs.items())
        files |= {f"graph.{ending}": f"{n} {len(pairs)}\n{edges}".encode() for ending in ("mc", "gset", "txt")}
    for name, data in files.items():
        for file in written(tmp_path, name, data):
            answered += accepted(path, file, db.read(file, beta=beta), beta)
            other = verify_proof(path, file, beta=2.0 * beta)
            assert "another factor" in other.reason
    assert answered > len(files)


def test_energies_written_by_the_library(path, tmp_path):
    model = db.Ising({("a", "b"): 0.3, ("b", "c"): -0.2}, fields={"a": 0.1})
    db.write(model, tmp_path / "model.bqm", beta=0.7, offset=2.0)
    assert accepted(path, tmp_path / "model.bqm", db.read(tmp_path / "model.bqm", beta=0.7), 0.7) > 0
    numbered = db.Ising({(0, 1): 0.3, (1, 2): -0.2})
    for name in ("model.coo", "model.mc.gz", "model.rud"):
        db.write(numbered, tmp_path / name, beta=0.7)
        assert accepted(path, tmp_path / name, db.read(tmp_path / name, beta=0.7), 0.7) > 0


def test_tiny_bounds_of_scans_beside_whole_energies(path, tmp_path):
    """Whole numbers times a power of two are exact, in the checker as in the library."""
    file = tmp_path / "model.coo"
    file.write_text("# vartype=SPIN\n" + "".join(f"{k} {k + 1} {-1 if k % 2 else 1}\n" for k in range(5)))
    model = db.read(file, beta=0.125)
    certificate = db.variation(model, db.Scan.systematic(6, 3000), [0])
    certificate.write_proof(path)
    assert certificate.value < 1e-200
    assert verify_proof(path, file, beta=0.125).holds


def test_a_temperature_is_for_energies(path, tmp_path):
    db.estimate(db.Ising.grid(3, 3, couplings=0.2), [0], method="exact", proof=path)
    db.write(db.Ising.grid(3, 3, couplings=0.2), tmp_path / "model.npz")
    assert "no energies" in verify_proof(path, tmp_path / "model.npz", beta=0.5).reason
    for beta in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="beta must be positive"):
            verify_proof(path, beta=beta)


ENTITIES = '<!DOCTYPE BIF [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><BIF><NETWORK><NAME>&b;</NAME></NETWORK></BIF>'
HOSTILE_XML = {
    "entities": ENTITIES.encode(),
    "entities in another encoding": ('<?xml version="1.0" encoding="UTF-16"?>' + ENTITIES).encode("utf-16"),
    "behind an instruction": b"<?xml version='1.0'?><?x <BIF> ?>" + ENTITIES.encode(),
    "parameters": b"<!DOCTYPE BIF [<!ENTITY % a '<!ELEMENT x ANY>'> %a;]><BIF><NETWORK></NETWORK></BIF>",
    "another file": b'<!DOCTYPE BIF [<!ENTITY a SYSTEM "/etc/passwd">]><BIF><NETWORK>&a;</NETWORK></BIF>',
    "undeclared": b'<!DOCTYPE BIF SYSTEM "bif.dtd"><BIF><NETWORK><NAME>&a;</NAME></NETWORK></BIF>',
    "attributes": b"<!DOCTYPE BIF [<!ATTLIST x %s>]><BIF></BIF>" % b" ".join(b"a%d CDATA 'b'" % k for k in range(200)),
    "depth": b"<BIF>" * 100_000,
}


@pytest.mark.parametrize("case", HOSTILE_XML)
def test_hostile_xml(case, path, tmp_path):
    db.estimate(db.Ising.grid(3, 3, couplings=0.2), [0], method="exact", proof=path)
    (tmp_path / "model.xml").write_bytes(HOSTILE_XML[case])
    verdict = verify_proof(path, tmp_path / "model.xml")
    assert verdict.verdict == NOT_COMPARED
    assert any(word in verdict.reason for word in ("entity", "attributes", "too deep")), verdict.reason


def test_a_declared_document_type_is_read(path, tmp_path):
    """Most files of this format declare their elements."""
    file = tmp_path / "model.xml"
    file.write_text(
        '<?xml version="1.0"?><!DOCTYPE BIF [<!ELEMENT BIF (NETWORK)*><!ATTLIST BIF VERSION CDATA #REQUIRED>'
        '<!ATTLIST VARIABLE TYPE (nature|decision|utility) "nature">]><BIF VERSION="0.3"><NETWORK><NAME>n</NAME>'
        "<VARIABLE><NAME>a  b</NAME><OUTCOME>yes</OUTCOME><VALUE>no</VALUE></VARIABLE>"
        "<DEFINITION><FOR>a b</FOR><TABLE>0.25 <!-- x --> 0.75</TABLE></DEFINITION></NETWORK></BIF>"
    )
    assert accepted(path, file, db.read(file)) > 0


# Sizes that a short file promises: a table over 40 parents, vertices, a header, rows that are looked up by name.
LARGE = {
    "parents.bif": "".join(f"variable v{k} {{ type discrete [ 2 ] {{ a, b }}; }}\n" for k in range(41))
    + f"probability ( v0 | {', '.join(f'v{k}' for k in range(1, 41))} ) {{ default 0.5, 0.5; }}",
    "many.bif": "".join(f"variable v{k} {{ type discrete [ 2 ] {{ a, b }}; }}\n" for k in range(21))
    + f"probability ( v0 | {', '.join(f'v{k}' for k in range(1, 21))} ) {{ default 0.5, 0.5; }}\n" * 200,
    "rows.net": "net {}" + "node a { states = (x y); }\n" * 2 + "potential ( a | b ) { data = (); }",
    "vertices.mc": f"{10**15} 0\n",
    "header.bqm": "DIMODBQM\x02\x00\x7f\x7f\x00\x00{}",
}


@pytest.mark.parametrize("name", LARGE)
def test_files_that_promise_more_than_they_have(name, path, tmp_path):
    db.estimate(db.Ising.grid(3, 3, couplings=0.2), [0], method="exact", proof=path)
    (tmp_path / name).write_text(LARGE[name])
    verdict = verify_proof(path, tmp_path / name)
    assert verdict.exit_code in (1, 4)
    assert verdict.verdict != "holds"


def test_each_format_is_compared_with_a_forger_in_mind(path, tmp_path):
    """One number of the proof is another than in the file: no format lets that pass."""
    xml = "<BIF><NETWORK><VARIABLE><NAME>a</NAME><OUTCOME>x</OUTCOME><OUTCOME>y</OUTCOME></VARIABLE>"
    xml += "<VARIABLE><NAME>b</NAME><OUTCOME>x</OUTCOME><OUTCOME>y</OUTCOME></VARIABLE><DEFINITION><FOR>a</FOR>"
    xml += "<TABLE>0.3 0.7</TABLE></DEFINITION><DEFINITION><FOR>b</FOR><GIVEN>a</GIVEN><TABLE>0.2 0.8 0.4 0.6</TABLE>"
    net = "net {} node a { states = (x y); } node b { states = (x y); } potential ( a ) { data = (0.3 0.7); }"
    net += "potential ( b | a ) { data = ((0.2 0.8) (0.4 0.6)); }"
    files = {"model.xml": f"{xml}</DEFINITION></NETWORK></BIF>".encode(), "model.net": net.encode()}
    n, single, pairs = energies(2)
    files["model.bqm"] = bqm_bytes(n, single, pairs, "BINARY", 2)
    files["model.coo"] = b"# vartype=SPIN\n0 1 0.5\n1 1 0.25"
    files["model.mc"] = b"3 2\n1 2 0.5\n2 3 0.25"
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
        model = db.read(tmp_path / name)
        evidence = {model.labels[1]: model.states(1)[-1]}
        db.estimate(model, model.labels[:1], evidence=evidence, method="exact", proof=path)
        assert verify_proof(path, tmp_path / name).holds, name
        honest = Forgery(path)
        for cell in range(honest.arrays["tables"].size):
            forged = honest.copy()
            forged.arrays["tables"][cell] += 1e-6
            forged.document["claim"] = {
                "lower": [[0.0] * model.cardinalities[0]],
                "upper": [[1.0] * model.cardinalities[0]],
            }
            forged.save(path)
            assert "another factor" in verify_proof(path, tmp_path / name).reason, (name, cell)


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


# Files with a place for a number, which Python's float() and int() take in more forms than any format does.
A_BIF = "network x {{ }} variable a {{ type discrete [ 2 ] {{ b, c }}; }} probability ( a ) "
WITH_A_NUMBER = {
    "model.uai": "MARKOV\n1\n2\n1\n1 0\n2\n1.0 {}",
    "model.bif": A_BIF + "{{ table 0.5, {}; }}",
    "rows.bif": A_BIF + "{{ default 0.5, {}; }}",
    "model.net": 'net {{}} node a {{ states = ("x" "y"); }} potential ( a ) {{ data = ( 0.5 {} ); }}',
    "model.xml": "<BIF><NETWORK><VARIABLE><NAME>a</NAME><OUTCOME>x</OUTCOME><OUTCOME>y</OUTCOME></VARIABLE>"
    "<DEFINITION><FOR>a</FOR><TABLE>0.5 {}</TABLE></DEFINITION></NETWORK></BIF>",
    "model.coo": "# vartype=SPIN\n0 1 {}\n",
    "model.mc": "2 1\n1 2 {}\n",
}


@pytest.mark.parametrize("name", WITH_A_NUMBER)
def test_library_and_checker_read_the_same_numbers(name, path, tmp_path):
    db.estimate(db.Ising.grid(3, 3, couplings=0.2), [0], method="exact", proof=path)
    file = tmp_path / name
    file.write_text(WITH_A_NUMBER[name].format("0.5"))
    db.read(file)
    assert "decimal" not in verify_proof(path, file).reason
    for word in ("1_0", "nan", "infinity", "\u0663", "0x1", "x"):
        file.write_text(WITH_A_NUMBER[name].format(word), encoding="utf-8")
        with pytest.raises(db.FormatError):
            db.read(file)
        verdict = verify_proof(path, file)
        assert (verdict.verdict, "not a decimal number" in verdict.reason) == (NOT_COMPARED, True), (word, verdict)
