"""Tests in environments of their own: one for each engine that is heavy, and clean ones for the wheel.

    python3 tests/environments.py pymc thrml        the tests of these engines (pgmpy, pyagrum, pymc, numpyro, thrml)
    python3 tests/environments.py wheel python3.11 python3.13
                                                    build the wheel, and try it with each of these interpreters

Environments are made in .environments, and made again when pyproject.toml changes. Needs Python 3.11 or newer and pip.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
HOME = HERE / ".environments"
TOOLS = ["pytest>=8", "pytest-xdist>=3.5", "hypothesis>=6.100"]
# The tests of each engine, and the extras that they need.
ENGINES = {
    "pgmpy": ("pgmpy,formats", ["tests/test_adapters.py"]),
    "pyagrum": ("pyagrum,formats", ["tests/test_sources.py"]),
    "pymc": ("pymc", ["tests/test_pymc.py"]),
    "numpyro": ("numpyro", ["tests/test_numpyro.py"]),
    "thrml": ("thrml", ["tests/test_thrml.py"]),
}
SMOKE = """
import pathlib, sys, tempfile
import dobrushin as db
assert "site-packages" in db.__file__, db.__file__
model = db.Ising({("a", "b"): 0.5, ("b", "c"): 0.2}, fields={"a": 0.3}, state_names=("no", "yes"))
exact = db.estimate(model, "c", evidence={"a": "yes"})
drawn = db.estimate(model, "c", evidence={"a": "yes"}, method="dobrushin", seed=1)
assert (drawn.lower <= exact.value).all() and (exact.value <= drawn.upper).all()
folder = pathlib.Path(tempfile.mkdtemp())
db.write(model, folder / "model.npz")
assert db.read(folder / "model.npz") == model
drawn.write_proof(folder / "answer.proof")
assert db.verify_proof(folder / "answer.proof").verdict == "holds"
try:
    db.from_pymc(None)
    raise SystemExit("PyMC should be missing here")
except ImportError as error:
    assert str(error).endswith("pip install 'dobrushin[pymc]'"), error
print("python", sys.version.split()[0], "dobrushin", db.__version__, exact.headline)
"""


def run(*command: object, **options: object) -> None:
    """Run a command, or end with its status."""
    done = subprocess.run([str(part) for part in command], check=False, **options)
    if done.returncode:
        sys.exit(done.returncode)


def environment(name: str, interpreter: str, *wanted: object) -> Path:
    """An environment with some packages; its Python."""
    folder = HOME / name
    python = folder / "bin" / "python"
    mark = folder / "installed"
    text = hashlib.sha256((HERE / "pyproject.toml").read_bytes()).hexdigest() + " ".join(map(str, wanted))
    if not mark.exists() or mark.read_text() != text:
        print(f"Setting up {folder.relative_to(HERE)} ...", file=sys.stderr, flush=True)
        run(interpreter, "-m", "venv", "--clear", folder)
        run(python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", *wanted)
        mark.write_text(text)
    return python


def try_engine(name: str) -> None:
    """The tests of an engine with the real library."""
    extras, tests = ENGINES[name]
    python = environment(name, sys.executable, "--editable", f"{HERE}[{extras}]", *TOOLS)
    print(f"--- {name}", flush=True)
    run(python, "-m", "pytest", "-p", "no:cacheprovider", *tests, cwd=HERE)


def try_wheel(interpreters: list[str]) -> None:
    """The wheel, in clean environments, far from the source."""
    with tempfile.TemporaryDirectory() as folder:
        run(
            sys.executable,
            "-m",
            "pip",
            "--disable-pip-version-check",
            "wheel",
            "--quiet",
            "--no-deps",
            "-w",
            folder,
            HERE,
        )
        (wheel,) = Path(folder).glob("*.whl")
        for interpreter in interpreters:
            said = subprocess.run([interpreter, "--version"], capture_output=True, text=True, check=True).stdout
            python = environment(f"wheel-{said.split()[1]}", interpreter, wheel)
            # The next wheel may have the same name and other contents.
            (python.parent.parent / "installed").unlink()
            clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
            run(python, "-c", SMOKE, cwd=folder, env=clean)
            command = python.parent / "dobrushin"
            run(command, "--version", cwd=folder, env=clean)
            run(command, "estimate", "--target", "0", "--quiet", cwd=folder, env=clean)


def main() -> None:
    wanted = sys.argv[1:]
    if wanted[:1] == ["wheel"]:
        try_wheel(wanted[1:] or [sys.executable])
    elif not wanted or any(name not in ENGINES for name in wanted):
        sys.exit(f"Name engines out of {', '.join(ENGINES)}, or wheel and interpreters.")
    else:
        for name in wanted:
            try_engine(name)


if __name__ == "__main__":
    main()
