"""How the house is built: who imports whom, who may compile, what each kernel is compiled for."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import dobrushin as db
from models import FAMILIES, random_model

SOURCE = Path(db.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
# A stage may import stages to its left only.
STAGE_LEVEL = {
    "_models": 0,
    "_influence": 1,
    "_scan": 1,
    "_exact": 2,
    "_variation": 3,
    "_optimize": 4,
    "_sampling": 5,
    "_coalescence": 6,
    "_estimate": 7,
    "_diagnose": 8,
    "_learning": 8,
}
LEAVES = ["experiments", "cli", "plots", "io", "adapters", "report", "vision"]
# A method of a result may open a leaf when it is called, and adapters share the energies of files.
LAZY = {("_estimate", "report"), ("adapters", "io")}


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("dobrushin"):
            parts = node.module.split(".")
            yield from ([parts[1]] if len(parts) > 1 else [alias.name for alias in node.names])
        elif isinstance(node, ast.Import):
            yield from (a.name.split(".")[1] for a in node.names if a.name.startswith("dobrushin."))


def room(path):
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_stages_import_only_stages_to_their_left(path):
    here = room(path)
    for there in imports(path):
        if here in STAGE_LEVEL and there in STAGE_LEVEL and here != there:
            assert STAGE_LEVEL[there] < STAGE_LEVEL[here], f"{path.name} imports {there}"
        if here != there and here not in ("__init__", "cli", "experiments"):
            assert there not in LEAVES or (here, there) in LAZY, f"{path.name} imports {there}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_only_one_file_speaks_to_numba_and_files_stay_small(path):
    text = path.read_text()
    assert path.name == "compile.py" or "numba" not in {
        name.split(".")[0]
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names])
    }
    assert text.count("\n") <= 500


def test_kernels_are_compiled_for_one_type_each():
    """In a process of its own, where no other test has called a kernel."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    code = "import test_house; test_house.count_signatures()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr


def count_signatures():
    """Use everything once; every kernel must have been compiled for one set of types only."""
    from dobrushin import _kernels
    from dobrushin._kernels import (
        binary,
        bits,
        chain,
        descent,
        generator,
        greedy,
        influence,
        labels,
        levels,
        moves,
        reorder,
        sets,
        tables,
        variation,
    )  # fmt: skip

    assert _kernels.__doc__
    for family in FAMILIES:
        model = random_model(np.random.default_rng(1), family, n=5, strength=0.1)
        db.Scan.systematic(5, 10).levels(model)
        for method in ("best", "paper"):
            bound = db.influence(model, method=method)
            db.optimize(bound, db.Scan.systematic(5, 10))
            db.optimize(bound, db.Scan.uniform(5, 10))
            db.greedy_scan(bound, targets=[0], steps=4)
        db.variation(model, db.Scan([0, 1]) + db.Scan.uniform(5, 1000), targets=[0])
        db.variation(db.Ising.grid(20, 20, couplings=0.1), db.Scan([0, 1, 0]), targets=[0])
        db.variation(db.Influence(bound.matrix.toarray()), db.Scan.systematic(5, 1000))
        db.shortest_scan(model, targets=[0], tolerance=0.1)
        db.shortest_scan(bound, tolerance=0.1)
        db.coalescence(model, db.Scan.systematic(5, 13), runs=100)
        db.exact_sample(model, [0], 10)
        for scan in (db.Scan.systematic(5, 13), db.Scan.uniform(5, 3), db.Scan([0, 1]) + db.Scan.uniform(5, 1000)):
            for chains in (1, 100):
                db.sample(model, scan, chains=chains, record=db.Record(counts=True))
                db.sample(model, scan, chains=chains, initial="mode")
    for module in (
        binary, bits, chain, descent, generator, greedy, influence, labels, levels, moves, reorder, sets,
        tables, variation,
    ):  # fmt: skip
        for name, function in vars(module).items():
            if hasattr(function, "signatures"):
                assert len(function.signatures) <= 1, f"{name} was compiled for {function.signatures}"


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
