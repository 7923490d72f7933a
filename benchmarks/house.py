"""How the house is built: the walks of a reader, what a new member touches, sizes, and doors against the flow.

    python benchmarks/house.py

No time is measured. A walk is a second call, on a new model; files count once, where they are first met. Kernels are
compiled first: calls within a kernel that is interpreted, which depend on what is on disk, do not count. Dataclass
constructors and answers from caches of the process are not seen. Compare only with counts of this same script.
"""

from __future__ import annotations

import ast
import io
import re
import statistics
import sys
import threading
import tokenize
from collections import Counter
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import dobrushin as db
from dobrushin._shared.compile import compile_always

# The plan of the house is that of the tests.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
import rooms as plan

# Everybody's: files of these rooms are counted, and going back to them is not.
_NO_ROOM = {"_shared", "errors"}
_LONG = 60
# For each thing that may vary: one member as code names and quotes it, and the rooms that could have to know it. Other
# rooms may use a member because they need just this one.
_STAGES = frozenset(plan.STAGES)
_MEMBERS = {
    "family": ("Potts", None, _STAGES | {"io", "cli"}),
    "method": (None, "coalescence", {"_estimate", "_diagnose", "cli", "report"}),
    "kernel": (None, "potts", {"_sampling", "_estimate"}),
    "format": ("maxcut", "maxcut", {"io", "cli"}),
    "likelihood": ("bernoulli", None, {"_fields", "_kernels", "_proof", "verify", "cli", "report"}),
}


def main() -> None:
    """Print the counts."""
    compile_always()
    scan = db.Scan.systematic(900, 100)
    walks: dict[str, Callable[[db.Ising], Any]] = {
        "estimate": lambda grid: db.estimate(grid, [0], seed=1),
        "estimate by sampling": lambda grid: db.estimate(grid, [0], method="dobrushin", tolerance=0.05, seed=1),
        "shortest_scan": lambda grid: db.shortest_scan(grid, [0], tolerance=0.05),
        "sample": lambda grid: db.sample(grid, scan, chains=100, seed=1),
    }
    for name, call in walks.items():
        call(_grid())  # what is loaded and compiled on first use is no part of the walk
        files, kernels = walk(call, _grid())
        print(f"{name}: {len(files)} files, {returns(files)} returns to a room left before")
        for line in _by_room(files):
            print("   ", line)
        print("    kernels:", ", ".join(sorted(kernels)) or "none")
        print("   ", Calls.count(call, _grid), "\n")
    print("estimate of a Poisson field:", Calls.count(_estimate_field, _poisson_field), "\n")
    for what, (name, quoted, rooms) in _MEMBERS.items():
        files = mentions(name, quoted, rooms)
        print(f"a {what}, such as {name or quoted}, is mentioned by {len(files)} file(s): {', '.join(files)}")
    print()
    for line in sizes():
        print(line)
    print("doors against the flow:", *(plan.faults() or ["none"]))
    print("circle of rooms:", " -> ".join(plan.cycle()) or "none")


def _grid() -> db.Ising:
    return db.Ising.grid(30, 30, couplings=0.2)


