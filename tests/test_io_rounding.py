"""Readers carry the rounding of numbers: certain answers hold for the decimals in files and in other libraries."""

import itertools
import json
import math
import struct
from decimal import Decimal, localcontext

import dimod
import networkx as nx
import numpy as np
import pytest

import dobrushin as db
from dobrushin._models.forms import Form

SCALES = [1e-300, 1e-100, 1e-8, 1.0]
SIZES = [1.0, 1e3, 1e9, 1e13]
MODELS = 12


def digits(value):
    return f"{value:.17g}"


# -- networks: one cause, findings that are very unlikely -------------------------------------------


def network(rng, scale):
    """The prior of a cause, and for each finding its probability given each cause; all in decimals."""
    causes, findings = int(rng.integers(2, 4)), int(rng.integers(1, 4))
    prior = rng.dirichlet(np.ones(causes))
    prior = [Decimal(digits(x)) for x in prior[:-1]]
    prior.append(1 - sum(prior))
    rows = [[Decimal(digits(scale * x)) for x in rng.uniform(0.1, 1.0, causes)] for _ in range(findings)]
    return prior, rows


def as_rows(row):
    """For each cause the finding's probability, and that of no finding."""
    with localcontext(prec=700):
        return [(str(p), str(1 - p)) for p in row]


def posterior(prior, rows):
    with localcontext(prec=60):
        weights = [math.prod([row[k] for row in rows], start=p) for k, p in enumerate(prior)]
        return [w / sum(weights) for w in weights]


def write_uai(prior, rows):
    n, causes = 1 + len(rows), len(prior)
    lines = ["BAYES", str(n), " ".join(["2"] * n).replace("2", str(causes), 1), str(n), "1 0"]
    lines += [f"2 0 {k}" for k in range(1, n)]
    lines += [f"{causes} " + " ".join(map(str, prior))]
    lines += [f"{2 * causes} " + " ".join(f"{p} {q}" for p, q in as_rows(row)) for row in rows]
    return "\n".join(lines)


def write_bif(prior, rows):
    causes = [f"c{k}" for k in range(len(prior))]
    lines = ["network n { }", f"variable v0 {{ type discrete [ {len(causes)} ] {{ {', '.join(causes)} }}; }}"]
    lines += [f"variable v{k} {{ type discrete [ 2 ] {{ yes, no }}; }}" for k in range(1, 1 + len(rows))]
    lines.append(f"probability ( v0 ) {{ table {', '.join(map(str, prior))}; }}")
    for k, row in enumerate(rows, 1):
        given = "".join(f"({cause}) {p}, {q}; " for cause, (p, q) in zip(causes, as_rows(row), strict=True))
        lines.append(f"probability ( v{k} | v0 ) {{ {given}}}")
    return "\n".join(lines)


def write_xml(prior, rows):
    states = [[f"c{k}" for k in range(len(prior))], *[["yes", "no"] for _ in rows]]
    text = ["<BIF><NETWORK>"]
    for k, own in enumerate(states):
        outcomes = "".join(f"<OUTCOME>{state}</OUTCOME>" for state in own)
        text.append(f"<VARIABLE><NAME>v{k}</NAME>{outcomes}</VARIABLE>")
    text.append(f"<DEFINITION><FOR>v0</FOR><TABLE>{' '.join(map(str, prior))}</TABLE></DEFINITION>")
    for k, row in enumerate(rows, 1):
        table = " ".join(f"{p} {q}" for p, q in as_rows(row))
        text.append(f"<DEFINITION><FOR>v{k}</FOR><GIVEN>v0</GIVEN><TABLE>{table}</TABLE></DEFINITION>")
    return "".join([*text, "</NETWORK></BIF>"])


def write_hugin(prior, rows):
    causes = " ".join(f'"c{k}"' for k in range(len(prior)))
    text = [f"net {{ }} node v0 {{ states = ( {causes} ); }}"]
    text += [f'node v{k} {{ states = ( "yes" "no" ); }}' for k in range(1, 1 + len(rows))]
    text.append(f"potential ( v0 ) {{ data = ( {' '.join(map(str, prior))} ); }}")
    for k, row in enumerate(rows, 1):
        table = "".join(f"( {p} {q} )" for p, q in as_rows(row))
        text.append(f"potential ( v{k} | v0 ) {{ data = ( {table} ); }}")
    return "\n".join(text)


