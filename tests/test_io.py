"""Files: exact round trips, known answers, one sentence for what is broken, and nothing that a stranger can do."""

import gzip
import io
import os
import pickle
import re
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dobrushin as db
import fuzz_io
from dobrushin.errors import ArgumentError, FormatError
from dobrushin.io import (
    formats,
    read,
    read_evidence,
    read_marginals,
    read_offset,
    read_sizes,
    state_names,
    write,
    write_marginals,
)
from models import FAMILIES, all_states, random_model

SEEDS = st.integers(0, 10**6)
DATA = os.environ.get("DOBRUSHIN_DATA")
needs_data = pytest.mark.skipif(not DATA, reason="DOBRUSHIN_DATA, the folder of real files, is not set")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("files")


def saved(folder, name, content):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def parts(model):
    """All that a model is made of."""
    found = {"labels": tuple(model.labels), "range": isinstance(model.labels, range)}
    for name, value in vars(model).items():
        if hasattr(value, "indptr"):
            found |= {f"{name}.{part}": getattr(value, part) for part in ("indptr", "indices", "data")}
        elif isinstance(value, np.ndarray) or value is None or isinstance(value, int):
            found[name] = value
    return found


def assert_same(one, other, zeros=True):
    """The same to the last bit; without `zeros`, -0 counts as 0."""
    assert type(one) is type(other)
    a, b = parts(one), parts(other)
    assert set(a) == set(b)
    for name, value in a.items():
        if isinstance(value, np.ndarray):
            assert value.dtype == b[name].dtype, name
            assert np.array_equal(value, b[name]), name
            assert not zeros or value.tobytes() == b[name].tobytes(), name
        else:
            assert value == b[name], name


# -- round trips -----------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
@given(seed=SEEDS, zeros=st.booleans(), labels=st.booleans())
def test_npz_keeps_every_model_exactly(folder, family, seed, zeros, labels):
    model = random_model(np.random.default_rng(seed), family, zeros=zeros, labels=labels)
    write(model, folder / "a.npz")
    write(model, folder / "b.npz.gz")
    assert_same(model, read(folder / "a.npz"))
    assert_same(model, read(folder / "b.npz.gz"))
    write(read(folder / "a.npz"), folder / "b.npz")
    assert (folder / "a.npz").read_bytes() == (folder / "b.npz").read_bytes()


def test_comments_in_uai_files_are_passed_over(folder):
    text = "MARKOV 2  2 3  1  2 0 1  6  1 2 3  0 1 1"
    noted = "# made by hand\nMARKOV # a pair\n2\n2 3\n1\n2 0 1   # a, b 7\n6  1 2 3  0 1 1 # end"
    assert read(saved(folder, "a.uai", noted)) == read(saved(folder, "b.uai", text))


@pytest.mark.parametrize("family", FAMILIES)
@given(seed=SEEDS, zeros=st.booleans())
def test_uai_keeps_the_distribution_and_what_was_read_exactly(folder, family, seed, zeros):
    model = random_model(np.random.default_rng(seed), family, zeros=zeros, strength=3.0)
    path = folder / "a.uai.gz"
    write(model, path)
    once = read(path)
    assert isinstance(once, db.FactorGraph)
    states = all_states(model)
    digits = (states + 1) // 2 if family in ("ising", "spins") else states
    assert once.log_density(digits) == pytest.approx(model.log_density(states), abs=1e-13)
    write(once, path)
    assert_same(once, read(path))


@given(seed=SEEDS, beta=st.sampled_from([1.0, 0.37, 3.0, 1e-3]))
def test_energies_are_kept_exactly(folder, seed, beta):
    rng = np.random.default_rng(seed)
    model = random_model(rng, "ising")
    for name in ("a.bqm", "a.coo", "a.bqm.gz"):
        path = folder / name
        write(model, path, beta=beta, offset=0.1)
        once = read(path, beta=beta)
        assert read_offset(path) == 0.1
        assert_same(model, once, zeros=False) if beta == 1 else None
        states = all_states(model)
        assert once.log_density(states) == pytest.approx(model.log_density(states), abs=1e-12)
        write(once, path, beta=beta)
        assert_same(once, read(path, beta=beta), zeros=False)
    write(db.Ising(model.couplings), folder / "a.mc", beta=beta)
    assert list(read(folder / "a.mc").labels) == list(range(1, model.n_variables + 1))
    once = read(folder / "a.mc", beta=beta)
    write(once, folder / "b.mc", beta=beta)
    assert_same(once, read(folder / "b.mc", beta=beta))
    if beta == 1:
        assert (once.couplings != model.couplings).nnz == 0


def test_all_kinds_of_labels_are_kept(folder):
    labels = ["a", "", "two words", 'quote"', "\u00e9\n", 7, -1, 2.5, True, None, (1, "x", (2, None)), 10**30]
    edges = {(labels[k], labels[k + 1]): 0.1 for k in range(len(labels) - 1)}
    model = db.Ising(edges)
    assert list(model.labels) == labels
    for name in ("a.npz", "a.bqm"):
        write(model, folder / name)
        found = read(folder / name).labels
        assert list(found) == labels
        assert [type(label) for label in found] == [type(label) for label in labels]
    merged = db.Ising.grid(2, 2, couplings=0.5).merge([[0, 1], [2, 3]])
    write(merged, folder / "a.npz")
    assert read(folder / "a.npz").labels == ((0, 1), (2, 3))
    write(db.Ising({(np.int64(3), "x"): 1.0}), folder / "a.npz")
    assert read(folder / "a.npz").labels == (3, "x")
    with pytest.raises(ArgumentError, match=r"labelled by strings.*frozenset"):
        write(db.Ising({(frozenset([1]), "x"): 1.0}), folder / "a.npz")


