"""How the house is built: who imports whom, who may compile, what each kernel is compiled for."""

import ast
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import dobrushin as db
import rooms as plan
from models import FAMILIES, random_model

FILES = plan.files()
by_path = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(plan.SOURCE)))
ROOT = plan.SOURCE.parent.parent
HEADINGS = set(re.findall(r"^#+ (.*)$", (ROOT / "docs" / "theory.md").read_text(), re.MULTILINE))


def test_every_room_has_its_place():
    """A new room is not free of the rules until somebody says which hold for it."""
    assert set(plan.rooms()) == {*plan.STAGES, *plan.LEAVES, *plan.SHARED, plan.FRONT}


@by_path
def test_doors_open_along_the_flow(path):
    for there in plan.doors(path):
        assert plan.fault(plan.room(path), there) is None, there


@pytest.mark.slow
@by_path
def test_no_file_loads_other_rooms_by_name(path):
    assert plan.hidden_doors(path) == []


@by_path
def test_clients_use_public_names(path):
    assert plan.private_names_of_clients(path) == []


def test_rooms_do_not_import_each_other_in_a_circle():
    assert plan.cycle() == []


@pytest.mark.parametrize("path", sorted((plan.SOURCE / "_kernels").glob("*.py")), ids=lambda path: path.stem)
def test_kernels_import_only_what_they_may(path):
    assert set(plan.imported_modules(path)) <= plan.KERNELS_MAY_IMPORT


def test_the_rules_see_faults(monkeypatch, tmp_path):
    """Negative controls: an unknown room, doors against the flow, a circle, and a kernel that imports too much."""
    package = tmp_path / "dobrushin"
    texts = {
        "_models/deep/down.py": "def later():\n    from dobrushin._estimate.plan import x",
        "_estimate/plan.py": "import dobrushin\nfrom dobrushin import _models, report, io",
        "_shared/files.py": "from dobrushin._scan import Scan",
        "_scan.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from dobrushin._estimate import Plan",
        "attic.py": "",
        "io/read.py": "from dobrushin import __version__, plots",
        "plots/draw.py": "",
        "report/page.py": "import dobrushin._estimate.plan",
        "_kernels/loop.py": "from dobrushin._kernels import tables",
        "_models/door.py": "import importlib as i\nx = i.import_module('dobrushin.io')\ny = i.import_module(f'{x}.a')",
        "io/formats.py": "from importlib import import_module\nHOME = 'dobrushin._models.a'\nz = import_module(HOME)",
        "_shared/environment.py": "import importlib\nlibrary = importlib.import_module(__name__)",
        "experiments/run.py": "import dobrushin as db\nfrom dobrushin import vision, _scan\nx = db.read('a')._form",
        "vision/see.py": "from dobrushin._shared.arrays import frozen\nfrom dobrushin._models import Potts",
    }
    for name, text in texts.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text)
    monkeypatch.setattr(plan, "SOURCE", package)
    assert "attic" in plan.rooms()
    assert [(where, there) for where, there, _ in plan.faults()] == [
        ("_estimate/plan.py", "__init__"),
        ("_estimate/plan.py", "io"),
        ("_models/deep/down.py", "_estimate"),
        ("_shared/files.py", "_scan"),
        ("io/read.py", "plots"),
    ]
    hidden = {name: plan.hidden_doors(package / name) for name in texts}
    assert {name: doors for name, doors in hidden.items() if doors} == {
        "_models/door.py": ["dobrushin.io", ""],
        "io/formats.py": [""],
    }
    private = [plan.private_names_of_clients(package / name) for name in ("experiments/run.py", "vision/see.py")]
    assert private == [["dobrushin._scan", "db.read('a')._form"], ["dobrushin._models"]]
    assert {"_models", "_estimate"} <= set(plan.cycle())
    assert not set(plan.imported_modules(package / "_kernels" / "loop.py")) <= plan.KERNELS_MAY_IMPORT


