"""Certain intervals against exact arithmetic: `python benchmarks/rounding.py --models 10000 --seed 0`.

Each model is written to a file, given to a constructor, or made by an adapter, with numbers from 1e-300 to 1e300, many
of which nearly cancel; some are observed, by states or by likelihoods. Its law is computed from the decimals of the
file, or from the numbers that the constructor got, in rationals or with hundreds of digits. Counted are intervals of
certain answers and bounds of log Z that miss the truth. `--control` lets all models forget their errors: then there
must be some.
"""

from __future__ import annotations

import argparse
import collections
import importlib.util
import itertools
import math
import sys
import tempfile
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import networkx as nx
import numpy as np
from scipy import sparse

import dobrushin as db
from dobrushin._models.forms import Form

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import test_fields as fields
import test_io_rounding as readers
import test_models_rounding as tables

# Digits in which potentials are added, so that numbers from 1e300 to 1e-300 lose nothing; and those of exponentials.
_SUM_DIGITS, _DIGITS = 800, 60
_SLACK = Decimal("1e-40")
Number = Any
Terms = list[tuple[tuple[int, ...], Any]]


class Case(NamedTuple):
    """A model, the evidence, the true laws of its other variables and the logarithm of the partition function."""

    model: Any
    evidence: dict[Any, Any]
    laws: dict[Any, list[Any]]
    log_z: Decimal | None
    tolerance: float = 0.9


