"""What the shell offers behind options."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import dobrushin as db
from dobrushin._estimate.method import METHODS
from dobrushin._fields import FIELD_METHODS
from dobrushin._influence.rows import METHODS as INFLUENCES
from dobrushin._shared import call
from dobrushin.cli import completion
from dobrushin.cli.app import app
from dobrushin.experiments.catalog import EXPERIMENTS

NETWORK = """network wet { }
variable rain { type discrete [ 2 ] { yes, no }; }
variable roof { type discrete [ 2 ] { dry, wet }; }
probability ( rain ) { table 0.2, 0.8; }
probability ( roof | rain ) { (yes) 0.1, 0.9; (no) 0.9, 0.1; }
"""


def offer(function, line, incomplete):
    """What a function offers when this line was typed before."""
    context = typer.Context(typer.main.get_command(app).commands["estimate"])
    context.params = line
    return function(context, incomplete)


def test_values_of_options_are_those_that_there_are():
    assert set(completion.METHODS) == {"auto", *METHODS, *FIELD_METHODS}
    assert set(completion.INFLUENCES) == set(INFLUENCES)
    assert completion.one_of(completion.METHODS)("") == list(completion.METHODS)
    assert completion.one_of(completion.METHODS)("co") == ["coalescence"]
    assert completion.one_of(completion.SCANS)("d") == ["dogs"]
    assert completion.complete_experiment("") == ["all", *EXPERIMENTS]
    model, data = db.Ising({(0, 1): 0.1}), [[1, 1], [-1, 1], [1, -1]]
    for method in completion.GRADIENTS:
        if method == "em":
            db.fit([(0, 1)], [[0, 1]], family="bayesian", method=method, iterations=1)
        else:
            db.fit(model, data, method=method, iterations=1, seed=1)
    for scan in completion.GRADIENT_SCANS:
        db.fit(model, data, method=db.GibbsGradient(scan=scan, chains=10), iterations=1, seed=1)


def test_variables_and_states_of_the_file_on_the_line(tmp_path):
    path = tmp_path / "wet.bif"
    path.write_text(NETWORK)
    line = {"model": path}
    assert offer(completion.complete_target, line, "r") == ["rain", "roof"]
    assert offer(completion.complete_target, line, "rain,ro") == ["rain,roof"]
    assert offer(completion.complete_evidence, line, "ra") == ["rain=yes", "rain=no"]
    assert offer(completion.complete_evidence, line, "r") == ["rain=", "roof="]
    assert offer(completion.complete_evidence, line, "rain=") == ["rain=yes", "rain=no"]
    assert offer(completion.complete_evidence, line, "rain=yes,roof=w") == ["rain=yes,roof=wet"]
    assert offer(completion.complete_evidence, line, "snow=") == []
    db.write(db.Ising.grid(2, 2, state_names=("down", "up")), tmp_path / "grid")
    assert offer(completion.complete_evidence, {"model": tmp_path / "grid"}, "3=") == ["3=down", "3=up"]


def test_a_file_that_is_not_there_offers_nothing_and_says_nothing(tmp_path, capsys):
    for line in ({}, {"model": None}, {"model": tmp_path / "none.bif"}):
        assert offer(completion.complete_target, line, "r") == []
        assert offer(completion.complete_evidence, line, "r=") == []
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        (["estimate", "{model}", "--method", "exakt"], "'exact'"),
        (["estimate", "{model}", "--target", "rian"], "'rain'"),
        (["estimate", "{model}", "--evidence", "rain=yess"], "'yes'"),
        (["estimate", "{model}", "--targt", "rain"], "--target"),
        (["estimat", "{model}"], "'estimate'"),
        (["estimate", "{folder}/wet.biff"], "wet.bif"),
        (["influence", "{model}", "--method", "pape"], "'paper'"),
        (["certify", "{model}", "--scan", "systematc"], "'systematic'"),
        (["optimize", "{model}", "--target", "roofs"], "'roof'"),
        (["reproduce", "ising-tvv"], "'ising-tv'"),
        (["fit", "{model}", "{data}", "--method", "gibs"], "'gibbs'"),
    ],
)
def test_misspelt_names_meet_the_nearest_ones(line, meant, tmp_path):
    path, data = tmp_path / "wet.bif", tmp_path / "data.npy"
    path.write_text(NETWORK)
    np.save(data, np.zeros((3, 2), dtype=np.int64))
    result = CliRunner().invoke(app, [part.format(model=path, folder=tmp_path, data=data) for part in line])
    assert result.exit_code in (1, 2)
    assert meant in result.stderr


def test_misspelt_names_in_python_meet_the_nearest_ones(tmp_path):
    (tmp_path / "wet.bif").write_text(NETWORK)
    model = db.read(tmp_path / "wet.bif")
    with pytest.raises(db.ArgumentError, match=r"\(the nearest is 'local'\)\. Got 'lokal'"):
        db.estimate(model, "rain", method="lokal")
    with pytest.raises(db.ArgumentError, match=r"\(the nearest is 'rain'\)"):
        db.estimate(model, "rain")["rian"]
    with pytest.raises(AttributeError) as caught:
        db.estimat  # noqa: B018
    assert (caught.value.name, caught.value.obj) == ("estimat", db)  # from these, Python says what was meant


def test_the_shell_gets_them(tmp_path, monkeypatch):
    path = tmp_path / "wet.bif"
    path.write_text(NETWORK)
    line = f"dobrushin estimate {path} --evidence rain="
    monkeypatch.setenv("_DOBRUSHIN_COMPLETE", "complete_zsh")
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", line)
    result = CliRunner().invoke(app, [], prog_name="dobrushin")
    assert "rain=yes" in result.output


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("--evidence rain=", ["yes", "no"]),
        ("--evidence rain=y", ["yes"]),
        ("--evidence rain=yes,roof=w", ["wet"]),
        ("--evidence=rain=n", ["no"]),
        ("--evidence ra", ["rain=yes", "rain=no"]),
        ("--evid", ["--evidence"]),
        ("--method co", ["coalescence"]),
    ],
)
def test_bash_cuts_words_and_gets_what_comes_behind_the_cut(typed, offered, tmp_path):
    (tmp_path / "wet.bif").write_text(NETWORK)
    # The words as bash makes them from the line, up to the cursor.
    words = ["dobrushin", "estimate", "wet.bif"]
    for word in typed.split():
        words += word.replace("=", " = ").split()
    command = f"{Path(sys.executable).parent}/dobrushin"
    script = f"""
        eval "$({command} --show-completion bash)"
        COMP_WORDS=({" ".join(words)}); COMP_CWORD={len(words) - 1}
        _dobrushin_completion {command}; printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    environ = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=environ, capture_output=True, text=True, check=True)
    assert done.stdout.split() == offered, done.stderr


def test_nothing_is_written_over_the_line_that_is_typed(tmp_path, monkeypatch):
    path = tmp_path / "wet.bif"
    path.write_text(NETWORK)
    seen = []
    monkeypatch.setattr(call, "display_for", lambda wanted: seen.append(wanted))
    assert offer(completion.complete_target, {"model": path}, "ra") == ["rain"]
    assert seen == [False]
