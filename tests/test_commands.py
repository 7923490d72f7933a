"""Every example command of README.md and the docs is run, or is in a list here that says why not."""

import gzip
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import dobrushin as db
from dobrushin.cli.app import app

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *(path for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts)])

# Commands that are not run here, by how they begin, and why. Their verbs, options and scripts must exist all the same.
NOT_RUN = {
    "python3 run.py": "sets up an environment of its own; the dobrushin command in it is run instead",
    "python3 run.py test": "runs these tests",
    "dobrushin reproduce ising-tv": "minutes; tests/test_experiments.py runs each experiment on small models",
    "dobrushin reproduce all": "minutes",
    "dobrushin reproduce segmentation": "needs images that are not in the repository, and minutes",
    "dobrushin reproduce disease-mapping": "needs data that are not in the repository",
    "dobrushin reproduce named-entities": "needs data that are not in the repository",
    "dobrushin warmup": "compiles everything; tests/test_cli.py runs it",
    "dobrushin --install-completion": "changes the settings of the user's shell",
    "python benchmarks/": "minutes each",
}


def commands(text):
    """The commands of a page: lines of its shell blocks, and code within lines, without comments."""
    found = []
    for block in re.findall(r"^```(?:sh|text|console|bash)\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        found += [part.strip() for line in block.splitlines() for part in line.split(" && ")]
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    found += [" ".join(code.split()) for code in re.findall(r"(?<!`)`([^`]+)`(?!`)", prose)]
    starts = r"(dobrushin|python3? run\.py|python3? -m dobrushin[.\w]*|python3? (benchmarks|docs)/\w+\.py)( |$)"
    plain = [re.split(r"\s#", line)[0].strip() for line in found]
    return [line for line in plain if re.match(starts, line) and line != "dobrushin"]


def check_script(line):
    """A script of the repository is there, and has the options that a page gives it."""
    _, script, *words = shlex.split(line)
    if not (ROOT / script).exists():
        return 1, f"There is no {script}."
    text = (ROOT / script).read_text(encoding="utf-8")
    missing = [word for word in words if word.startswith("--") and f'"{word}"' not in text]
    return len(missing), f"{script} does not have {missing}"


def run(line):
    """Run a command, or check one that is not run. Its exit code, and what it printed."""
    is_left_out = any(line.startswith(start) for start in NOT_RUN if start != "python3 run.py")
    line = re.sub(r"^python3? (run\.py|-m dobrushin(\.cli)?)(?= |$)", "dobrushin", line)
    if re.match(r"python3? -m dobrushin\.verify\.single_file ", line):
        command = [sys.executable, *shlex.split(line)[1:]]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr
    line = re.sub(r"^python3? -m dobrushin\.verify", "dobrushin verify", line)
    if line.startswith("python"):
        return check_script(line)
    words = shlex.split(re.sub(r"\[[\w-]+\]", "", line))[1:]
    if words == ["test"]:
        return 0, ""
    # Options are read before help is printed, and a wrong one is an error.
    result = CliRunner().invoke(app, [*words, "--help"] if is_left_out else words)
    return result.exit_code, result.output


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the files that the pages speak of."""
    monkeypatch.chdir(tmp_path)
    grid = db.Ising.grid(4, 4, couplings=0.2)
    db.write(grid, "grid.uai")
    db.write(grid, "model.uai")
    Path("grid.uai.evid").write_text("1 5 1")
    network = (ROOT / "docs" / "gallery" / "asia.bif").read_text()
    Path("asia.bif").write_text(network)
    Path("asia.bif.gz").write_bytes(gzip.compress(network.encode()))
    db.write(db.GaussianField([[2.0, 0.5], [0.5, 2.0]], labels=["a", "b"]), "field.npz")
    db.estimate(db.read("grid.uai"), [0], proof="answer.proof")


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_example_commands_run(page):
    for line in commands(page.read_text(encoding="utf-8")):
        code, output = run(line)
        assert code == 0, f"{line}\n{output}"


def test_the_pages_have_commands_and_all_that_is_left_out_is_on_a_page():
    lines = [line for page in PAGES for line in commands(page.read_text(encoding="utf-8"))]
    assert len(lines) > 50
    for start in NOT_RUN:
        assert any(line.startswith(start) for line in lines), start


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "line",
    [
        "dobrushin estimate grid.uai --toleranse 0.01",
        "dobrushin estimate grid.uai --target 99",
        "dobrushin guess grid.uai",
        "python3 run.py estimate --tolerances 0.01",
        "dobrushin reproduce all --fast",
        "python benchmarks/core.py --fast",
        "python benchmarks/nothing.py",
    ],
)
def test_wrong_commands_are_seen(line):
    """Negative controls."""
    assert commands(f"```sh\n{line}   # a comment\n```\n") == commands(f"Use `{line}`.") == [line]
    assert run(line)[0] != 0