def walk(call: Callable[[db.Ising], Any], model: db.Ising) -> tuple[list[str], set[str]]:
    """The files whose functions are called, in the order in which they are first met, and the kernels they name.

    Compiled kernels are leaves that a profiler does not see: those count that a function on the walk refers to.
    """
    files: list[str] = []
    kernels: set[str] = set()

    def look(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        path = Path(code.co_filename)
        if event != "call" or plan.SOURCE not in path.parents or code.co_name == "<module>":
            return
        name = path.relative_to(plan.SOURCE).as_posix()
        if name not in files and not name.startswith("_kernels"):
            files.append(name)
        kernels.update(_kernels_of(frame))

    threading.setprofile(look)
    sys.setprofile(look)
    try:
        call(model)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return files, kernels


def _poisson_field() -> db.GaussianField:
    field = db.GaussianField.grid(6, 6, rho=0.5)
    return field.poisson({i: i % 4 for i in range(36)})


def _estimate_field(field: Any) -> None:
    db.estimate(field, [0, 7], tolerance=0.1, seed=1)


@dataclass
class Calls:
    """Python calls while a public function runs: how many, how deep within the package, and switches of package.

    Calls within NumPy, SciPy and the standard library count too; depth and switches are those of the package.
    """

    calls: int = 0
    depth: int = 0
    deepest: int = 0
    switches: int = 0
    _last: str = ""

    @classmethod
    def count(cls, call: Callable[[Any], Any], make: Callable[[], Any]) -> Calls:
        """Count during a second call, on a new model, after everything was compiled and loaded by the first."""
        call(make())
        model, found = make(), cls()
        sys.setprofile(found._look)
        try:
            call(model)
        finally:
            sys.setprofile(None)
        return found

    def _look(self, frame: FrameType, event: str, _: object) -> None:
        path = Path(frame.f_code.co_filename)
        self.calls += event == "call"
        if event not in ("call", "return") or plan.SOURCE not in path.parents:
            return
        self.depth += 1 if event == "call" else -1
        if event == "return":
            return
        self.deepest = max(self.deepest, self.depth)
        package = path.relative_to(plan.SOURCE).parts[0]
        if package not in ("_shared", "errors.py", self._last):
            self._last, self.switches = package, self.switches + 1

    def __str__(self) -> str:
        return f"{self.calls} calls, {self.deepest} deep, {self.switches} switches between packages"


def _kernels_of(frame: FrameType) -> Iterator[str]:
    for name in frame.f_code.co_names:
        thing = frame.f_globals.get(name)
        home = thing.__name__ if isinstance(thing, ModuleType) else str(getattr(thing, "__module__", ""))
        if home.startswith("dobrushin._kernels."):
            yield home.removeprefix("dobrushin._kernels.")


def returns(files: list[str]) -> int:
    """How often a reader who meets the files in this order comes back to a room that was left before."""
    rooms = [room for room in (plan.room(plan.SOURCE / name) for name in files) if room not in _NO_ROOM]
    left: set[str] = set()
    count = 0
    for here, there in pairwise(rooms):
        if here != there:
            left.add(here)
            count += there in left
    return count


def _by_room(files: list[str]) -> Iterator[str]:
    """One line for each stay in a room."""
    stay: list[str] = []
    for name in [*files, ""]:
        if stay and (not name or name.split("/")[0] != stay[0].split("/")[0]):
            yield stay[0].split("/")[0] + ": " + ", ".join(part.split("/", 1)[-1] for part in stay)
            stay = []
        stay.append(name)


def mentions(name: str | None, quoted: str | None, rooms: Set[str]) -> list[str]:
    """Files of some rooms whose code mentions a member by name, or a class that bears its quoted name.

    Comments and docstrings do not count, nor do `__init__` files, which hold the public names.
    """
    paths = [path for path in plan.files() if plan.room(path) in rooms and path.stem != "__init__"]
    trees = {path: list(ast.walk(ast.parse(path.read_text()))) for path in paths}
    bears_the_name = re.compile(rf"name(: .*)? = '{quoted}'")
    names = {name} | {
        node.name
        for nodes in trees.values()
        for node in nodes
        if isinstance(node, ast.ClassDef) and any(bears_the_name.fullmatch(ast.unparse(line)) for line in node.body)
    }

    def is_mention(node: ast.AST) -> bool:
        match node:
            case ast.Name(id=word) | ast.Attribute(attr=word) | ast.alias(name=word) | ast.ClassDef(name=word):
                return word in names
            case ast.Constant(value=str(text)):
                return text == quoted
        return False

    return [path.relative_to(plan.SOURCE).as_posix() for path in paths if any(map(is_mention, trees[path]))]


def sizes() -> Iterator[str]:
    """Entries, lines, and what is unusually long."""
    texts = {path: path.read_text() for path in plan.files()}
    lines = {path: text.count("\n") for path, text in texts.items()}
    total = sum(lines.values())
    longest = max(lines, key=lambda path: lines[path])
    entries = [entry for entry in plan.SOURCE.iterdir() if entry.name != "__pycache__"]
    yield f"entries at the top of the package: {len(entries)}"
    yield f"lines: {total} in {len(lines)} files, median {statistics.median(lines.values()):.0f}, " + (
        f"longest {longest.relative_to(plan.SOURCE)} {lines[longest]}"
    )
    held = [code_text(text) for text in texts.values()]
    code_total, width = sum(map(len, held)), sum(len(line) for lines_held in held for line in lines_held)
    yield f"lines of code (no blanks, comments, docstrings): {code_total}, mean width {width / code_total:.1f}"
    trees = {path: ast.parse(text) for path, text in texts.items()}
    nodes = [(path, node) for path, tree in trees.items() for node in ast.walk(tree)]
    functions_all = [node for _, node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    private = [node for node in functions_all if node.name.startswith("_") and not node.name.startswith("__")]
    documented = sum(len((ast.get_docstring(node) or "").splitlines()) for node in private)
    yield f"functions: {len(functions_all)}; lines of docstrings on private ones: {documented}"
    classes = Counter(node.name for _, node in nodes if isinstance(node, ast.ClassDef))
    twice = sorted(name for name, times in classes.items() if times > 1)
    yield f"class names defined more than once: {len(twice)} {', '.join(twice)}"
    guesses = Counter(
        ast.unparse(node)
        for _, node in nodes
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("hasattr", "getattr")
    )
    yield f"hasattr and getattr: {guesses.total()}"
    hidden = [path for path, node in nodes if isinstance(node, ast.Call) and "import_module" in ast.unparse(node.func)]
    yield f"imports by a string: {', '.join(path.relative_to(plan.SOURCE).as_posix() for path in hidden) or 'none'}"
    checks = sum(text.count("isinstance(") for text in texts.values())
    yield f"isinstance: {checks}, {1000 * checks / total:.1f} per thousand lines"
    functions = [
        (path, node)
        for path, text in texts.items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef)
    ]
    code = {f"{path.stem}.{node.name}": code_lines(node, texts[path].splitlines()) for path, node in functions}
    long = sorted((name for name in code if code[name] > _LONG), key=lambda name: -code[name])
    yield f"functions over {_LONG} lines of code: " + (", ".join(f"{name} {code[name]}" for name in long) or "none")
    for kernels in (False, True):
        counts = {f"{p.stem}.{f.name}": arguments(f) for p, f in functions if (plan.room(p) == "_kernels") is kernels}
        most = sorted(counts, key=lambda name: -counts[name])[:3]
        named = ", ".join(f"{name} {counts[name]}" for name in most)
        yield f"most arguments of {'kernels' if kernels else 'functions'}: {named}"


def code_text(text: str) -> list[str]:
    """The lines of a file that hold code, docstrings left out."""
    skipped = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    numbers = {
        line for token in tokens if token.type not in skipped for line in range(token.start[0], token.end[0] + 1)
    }
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            numbers -= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    lines = text.splitlines()
    return [lines[number - 1] for number in sorted(numbers)]


def code_lines(node: ast.FunctionDef, lines: list[str]) -> int:
    """Lines of a function that hold code: no docstring, comments or empty lines."""
    held = list(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    if ast.get_docstring(node) is not None:
        held = [line for line in held if not node.body[0].lineno <= line <= (node.body[0].end_lineno or 0)]
    texts = (lines[line - 1].strip() for line in held)
    return sum(bool(text) and not text.startswith("#") for text in texts)


def arguments(node: ast.FunctionDef) -> int:
    """How many arguments a function takes, without `self`."""
    parts = node.args
    names = [part.arg for part in (*parts.posonlyargs, *parts.args, *parts.kwonlyargs)]
    return sum(name not in ("self", "cls") for name in names)


if __name__ == "__main__":
    main()