def test_extreme_numbers_are_kept(folder):
    weights = [5e-324, 1e-300, 1e300, 0.1, 1 / 3, 1.0, 1 + 2**-52, 0.0]
    text = "MARKOV 1 8 1 1 0 8 " + " ".join(map(repr, weights))
    once = read(saved(folder, "a.uai", text))
    assert np.exp(once.factor(0)[1]) == pytest.approx(weights, rel=1e-12)
    write(once, folder / "b.uai")
    assert_same(once, read(folder / "b.uai"))
    with pytest.raises(ArgumentError, match="UAI holds weights"):
        write(db.FactorGraph([2], [((0,), [0.0, -744.0])]), folder / "b.uai")
    ising = db.Ising({(0, 1): 1e-100, (1, 2): -1e100, (0, 2): 5e-324}, fields=[1e-17, 0.1, 1e17])
    for name in ("a.npz", "a.bqm", "a.coo"):
        write(ising, folder / name)
        assert_same(ising, read(folder / name), zeros=False)


# -- known answers -----------------------------------------------------------------------------


def test_a_markov_file(folder):
    text = "MARKOV\n3\n2 2 3\n2\n2 0 1\n2 1 2\n\n4\n 1.0 0.5\n 0.25 2\n\n6\n 1 0 3\n4 5 6\n"
    model = read(saved(folder, "a.uai", text))
    assert model.cardinalities.tolist() == [2, 2, 3]
    assert model.labels == range(3)
    assert np.exp(model.factor(0)[1]).tolist() == [[1, 0.5], [0.25, 2]]
    assert model.factor(1)[0] == (1, 2)
    assert model.log_density([0, 0, 1]) == -np.inf
    assert np.exp(model.log_density([1, 0, 2])) == pytest.approx(0.25 * 3)


def test_a_bayes_file_is_normalised_by_itself(folder):
    text = "BAYES 2 2 3 2 1 0 2 0 1 2 0.436 0.564 6 0.128 0.872 0 0.92 0.033 0.047"
    model = read(saved(folder, "a.uai", text))
    assert db.exact.log_partition(model) == pytest.approx(0, abs=1e-12)
    assert db.exact.marginals(model)[0] == pytest.approx([0.436, 0.564])
    rounded = text.replace("0.128 0.872", "0.12 0.87")
    assert np.exp(read(saved(folder, "a.uai", rounded)).factor(1)[1][0, 1]) == pytest.approx(0.87, abs=1e-15)


def test_variables_of_one_state_are_left_out(folder):
    text = "MARKOV 3 1 2 1 3 2 0 1 1 0 3 2 1 0 2 0.25 0.75 1 7 2 1 1"
    model = read(saved(folder, "a.uai", text))
    assert model.labels == (1,)
    assert model.n_factors == 3
    assert model.conditional(0, [0]) == pytest.approx([0.25, 0.75])
    assert read_sizes(folder / "a.uai").tolist() == [1, 2, 1]
    assert model.log_density([0]) == pytest.approx(np.log(0.25 * 7))


BIF = """
// weather
network "a (small) network" { property "made; by hand" ; }
variable rain { type discrete [ 2 ] { yes, no }; property position = (1, 2) ; }
variable "the wind" { type discrete[3] { none <5 ">= 5" }; }
variable wet { type discrete [ 2 ] { yes, no }; }
variable always { type discrete [ 1 ] { so }; }
probability ( rain ) { table 0.25, 0.75; }
probability ( "the wind" | rain ) {
  (no) 0.2, 0.3, 0.5;  /* any
  order */ (yes) 0.1, 0.1, 0.8;
}
probability ( wet | rain, "the wind" ) { table 0.9 0.8 0.7 0.1 0.2 0.3  0.1 0.2 0.3 0.9 0.8 0.7; }
probability ( always | wet ) { default 1.0; }
"""


def test_a_bif_file(folder):
    path = saved(folder, "a.bif", BIF)
    model = read(path)
    assert model.labels == ("rain", "the wind", "wet")
    assert model.cardinalities.tolist() == [2, 3, 2]
    assert db.exact.log_partition(model) == pytest.approx(0, abs=1e-12)
    joint = db.exact.distribution(model).reshape(2, 3, 2)
    assert joint[0, 2, 0] == pytest.approx(0.25 * 0.8 * 0.7)
    assert joint[1, 0, 1] == pytest.approx(0.75 * 0.2 * 0.9)
    assert state_names(path) == {
        "rain": ("yes", "no"),
        "the wind": ("none", "<5", ">= 5"),
        "wet": ("yes", "no"),
        "always": ("so",),
    }


def test_max_cut_has_its_cut_at_least_energy(folder):
    path = saved(folder, "a.txt", "4 4 \n1 2 1\n2 3 1\n3 4 2\n4 1 1\n")
    model = read(path, beta=0.5)
    assert model.labels == (1, 2, 3, 4)
    assert float(model.couplings[2, 3]) == -1.0
    states = all_states(model)
    energy = -model.log_density(states) / 0.5
    best = states[np.argmin(energy)]
    assert best[0] == best[2] != best[1] == best[3]
    assert read_offset(path) == 0


def test_bits_are_spins(folder):
    text = "# vartype=BINARY\n# offset=0.5\n3 3 -1\n3 7 2\n7 3 0.5\n9 9 4e-1\n"
    path = saved(folder, "a.coo", text)
    model = read(path, beta=2.0)
    assert model.labels == (3, 7, 9)
    for x in np.ndindex(2, 2, 2):
        energy = 0.5 - x[0] + 2.5 * x[0] * x[1] + 0.4 * x[2]
        assert model.log_density(2 * np.array(x) - 1) == pytest.approx(-2 * (energy - read_offset(path)))