@by_path
def test_no_file_guesses_what_an_object_is_or_reads_messages(path):
    """Kernels say what they can do by their class, errors by their class and fields: nobody asks their text."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Compare) and any(isinstance(op, ast.In | ast.NotIn) for op in node.ops):
            for side in node.comparators:
                assert not ast.unparse(side).startswith("str("), f"line {node.lineno}: control flow by text"
        if plan.room(path) in ("_sampling", "_coalescence", "_estimate") and isinstance(node, ast.Call):
            # An optional library may be asked which version of it this is.
            assert ast.unparse(node.func) != "hasattr" or ast.unparse(node.args[0]) == "arviz", f"line {node.lineno}"


@pytest.mark.parametrize("folder", ["src", "tests", "benchmarks", "docs"])
def test_citations_are_on_the_theory_page(folder):
    """What code cites can be opened: a heading of docs/theory.md, and no page that is not in the repository."""
    cited = set()
    for path in sorted((ROOT / folder).rglob("*")):
        if path.suffix in (".py", ".md"):
            text = path.read_text()
            assert not re.search(r"\bMA" + r"TH\b", text), path
            for quoted in re.findall(r'[Tt]heory\s+page,\s+("[^"]+"(?:\s+and\s+"[^"]+")*)', text):
                cited |= {" ".join(heading.split()) for heading in re.findall(r'"([^"]+)"', quoted)}
    assert cited - HEADINGS == set()
    assert folder not in ("src", "tests") or cited


@by_path
def test_only_one_file_speaks_to_numba_and_files_stay_small(path):
    text = path.read_text()
    assert path.name == "compile.py" or "numba" not in {
        name.split(".")[0]
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names])
    }
    assert text.count("\n") <= 500


@pytest.mark.slow
def test_kernels_are_compiled_for_one_type_each():
    """In a process of its own, where no other test has called a kernel."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (Path(__file__).parent, plan.SOURCE.parent)))}
    code = "import test_house; test_house.count_signatures()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr


def count_signatures():
    """Use everything once; every kernel must have been compiled for one set of types only."""
    for family in FAMILIES:
        model = random_model(np.random.default_rng(1), family, n=5, strength=0.1)
        db.Scan.systematic(5, 10).levels(model)
        for method in ("best", "paper"):
            bound = db.influence(model, method=method)
            db.optimize_scan(bound, db.Scan.systematic(5, 10))
            db.optimize_scan(bound, db.Scan.uniform(5, 10))
            db.greedy_scan(bound, targets=[0], steps=4)
        db.variation(model, db.Scan([0, 1]) + db.Scan.uniform(5, 1000), targets=[0])
        db.variation(db.Ising.grid(20, 20, couplings=0.1), db.Scan([0, 1, 0]), targets=[0])
        db.variation(db.Influence(bound.matrix.toarray()), db.Scan.systematic(5, 1000))
        db.exact.marginals(db.Ising.grid(17, 17, couplings=0.1))
        db.shortest_scan(model, targets=[0], tolerance=0.1)
        db.shortest_scan(bound, tolerance=0.1)
        db.coalescence(model, db.Scan.systematic(5, 13), runs=100)
        db.exact_sample(model, [0], 10)
        db.exact.marginals(model)
        db.exact.most_likely(model)
        for scan in (db.Scan.systematic(5, 13), db.Scan.uniform(5, 3), db.Scan([0, 1]) + db.Scan.uniform(5, 1000)):
            for chains in (1, 100):
                db.sample(model, scan, chains=chains, record=db.Record(counts=True))
                db.sample(model, scan, chains=chains, initial="mode")
    for path in (plan.SOURCE / "_kernels").glob("*.py"):
        module = importlib.import_module(f"dobrushin._kernels.{path.stem}")
        for name, function in vars(module).items():
            # Private helpers are compiled into their callers, once for each constant that they are called with.
            if hasattr(function, "signatures") and not name.startswith("_"):
                assert len(function.signatures) <= 1, f"{name} was compiled for {function.signatures}"


@by_path
def test_who_shows_progress_can_be_told_not_to(path):
    for node in ast.walk(ast.parse(path.read_text())):
        calls = [d for d in getattr(node, "decorator_list", []) if isinstance(d, ast.Call)]
        if any(ast.unparse(call.func) == "public" and call.args for call in calls):
            names = [argument.arg for argument in node.args.kwonlyargs]
            assert "progress" in names, f"{node.name} has no argument progress"


def test_help_waits_for_neither_numba_nor_scipy():
    code = "import sys, dobrushin, dobrushin.cli; print([m for m in ('numba', 'scipy', 'numpy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_exists_and_is_documented():
    for name in db.__all__:
        thing = getattr(db, name)
        assert thing.__doc__, name
    assert set(dir(db)) >= set(db.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = db.nonsense
