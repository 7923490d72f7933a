"""Where compiled code is kept, also where nothing can be written but a temporary folder, or not even that."""

import os
import shutil
import signal
import subprocess
import sys

import pytest

import dobrushin as db
import rooms as plan
from dobrushin._shared.compile import kernel

WORK = """
import dobrushin as db
from dobrushin._shared.compile import compile_always
compile_always()
print(db.variation(db.Ising.grid(3, 3, couplings=0.2), db.Scan.systematic(9, 90)).value)
"""


@pytest.fixture
def run_sealed(tmp_path):
    """Runs code with a copy of the package and a home in which no folder can be made, not even by root."""
    package = tmp_path / "site" / "dobrushin"
    shutil.copytree(plan.SOURCE, package, ignore=shutil.ignore_patterns("__pycache__"))
    for folder in ("_kernels", "_shared"):
        (package / folder / "__pycache__").write_text("")
    home, temporary = tmp_path / "home", tmp_path / "temporary"
    home.write_text("")
    temporary.mkdir()
    sealed = {name: str(home) for name in ("HOME", "XDG_CACHE_HOME", "LOCALAPPDATA", "USERPROFILE")}
    environment = {**os.environ, **sealed, "PYTHONPATH": str(package.parent), "TMPDIR": str(temporary)}
    environment.pop("NUMBA_CACHE_DIR", None)

    def run(code, **more):
        command = [sys.executable, "-c", code]
        return subprocess.run(
            command, capture_output=True, text=True, env={**environment, **more}, check=False, cwd=tmp_path
        )

    return run


def value():
    return f"{db.variation(db.Ising.grid(3, 3, couplings=0.2), db.Scan.systematic(9, 90)).value}\n"


def test_without_a_place_numba_refuses(run_sealed):
    """Negative control: nothing but our choice of a folder makes the calls below work."""
    choose_nothing = "import dobrushin._shared.compile as c; c._temporary_folder = lambda: ''\n"
    done = run_sealed(choose_nothing + WORK)
    assert done.returncode == 1
    assert "no locator available" in done.stderr


def test_a_temporary_folder_is_used_said_once_and_removed(run_sealed, tmp_path):
    look = "import os; print(sum(len(files) for _, _, files in os.walk(os.environ['TMPDIR'])) > 0)"
    other = "import numba; print(repr(numba.config.CACHE_DIR))"
    done = run_sealed("\n".join([WORK, look, other]))
    assert done.returncode == 0, done.stderr
    assert done.stdout == value() + "True\n''\n"
    assert done.stderr.count("CacheWarning: No folder for compiled code can be written") == 1
    assert "Set NUMBA_CACHE_DIR" in done.stderr
    assert list((tmp_path / "temporary").iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
def test_a_fork_leaves_the_folder_to_its_parent(run_sealed):
    fork = """
import os, sys
if os.fork() == 0:
    sys.exit()
os.wait()
print(len(os.listdir(os.environ["TMPDIR"])))
"""
    done = run_sealed("import dobrushin._kernels.variation\n" + fork)
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr


def test_without_a_temporary_folder_nothing_is_kept(run_sealed):
    no_folder = """
import tempfile
def refuse(**options):
    raise FileNotFoundError(2, "No usable temporary directory found")
tempfile.mkdtemp = refuse
"""
    done = run_sealed(no_folder + WORK)
    assert (done.returncode, done.stdout) == (0, value()), done.stderr
    assert done.stderr.count("it is not kept on disk") == 1


def test_the_folder_of_the_user_is_used_without_a_word(run_sealed, tmp_path):
    done = run_sealed(WORK, NUMBA_CACHE_DIR=str(tmp_path / "mine"))
    assert (done.returncode, done.stdout, done.stderr) == (0, value(), "")
    assert list((tmp_path / "mine").rglob("*.nbi"))
    assert list((tmp_path / "temporary").iterdir()) == []


def test_ctrl_c_waits_until_code_is_compiled(monkeypatch):
    @kernel
    def double(x):
        return 2 * x

    compiler = type(double._compiler)
    compile_now = compiler.compile

    def press(self, *args):
        signal.raise_signal(signal.SIGINT)
        return compile_now(self, *args)

    monkeypatch.setattr(compiler, "compile", press)
    monkeypatch.setattr(type(double._cache), "load_overload", lambda *_: None)  # an earlier run of the tests kept it
    with pytest.raises(KeyboardInterrupt):
        double(1)
    assert double(1) == 2  # it is there
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_without_a_compiler_one_sentence_says_so():
    code = "try:\n    from dobrushin import influence\nexcept ImportError as error:\n    print(error)"
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0
    assert "NUMBA_DISABLE_JIT" in done.stdout


def test_the_log_says_once_that_code_is_compiled_and_what_does_it_beforehand(tmp_path):
    listen = "import logging; logging.basicConfig(level=logging.INFO)\n"
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    for lines in (1, 0):  # the second process finds compiled code
        done = subprocess.run(
            [sys.executable, "-c", listen + WORK], capture_output=True, text=True, env=environment, check=False
        )
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("'dobrushin warmup' compiles all of them beforehand") == lines
