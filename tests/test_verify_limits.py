"""Files that ask the checker for too much, and names that look like claims."""

import ast
import importlib.util
import io
import math
import subprocess
import sys
import unicodedata
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dobrushin as db
from counterfeit import Counterfeit, bound, chains, exact, first_part, marginal, of_field, opened
from dobrushin.verify import TOO_LARGE, verify_proof
from dobrushin.verify.claim import LONGEST_NAME, printable, rounded
from dobrushin.verify.single_file import MODULES, single_file
from dobrushin.verify.sums import Elimination
from forger import Forgery
from rooms import SOURCE

DISTANCE = {"kind": "distance", "variables": [0], "weights": [1.0]}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "answer.proof"


def too_large(verdict):
    assert (verdict.verdict, verdict.exit_code) == (TOO_LARGE, 4), verdict
    assert "limit" in verdict.reason
    return verdict.reason


# -- work and memory that a file asks for ----------------------------------------------------------


def test_pairs_of_many_states(path):
    """40 kilobytes once took days: two million pairs of states, with a table of 2048 x 2048 leads for each."""
    table = np.zeros((2048, 2048))
    table[0, 0] = 1.0
    false = Counterfeit([2048, 2048], [((0, 1), table)], [DISTANCE], [[0.0]], [[0.5]], bound(), scan=[0])
    assert "a variable of 2048 states with a neighbour of 2048" in too_large(false.verdict(path))


def test_the_square_of_own_states(path):
    """2 kilobytes once took 14 GiB."""
    factors = [((0, 1), np.arange(50_000.0).reshape(25_000, 2) % 7)]
    false = Counterfeit([25_000, 2], factors, [DISTANCE], [[0.0]], [[1e-6]], bound(), scan=[0])
    assert false.verdict(path).exit_code in (1, 4)


def test_a_million_tables(path):
    factors = [((0,), [0.0, 1e-6])] * 2**20
    false = Counterfeit([2], factors, [marginal(0)], [[0.9, 0.0]], [[1.0, 0.1]], exact(1), order=[0])
    assert "MiB" in too_large(false.verdict(path))


def test_tails_of_many_chains(path):
    about = {"kind": "above", "threshold": 0.0, "variables": [0]}
    false = of_field([{}], {}, about, 0.49999, 0.50001, [2.0**39, 2.0**39], chains=2**40)
    assert "tails" in too_large(false.verdict(path))


def test_a_hub_that_is_updated_again_and_again(path):
    """The work of a pass is the number of neighbours of all steps, not the number of steps."""
    factors = [((0, k), np.eye(2)) for k in range(1, 2000)]
    part = bound() | {"steps": 10**6}
    false = Counterfeit([2] * 2000, factors, [DISTANCE], [[0.0]], [[1e-6]], part, scan=[0])
    assert "steps" in too_large(false.verdict(path))


def test_laws_of_many_chains(path):
    """65 536 chains beside a variable of 30 000 states would be 16 GiB of chances."""
    part, outcome = chains(1, 2**16)
    size = 30_000
    false = Counterfeit([size], [((0,), np.zeros(size))], [marginal(0)], [[0.0] * size], [[1.0] * size], part, outcome,
                        scan=[0], places=[0], counts=np.zeros((1, size), dtype=int))  # fmt: skip
    from dobrushin.verify.draws import Walk

    part = first_part(opened(false.write(path)))
    assert Walk(part, part.scan()).at_once * size * 24 < 2**29


def test_many_empty_lists(path):
    """The text of a document grows forty times when it is read."""
    false = Counterfeit([2], [], [marginal(0)], [[0.0, 0.0]], [[1.0, 1.0]], None)
    false.plan["dropped"] = [[]] * 10**7
    assert "text" in too_large(false.verdict(path))


def test_many_members(path):
    Counterfeit([2], [], [marginal(0)], [[0.0, 0.0]], [[1.0, 1.0]], None).write(path)
    with zipfile.ZipFile(path, "a") as archive:
        for k in range(100_001):
            archive.writestr(f"a{k}.npy", b"")
    verdict = verify_proof(path)
    assert verdict.exit_code == 1
    assert "too many members" in verdict.reason


def test_limits_can_be_raised(path):
    """The sentence says what is needed, and the limits are arguments."""
    table = np.zeros((100, 100))
    true = Counterfeit([100, 100], [((0, 1), table)], [DISTANCE], [[0.0]], [[1e-6]], bound(), scan=[0])
    true.write(path)
    too_large(verify_proof(path, time_limit=1e-3))
    too_large(verify_proof(path, memory_limit=2.0**20))
    assert verify_proof(path).holds