NETWORKS = {".uai": write_uai, ".bif": write_bif, ".xmlbif": write_xml, ".net": write_hugin}


def pgmpy_network(prior, rows):
    discrete = pytest.importorskip("pgmpy.factors.discrete")
    models = pytest.importorskip("pgmpy.models")
    found = models.DiscreteBayesianNetwork([("v0", f"v{k}") for k in range(1, 1 + len(rows))])
    found.add_cpds(discrete.TabularCPD("v0", len(prior), [[float(p)] for p in prior]))
    for k, row in enumerate(rows, 1):
        table = [[float(p) for p in row], [float(1 - p) for p in row]]
        found.add_cpds(discrete.TabularCPD(f"v{k}", 2, table, ["v0"], [len(prior)]))
    return found


def wrong_networks(tmp_path, kind):
    wrong, rng = 0, np.random.default_rng(5)
    for scale, _ in itertools.product(SCALES, range(MODELS)):
        prior, rows = network(rng, scale)
        if kind == "pgmpy":
            model = db.from_pgmpy(pgmpy_network(prior, rows))
            prior, rows = [Decimal(float(p)) for p in prior], [[Decimal(float(p)) for p in row] for row in rows]
        else:
            (tmp_path / f"net{kind}").write_text(NETWORKS[kind](prior, rows))
            model = db.read(tmp_path / f"net{kind}")
        target = model.labels[0]
        evidence = {label: model._called(1)[0] for label in model.labels[1:]}
        answer = db.estimate(model, target, evidence=evidence, method="exact")
        wrong += violations(answer, posterior(prior, rows))
    return wrong


# -- energies: fields and couplings that nearly cancel -----------------------------------------------


def spins(rng, size, bits):
    """Linear and quadratic decimals, whose sums are small for some states."""
    linear = [Decimal(digits(size * rng.uniform(0.5, 1.5))) for _ in range(3)]
    signs = [1, -1] if bits else [-1]
    pairs = {(0, 1): -linear[0] + Decimal(digits(rng.normal())) * rng.choice(signs)}
    pairs[0, 2] = Decimal(digits(rng.normal()))
    return [Decimal(digits(float(x))) for x in linear], {pair: Decimal(digits(float(x))) for pair, x in pairs.items()}


def energy_law(linear, pairs, beta, bits):
    """The probabilities of the states of variable 0, given that variable 1 is 1."""
    with localcontext(prec=80):
        first, weights = (0 if bits else -1), []
        for own in (first, 1):
            energies = []
            for other in (first, 1):
                x = [own, 1, other]
                terms = [a * v for a, v in zip(linear, x, strict=True)] + [
                    q * x[i] * x[j] for (i, j), q in pairs.items()
                ]
                energies.append(-Decimal(beta) * sum(terms))
            weights.append(energies)
        top = max(itertools.chain(*weights))
        sums = [sum((e - top).exp() for e in row) for row in weights]
        return [s / sum(sums) for s in sums]


def write_coo(linear, pairs, bits):
    lines = [f"# vartype={'BINARY' if bits else 'SPIN'}"]
    lines += [f"{i} {i} {x}" for i, x in enumerate(linear)]
    return "\n".join([*lines, *(f"{i} {j} {x}" for (i, j), x in pairs.items())])


def write_twice(linear, pairs, bits):
    """Every linear term in two parts."""
    with localcontext(prec=60):
        parts = [(Decimal(digits(float(x) / 3)), x) for x in linear]
        parts = [(part, x - part) for part, x in parts]
    lines = [f"{i} {i} {part}" for i, both in enumerate(parts) for part in both]
    text = write_coo([], pairs, bits).split("\n")
    return "\n".join([text[0], *lines, *text[1:]])


def write_bqm(linear, pairs, bits):
    """Version 2, without labels; numbers become floats here."""
    n = len(linear)
    neighbours = [[(j if i == v else i, x) for (i, j), x in pairs.items() if v in (i, j)] for v in range(n)]
    header = {"shape": [n, len(pairs)], "dtype": "float64", "itype": "int32", "ntype": "int32",
              "vartype": "BINARY" if bits else "SPIN", "type": "BinaryQuadraticModel", "variables": False}  # fmt: skip
    text = json.dumps(header).encode() + b"\n"
    data = b"DIMODBQM" + bytes([2, 0]) + struct.pack("<I", len(text)) + text + struct.pack("<d", 0.0)
    start = 0
    for x, own in zip(linear, neighbours, strict=True):
        data += struct.pack("<id", start, float(x))
        start += len(own)
    return data + b"".join(struct.pack("<id", j, float(x)) for own in neighbours for j, x in sorted(own))