def main() -> int:
    """Try the models, and print for each kind how many there were, how many were answered, and how many were wrong."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--models", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="+", choices=list(kinds()), default=list(kinds()))
    parser.add_argument("--control", action="store_true", help="let models forget their errors")
    options = parser.parse_args()
    if options.control:
        Form.off_by = lambda self, _: self  # type: ignore[method-assign, assignment]
    total: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        for kind in options.kinds:
            count = -(-options.models // len(options.kinds))
            found = try_kind(kind, count, options.seed, Path(folder))
            total.update(found)
            print(f"{kind:14} {_as_text(found)}", flush=True)
    print(f"{'all':14} {_as_text(total)}")
    return 1 if total["wrong"] and not options.control else 0


def _as_text(found: collections.Counter[str]) -> str:
    return (
        f"{found['models']:6} models, {found['refused']:5} without a certificate, "
        f"{found['intervals']:6} intervals, {found['logs']:6} of log Z, {found['wrong']} wrong"
    )


def try_kind(kind: str, count: int, seed: int, folder: Path) -> collections.Counter[str]:
    """Ask about models of one kind; the counts of models, refusals, intervals, and wrong ones."""
    found: collections.Counter[str] = collections.Counter()
    for number in range(count):
        rng = np.random.default_rng([seed, number, sum(map(ord, kind))])
        case = kinds()[kind](rng, folder)
        found["models"] += 1
        methods = {"GaussianField": ["exact"], "folder": ["local", "auto"]}.get(kind, ["exact", "local", "auto"])
        method: Any = str(rng.choice(methods))
        wrong = 0
        try:
            answer = db.estimate(
                case.model, list(case.laws), evidence=case.evidence, method=method, tolerance=case.tolerance, seed=1
            )
            if answer.confidence == 1.0:
                truth = list(itertools.chain(*case.laws.values()))
                found["intervals"] += len(truth)
                wrong += misses(answer, truth)
        except db.CertificateError:
            found["refused"] += 1
        if case.log_z is not None:
            try:
                log_z = db.log_partition(case.model, evidence=case.evidence, tolerance=1e99)
                found["logs"] += 1
                with localcontext(prec=_SUM_DIGITS):
                    wrong += not Decimal(log_z.lower) - _SLACK <= case.log_z <= Decimal(log_z.upper) + _SLACK
            except db.CertificateError:
                found["refused"] += 1
        if wrong:
            print(f"{kind} number {number}: {wrong} wrong", flush=True)
        found["wrong"] += wrong
    return found


def misses(answer: Any, truth: list[Any]) -> int:
    """How many intervals do not have the true value in them."""
    ends = zip(answer.lower.tolist(), answer.upper.tolist(), truth, strict=True)
    with localcontext(prec=_SUM_DIGITS):
        return sum(not _exact(low) - _SLACK <= _exact(p) <= _exact(high) + _SLACK for low, high, p in ends)


def _exact(value: Any) -> Decimal:
    """A number with hundreds of digits."""
    if not isinstance(value, Fraction):
        return Decimal(value)
    with localcontext(prec=_SUM_DIGITS):
        return Decimal(value.numerator) / Decimal(value.denominator)


# -- numbers ---------------------------------------------------------------------------------------


def numbers(rng: np.random.Generator, count: int) -> list[float]:
    """Doubles of one scale, some of which nearly cancel each other; potentials beyond 1e100 are refused."""
    scale = 10.0 ** rng.uniform(-300, 98) if rng.random() < 0.2 else 10.0 ** rng.choice([-8, 0, 0, 1, 3, 9, 13])
    found = (scale * rng.normal(size=count)).tolist()
    for k in range(1, count):
        if rng.random() < 0.4:
            found[k] = float(-found[k - 1] + min(1.0, scale) * rng.normal())
    return found


def typed(rng: np.random.Generator, values: list[float]) -> list[Number]:
    """The same as doubles, or others as fractions, decimals and whole numbers."""
    kind = rng.integers(4)
    if kind == 0:
        return values
    if kind == 1:
        return [Fraction(x) / 3 for x in values]
    if kind == 2:
        return [Decimal(repr(x)) / 7 for x in values]
    return [math.trunc(x) for x in values]


# -- laws ------------------------------------------------------------------------------------------


def about(rng: np.random.Generator, model: Any, states: list[list[Any]], terms: Terms, beta: float = 1.0) -> Case:
    """Ask about all variables of a model with potentials `terms`, beside random evidence."""
    labels = list(model.labels)
    evidence: dict[Any, Any] = {}
    likelihoods: dict[int, list[Number]] = {}
    if rng.random() < 0.5:
        v = int(rng.integers(len(labels)))
        k = int(rng.integers(len(states[v])))
        evidence[labels[v]] = states[v][k]
        likelihoods[v] = [int(j == k) for j in range(len(states[v]))]
    is_lazy = isinstance(model, db.LocalModel)  # takes no likelihoods
    if not is_lazy and rng.random() < 0.5 and len(evidence) < len(labels) - 1:
        v = int(rng.choice([u for u in range(len(labels)) if u not in likelihoods]))
        scale = 10.0 ** rng.uniform(-290, 290)
        likelihoods[v] = typed(rng, (scale * rng.uniform(0.1, 10.0, len(states[v]))).tolist())
        likelihoods[v] = [x + 1 if isinstance(x, int) else x for x in likelihoods[v]]
        evidence[labels[v]] = dict(zip(states[v], likelihoods[v], strict=True))
    sums, log_z = _law(states, terms, Decimal(beta), likelihoods)
    observed = [label for label, value in evidence.items() if not isinstance(value, dict)]
    laws = {label: law for label, law in zip(labels, sums, strict=True) if label not in observed}
    if evidence and not is_lazy and rng.random() < 0.3:
        return Case(model.condition(evidence), {}, laws, None)  # its weights have lost a factor
    is_hard = len(observed) == len(evidence)
    return Case(model, evidence, laws, log_z if is_hard and not is_lazy else None)


def _law(
    states: list[list[Any]], terms: Terms, beta: Decimal, likelihoods: dict[int, list[Number]]
) -> tuple[list[list[Decimal]], Decimal]:
    """The marginals, and the logarithm of the partition function."""
    weights: dict[tuple[int, ...], Decimal] = {}
    with localcontext(prec=_SUM_DIGITS):
        exact = [
            (scope, np.vectorize(_exact, otypes=[object])(np.asarray(table, dtype=object))) for scope, table in terms
        ]
        factors = {v: [_exact(x) for x in own] for v, own in likelihoods.items()}
        for state in itertools.product(*(range(len(own)) for own in states)):
            if all(own[state[v]] for v, own in factors.items()):
                weights[state] = beta * sum(
                    (table[tuple(state[v] for v in scope)] for scope, table in exact), Decimal(0)
                )
        top = max(weights.values())
    with localcontext(prec=_DIGITS) as digits:
        digits.Emin, digits.Emax = -(10**17), 10**17
        sums = [[Decimal(0)] * len(own) for own in states]
        for state, energy in weights.items():
            with localcontext(prec=_SUM_DIGITS):
                less = energy - top
            weight = (+less).exp() * math.prod((own[state[v]] for v, own in factors.items()), start=Decimal(1))
            for v, s in enumerate(state):
                sums[v][s] += weight
        total = sum(sums[0])
        logarithm = total.ln()
        laws = [[part / total for part in row] for row in sums]
    with localcontext(prec=_SUM_DIGITS):
        return laws, top + logarithm


# -- kinds of models -------------------------------------------------------------------------------


def kinds() -> dict[str, Callable[[np.random.Generator, Path], Case]]:
    """All kinds of models by their names; adapters of libraries that are not installed are left out."""
    found: dict[str, Callable[[np.random.Generator, Path], Case]] = {
        "uai tables": _uai_tables,
        **{f"network{kind}": _network(kind) for kind in readers.NETWORKS},
        **{f"energies {kind}": _energies(kind) for kind in ("coo", "twice", "bqm", "dimod")},
        "max-cut": _max_cut,
        "networkx": _networkx,
        "Ising": _ising,
        "Ising arrays": _ising_arrays,
        "Potts": _potts,
        "SpinMRF": _spin_terms,
        "PairwiseMRF": _pairs,
        "FactorGraph": _factors,
        "npz": lambda rng, folder: _stored(rng, folder / "model.npz"),
        "folder": lambda rng, folder: _stored(rng, Path(tempfile.mkdtemp(dir=folder)) / "model"),
        "GaussianField": _field,
    }
    for library in ("pgmpy", "pyagrum"):
        if importlib.util.find_spec(library):
            found[library] = _network(library)
    return found


def _uai_tables(rng: np.random.Generator, folder: Path) -> Case:
    """Tables of probabilities of the same extreme scale."""
    sizes, scale = rng.integers(2, 4, 3).tolist(), 10.0 ** rng.uniform(-300, 299)
    factors = tables.random_factors(rng, sizes, scale)
    model = db.read(tables.write_uai(folder / "model.uai", sizes, factors))
    total = Fraction(0)
    for state in itertools.product(*map(range, sizes)):
        places = [np.ravel_multi_index([state[v] for v in scope], [sizes[v] for v in scope]) for scope, _ in factors]
        total += math.prod(
            (Fraction(words[k]) for (_, words), k in zip(factors, places, strict=True)), start=Fraction(1)
        )
    with localcontext(prec=_SUM_DIGITS) as digits:
        digits.prec, log_z = _DIGITS, _exact(total)
        log_z = log_z.ln()
    laws = dict(zip(model.labels, tables.rational_marginals(sizes, factors), strict=True))
    return Case(model, {}, laws, log_z)


def _network(kind: str) -> Callable[[np.random.Generator, Path], Case]:
    """A cause, and findings that are very unlikely and were found."""

    def make(rng: np.random.Generator, folder: Path) -> Case:
        prior, rows = readers.network(rng, 10.0 ** rng.uniform(-300, 0))
        if kind in readers.NETWORKS:
            file = folder / f"network{kind}"
            file.write_text(readers.NETWORKS[kind](prior, rows))
            model = db.read(file)
        else:
            if kind == "pgmpy":
                model = db.from_pgmpy(readers.pgmpy_network(prior, rows))
            else:
                model = db.from_pyagrum(_pyagrum_network(prior, rows))
            prior, rows = [Decimal(float(p)) for p in prior], [[Decimal(float(p)) for p in row] for row in rows]
        evidence = {label: model._called(1)[0] for label in model.labels[1:]}
        with localcontext(prec=_DIGITS):
            weights = [math.prod([row[k] for row in rows], start=p) for k, p in enumerate(prior)]
            log_z = sum(weights).ln() if kind in readers.NETWORKS else None
        return Case(model, evidence, {model.labels[0]: readers.posterior(prior, rows)}, log_z)

    return make


def _pyagrum_network(prior: list[Decimal], rows: list[list[Decimal]]) -> Any:
    import pyagrum

    network = pyagrum.BayesNet()
    network.add(pyagrum.LabelizedVariable("v0", "", [f"c{k}" for k in range(len(prior))]))
    network.cpt("v0").fillWith([float(p) for p in prior])
    for k, row in enumerate(rows, 1):
        network.add(pyagrum.LabelizedVariable(f"v{k}", "", ["yes", "no"]))
        network.addArc("v0", f"v{k}")
        network.cpt(f"v{k}")[:] = [[float(p), float(1 - p)] for p in row]
    return network


def _energies(kind: str) -> Callable[[np.random.Generator, Path], Case]:
    """Fields and couplings that nearly cancel."""

    def make(rng: np.random.Generator, folder: Path) -> Case:
        bits, beta = bool(rng.integers(2)), float(rng.choice([1.0, 0.3, rng.uniform(0.01, 10.0)]))
        linear, pairs = readers.spins(rng, 10.0 ** rng.uniform(-5, 14), bits)
        if kind in ("coo", "twice"):
            (folder / "a.coo").write_text(
                (readers.write_coo if kind == "coo" else readers.write_twice)(linear, pairs, bits)
            )
            model = db.read(folder / "a.coo", beta=beta)
        else:
            linear = [Decimal(float(x)) for x in linear]
            pairs = {pair: Decimal(float(x)) for pair, x in pairs.items()}
            (folder / "a.bqm").write_bytes(readers.write_bqm(linear, pairs, bits))
            if kind == "bqm":
                model = db.read(folder / "a.bqm", beta=beta)
            else:
                biases = (dict(enumerate(map(float, linear))), {pair: float(x) for pair, x in pairs.items()})
                model = db.from_dimod(
                    readers.dimod.BinaryQuadraticModel(*biases, "BINARY" if bits else "SPIN"), beta=beta
                )
        values = [0, 1] if bits else [-1, 1]
        terms: Terms = [((v,), [-x * value for value in values]) for v, x in enumerate(linear)]
        terms += [(pair, [[-x * a * b for b in values] for a in values]) for pair, x in pairs.items()]
        case = about(rng, model, [values] * 3, terms, beta)
        return case._replace(log_z=None)  # readers drop constants

    return make


def _max_cut(rng: np.random.Generator, folder: Path) -> Case:
    beta, values = float(rng.choice([1.0, 0.3])), numbers(rng, 3)
    edges = [(0, 1), (0, 2), (1, 2)]
    lines = [f"{i + 1} {j + 1} {x!r}" for (i, j), x in zip(edges, values, strict=True)]
    (folder / "a.mc").write_text("\n".join(["3 3", *lines]))
    model = db.read(folder / "a.mc", beta=beta)
    with localcontext(prec=_SUM_DIGITS):
        exact = [-Decimal(repr(x)) for x in values]
    case = about(rng, model, [[-1, 1]] * 3, _spin_tables(dict(zip(edges, exact, strict=True))), beta)
    return case._replace(log_z=None)


def _networkx(rng: np.random.Generator, _: Path) -> Case:
    graph, values = nx.path_graph(3), numbers(rng, 2)
    nx.set_edge_attributes(graph, {(0, 1): values[0], (1, 2): values[1]}, "weight")
    model = db.from_networkx(graph)
    return about(rng, model, [[-1, 1]] * 3, _spin_tables({(0, 1): values[0], (1, 2): values[1]}))


def _spin_tables(couplings: dict[tuple[int, ...], Number]) -> Terms:
    """A table for each product of spins."""
    found: Terms = []
    with localcontext(prec=_SUM_DIGITS):
        for scope, strength in couplings.items():
            table = np.empty((2,) * len(scope), dtype=object)
            for place in itertools.product(range(2), repeat=len(scope)):
                table[place] = strength * math.prod(2 * s - 1 for s in place)
            found.append((scope, table))
    return found


def _ising(rng: np.random.Generator, _: Path) -> Case:
    values, own = typed(rng, numbers(rng, 3)), numbers(rng, 3)
    couplings = dict(zip([(0, 1), (0, 2), (1, 2)], values, strict=True))
    model = db.Ising(couplings, fields=dict(enumerate(own)))
    exact = {pair: _exact(x) for pair, x in couplings.items()} | {(v,): Decimal(x) for v, x in enumerate(own)}
    return about(rng, model, [[-1, 1]] * 3, _spin_tables(exact))


def _ising_arrays(rng: np.random.Generator, _: Path) -> Case:
    """Dense and sparse matrices, the latter with several entries at one place."""
    values, pairs = numbers(rng, 5), [(0, 1), (1, 2)]
    own = dict(zip(pairs, values[:2], strict=True))
    if rng.random() < 0.5:
        matrix: Any = np.zeros((3, 3))
        for (i, j), x in own.items():
            matrix[i, j] = matrix[j, i] = x
        terms = own
    else:
        more = numbers(rng, 2)
        data = [*values[:2], *values[:2], *more, *more]
        ends = [*pairs, *((j, i) for i, j in pairs), *pairs, *((j, i) for i, j in pairs)]
        matrix = sparse.coo_array((data, tuple(zip(*ends, strict=True))), shape=(3, 3))
        terms = {pair: Fraction(own[pair]) + Fraction(x) for pair, x in zip(pairs, more, strict=True)}
    model = db.Ising(matrix, fields=np.array(values[2:]))
    exact = {pair: _exact(x) for pair, x in terms.items()} | {(v,): Decimal(x) for v, x in enumerate(values[2:])}
    return about(rng, model, [[-1, 1]] * 3, _spin_tables(exact))


def _potts(rng: np.random.Generator, _: Path) -> Case:
    values, unaries = typed(rng, numbers(rng, 2)), np.array(numbers(rng, 9)).reshape(3, 3)
    couplings = dict(zip([(0, 1), (1, 2)], values, strict=True))
    model = db.Potts(couplings, states=3, unaries=unaries)
    terms: Terms = [(pair, [[x if a == b else 0 for b in range(3)] for a in range(3)]) for pair, x in couplings.items()]
    return about(rng, model, [[0, 1, 2]] * 3, terms + [((v,), row) for v, row in enumerate(unaries.tolist())])


def _spin_terms(rng: np.random.Generator, _: Path) -> Case:
    values, scopes = typed(rng, numbers(rng, 3)), [(0, 1, 2), (0, 1), (1, 2)]
    own = numbers(rng, 3)
    couplings = dict(zip(scopes, values, strict=True))
    model = db.SpinMRF(couplings, fields=own)
    exact = {scope: _exact(x) for scope, x in couplings.items()} | {(v,): Decimal(x) for v, x in enumerate(own)}
    return about(rng, model, [[-1, 1]] * 3, _spin_tables(exact))


def _pairs(rng: np.random.Generator, _: Path) -> Case:
    unaries, table = np.array(numbers(rng, 9)).reshape(3, 3), np.array(numbers(rng, 18)).reshape(2, 3, 3)
    model = db.PairwiseMRF(unaries, [(0, 1), (1, 2)], table)
    terms: Terms = [((0, 1), table[0].tolist()), ((1, 2), table[1].tolist())]
    return about(rng, model, [[0, 1, 2]] * 3, terms + [((v,), row) for v, row in enumerate(unaries.tolist())])


def _factors(rng: np.random.Generator, _: Path) -> Case:
    model, sizes, terms = _graph(rng)
    return about(rng, model, [list(range(size)) for size in sizes], terms)


def _graph(rng: np.random.Generator) -> tuple[db.FactorGraph, list[int], Terms]:
    """Tables of random scopes, two of them of the same variables."""
    sizes = rng.integers(2, 4, 3).tolist()
    scopes = [(0, 1), (1, 0), (1, 2), (2,), (0, 2, 1)]
    terms: Terms = []
    for scope in scopes:
        shape = [sizes[v] for v in scope]
        terms.append((scope, np.array(numbers(rng, math.prod(shape))).reshape(shape).tolist()))
    return db.FactorGraph(sizes, [(scope, np.array(table)) for scope, table in terms]), sizes, terms


def _stored(rng: np.random.Generator, path: Path) -> Case:
    """A model that was written and is read again."""
    model, sizes, terms = _graph(rng)
    db.write(model, path)
    again = db.read(path) if path.suffix else db.open_model(path)
    return about(rng, again, [list(range(size)) for size in sizes], terms)


def _field(rng: np.random.Generator, _: Path) -> Case:
    """A field whose linear terms were computed from observations that nearly cancel what is there."""
    field, matrix, linear = next(fields.derived_fields(1, int(rng.integers(2**32))))
    truth = fields.exact_mean(matrix, linear)
    widest = 10.0 * max(1.0, *(abs(float(x)) for x in truth), float(np.abs(field.linear).max()))
    return Case(field, {}, {label: [x] for label, x in zip(field.labels, truth, strict=True)}, None, min(widest, 1e99))


if __name__ == "__main__":
    sys.exit(main())