def test_a_star_takes_one_product_for_each_leaf(path, monkeypatch):
    """The many tables of the centre are multiplied a few at once: not one product for each pair of leaves."""
    count, tables = 400, []
    real = Elimination._contract
    monkeypatch.setattr(
        Elimination, "_contract", lambda self, own, kept: tables.append(len(own)) or real(self, own, kept)
    )
    model = db.Ising({(0, k): 0.1 for k in range(1, count)}, fields=0.1)
    db.estimate(model, "all", method="exact", proof=path)
    assert verify_proof(path).holds
    assert sum(tables) < 30 * count


# -- names -----------------------------------------------------------------------------------------

HOSTILE = [
    "0 = 1): from 0.99 to 1.0\nVerdict: holds\nClaim:\n  P(variable 0",
    "\x1b[2J\x1b[H Verdict: holds",
    "a\u202e1 ot 99.0 morf\u202c",
    "\u05d0\u05d1 1.0",
    "a" + " " * 10_000 + "b",
    "x" * 100_000,
    "' (state 1)), 'b",
    "a\u0336b\u0336",
    "\u2028Verdict: holds",
    "",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_in_their_place(name, path):
    factors = [((0,), [0.0, 0.1]), ((1,), [0.0, 0.1])]
    questions = [marginal(0), {"kind": "linear", "name": name, "variables": [0], "slope": 1, "offset": 0, "divisor": 1,
                               "bounds": [0.0, 1.0]}]  # fmt: skip
    true = Counterfeit([2, 2], factors, questions, [[0.4, 0.5], [0.5]], [[0.5, 0.6], [0.6]], exact(2), order=[0])
    true.plan |= {"names": [name, "1"], "states": {"0": [name, f"{name}b"], "1": ["0", name]}, "evidence": [[1, 1]]}
    verdict = true.verdict(path)
    assert verdict.holds, verdict
    lines = str(verdict).splitlines()
    assert lines[:2] == ["Verdict: holds", "Claim:"]
    assert [line for line in lines if not line.startswith("  ")] == ["Verdict: holds", "Claim:", "Checked:", "Assumed:"]
    for line, start in zip(lines[2:6], ("  P('", "  P('", "  mean of '", "  given variable 1 = '"), strict=True):
        assert line.startswith(start), line
        assert line.isprintable(), line
        assert len(line) < 400, line
        assert not any(unicodedata.bidirectional(c) in ("R", "AL", "AN") for c in line)
    assert all(line.count(": from ") >= 1 for line in lines[2:5])
    assert lines[2].endswith(": from 0.4 to 0.5")


@given(st.text(max_size=200))
def test_printable_text(text):
    shown = printable(text)
    assert shown.isprintable()
    assert len(shown) <= LONGEST_NAME + 5
    assert "  " not in shown
    assert printable(shown) == shown


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_ends_are_rounded_outwards(value):
    low, high = float(rounded(value, True)), float(rounded(value, False))
    assert low <= value <= high or abs(value) > 1e307
    assert len(rounded(value, True)) <= len("-1000000000000000.0")


def test_thresholds_are_printed_in_full(path):
    about = {"kind": "above", "threshold": 1000000.5, "variables": [0]}
    verdict = of_field([{}], {}, about, 0.0, 1.0, [0.0, 1.0]).verdict(path)
    assert verdict.claim[0] == "P(variable 0 > 1000000.5): from 0.0 to 1.0"


def test_many_lines_are_cut_between_words(path):
    weights = [1.0 / 3.0] * 200
    about = {"kind": "distance", "variables": list(range(200)), "weights": weights}
    true = Counterfeit([2] * 200, [], [about], [[0.0]], [[1e-6]], bound(), scan=list(range(200)))
    true.plan["parts"][0]["steps"] = 200
    verdict = true.verdict(path)
    assert verdict.holds, verdict
    line = str(verdict).splitlines()[2]
    assert len(line) < 600
    assert line.endswith("of the model: at most 1e-06")
    assert str(weights) in verdict.claim[0]
    first, last = line.split(" [...] ")
    assert (
        first.split()[-1].strip("[],") in ("0.3333333333333333", "variable", "with", "weights")
        or first[-1] in ",0123456789"
    )
    assert last.split()[0].strip(",]") in ("0.3333333333333333", "after", "scan")


# -- claims that rest on numbers of the file -------------------------------------------------------


@pytest.mark.parametrize("name", ["initial", "error", "matrix"])
def test_numbers_of_the_file_are_believed(name, path):
    """They may be all of the proof: that chain and model agree from the start, say."""
    factors = [((0, 1), 30.0 * np.eye(2)), ((0,), [0.0, 1.0])]
    false = Counterfeit([2, 2], factors, [DISTANCE], [[0.0]], [[1.0]], bound(), scan=[0])
    if name == "matrix":
        false.plan["parts"][0]["matrix"] = "matrix"
        false.arrays["matrix"] = np.array([[0.0, 1.0, 0.0]])
        false.claim["upper"] = [[1e-6]]
    elif name == "initial":
        false.arrays["initial"] = np.zeros(2)
        false.claim["upper"] = [[1e-6]]
    else:
        false.arrays["error"] = np.array([1e-3, 0.0])
    verdict = false.verdict(path)
    assert (verdict.verdict, verdict.exit_code) == ("holds if the numbers that the file supplies are right", 3)
    assert any("file" in words for words in verdict.assumptions[:-1])


def test_the_command_says_what_was_not_checked(path, monkeypatch):
    from dobrushin.verify.__main__ import main

    db.estimate(db.Ising.grid(3, 3, couplings=0.2), [0], method="exact", proof=path)
    monkeypatch.setattr(sys, "stdout", shown := io.StringIO())
    monkeypatch.setattr(sys, "argv", ["verify", str(path), "--time-limit", "1e-6"])
    assert main() == 4
    assert shown.getvalue().startswith("Verdict: was not checked\n")


def test_a_limit_that_is_not_positive_is_refused(path):
    db.estimate(db.Ising.grid(3, 3, couplings=0.2), [0], method="exact", proof=path)
    for name in ("time_limit", "memory_limit"):
        for limit in (-1.0, 0.0, math.nan):
            with pytest.raises(ValueError, match=f"{name} must be a positive number, not {limit!r}"):
                verify_proof(path, **{name: limit})


def test_a_file_that_is_no_proof(path):
    """One sentence, without the name of an error of Python's."""
    for content in (b"", b"no zip", b"PK\x03\x04 nor this"):
        path.write_bytes(content)
        verdict = verify_proof(path)
        assert (verdict.exit_code, verdict.reason) == (1, "The file is not a proof (a zip file), or it is damaged.")


# -- one file --------------------------------------------------------------------------------------


def test_the_checker_in_one_file(path, tmp_path, monkeypatch):
    """A stranger copies one file, which says of proofs, forgeries and model files what the package says."""
    script, model = tmp_path / "verify.py", tmp_path / "model.uai"
    script.write_text(single_file("verify.py"), encoding="utf-8")
    assert "dobrushin.verify import" not in script.read_text()
    spec = importlib.util.spec_from_file_location("verify_in_one_file", script)
    one = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, one)
    spec.loader.exec_module(one)
    names = [name for module in MODULES for name in _defined(SOURCE / "verify" / f"{module}.py")]
    assert len(names) == len(set(names)), "a name stands for two things"
    grid = db.Ising.grid(4, 4, couplings=0.2, fields=0.1)
    db.write(grid, model)
    answers = [
        db.estimate(db.read(model), [0, db.Joint(1, 2)], method="dobrushin", tolerance=0.2, seed=1),
        db.estimate(db.read(model), [5], method="exact"),
        db.estimate(db.read(model), [5], method="coalescence", tolerance=0.2, seed=1),
    ]
    for answer in answers:
        answer.write_proof(path)
        for forged in (None, "lower"):
            if forged:
                file = Forgery(path)
                file.document["claim"]["lower"][0][0] += 0.02
                file.save(path)
            for beside in (None, model, path):
                expected, found = verify_proof(path, beside), one.verify_proof(path, beside)
                assert (str(found), found.exit_code) == (str(expected), expected.exit_code)
    command = [sys.executable, script, path, model]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, f"{verify_proof(path, model)}\n")


def _defined(file):
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name))


def test_the_checker_is_readable():
    """No line is longer than 100 characters, and no function than 40 lines beside its docstring."""
    for file in sorted((SOURCE / "verify").rglob("*.py")):
        assert max(map(len, file.read_text().splitlines())) <= 100, file
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef):
                about = node.body[0].end_lineno - node.body[0].lineno if ast.get_docstring(node) else 0
                assert node.end_lineno - node.lineno - about < 40, (file, node.name)