def wrong_energies(tmp_path, kind, bits):
    wrong, rng = 0, np.random.default_rng(7)
    for (size, beta), _ in itertools.product([(size, beta) for size in SIZES for beta in (1.0, 0.3)], range(MODELS)):
        linear, pairs = spins(rng, size, bits)
        if kind in ("coo", "twice"):
            (tmp_path / "a.coo").write_text((write_coo if kind == "coo" else write_twice)(linear, pairs, bits))
            model = db.read(tmp_path / "a.coo", beta=beta)
        else:
            linear = [Decimal(float(x)) for x in linear]
            pairs = {pair: Decimal(float(x)) for pair, x in pairs.items()}
            if kind == "bqm":
                (tmp_path / "a.bqm").write_bytes(write_bqm(linear, pairs, bits))
                model = db.read(tmp_path / "a.bqm", beta=beta)
            else:
                biases = (dict(enumerate(map(float, linear))), {pair: float(x) for pair, x in pairs.items()})
                bqm = dimod.BinaryQuadraticModel(*biases, "BINARY" if bits else "SPIN")
                model = db.from_dimod(bqm, beta=beta)
        answer = db.estimate(model, 0, evidence={1: 1}, method="exact", tolerance=0.9)
        wrong += violations(answer, energy_law(linear, pairs, beta, bits))
    return wrong


def violations(answer, truth):
    assert answer.confidence == 1.0
    ends = zip(answer.lower.tolist(), answer.upper.tolist(), strict=True)
    slack = Decimal("1e-40")
    return sum(
        not Decimal(low) - slack <= p <= Decimal(high) + slack for p, (low, high) in zip(truth, ends, strict=True)
    )


@pytest.mark.parametrize("kind", [*NETWORKS, "pgmpy"])
def test_certain_answers_hold_for_the_decimals_of_networks(kind, tmp_path):
    assert wrong_networks(tmp_path, kind) == 0


ENERGIES = [(kind, bits) for kind in ("coo", "twice", "bqm", "dimod") for bits in (False, True)]


@pytest.mark.parametrize(("kind", "bits"), ENERGIES)
def test_certain_answers_hold_for_the_decimals_of_energies(kind, bits, tmp_path):
    assert wrong_energies(tmp_path, kind, bits) == 0


def test_readers_that_forget_their_errors_are_found_out(tmp_path, monkeypatch):
    monkeypatch.setattr(Form, "off_by", lambda self, _: self)
    assert all(wrong_networks(tmp_path, kind) > 0 for kind in NETWORKS)
    assert all(wrong_energies(tmp_path, kind, True) > 0 for kind in ("coo", "twice", "bqm", "dimod"))


def test_weights_of_max_cut_and_of_graphs(tmp_path):
    rng = np.random.default_rng(9)
    for beta in (1.0, 0.3):
        for _ in range(MODELS):
            words = [Decimal(digits(x)) for x in rng.normal(size=2) * 1e3]
            (tmp_path / "a.mc").write_text(f"3 2\n1 2 {words[0]}\n1 3 {words[1]}\n")
            answer = db.estimate(db.read(tmp_path / "a.mc", beta=beta), 1, evidence={2: 1, 3: -1}, method="exact")
            with localcontext(prec=60):
                odds = (-2 * Decimal(beta) * (words[0] - words[1])).exp()
                assert violations(answer, [1 / (1 + odds), odds / (1 + odds)]) == 0
    graph = nx.path_graph(3)
    nx.set_edge_attributes(graph, {(0, 1): 0.1, (1, 2): 1e12 / 3}, "weight")
    assert db.from_networkx(graph)._form.error == 0.0  # floats are meant as they are


def test_whole_numbers_are_exact(tmp_path):
    (tmp_path / "a.mc").write_text("3 2\n1 2 1\n2 3 -4\n")
    assert db.read(tmp_path / "a.mc")._form.error == 0.0
    assert db.read(tmp_path / "a.mc", beta=0.5)._form.error == 0.0
    assert db.read(tmp_path / "a.mc", beta=0.3)._form.error > 0.0
    (tmp_path / "a.mc").write_text("3 2\n1 2 1.0\n2 3 -4\n")
    assert db.read(tmp_path / "a.mc")._form.error > 0.0
