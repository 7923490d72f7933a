"""The words that type checkers know are those that calls take."""

import inspect
import json
import os
import runpy
import shutil
import subprocess
import sys
import typing
from pathlib import Path

import pytest

import dobrushin as db
from dobrushin import typing as options
from dobrushin._estimate.method import METHODS
from dobrushin._fields import FIELD_METHODS
from dobrushin._fields.chains import FieldKernel
from dobrushin._learning.structure import FAMILIES
from dobrushin._sampling.kernel import KERNELS
from dobrushin.io.formats import FORMATS


@pytest.mark.parametrize(
    ("words", "known"),
    [
        (options.EstimateMethod, {"auto", *METHODS, *FIELD_METHODS}),
        (options.KernelName, {*KERNELS, FieldKernel.name}),
        (options.FormatName, FORMATS),
        (options.FitFamily, {"bayesian", *FAMILIES}),
    ],
)
def test_words_are_those_of_the_registries(words, known):
    assert set(typing.get_args(words)) == set(known)
    assert set(FIELD_METHODS) - set(METHODS) == {"entropy"}


@pytest.mark.parametrize(
    ("function", "argument", "name"),
    [
        ("estimate", "method", "EstimateMethod"),
        ("plan", "method", "EstimateMethod"),
        ("estimate_many", "method", "EstimateMethod"),
        ("log_partition", "method", "PartitionMethod"),
        ("log_evidence", "method", "PartitionMethod"),
        ("influence", "method", "InfluenceMethod"),
        ("sample", "kernel", "KernelName"),
        ("shortest_scan", "criterion", "Criterion"),
        ("optimize_scan", "guide", "Guide"),
        ("fit", "method", "FitMethod"),
        ("read", "format", "FormatName"),
    ],
)
def test_public_functions_say_which_words_they_take(function, argument, name):
    called = inspect.unwrap(getattr(db, function))
    assert name in called.__annotations__[argument].split(" | ")
    words = typing.get_args(getattr(options, name))
    assert inspect.signature(called).parameters[argument].default in (*words, None)


def test_words_that_are_checked_are_those_of_the_types():
    model = db.Ising({(0, 1): 0.1})
    for backend in typing.get_args(options.Backend):
        if backend != "cuda":
            assert db.estimate(model, [0], run=db.RunOptions(backend=backend)).is_certified
    for method in typing.get_args(options.InfluenceMethod):
        assert db.influence(model, method=method).n_variables == 2
    for criterion in typing.get_args(options.Criterion):
        assert db.shortest_scan(model, [0], tolerance=0.1, criterion=criterion).variation.value <= 0.1
    for call in (
        lambda: db.estimate(model, [0], run=db.RunOptions(backend="gpu")),
        lambda: db.influence(model, method="theorem 5"),
        lambda: db.shortest_scan(model, [0], tolerance=0.1, criterion="mean"),
    ):
        with pytest.raises(db.ArgumentError, match=r"must be one of 'auto', 'cpu'|one of 'best', 'paper'|one of 'sum'"):
            call()


@pytest.mark.parametrize("argument", ["time_limit", "tolerance", "budget", "confidence"])
@pytest.mark.parametrize("number", [10**400, -(10**400)])
def test_whole_numbers_beyond_floats_are_told_as_arguments(argument, number):
    with pytest.raises(db.ArgumentError, match=f"'{argument}' argument of dobrushin.estimate"):
        db.estimate(db.Ising({(0, 1): 0.3}), [0], **{argument: number})
    with pytest.raises(db.ArgumentError, match=r"'memory_limit' argument of dobrushin\.RunOptions"):
        db.RunOptions(memory_limit=number)
    with pytest.raises(db.ArgumentError, match="'evidence' argument"):
        db.estimate(db.Ising({(0, 1): 0.3}), [0], evidence={1: {-1: number, 1: 1}})


SCRIPT = Path(__file__).with_name("user_script.py")


def test_the_script_of_a_user_runs():
    runpy.run_path(str(SCRIPT))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("", "Success"),
        ('db.estimate(grid, [0], method="magic")', 'Argument "method"'),
        ("db.estimate(grid, 0).mean", 'has no attribute "mean"'),
        ("lazy.couplings", 'has no attribute "couplings"'),
    ],
)
def test_the_script_of_a_user_has_types(line, complaint, tmp_path):
    """Wrong lines are found: the check looks at the types of the library."""
    pytest.importorskip("mypy")
    script = tmp_path / "session.py"
    script.write_text(f"{SCRIPT.read_text()}{line}\n")
    (tmp_path / "mypy.ini").write_text("[mypy]\n")
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", "mypy.ini", "--follow-imports=silent", script]
    source = str(Path(db.__file__).parent.parent)
    found = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, env={**os.environ, "MYPYPATH": source}
    )
    assert complaint in found.stdout, found.stdout + found.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("line", "complaint"), [("", "0 errors"), ("lazy.couplings", "reportAttributeAccessIssue")])
def test_the_script_of_a_user_has_types_for_pyright(line, complaint, tmp_path):
    if (pyright := shutil.which("pyright")) is None:
        pytest.skip("pyright is not installed")
    (tmp_path / "session.py").write_text(f"{SCRIPT.read_text()}{line}\n")
    source = str(Path(db.__file__).parent.parent)
    settings = {"include": ["session.py"], "typeCheckingMode": "strict", "extraPaths": [source]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [pyright, "--project", str(tmp_path), "--pythonpath", sys.executable]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert complaint in found.stdout, found.stdout + found.stderr