def test_dimod_reads_and_writes_the_same_files(folder):
    dimod = pytest.importorskip("dimod", reason="dimod, whose files these are, is not installed")
    from dimod.serialization import coo

    rng = np.random.default_rng(3)
    for vartype in ("SPIN", "BINARY"):
        for labels in ([0, 1, 2, 3], ["a", ("b", 1), 7, 2.5]):
            bqm = dimod.BinaryQuadraticModel(vartype)
            for k, label in enumerate(labels):
                bqm.add_linear(label, rng.normal())
                if k:
                    bqm.add_quadratic(labels[k - 1], label, rng.normal())
            bqm.offset = 0.25
            for version in (1, 2):
                with bqm.to_file(version=version) as file:
                    path = saved(folder, "a.bqm", file.read())
                model = read(path)
                assert list(model.labels) == labels
                states = all_states(model)
                x = states if vartype == "SPIN" else (1 + states) // 2
                energies = bqm.energies((x, labels))
                assert read_offset(path) - model.log_density(states) == pytest.approx(energies)
            write(model, folder / "b.bqm", offset=read_offset(path))
            back = dimod.BinaryQuadraticModel.from_file((folder / "b.bqm").read_bytes())
            assert back.energies((states, labels)) == pytest.approx(energies)
    model = db.Ising({(0, 1): 1e-9, (1, 2): -1 / 3}, fields=[0, 0, 0, 0.1])
    write(model, folder / "a.coo")
    back = coo.loads((folder / "a.coo").read_text())
    states = all_states(model)
    assert -back.energies((states, [0, 1, 2, 3])) == pytest.approx(model.log_density(states), abs=1e-15)
    bqm = dimod.BinaryQuadraticModel({2: 0.5, 5: -1.0}, {(2, 5): 0.25, (2, 9): 3}, 0.0, "SPIN")
    model = read(saved(folder, "a.coo", coo.dumps(bqm, vartype_header=True)))
    states = all_states(model)
    assert -model.log_density(states) == pytest.approx(bqm.energies((states, [2, 5, 9])))


# -- evidence and marginals ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", {}),
        ("0\n", {}),
        ("1 0", {}),
        ("1\n0\n", {}),
        ("2 10 0 13 1", {10: 0, 13: 1}),
        ("1\n2 10 0 13 1\n", {10: 0, 13: 1}),
        ("1 2 10 0 13 1\n", {10: 0, 13: 1}),
        ("1 35 1", {35: 1}),
        ("1\n1 35 1 ", {35: 1}),
        ("2 0 1 5 1", {0: 1, 5: 1}),
        ("2\n0 1\n5 1", {0: 1, 5: 1}),
    ],
)
def test_both_layouts_of_evidence(folder, text, expected):
    assert read_evidence(saved(folder, "a.evid", text)) == expected
    assert read_evidence(saved(folder, "a.evid.gz", gzip.compress(text.encode()))) == expected


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", None, "an empty file"),
        ("2\n0\n1 5 1\n", 1, "one sample of evidence"),
        ("2 1 0", 1, "2 pairs of a variable and its state after the number of pairs, found 2 numbers after it"),
        ("1 2 1 0", 1, "2 pairs of a variable and its state after the number of pairs, found 2 numbers"),
        ("3 1 0 2", 1, "a number k, then k pairs of a variable and its state (older files have a 1 first), found '3'"),
        ("2 1 0\n1 1", 2, "each variable once, found '1'"),
        ("1 1 -1", 1, "whole numbers, 0 or more, found '-1'"),
        ("1 1 0.0", 1, "found '0.0'"),
        ("1 a 0", 1, "a number, found 'a'"),
    ],
)
def test_evidence_that_is_none(folder, text, line, words):
    with pytest.raises(FormatError, match=re.escape(words)) as caught:
        read_evidence(saved(folder, "a.evid", text))
    assert caught.value.line == line


def test_marginals(folder):
    rng = np.random.default_rng(0)
    rows = [rng.dirichlet(np.ones(k)) for k in (2, 1, 4)]
    for name in ("a.MAR", "a.MAR.gz"):
        write_marginals(rows, folder / name)
        found = read_marginals(folder / name)
        assert all(np.array_equal(a, b) for a, b in zip(found, rows, strict=True))
    older = read_marginals(saved(folder, "a.MAR", "MAR\n1\n2 2 0.25 0.75 1 1\n"))
    assert [row.tolist() for row in older] == [[0.25, 0.75], [1.0]]
    single = read_marginals(saved(folder, "a.MAR", "MAR\n1 2 0.25 0.75"))
    assert [row.tolist() for row in single] == [[0.25, 0.75]]
    write_marginals({2: [0.5, 0.5]}, folder / "a.MAR", evidence={0: 1}, sizes=[3, 1, 2])
    assert [row.tolist() for row in read_marginals(folder / "a.MAR")] == [[0, 1, 0], [1], [0.5, 0.5]]
    for text, words in {
        "MAR 2 2 0.5 0.5": "the number of states of variable 1, and then as many numbers, found the end of the file",
        "MAR 1 2 0.5 0.4 0.1": "expected",
        "MAR 1 2 0.5 0.8": "probabilities of variable 0 that sum to 1, found the sum 1.3",
        "MAR 1 2 -0.5 1.5": "a probability, 0 or more, found '-0.5'",
        "PR 1": "MAR, found 'PR'",
    }.items():
        with pytest.raises(FormatError, match=re.escape(words)):
            read_marginals(saved(folder, "a.MAR", text))
    for bad in ([[0.5, 0.6]], [[np.nan, 1]], {1: [1.0]}, [], [[[1.0]]]):
        with pytest.raises(ArgumentError):
            write_marginals(bad, folder / "a.MAR")
    with pytest.raises(ArgumentError, match="no marginal"):
        write_marginals({0: [1.0]}, folder / "a.MAR", evidence={0: 0}, sizes=[1])


# -- what is broken ------------------------------------------------------------------------------

