"""The command line: every verb, every exit code, every error as one sentence."""

import errno
import gzip
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
from typer.testing import CliRunner

import dobrushin as db
from dobrushin.cli.app import app

VERBS = [
    "estimate",
    "inspect",
    "influence",
    "certify",
    "optimize",
    "sample",
    "fit",
    "convert",
    "warmup",
    "reproduce",
    "verify",
]


def call(*words):
    """Exit code, stdout and stderr of a command."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def grid(tmp_path):
    path = tmp_path / "grid.npz"
    db.write(db.Ising.grid(4, 4, couplings=0.2), path)
    return path


@pytest.fixture
def strong(tmp_path):
    path = tmp_path / "strong.npz"
    frustrated, fields = np.resize([1.0, 1.0, -1.0], 3200), np.resize([0.01, 0.0, -0.01], (40, 40))
    db.write(db.Ising.grid(40, 40, couplings=frustrated, fields=fields, periodic=True), path)
    return path


NETWORK = """network weather { }
variable rain { type discrete [ 2 ] { no, yes }; }
variable grass { type discrete [ 3 ] { dry, damp, wet }; }
probability ( rain ) { table 0.8, 0.2; }
probability ( grass | rain ) { (no) 0.7, 0.2, 0.1; (yes) 0.1, 0.2, 0.7; }
"""


@pytest.fixture
def network(tmp_path):
    path = tmp_path / "weather.bif"
    path.write_text(NETWORK)
    return path


# -- what it does --------------------------------------------------------------------------------------------------


def test_estimate_answers_in_words_json_and_files(grid, tmp_path):
    code, out, _ = call("estimate", grid, "--target", "3,7", "--tolerance", "0.05", "--seed", 1)
    assert code == 0
    assert out.startswith("4 probabilities, exact to 1e-12")
    assert "This rests on:" in out
    for suffix in ("json", "csv", "mar"):
        output = tmp_path / f"answer.{suffix}"
        code, out, _ = call("estimate", grid, "--tolerance", 0.05, "--output", output, "--quiet")
        assert (code, out) == (0, "")
        assert output.stat().st_size > 100
    exact = db.exact.marginals(db.read(grid))
    np.testing.assert_allclose(np.stack(db.io.read_marginals(tmp_path / "answer.mar")), np.stack(exact), atol=0.05)
    arguments = ["estimate", grid, "--target", 3, "--evidence", "5=1", "--method", "dobrushin", "--seed", 1, "--json"]
    code, out, _ = call(*arguments)
    found = json.loads(out)
    assert code == 0
    assert [row["state"] for row in found["rows"]] == [-1, 1]
    expected = db.estimate(db.read(grid), [3], evidence={5: 1}, method="dobrushin", seed=1)
    assert found["rows"][0]["value"] == expected.value[0]
    assert json.loads(call(*arguments)[1]) == found


def test_estimate_without_a_file_runs_the_example():
    code, out, _ = call("estimate", "--seed", 1)
    assert code == 0
    assert "million spins" in out
    assert "P(0 = 1 | 1 = 1) = 0.5" in out
    assert "P(0 = 1 | 1 = 1) = 0.50" not in out  # more than symmetry gives
    assert "for certain; proved, not diagnosed" in out


def test_the_plan_can_be_seen_first(grid):
    code, out, _ = call("estimate", grid, "--target", 0, "--method", "dobrushin", "--plan")
    assert code == 0
    assert out.startswith("Plan: dobrushin")


def test_names_of_variables_and_states(network, tmp_path):
    code, out, _ = call("estimate", network, "--target", "grass", "--evidence", "rain=yes")
    assert code == 0
    assert "wet" in out
    assert "0.7" in out
    packed = tmp_path / "packed.bif.gz"
    packed.write_bytes(gzip.compress(NETWORK.encode()))
    assert json.loads(call("estimate", packed, "--target", "rain", "--evidence", "grass=2", "--json")[1])["rows"]
    for words, message in (
        (("--evidence", "rain=maybe"), "one of the states 'no', 'yes' of 'rain'. Got 'maybe'"),
        (("--evidence", "snow=yes"), "Got 'snow'"),
        (("--evidence", "rain=yes,rain=no"), "once"),
        (("--evidence", "rain"), "label=state"),
        (("--evidence", "rain=yes:0.7,no:0.3"), "or label=state:likelihood/state:likelihood. Got 'no:0.3'"),
        (("--target", "gras"), "(the nearest: 'grass'). Got 'gras'"),
    ):
        code, _, error = call("estimate", network, *words)
        assert code == 2
        assert message in error


def test_joint_targets_and_those_of_fields(network, tmp_path):
    """As everywhere, a name that contains a sign is itself, if the model has it."""
    code, out, _ = call("estimate", network, "--target", "rain & grass", "--target", "rain", "--json")
    rows = json.loads(out)["rows"]
    assert (code, len(rows)) == (0, 8)
    assert (rows[5]["target"], rows[5]["state"]) == (["rain", "grass"], ["yes", "wet"])
    assert rows[5]["value"] == pytest.approx(0.14)
    assert "Got 'snow'" in call("estimate", network, "--target", "rain & snow")[2]
    assert "Got 'rain & grass'" in call("certify", network, "--target", "rain & grass")[2]
    db.write(db.Ising({("a", "b"): 0.5, ("b", "a & b"): 0.5}), tmp_path / "named.npz")
    for label, is_joint in (("a & b", False), ("b & a", True)):
        found = json.loads(call("estimate", tmp_path / "named.npz", "--target", label, "--json")[1])["rows"]
        assert isinstance(found[0]["target"], list) is is_joint
    db.write(db.GaussianField([[2.0, 0.5], [0.5, 2.0]], labels=["a", "b"]), tmp_path / "field.npz")
    words = ("estimate", tmp_path / "field.npz", "--tolerance", 0.1, "--json", "--target")
    rows = json.loads(call(*words, "a>0.5, b@0.9, a")[1])["rows"]
    assert [row["target"] for row in rows] == ["a > 0.5", "0.9 quantile of b", "a"]
    assert "must be means, Exceeds" in call(*words, "a & b")[2]
    assert "label>number or label@level" in call(*words, "a>x")[2]


def test_marginals_beside_likelihoods(network, tmp_path):
    output = tmp_path / "soft.mar"
    assert call("estimate", network, "--evidence", "rain=yes:0.7/no:0.2", "--output", output)[0] == 0
    rain, grass = db.io.read_marginals(output)
    assert rain.tolist() == pytest.approx([0.16 / 0.3, 0.14 / 0.3])
    assert grass.sum() == pytest.approx(1)


def test_proofs_with_likelihoods_and_files_that_cannot_be_compared(network, tmp_path):
    proof, given = tmp_path / "soft.proof", tmp_path / "given.npz"
    ask = ("estimate", network, "--target", "grass", "--proof", proof, "--evidence")
    assert "likelihoods are factors" not in call(*ask, "rain=yes")[1]
    assert "likelihoods are factors" in call(*ask, "rain=yes:0.7/no:0.2")[1]
    db.write(db.read(network).condition({"rain": {"yes": 0.7, "no": 0.2}}), given)
    assert call("verify", proof, given)[0] == 0
    code, text, _ = call("verify", proof, network)
    assert (code, "has another factor" in text) == (1, True)
    given.rename(given := tmp_path / "given.net")
    code, text, _ = call("verify", proof, given)
    assert (code, text.splitlines()[0]) == (4, "Verdict: could not be compared with the model file")


def test_limits_of_a_check_are_positive(network, tmp_path):
    proof = tmp_path / "rain.proof"
    call("estimate", network, "--target", "rain", "--proof", proof)
    for option, unit in (("--time-limit", "seconds"), ("--memory-limit", "bytes")):
        code, _, error = call("verify", proof, option, "-1")
        assert (code, error) == (2, f"Error: {option} must be a positive number of {unit}. Got -1.\n")


def test_what_was_reached_has_its_proof_too(strong, tmp_path):
    proof = tmp_path / "a.proof"
    words = ("--target", "0", "--evidence", "1=1", "--method", "local", "--tolerance", "1e-4", "--proof", proof)
    code, text, _ = call("estimate", strong, *words)
    assert code == 3
    assert "not reached" in text
    assert f"Wrote {proof}" in text.replace("\n", "")
    code, text, _ = call("verify", proof, strong)
    assert (code, text.splitlines()[0]) == (0, "Verdict: holds")
    proof.unlink()
    code, _, error = call(
        "estimate", strong, "--target", "0", "--method", "coalescence", "--time-limit", "0.1", "--proof", proof
    )
    assert "No proof was written: all intervals are vacuous." in error
    assert not proof.exists()


def test_uai_files_with_evidence(tmp_path):
    path = tmp_path / "three.uai"
    path.write_text("MARKOV\n3\n2 1 2\n2\n2 0 2\n1 1\n4 1 2 3 4\n1 5\n")
    (tmp_path / "e.evid").write_text("2 0 1 1 0\n")
    output = tmp_path / "out.mar"
    code, _, error = call("estimate", path, "--evidence", tmp_path / "e.evid", "--output", output, "-q")
    assert (code, error) == (0, "")
    marginals = db.io.read_marginals(output)
    np.testing.assert_allclose(marginals[2], [3 / 7, 4 / 7])
    assert marginals[0].tolist() == [0, 1]
    code, _, error = call("estimate", path, "--target", 0, "--output", output)
    assert code == 2
    assert "estimate all variables. 2 is missing" in error


@pytest.mark.slow
def test_inspect_influence_certify_optimize_sample(grid, strong, tmp_path):
    code, out, _ = call("inspect", grid)
    assert code == 0
    assert "Dobrushin's condition holds" in out
    assert json.loads(call("inspect", grid, "--json")[1])["n_variables"] == 16
    code, out, _ = call("influence", grid, "--top", 3, "--method", "paper")
    assert code == 0
    assert "spectral radius" in out
    assert json.loads(call("influence", grid, "--json")[1])["satisfies_dobrushin"] is True
    code, out, _ = call("certify", grid, "--scan", "systematic", "--steps", 2000, "--target", 0)
    assert code == 0
    assert "Variation(" in out
    code, out, _ = call("certify", grid, "--coalescence", "--runs", 500, "--target", 0, "--seed", 1, "--json")
    found = json.loads(out)
    assert (code, found["confidence"], found["kind"]) == (0, 0.999, "coalescence")
    assert call("certify", strong, "--steps", 16000)[0] == 3
    picture, saved = tmp_path / "bound.png", tmp_path / "scan.npz"
    code, out, _ = call("optimize", grid, "--target", 0, "--steps", 64, "--save", saved, "--plot", picture)
    assert code == 0
    assert "iterated DoGS" in out
    assert picture.stat().st_size > 1000
    assert call("certify", grid, "--scan", saved, "--target", 0)[0] == 0
    code, out, _ = call("optimize", grid, "--target", 0, "--tolerance", 0.01)
    assert code == 0
    assert "shortest" in out
    states = tmp_path / "states.npz"
    code, out, _ = call(
        "sample", grid, "--chains", 100, "--steps", 160, "--target", "0,5", "--output", states, "--seed", 1
    )
    assert code == 0
    assert "without any bound" in out
    assert db.Samples.load(states).states.shape == (100, 2)
    assert call("sample", grid, "--chains", 10, "--output", tmp_path / "states.csv", "--scan", "uniform", "-q")[0] == 0
    assert json.loads(call("sample", grid, "--chains", 10, "--json")[1])["certified"] is False
    assert call("optimize", "--steps", 2000, "--json")[0] == 0


def test_fit_from_a_table(grid, tmp_path):
    model = db.read(grid)
    data = db.sample(model, db.Scan.systematic(16, 320), chains=500, seed=1)
    data.to_dataframe().to_csv(tmp_path / "data.csv", index=False)
    np.save(tmp_path / "data.npy", data.states)
    output = tmp_path / "fitted.npz"
    for name in ("data.csv", "data.npy"):
        words = (
            "fit",
            grid,
            tmp_path / name,
            "--iterations",
            3,
            "--chains",
            200,
            "--seed",
            1,
            "--output",
            output,
            "--json",
        )
        code, out, error = call(*words)
        assert (code, error) == (0, "")
        assert json.loads(out)["bias_bound"] <= 0.02
        assert db.read(output).n_variables == 16
    code, _, error = call("fit", grid, tmp_path / "data.txt")
    assert (code, one_sentence(error)) == (2, True)
    np.save(tmp_path / "bad.npy", np.zeros((5, 3)))
    code, _, error = call("fit", grid, tmp_path / "bad.npy")
    assert code == 2
    assert "DATA must be" in error
    code, _, error = call("fit", grid, tmp_path / "data.npy", "--ridge", "-1")
    assert code == 2
    assert "--ridge must be non-negative and finite. Got -1.0." in error


def test_fit_of_a_network_with_gaps(tmp_path):
    """Names of states that pandas would take for a truth value or for a gap."""
    start = db.fit([(0, 1)], [[0, 1], [1, 0]], family="bayesian").model
    tables = [start.factor(k) for k in range(2)]
    names = {"a": ("TRUE", "FALSE"), "b": ("None", "some")}
    db.write(
        db.FactorGraph([2, 2], [(s, np.full(t.shape, -np.log(2))) for s, t in tables], ["a", "b"], state_names=names),
        tmp_path / "net.bif",
    )
    (tmp_path / "data.csv").write_text("b,a\nNone,TRUE\n,FALSE\nsome,FALSE\nNone,\n")
    output = tmp_path / "learned.bif"
    code, out, error = call(
        "fit", tmp_path / "net.bif", tmp_path / "data.csv", "--method", "em", "--output", output, "--json"
    )
    assert (code, error) == (0, "")
    assert json.loads(out)["certified"]
    assert db.exact.marginals(db.read(output))[0][0] == pytest.approx(0.5, abs=0.2)


def test_convert_and_back(grid, tmp_path):
    for name in ("model.coo", "model.bqm", "model.uai", "model.uai.gz"):
        code, out, error = call("convert", grid, tmp_path / name)
        assert (code, error) == (0, "")
        assert "Wrote" in out
        assert call("convert", tmp_path / name, tmp_path / "back.npz", "-q")[0] == 0
        assert db.read(tmp_path / "back.npz").n_variables == 16


@pytest.mark.slow
def test_warmup_compiles_and_checks():
    code, out, _ = call("warmup")
    assert code == 0
    assert "Compiled everything" in out


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_with_an_example(verb):
    code, out, _ = call(verb, "--help")
    assert code == 0
    assert f"Example: dobrushin {verb}" in " ".join(out.split())
    assert not re.search(r"list\[|TEXT|TYPE|{[a-z]", out)  # values are named in words


def test_help_names_all_formats_and_waits_for_no_library():
    code = "import sys, dobrushin.cli.app; print([m for m in ('numba', 'scipy', 'numpy') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
    for entry in db.io.FORMATS.values():
        assert all(extension in call("convert", "--help")[1] for extension in entry.extensions)


# -- what goes wrong -----------------------------------------------------------------------------------------------


def one_sentence(error):
    return error.startswith("Error: ") and error.count("\n") == 1 and "Traceback" not in error


def speaks_of_options(error):
    """Python's arguments and the attributes of errors are none of the command line's business."""
    for python in ("argument of", "dobrushin.", "attribute", "attached", "of this error", "=error.", "model.merge"):
        assert python not in error, error
    assert not re.search(r"\b(tolerance|evidence|method|limit|format|max_steps)=", error), error


def test_errors_with_results_name_options_and_no_attributes(grid, strong, monkeypatch):
    code, _, error = call("estimate", strong, "--target", "0,1", "--method", "coalescence", "--budget", "2e5")
    assert code == 3
    speaks_of_options(error)
    scan = db.ScanResult(db.Scan([0]), db.variation(db.read(grid), db.Scan([0]), [0]))
    for trouble, number in (
        (db.CertificateError({"exact": "too wide."}, "Pass method='uncertified'.", result=None), 3),
        (db.ToleranceError(0.1, 0.5, "raise max_steps.", result=scan), 3),
        (db.BudgetError("The tree", 10, 1, "bytes", "Raise 'memory_limit'."), 1),
        (db.WorkerError("it died", 1, 2, "chains", "With checkpoint= it goes on.", result=None), 1),
        (db.Interrupted("nothing had finished", result=None), 130),
    ):

        def fail(*_, trouble=trouble, **__):
            raise trouble

        monkeypatch.setattr(db, "estimate", fail)
        code, _, error = call("estimate", grid)
        assert code == number
        assert trouble.message in error
        assert trouble.hint not in error
        speaks_of_options(error)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["estimate", "{dir}/none.uai"], 1, "There is no file"),
        (["estimate", "{dir}"], 2, "directory"),
        (["estimate", "{dir}/model.xyz"], 1, "xyz"),
        (["estimate", "{dir}/short.uai"], 1, "line"),
        (["estimate", "{dir}/empty.uai"], 1, "empty"),
        (["estimate", "{grid}", "--target", "99"], 2, "Got '99'"),
        (["estimate", "{grid}", "--target", "x"], 2, "Got 'x'"),
        (
            ["estimate", "{grid}", "--tolerance", "-0.1"],
            2,
            "--tolerance must be a number between 0 and 1, both excluded. Got -0.1.",
        ),
        (["estimate", "{grid}", "--tolerance", "nan"], 2, "--tolerance must be"),
        (["estimate", "{grid}", "--confidence", "1"], 2, "--confidence must be a number between 0 and 1"),
        (["estimate", "{grid}", "--method", "magic"], 2, "--method must be one of 'auto'"),
        (["estimate", "{grid}", "--evidence", "5=7"], 2, "one of the states -1, +1 of 5. Got '7'"),
        (["estimate", "{grid}", "--evidence", "5"], 2, "label=state"),
        (
            ["estimate", "{grid}", "--target", "5", "--evidence", "5=1"],
            2,
            "--target must be variables that are not in the evidence",
        ),
        (["estimate", "{hard}", "--evidence", "0=0,1=1"], 2, "--evidence must be possible"),
        (["estimate", "{grid}", "--output", "{dir}/a.xyz"], 2, "--output must end in"),
        (["estimate", "{grid}", "--output", "{dir}/no/a.json"], 1, "no"),
        (["estimate", "{grid}", "--method", "dobrushin", "--budget", "10"], 3, "Allow more with --budget"),
        (["estimate", "{strong}", "--target", "0", "--budget", "1e6"], 3, "--method uncertified"),
        (["estimate", "{grid}", "--method", "exact", "--memory-limit", "100B"], 1, "Allow more with --memory-limit"),
        (
            ["estimate", "{grid}", "--memory-limit", "much"],
            2,
            "--memory-limit must be a number of bytes, such as 500MB or 2GiB",
        ),
        (["estimate", "{grid}", "--beta", "2"], 2, "--beta must be 1.0 for .npz files"),
        (["inspect", "{dir}/none.uai"], 1, "There is no file"),
        (["inspect", "{dir}/none.xyz"], 1, "There is no file"),
        (["influence", "{grid}", "--method", "x"], 2, "--method must be one of"),
        (["certify", "{grid}", "--scan", "none"], 2, "--scan must be"),
        (["certify", "{grid}", "--scan", "uniform", "--coalescence"], 2, "--scan must be without random steps"),
        (["certify", "{grid}", "--coalescence", "--confidence", "2"], 2, "--confidence must be"),
        (["optimize", "{strong}", "--tolerance", "0.01", "--target", "0"], 3, "a larger --tolerance"),
        (["optimize", "{grid}", "--tolerance", "-1"], 2, "--tolerance must be"),
        (["sample", "{grid}", "--output", "{dir}/a.txt"], 2, "--output must end in"),
        (["convert", "{grid}", "{dir}/a.xyz"], 2, "OUTPUT must be a file name with one of the extensions"),
        (["convert", "{grid}", "{dir}/no/a.npz"], 1, "no"),
        (["convert", "{dir}/garbage.npz", "{dir}/a.uai"], 1, "garbage.npz"),
    ],
)
def test_errors_are_one_sentence_and_an_exit_code(words, code, message, grid, strong, tmp_path):
    (tmp_path / "model.xyz").write_text("MARKOV")
    (tmp_path / "short.uai").write_text("MARKOV\n3\n2 2 2\n")
    (tmp_path / "empty.uai").write_text("")
    (tmp_path / "garbage.npz").write_bytes(b"garbage")
    inf = -np.inf
    db.write(db.FactorGraph([2] * 3, [((0, 1), [[0, inf], [inf, 0]]), ((1, 2), np.eye(2))]), tmp_path / "hard.npz")
    places = {"dir": tmp_path, "grid": grid, "strong": strong, "hard": tmp_path / "hard.npz"}
    found, _, error = call(*(word.format(**places) for word in words))
    assert one_sentence(error), error
    assert message in error
    assert found == code
    speaks_of_options(error)


def test_options_of_the_wrong_type_are_usage_errors(grid):
    for words in (["estimate", grid, "--tolerance", "abc"], ["estimate", grid, "--sed", "1"], ["estimat"],
                  ["certify", grid, "--steps", "0"], ["certify"]):  # fmt: skip
        assert call(*words)[0] == 2


@pytest.mark.parametrize(
    ("option", "text", "message"),
    [
        ("--tolerance", "abc", "it must be a number. Got 'abc'."),
        ("--seed", "x", "it must be a whole number of at least 0. Got 'x'."),
        ("--seed", "-1", "it must be a whole number of at least 0. Got '-1'."),
        ("--seed", "1.5", "it must be a whole number of at least 0. Got '1.5'."),
        ("--seed", "inf", "it must be a whole number of at least 0. Got 'inf'."),
    ],
)
def test_numbers_that_are_none_are_shown(option, text, message, grid):
    code, _, error = call("estimate", grid, option, text)
    assert code == 2
    words = " ".join(error.replace("│", " ").split())
    assert message in words
    assert option in words


def test_whole_numbers_may_be_written_with_powers_of_ten_and_keep_all_their_digits(grid):
    command = ["estimate", grid, "--method", "dobrushin", "--target", "0", "--json"]
    for text, seed in (("1e3", 1000), (str(10**23 + 1), 10**23 + 1)):
        assert json.loads(call(*command, "--seed", text)[1])["seed"] == seed


def test_help_has_its_short_name():
    assert call("-h")[0] == call("estimate", "-h")[0] == 0


def test_numbers_fit_into_narrow_terminals(network, monkeypatch):
    monkeypatch.setattr("dobrushin.cli.output._WIDTH", 34)
    words = ("--method", "dobrushin", "--tolerance", 0.05, "--seed", 1)
    code, text, _ = call("estimate", network, "--target", "rain", *words)
    assert code == 0
    assert re.search(r"rain +no +0\.[78]\d+ +0\.7\d+ +0\.8\d+", text)
    assert max(map(len, text.splitlines())) <= 34


def test_a_reader_who_has_seen_enough_is_no_error(grid):
    """As in `dobrushin estimate model --json | head -1`."""
    command = f"{shlex.quote(sys.executable)} -m dobrushin estimate {shlex.quote(str(grid))} --json | true"
    done = subprocess.run(["bash", "-c", f"{command}; exit ${{PIPESTATUS[0]}}"], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize(
    ("number", "message"), [(errno.ENOSPC, "No space left on device"), (errno.EACCES, "No permission to use")]
)
def test_disk_full_and_no_permission(grid, tmp_path, monkeypatch, number, message):
    kind = PermissionError if number == errno.EACCES else OSError

    def refuse(*_, **__):
        raise kind(number, os.strerror(number), str(tmp_path / "out"))

    monkeypatch.setattr("pathlib.Path.write_text", refuse)
    code, out, error = call("estimate", grid, "--target", 0, "--output", tmp_path / "out.json")
    assert code == 1
    assert message in error
    assert "P(0 = 1) = 0.5, exact to 1e-12" in out  # what was computed is not lost


WRITES = [
    ("estimate", "{grid}", "--output", "{no}/a.json"),
    ("estimate", "{grid}", "--output", "{no}/a.mar"),
    ("estimate", "{grid}", "--output", "{dir}/taken.csv"),
    ("estimate", "{grid}", "--report", "{no}/page.html"),
    ("estimate", "{grid}", "--report", "{file}/page.html"),
    ("estimate", "{grid}", "--report", "{dir}/" + 250 * "a"),
    ("estimate", "{grid}", "--target", "3", "--output", "{dir}/a.mar"),
    ("certify", "{grid}", "--plot", "{no}/a.png"),
    ("certify", "{grid}", "--plot", "{dir}/a.xyz"),
    ("optimize", "{grid}", "--save", "{no}/scan.npz"),
    ("optimize", "{grid}", "--plot", "{no}/a.svg"),
    ("sample", "{grid}", "--output", "{no}/a.csv"),
    ("sample", "{grid}", "--output", "{dir}/a.xyz"),
    ("fit", "{grid}", "{data}", "--output", "{no}/a.npz"),
    ("fit", "{grid}", "{data}", "--output", "{dir}/a.bif"),
    ("fit", "{potts}", "{data}", "--output", "{dir}/a.coo"),
    ("convert", "{grid}", "{no}/a.npz"),
    ("convert", "{grid}", "{dir}"),
    ("reproduce", "ising-tv", "--out", "{file}"),
]


@pytest.mark.parametrize("words", WRITES, ids=lambda words: f"{words[0]} {words[-1][-20:]}")
def test_what_cannot_be_written_is_found_before_the_work(words, grid, tmp_path, monkeypatch):
    def work(*_, **__):
        raise AssertionError("the work has begun")

    places = {name: tmp_path / name for name in ("no", "file", "data", "potts")} | {"grid": grid, "dir": tmp_path}
    places |= {"data": tmp_path / "data.npy", "potts": tmp_path / "potts.npz"}
    places["file"].write_text("kept")
    (tmp_path / "taken.csv").mkdir()
    np.save(places["data"], np.zeros((5, 16), dtype=int))
    db.write(db.Potts.grid(4, 4, states=3, couplings=0.1), places["potts"])
    before = sorted(tmp_path.rglob("*"))
    for name in (
        "estimate",
        "variation",
        "influence",
        "shortest_scan",
        "optimize_scan",
        "greedy_scan",
        "sample",
        "fit",
    ):
        monkeypatch.setattr(db, name, work)
    monkeypatch.setattr("dobrushin.experiments.catalog.run", work)
    code, out, error = call(*(word.format(**places) for word in words))
    assert (code in (1, 2), out) == (True, "")
    assert one_sentence(error), error
    assert re.match("Error: (--output|--report|--plot|--save|--out|OUTPUT|MODEL) ", error), error
    assert sorted(tmp_path.rglob("*")) == before
    assert places["file"].read_text() == "kept"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root can write anywhere")
def test_no_permission_is_found_before_the_work(grid, tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    error = call("estimate", grid, "--output", closed / "a.json")[2]
    assert "--output must be a file that can be written (Permission denied)" in error


def test_files_that_can_be_written_are_left_as_they_are_until_then(grid, tmp_path):
    """A failure of the work itself neither makes a file nor empties one."""
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    old.write_text("old")
    for path in (old, new):
        assert call("estimate", grid, "--tolerance", 7, "--output", path)[0] == 2
    assert (old.read_text(), new.exists()) == ("old", False)
    assert call("estimate", grid, "--report", os.devnull, "-q")[0] == 0


def test_tables_need_no_pandas(grid, network, tmp_path, monkeypatch):
    """They are what pandas writes, to the last letter."""
    written = tmp_path / "table.csv"
    estimates = [(grid, ()), (grid, ("--method", "uncertified", "--seed", 1)), (network, ("--target", "grass"))]
    expected = []
    for path, words in estimates:
        options = {"method": "uncertified", "seed": 1} if "--seed" in words else {}
        targets = ["grass"] if path == network else "all"
        answer = db.estimate(db.read(path), targets, tolerance=0.05, **options)
        expected.append(answer.to_dataframe().to_csv(index=False))
    states = db.sample(db.read(grid), db.Scan.systematic(16, 32), chains=7, seed=1).to_dataframe().to_csv()
    monkeypatch.setitem(sys.modules, "pandas", None)
    for (path, words), text in zip(estimates, expected, strict=True):
        call("estimate", path, *words, "--tolerance", 0.05, "--output", written, "-q")
        assert written.read_text() == text
    call("sample", grid, "--steps", 32, "--chains", 7, "--seed", 1, "--output", written, "-q")
    assert written.read_text() == states


@pytest.mark.parametrize("module", ["dobrushin", "dobrushin.cli"])
def test_the_module_is_the_command_without_a_home(module, tmp_path):
    """A file cannot hold the folders that a library may want to make at home."""
    home = tmp_path / "home"
    home.write_text("")
    environment = {**os.environ, "HOME": str(home), "XDG_CACHE_HOME": str(home), "XDG_CONFIG_HOME": str(home)}
    for word, start in (("--version", f"dobrushin {db.__version__}\n"), ("--help", "")):
        command = [sys.executable, "-m", module, word]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith(start)
    assert f"python -m {module}" in done.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="signals differ")
def test_an_interruption_ends_in_words(tmp_path):
    path = tmp_path / "large.npz"
    db.write(db.Ising.grid(100, 100, couplings=0.4), path)
    command = [
        sys.executable,
        "-m",
        "dobrushin.cli",
        "sample",
        str(path),
        "--steps",
        str(10**9),
        "--chains",
        "64",
        "-v",
    ]
    # Where the tests run in the background, signals are ignored, and so they would be here.
    listen = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    running = subprocess.Popen([*command, "-v"], preexec_fn=listen, **pipes)
    while "sampling" not in running.stderr.readline():
        assert running.poll() is None
    running.send_signal(signal.SIGINT)
    _, error = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "Interrupted" in error
    assert "Traceback" not in error


@pytest.mark.slow
def test_a_limit_in_time_prints_what_was_reached(grid, tmp_path):
    out = tmp_path / "early.json"
    words = ("--method", "dobrushin", "--tolerance", "1e-7", "--seed", "1")
    code, text, error = call("estimate", grid, "--target", "0", *words, "--time-limit", "0.5", "--output", out)
    assert code == 3
    assert "stopped by the time limit" in text
    assert json.loads(out.read_text())["stopped_by"] == "the time limit"
    code, _, error = call("estimate", grid, "--target", "0", *words)
    assert code == 3
    assert "--time-limit" in error
    code, text, _ = call("sample", grid, "--chains", 10**13, "--steps", 16, "--time-limit", "0.5")
    assert code == 0
    code, text, _ = call("certify", grid, "--coalescence", "--runs", 10**12, "--steps", 160, "--time-limit", "0.5")
    assert "stopped early" in " ".join(text.split())
    code, _, error = call("estimate", grid, "--time-limit", "-1")
    assert code == 2
    assert error.startswith("Error: --time-limit must be a positive number of seconds")


def test_interrupted_verbs_print_what_was_reached(grid, tmp_path, monkeypatch):
    begin = db.estimate

    def interrupt(model, targets, **options):
        answer = begin(model, targets, **options | {"method": "dobrushin", "tolerance": 0.1})
        raise db.Interrupted("one query was not done", result=answer)

    monkeypatch.setattr(db, "estimate", interrupt)
    code, text, error = call("estimate", grid, "--target", "3", "--seed", "1", "--output", tmp_path / "early.csv")
    assert code == 130
    assert "Interrupted" in error
    assert "lower" in text
    assert (tmp_path / "early.csv").exists()
    samples = db.sample(db.read(grid), db.Scan.systematic(16, 16), chains=3, seed=1, record=db.Record(counts=True))

    def interrupt_sample(*_, **__):
        raise db.Interrupted("3 of 9 chains had finished", result=samples)

    monkeypatch.setattr(db, "sample", interrupt_sample)
    code, text, error = call("sample", grid, "--chains", "9")
    assert code == 130
    assert "3 of 9 chains" in error
    assert "chains=3" in text


@pytest.mark.parametrize("verb", ["estimate", "sample", "certify"])
def test_every_long_verb_goes_on_from_its_file(verb, grid, tmp_path):
    words = {
        "estimate": ("--method", "dobrushin", "--target", "0"),
        "sample": ("--chains", "200", "--steps", "160"),
        "certify": ("--coalescence", "--runs", "500", "--steps", "160"),
    }[verb]
    file = tmp_path / "state.npz"
    first = call(verb, grid, *words, "--seed", "1", "--checkpoint", file)
    assert file.exists()
    assert call(verb, grid, *words, "--seed", "1", "--checkpoint", file) == first
    assert call(verb, grid, *words, "--seed", "2", "--checkpoint", file)[0] == 2


@pytest.mark.parametrize("is_wrapped", [False, True])
def test_ctrl_c_while_the_command_is_loaded_is_no_traceback(monkeypatch, capsys, is_wrapped):
    """Python 3.11 turns an interrupt in a class statement into a RuntimeError; another RuntimeError is a defect."""
    from dobrushin.cli import main

    class Interrupted:
        cause = KeyboardInterrupt()

        def __getattr__(self, name):
            if is_wrapped:
                raise RuntimeError("Error calling __set_name__") from self.cause
            raise KeyboardInterrupt

    if is_wrapped:
        monkeypatch.setattr(Interrupted, "cause", ValueError())
        monkeypatch.setitem(sys.modules, "dobrushin.cli.app", Interrupted())
        with pytest.raises(RuntimeError):
            main()
        monkeypatch.setattr(Interrupted, "cause", KeyboardInterrupt())
    monkeypatch.setitem(sys.modules, "dobrushin.cli.app", Interrupted())
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
    assert capsys.readouterr().err == "Interrupted.\n"


def test_an_interval_wider_than_its_tolerance_is_no_success(tmp_path):
    """Draws of a narrow box far from zero cannot be decided against a threshold in it."""
    path = tmp_path / "field.npz"
    box = {"lower": [1e8 - 1e-3] * 2, "upper": [1e8 + 1e-3] * 2}
    db.write(db.GaussianField([[2.0, -0.5], [-0.5, 2.0]], linear=[1.5e8] * 2, **box), path)
    out = tmp_path / "answer.json"
    words = ("--tolerance", "0.1", "--seed", "1", "--output", out)
    code, text, error = call("estimate", path, "--target", "0>100000000", *words)
    assert code == 3, error
    assert "too close to an end of the event to decide" in " ".join(text.split())
    assert json.loads(out.read_text())["stopped_by"] == "draws too close to an end of the event to decide"
    code, _, _ = call("estimate", path, "--target", "0>5", "--tolerance", "0.1", "--seed", "1")
    assert code == 0


def test_hints_about_files_are_told_in_words_of_the_command_line(tmp_path, monkeypatch):
    latin, observed = tmp_path / "latin.bif", tmp_path / "seen.evid"
    latin.write_bytes(b"network \xe9 { }")
    observed.write_text("1 0 1")
    assert call("inspect", latin)[2].endswith("Western European text.\n")
    assert call("inspect", observed)[2].endswith("Give it with --evidence.\n")
    monkeypatch.setattr("dobrushin.io.source.LIMIT", 1000)
    monkeypatch.setattr("dobrushin._shared.memory.memory_limit", lambda _: 2)
    (tmp_path / "large.uai").write_text("MARKOV " + "1 " * 1000)
    code, _, error = call("inspect", tmp_path / "large.uai")
    assert code == 1
    assert error.endswith("found more. The limit is 1 GiB, or half of the free memory if that is more.\n")


def test_letters_that_a_terminal_does_not_have_are_replaced(monkeypatch):
    from dobrushin.cli import main

    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "argv", ["dobrushin", "reproduce"])
    with pytest.raises(SystemExit) as ended:
        main()
    stream.flush()
    assert ended.value.code == 0
    assert b"40 ? 40 Ising" in stream.buffer.getvalue()