M = "MARKOV\n2\n2 2\n1\n2 0 1\n"
V = "network n { }\nvariable a { type discrete [ 2 ] { x, y }; }\n"
# Name: extension, content, line, words of the message.
BROKEN = {
    "empty": (".uai", " \n", None, "content, found an empty file"),
    "nothing but a comment": (".uai", "# MARKOV", 1, "MARKOV or BAYES"),
    "a mistake behind a comment": (".uai", "MARKOV # two\n1 # x\n2.0 0", 3, "found '2.0'"),
    "another preamble": (".uai", "\nMARKOW 2", 2, "MARKOV or BAYES, found 'MARKOW'"),
    "no variables": (".uai", "MARKOV 0 0", 1, "the number of variables, 1 or more, found '0'"),
    "a negative size": (".uai", "MARKOV\n2\n2 -2\n0", 3, "each 1 or more, found '-2'"),
    "a size that is no whole number": (".uai", "MARKOV 1 2.0 0", 1, "found '2.0'"),
    "truncated sizes": (".uai", "MARKOV\n3\n2 2", 3, "states of 3 variables, each 1 or more, found 2 numbers to the"),
    "truncated scopes": (".uai", "MARKOV 2 2 2 2\n2 0 1\n", 3, "the number of variables of table 1, and then"),
    "a scope over the end": (".uai", "MARKOV 2 2 2 1\n9 0 1", 2, "found '9'"),
    "an unknown variable": (".uai", "MARKOV\n2\n2 2\n1\n2 0 2\n4 1 1 1 1", 5, "a variable from 0 to 1, found '2'"),
    "a variable twice": (".uai", "MARKOV\n2\n2 2\n1\n2 1 1\n4 1 1 1 1", 5, "different variables in a scope, found '1'"),
    "a wrong table size": (".uai", M + "3 1 1 1", 6, "4, the number of entries of table 0, found '3'"),
    "a truncated table": (".uai", M + "4 1 1 1", 6, "4 entries of table 0, found 3 numbers to the end of the file"),
    "a missing table": (".uai", M, 6, "4, the number of entries of table 0, found the end of the file"),
    "trailing numbers": (".uai", M + "4 1 1 1 1\n5", 7, "the end of the file after the last table, found '5'"),
    "trailing words": (".uai", M + "4 1 1 1 1\nEND", 7, "a number, found 'END'"),
    "nan": (".uai", M + "4 1 nan 1 1", 6, "a number, found 'nan'"),
    "infinity": (".uai", M + "4 1 1e999 1 1", 6, "a number that a double can hold, found '1e999'"),
    "a positive weight that is 0": (".uai", M + "4 1 1\n1e-999 1", 7, "that a double can hold, found '1e-999'"),
    "a negative weight": (".uai", M + "4 1 1 1\n-1", 7, "a weight, 0 or more, found '-1'"),
    "zeros only": (".uai", M + "4 0 0 0 0", 6, "a weight above 0 in each table, found zeros only in table 0"),
    "an underscore": (".uai", M + "4 1 1_0 1 1", 6, "a number, found '1_0'"),
    "another alphabet": (".uai", M + "4 1 \u0663 1 1", 6, r"a number, found '\u0663'"),
    "BAYES without a table": (".uai", "BAYES 2 2 2 1 1 0 2 1 0", 1, "a table for each of 2 variables, found 1 table"),
    "BAYES with two tables": (".uai", "BAYES 2 2 2 2 1 0 1 0 2 1 0 2 1 0", 1, "found variable 0 2 times"),
    "BAYES off 1": (".uai", "BAYES\n1\n2\n1\n1 0\n2\n0.5 0.6", 7, "sum to 1 (BAYES), found the sum 1.1"),
    "BAYES in a cycle": (".uai", "BAYES 2 2 2 2\n2 1 0\n2 0 1\n4 1 0 1 0 4 1 0 1 0", 2, "no cycle, found variable 0"),
    "constants only": (".uai", "MARKOV 1 1 0", 1, "two or more states, found none"),
    "gzip by another name": (".uai", gzip.compress(b"MARKOV"), None, "a name that ends in .gz, found a gzip file"),
    "no gzip": (".uai.gz", "MARKOV", None, "a gzip file, found a damaged one (Not a gzipped file"),
    "half a gzip": (".uai.gz", gzip.compress(os.urandom(100))[:-20], None, "a whole gzip file, found one that ends"),
    "more than a gzip": (".uai.gz", gzip.compress(b"MARKOV") + b"x", None, "found a damaged one"),
    "latin-1": (".bif", b"network n {\n} // \xe9", 2, "UTF-8 text, found byte 0xe9"),
    "an unknown block": (".bif", "network n { }\nnode a { }", 2, "network, variable or probability, found 'node'"),
    "a wrong number of states": (".bif", "variable a {\ntype discrete [ 3 ] { x, y };\n}", 2, "3 states, one or more"),
    "a state twice": (".bif", "variable a { type discrete [ 2 ] { x, x }; }", 1, "states of 'a', found 'x' twice"),
    "a variable block twice": (".bif", V + "variable a { }", 3, "each variable once, found 'a'"),
    "no probabilities": (".bif", V, 3, "a table of 'a', found none"),
    "a stranger's probabilities": (".bif", V + "probability ( b ) { }", 3, "a variable that was declared"),
    "probabilities twice": (".bif", V + 2 * "probability ( a ) { table 1 0; }\n", 4, "found another one of 'a'"),
    "too few probabilities": (".bif", V + "probability ( a ) {\ntable 1.0; }", 4, "2 probabilities, found 1"),
    "negative probability": (".bif", V + "probability ( a ) { table 2, -1; }", 3, "0 or more, found '-1'"),
    "probabilities off 1": (".bif", V + "probability ( a ) { table 0.5, 0.6; }", 3, "that sum to 1, found the sum 1.1"),
    "an empty block": (".bif", V + "probability ( a ) { }", 3, "a table, found none"),
    "a missing comma": (".bif", V + "probability ( a ) { table 0.5, 0.3 0.2; }", 3, "a comma between each two"),
    "no semicolon": (".bif", V + "probability ( a ) { table 0.5, 0.5 }", 3, "probabilities and then ;, found none"),
    "its own parent": (".bif", V + "probability ( a | a ) { }", 3, "different variables, found 'a' twice"),
    "a comment without end": (".bif", V + "/* probability", 3, "comments that end, found one that does not"),
    "a quote without end": (".bif", V + 'probability ( "a ) { }', 3, "quotes and comments that are closed"),
    "an open block": (".bif", V + "probability ( a ) { table 0.5, 0.5;\n", 4, "found the end of the file"),
    "no header": (".mc", "3\n1 2 1", 1, "a line 'n m', the numbers of vertices and edges, found '3'"),
    "a negative number of edges": (".mc", "3 -1\n", 1, "the number of edges, found '-1'"),
    "too few edges": (".mc", "3 2\n1 2 1\n", 3, "a line 'i j w' for each of 2 edges, found 3 numbers to the end"),
    "too many edges": (".mc", "3 1\n1 2 1\n2 3 1\n", 3, "the end of the file after the last edge, found '2'"),
    "edges without weights": (".mc", "3 3\n1 2\n2 3\n1 3\n1 1 1", 2, "a line 'i j w' for each of 3 edges, found '1'"),
    "a vertex 0": (".mc", "3 1\n0 2 1", 2, "a vertex from 1 to 3, found '0'"),
    "a loop": (".mc", "3 1\n2 2 1", 2, "an edge between different vertices, found '2'"),
    "an edge twice": (".mc", "3 2\n1 2 1\n2 1 5", 3, "each edge once, found '2'"),
    "a huge weight": (".mc", "3 1\n1 2 1e300", None, "energies that times beta are finite, at most 1e100"),
    "no vartype": (".coo", "0 1 1", 1, "a line '# vartype=SPIN' or '# vartype=BINARY', found none"),
    "another vartype": (".coo", "# vartype=INTEGER\n0 1 1", 1, "vartype SPIN or BINARY, found 'INTEGER'"),
    "two vartypes": (".coo", "# vartype=SPIN\n# vartype=BINARY\n0 1 1", 2, "one vartype, found two different ones"),
    "no lines": (".coo", "# vartype=SPIN\n", 2, "lines 'i j bias', found the end of the file"),
    "a short line": (".coo", "# vartype=SPIN\n0 1 1\n0 2", 3, "lines 'i j bias', found '0'"),
    "a broken line": (".coo", "# vartype=SPIN\n0 1\n1\n", 2, "lines 'i j bias', found '0'"),
    "a label by name": (".coo", "# vartype=SPIN\na b 1", 2, "a number, found 'a'"),
    "a label that is no whole number": (".coo", "# vartype=SPIN\n0 1.5 1", 2, "a whole number, 0 or more, found '1.5'"),
    "another offset": (".coo", "# vartype=SPIN\n# offset=nan\n0 1 1", 2, "an offset that is a number, found 'nan'"),
    "another magic": (".bqm", "DIMODCQM" + 20 * " ", None, "the bytes DIMODBQM at the start, found 'DIMODCQM'"),
    "no zip": (".npz", "PK", None, "a zip file of arrays, found a damaged one"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_is_told_in_one_sentence(folder, name):
    extension, content, line, words = BROKEN[name]
    path = saved(folder, "broken" + extension, content)
    with pytest.raises(FormatError, match=re.escape(words)) as caught:
        read(path)
    error = caught.value
    assert error.line == line
    assert error.path == str(path)
    assert str(path) in str(error)
    assert "\n" not in str(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_what_cannot_be_read_at_all(folder):
    (folder / "folder.uai").mkdir()
    with pytest.raises(FormatError, match="expected a file, found a directory"):
        read(folder / "folder.uai")
    with pytest.raises(FormatError, match=r"one of the extensions \.uai, .* found 'model\.xyz'"):
        read("model.xyz")
    with pytest.raises(FormatError, match="read_evidence reads it"):
        read("a.uai.evid")
    with pytest.raises(FileNotFoundError):
        read(folder / "missing.uai")
    if hasattr(os, "mkfifo"):
        os.mkfifo(folder / "pipe.uai")
        with pytest.raises(FormatError, match="a device or pipe"):
            read(folder / "pipe.uai")
    saved(folder, "G1", "2 1\n1 2 1\n")
    with pytest.raises(FormatError, match="use format="):
        read(folder / "G1")
    assert read(folder / "G1", format="maxcut").n_variables == 2
    for arguments, words in (
        ({"path": 3}, "'path' .* a path"),
        ({"path": "a\0.uai"}, "'path' .* a path"),
        ({"path": "a.mc", "beta": 0}, "'beta' .* positive"),
        ({"path": "a.uai", "beta": 2.0}, "'beta' .* 1.0 for .uai files"),
        ({"path": "a.mc", "memory_limit": 0}, "'memory_limit' .* positive"),
        ({"path": "a.mc", "format": "pickle"}, "'format' .* one of"),
    ):
        with pytest.raises(ArgumentError, match=words):
            read(**arguments)
    with pytest.raises(ArgumentError, match="a file of energies"):
        read_offset("a.uai")


def test_what_cannot_be_written(folder):
    model = db.Ising({(0, 1): 1.0}, fields=[1.0, 0])
    before = saved(folder, "kept.mc", "2 1\n1 2 1\n").read_bytes()
    for arguments, words in (
        ((3, "a.npz"), "'model' .* a model"),
        ((model, "a.xml"), r"'path' .* extensions \.uai, \.bif, \.bqm"),
        ((model, "a.bif"), "a Bayesian network"),
        ((model, folder / "kept.mc"), "without fields"),
        ((model.to_factor_graph(), "a.bqm"), "an Ising model, for a .bqm file. Got FactorGraph"),
        ((db.Ising({("a", "b"): 1.0}), "a.coo"), "whole numbers, for a .coo file. Got 'a'"),
        ((db.Ising({(0, 1): 800.0}), "a.uai"), "UAI holds weights"),
    ):
        with pytest.raises(ArgumentError, match=words):
            write(*arguments)
    for keywords in ({"offset": 1.0}, {"offset": np.nan}, {"beta": 2.0}, {"beta": -1.0}):
        with pytest.raises(ArgumentError, match=r"offset|beta"):
            write(model, folder / "a.npz", **keywords)
    with pytest.raises(ArgumentError, match=r"'offset' .* max-cut"):
        write(db.Ising({(0, 1): 1.0}), folder / "a.mc", offset=1.0)
    assert (folder / "kept.mc").read_bytes() == before
    for path, kind in ((folder / "no" / "a.npz", FileNotFoundError), (folder, IsADirectoryError)):
        with pytest.raises(kind) as caught:
            write(model, path, format="npz")
        assert caught.value.filename == str(path)
    assert not list(folder.glob("*.part"))


def test_a_failed_write_leaves_the_old_file(folder, monkeypatch):
    path = folder / "kept.npz"
    write(db.Ising({(0, 1): 1.0}), path)
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left") as caught:
        write(db.Ising({(0, 1): 2.0}), path)
    assert caught.value.filename == str(path)
    assert path.read_bytes() == before
    assert not list(folder.glob("*.part"))


# -- strangers -----------------------------------------------------------------------------------


def bqm_header(**changes):
    header = {"shape": [10**12, 0], "dtype": "float64", "itype": "int32", "ntype": "int32", "vartype": "SPIN"}
    text = re.sub("'", '"', str(header | {"variables": False} | changes)).replace("False", "false").encode()
    return b"DIMODBQM\x02\x00" + len(text).to_bytes(4, "little") + text


PROMISES = {
    "many variables": (".uai", "MARKOV 999999999999 2"),
    "many tables": (".uai", "MARKOV 1 2 999999999999 1 0"),
    "a large scope": (".uai", "MARKOV 1 2 1 999999999999 0"),
    "many states": (".uai", "MARKOV 1 999999999999 0"),
    "a large table": (".uai", "MARKOV 9 " + "99999 " * 9 + "1 9 0 1 2 3 4 5 6 7 8 9 1"),
    "many vertices": (".mc", "999999999 0\n"),
    "many edges": (".mc", "3 999999999999\n1 2 1"),
    "a large network": (
        ".bif",
        "".join(f"variable v{k} {{ type discrete [ 2 ] {{ a, b }}; }}\n" for k in range(40))
        + f"probability ( v0 | {', '.join(f'v{k}' for k in range(1, 40))} ) {{ default 0.5, 0.5; }}",
    ),
    "many spins": (".bqm", bqm_header()),
    "many interactions": (".bqm", bqm_header(shape=[1, 10**12])),
    "a long header": (".bqm", b"DIMODBQM\x02\x00\xff\xff\xff\xff{"),
    "a deep header": (".bqm", b"DIMODBQM\x02\x00" + (10**5).to_bytes(4, "little") + b"[" * 10**5),
    "objects": (".bqm", bqm_header(shape=[1, 0], dtype="object")),
    "a bomb": (".uai.gz", gzip.compress(b" " * 10**8)),
}  # fmt: skip


@pytest.mark.parametrize("name", PROMISES)
def test_a_promise_allocates_nothing(folder, name):
    extension, content = PROMISES[name]
    path = saved(folder, "promise" + extension, content)
    tracemalloc.start()
    try:
        with pytest.raises(FormatError):
            read(path, memory_limit=2**22)
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()


def test_the_limit_is_one(folder):
    path = saved(folder, "a.uai", M + "4 1 1 1 1" + " " * 1000)
    assert read(path, memory_limit=2**11).n_variables == 2
    with pytest.raises(FormatError, match="at most 1000 bytes when unpacked"):
        read(path, memory_limit=1000)
    saved(folder, "b.uai.gz", gzip.compress(path.read_bytes()))
    with pytest.raises(FormatError, match="at most 1000 bytes when unpacked"):
        read(folder / "b.uai.gz", memory_limit=1000)
    write(db.Ising(np.zeros((10**4, 10**4))), folder / "a.npz")
    assert (folder / "a.npz").stat().st_size < 2000
    with pytest.raises(FormatError, match="arrays of at most 50000 bytes"):
        read(folder / "a.npz", memory_limit=50_000)


def changed_npz(model, **changes):
    """A model's file with other arrays, and the right checksums."""
    with np.load(io.BytesIO(fuzz_io.npz_bytes(model))) as stored:
        arrays = dict(stored) | changes
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as packed:
        for name, array in arrays.items():
            if array is not None:
                member = io.BytesIO()
                np.save(member, np.asarray(array))
                packed.writestr(f"{name}.npy", member.getvalue())
    return buffer.getvalue()


ISING = db.Ising({(0, 1): 1.0, (1, 2): 2.0})
POTTS = db.Potts({(0, 1): 1.0}, states=3)
PAIRWISE = db.PairwiseMRF(np.zeros((3, 2)), [(0, 1), (1, 2)], np.zeros((2, 2)))
SPINS = db.SpinMRF({(0, 1, 2): 1.0, (0, 1): 1.0})
FACTORS = db.FactorGraph([2, 2], [((0, 1), np.zeros((2, 2)))])


@pytest.mark.parametrize(
    ("model", "changes", "words"),
    [
        (ISING, {"format": None}, "the format 'dobrushin model 1' and a family, found ''"),
        (ISING, {"fields": None}, "the arrays couplings, fields, i, j, found"),
        (ISING, {"more": np.zeros(1)}, "the arrays couplings, fields, i, j, found"),
        (ISING, {"fields": np.zeros(3, dtype=np.float32)}, "'fields' to be an array of one axis"),
        (ISING, {"fields": np.zeros((3, 1))}, "'fields' to be an array of one axis"),
        (ISING, {"fields": np.zeros(0)}, "one or more variables, found none"),
        (ISING, {"fields": np.array([0, np.nan, 0])}, "at most 1e100 in size, found nan at entry 1"),
        (ISING, {"couplings": np.array([1.0, 0.0])}, "couplings other than 0, found 0.0 at entry 1"),
        (ISING, {"couplings": np.ones(3)}, "arrays i, j and couplings of equal length, found 2, 2 and 3"),
        (ISING, {"j": np.array([1, 3])}, "pairs i < j of positions from 0 to 2, found [1 3] at entry 1"),
        (ISING, {"i": np.array([0, 0]), "j": np.array([1, 1])}, "pairs in increasing order, found [0 1] at entry 0"),
        (ISING, {"labels": np.frombuffer(b'["a", "b"]', dtype=np.uint8)}, "labels of 3 variables, found 2 of them"),
        (ISING, {"labels": np.frombuffer(b'["a", "b", "a"]', dtype=np.uint8)}, "different labels, found 'a' twice"),
        (ISING, {"labels": np.frombuffer(b"[1, 2, NaN]", dtype=np.uint8)}, "JSON, found"),
        (ISING, {"labels": np.frombuffer(b"[1, 2, {}]", dtype=np.uint8)}, "labels that are strings"),
        (POTTS, {"size": np.array([2, 1])}, "two or more states, found 2 of 1"),
        (POTTS, {"size": np.array([2, 10**12])}, "states of at most 1073741824 bytes"),
        (POTTS, {"unaries": np.zeros(5)}, "6 numbers in unaries, found 5"),
        (POTTS, {"unaries": np.array([0, 0, 0] + [-np.inf] * 3)}, "above -inf for some state"),
        (PAIRWISE, {"unaries": np.array([0, 0, 0, 0] + [-np.inf] * 2)}, "a state of each variable that is allowed"),
        (PAIRWISE, {"i": np.array([0, 0]), "j": np.array([1, 1])}, "each edge once, found (0, 1) twice"),
        (PAIRWISE, {"i": np.array([0, 2])}, "edges between different variables, found [2 2] at entry 1"),
        (PAIRWISE, {"tables": np.zeros(7)}, "8 numbers in tables, found 7"),
        (SPINS, {"arity": np.array([3, 1])}, "scopes of 2 or more variables, found 1 at entry 1"),
        (SPINS, {"scope": np.array([0, 1, 2, 1, 1])}, "different variables in each scope, found variable 1 twice"),
        (SPINS, {"arity": np.array([2, 2]), "scope": np.array([0, 1, 1, 0])}, "each set of variables once"),
        (FACTORS, {"cardinalities": np.array([2, 1])}, "cardinalities of 2 or more, found 1 at entry 1"),
        (FACTORS, {"cardinalities": np.array([2, 2**60])}, "states of at most 1073741824 bytes"),
        (FACTORS, {"cardinalities": np.array([2, 3])}, "6 numbers in tables, found 4"),
        (FACTORS, {"arity": np.array([2**62])}, "variables in all scopes, found 2"),
        (FACTORS, {"scope": np.array([0, 2])}, "positions from 0 to 1, found 2 at entry 1"),
        (FACTORS, {"tables": np.full(4, np.inf)}, "or -inf (a forbidden state), found inf at entry 0"),
    ],
)  # fmt: skip
def test_arrays_that_are_no_model(folder, model, changes, words):
    assert_same(model, read(saved(folder, "a.npz", changed_npz(model))))
    with pytest.raises(FormatError, match=re.escape(words)):
        read(saved(folder, "a.npz", changed_npz(model, **changes)))


def changed_bqm(part, place, value):
    """The file of a path of three spins, with another number in it."""
    data = bytearray(fuzz_io.files.FORMATS["bqm"].write(db.Ising({(0, 1): 1.0, (1, 2): 2.0}), 1.0, 0.0))
    at = 14 + int.from_bytes(data[10:14], "little")
    start = {"offset": at, "start": at + 8, "linear": at + 12, "other": at + 44, "bias": at + 48}[part] + 12 * place
    new = np.array(value, dtype="<i4" if part in ("start", "other") else "<f8").tobytes()
    data[start : start + len(new)] = new
    return bytes(data)


@pytest.mark.parametrize(
    ("part", "place", "value", "words"),
    [
        ("offset", 0, np.nan, "finite biases, found inf or nan"),
        ("linear", 1, np.inf, "finite biases, found inf or nan"),
        ("bias", 2, np.nan, "finite biases, found inf or nan"),
        ("start", 0, 1, "lists of neighbours whose starts increase from 0"),
        ("start", 1, 9, "lists of neighbours whose starts increase from 0"),
        ("start", 2, -1, "lists of neighbours whose starts increase from 0"),
        ("start", 2, 4, "no variable to be its own neighbour, found variable 1"),
        ("other", 0, 3, "neighbours from 0 to 2, found 3"),
        ("other", 0, -1, "neighbours from 0 to 2, found -1"),
        ("other", 0, 0, "no variable to be its own neighbour, found variable 0"),
        ("other", 0, 2, "one bias at both of its ends"),
        ("bias", 0, 7.0, "one bias at both of its ends, found ends that differ"),
    ],
)
def test_numbers_that_are_no_quadratic_model(folder, part, place, value, words):
    assert read(saved(folder, "a.bqm", changed_bqm("linear", 0, 0.5))).fields.tolist() == [-0.5, 0, 0]
    with pytest.raises(FormatError, match=re.escape(words)):
        read(saved(folder, "a.bqm", changed_bqm(part, place, value)))


class Trap:
    """Says so when it is unpickled."""

    sprung = False

    def __reduce__(self):
        return setattr, (Trap, "sprung", True)


def test_nothing_is_unpickled_or_evaluated(folder):
    buffer = io.BytesIO()
    np.savez(buffer, format=np.array([Trap()], dtype=object))
    with pytest.raises(FormatError, match="one axis of float64, int64 or uint8"):
        read(saved(folder, "a.npz", buffer.getvalue()))
    with pytest.raises(FormatError):
        read(saved(folder, "a.bqm", pickle.dumps(Trap())))
    assert not Trap.sprung
    write(db.Ising({(0, 1): 1.0}), folder / "a.npz")
    data = (folder / "a.npz").read_bytes()
    for changed in (b"x" + data, data + b"x", data[:-1], data + data):
        with pytest.raises(FormatError):
            read(saved(folder, "b.npz", changed))
    with zipfile.ZipFile(folder / "a.npz", "a") as packed:
        packed.writestr("more.npy", b"")
    with pytest.raises(FormatError):
        read(folder / "a.npz")


def test_a_bad_file_is_not_slow(folder):
    """What could take time that grows with the square of the length."""
    many = 200_000
    texts = {
        ".bif": ["/* " * many, '" ' * many, "variable a { " + "property x ; " * many, "// \n" * many],
        ".uai": ["MARKOV " + f"{many} " + "2 " * many + "0.5", "MARKOV 1 2 " + f"{many} " + "0 " * many],
        ".coo": ["# vartype=SPIN\n" * many, "# vartype=SPIN\n" + "0 1\n" * many, "#" * many, "# vartype" * many],
        ".mc": ["1" * many + "x", "1" * many + "-", "0." + "0" * many + "1", "." * many, "1 " * many],
    }
    texts[".coo"] += ["# offset=" + " " * many + "x", "#" + " " * many + "vartype"]
    names = ", ".join(f"v{k}" for k in range(many))
    texts[".bif"].append(f"variable a {{ type discrete [ {many + 1} ] {{ {names}, v{many - 1} }}; }}")
    for extension, contents in texts.items():
        for content in contents:
            with fuzz_io.time_limit(fuzz_io.SECONDS), pytest.raises(FormatError):
                read(saved(folder, "slow" + extension, content))


@pytest.mark.parametrize("kind", fuzz_io.EXTENSIONS)
def test_broken_files_are_read_right_or_refused(folder, kind):
    seeds = fuzz_io.seeds(kind)
    verdicts = set()
    for k in range(400):
        data, extension, must_fail = fuzz_io.case(kind, 0, k, seeds)
        verdict = fuzz_io.judge(kind, data, f"{folder}/case{extension}", must_fail)
        assert verdict in ("read", "refused"), f"case {k}: {verdict}"
        verdicts.add(verdict)
    assert verdicts == {"read", "refused"}


def test_the_judge_sees_what_is_wrong(folder, monkeypatch):
    path = f"{folder}/case.uai"
    good = fuzz_io.MAKERS["uai"](fuzz_io.random.Random(1))
    assert fuzz_io.judge("uai", good, path) == "read"
    assert "missing" in fuzz_io.judge("uai", good, path, must_fail=True)

    def careless(path, memory_limit):
        model = read(path, memory_limit=memory_limit)
        factors = [model.factor(k) for k in range(model.n_factors - 1)]
        return db.FactorGraph(model.cardinalities, factors, model.labels)

    monkeypatch.setattr(fuzz_io.files, "read", careless)
    assert "something else" in fuzz_io.judge("uai", good, path)
    monkeypatch.setattr(fuzz_io.files, "read", lambda *_, **__: 1 / 0)
    assert "ZeroDivisionError" in fuzz_io.judge("uai", good, path)


# -- real files ----------------------------------------------------------------------------------


@pytest.mark.slow
@needs_data
def test_all_real_files_are_read():
    root = Path(DATA)
    counts = {"uai/*.uai": 39, "bif/*.bif.gz": 24, "ising/*.bqm": 1, "ising/gset/*": 10}
    for pattern, least in counts.items():
        paths = sorted(root.glob(pattern))
        assert len(paths) >= least
        for path in paths:
            assert read(path).n_variables >= 2, path
    for path in sorted(root.glob("uai/*.uai")):
        sizes = read_sizes(path)
        assert [len(row) for row in read_marginals(f"{path}.MAR")] == sizes.tolist()
        for variable, state in read_evidence(f"{path}.evid").items():
            assert state < sizes[variable]


@needs_data
@pytest.mark.parametrize("name", ["Grids_11", "Segmentation_11", "Promedus_30", "Pedigree_11"])
def test_marginals_of_real_files_agree_with_their_references(name):
    path = Path(DATA) / "uai" / f"{name}.uai"
    evidence = read_evidence(f"{path}.evid")
    model = read(path).condition(evidence)
    found = dict(zip(model.labels, db.exact.marginals(model), strict=True))
    for variable, expected in enumerate(read_marginals(f"{path}.MAR")):
        if variable in evidence:
            assert expected[evidence[variable]] == 1
        else:
            assert found[variable] == pytest.approx(expected, abs=1e-10)


@needs_data
@pytest.mark.parametrize("name", ["asia", "cancer", "survey", "earthquake", "sachs"])
def test_real_networks_are_normalised(name):
    model = read(Path(DATA) / "bif" / f"{name}.bif.gz")
    assert db.exact.log_partition(model) == pytest.approx(0, abs=1e-3)


@needs_data
def test_real_files_are_written_and_read_again(folder):
    for path in ("uai/Pedigree_11.uai", "uai/linkage_14.uai", "bif/hepar2.bif.gz", "ising/gset/G11.txt"):
        model = read(Path(DATA) / path)
        write(model, folder / "a.npz")
        assert_same(model, read(folder / "a.npz"))
        name = folder / ("a.mc" if path.startswith("ising") else "a.uai")
        write(model, name)
        again = read(name)
        assert again.n_variables == model.n_variables
        if isinstance(model, db.FactorGraph):
            assert np.array_equal(again._form.table, model._form.table)
    bits = read(Path(DATA) / "ising/5x5_v1.bqm")
    x = (1 + all_states(bits)) // 2
    weights = np.array([[0, 1, 2, 3, 4], [0, 0, 7, 8, 9], [0, 0, 0, 13, 14], [0, 0, 0, 0, 19], [0] * 5])
    energies = x @ [0, 6, 12, 18, 24] + np.einsum("si,ij,sj->s", x, weights, x)
    offset = read_offset(Path(DATA) / "ising/5x5_v1.bqm")
    assert offset - bits.log_density(all_states(bits)) == pytest.approx(energies)


def test_the_docs_list_the_formats_of_the_registry():
    page = (Path(__file__).parents[1] / "docs" / "formats.md").read_text(encoding="utf-8")
    rows = ["| " + " | ".join(row) + " |" for row in formats.table()]
    assert "\n".join(rows) in page
    for extensions, *_ in formats.table():
        assert f"* {extensions}: " in db.read.__doc__


def test_packed_and_capital_names_of_our_own_files_are_read(folder):
    model = db.Ising({("a", "b"): 0.3})
    for name in ("a.npz.gz", "A.NPZ", "b.NPZ.GZ"):
        write(model, folder / name)
        assert read(folder / name) == model


def test_comments_may_hold_any_bytes(folder):
    path = saved(folder, "a.uai", "# \u00e9\nMARKOV 1 2 1 1 0 2 1 3 # \u00ff\n".encode("latin-1"))
    assert read(path).n_variables == 1
    path = saved(folder, "a.coo", "# vartype=SPIN \u00e9\n0 1 0.5\n".encode("latin-1"))
    assert read(path).n_variables == 2


def test_many_short_numbers_are_charged_before_they_are_read(folder):
    path = saved(folder, "a.uai.gz", gzip.compress(b"MARKOV " + b"1 " * 10**6))
    with pytest.raises(FormatError, match="numbers of at most 10000000 bytes"):
        read(path, memory_limit=10**7)
