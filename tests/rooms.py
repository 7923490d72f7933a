"""The plan of the house: its rooms, which room may open a door to which, and how to read the doors from the source."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src" / "dobrushin"
# A room is an entry at the top of the package; folders inside it belong to it. A stage may import lower stages only.
STAGES = {
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
    "_self_check": 8,
    "_proof": 8,
    "_fields": 9,
}
# Nothing but the front door and the leaves named here imports a leaf.
LEAVES = {"__main__", "adapters", "cli", "experiments", "exact", "io", "plots", "report", "verify", "vision"}
MAY_IMPORT_LEAVES = {("cli", leaf) for leaf in LEAVES}
MAY_IMPORT_LEAVES |= {("experiments", "vision"), ("adapters", "io"), ("__main__", "cli")}
# A method of a result opens these rooms when it is called.
LAZY = {("_estimate", "report"), ("_proof", "verify")}
LAZY |= {(room, "_proof") for room in ("_variation", "_optimize", "_coalescence", "_estimate")}
# Clients of the library, and what they may import that is not public.
CLIENTS = {"experiments": set(), "vision": {"_shared"}}
PUBLIC_MODULES = {"__version__", "adapters", "errors", "exact", "io", "plots", "report", "typing", "verify", "vision"}
# Everybody's: they import no stage and no leaf.
SHARED = {"_shared", "_kernels", "errors", "typing"}
# The front door: the public names. Only leaves may come in through it.
FRONT = "__init__"
# Kernel files share these three, and each is otherwise self-contained: a cached kernel misses changes elsewhere.
KERNELS_MAY_IMPORT = {"numpy", "math", "dobrushin._shared.compile", "dobrushin._kernels.generator", "dobrushin._kernels.elementary", "dobrushin._kernels.field_laws", "dobrushin._kernels.gap", "dobrushin._kernels.orders"}  # fmt: skip  # noqa: E501


def files():
    """The Python files of the package."""
    return sorted(SOURCE.rglob("*.py"))


def rooms():
    """The entries at the top of the package that hold code."""
    return sorted({room(path) for path in files()})


def room(path):
    """The room that a file belongs to."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_modules(path):
    """Names of the modules that a file imports; those that only annotations need are left out."""
    tree = ast.parse(path.read_text())
    for_annotations = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if node in for_annotations:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            whole_package = node.module == "dobrushin"
            yield from (f"dobrushin.{alias.name}" for alias in node.names) if whole_package else [node.module]


def doors(path):
    """The rooms that a file imports from, without its own."""
    known = set(rooms())
    for module in imported_modules(path):
        parts = module.split(".")
        if parts[0] == "dobrushin":
            there = parts[1] if len(parts) > 1 and parts[1] in known else FRONT
            # The version is no way into the house.
            if there != room(path) and module != "dobrushin.__version__":
                yield there


# Where modules are loaded by names that are put together: the front door, and other libraries.
MAY_LOAD_ANY_NAME = {"__init__.py", "_shared/environment.py"}


def loaded_by_name(path):
    """What a file loads by name: the text that each name begins with, "" where that is not written out."""
    tree = ast.parse(path.read_text())
    loaders = {"import_module", "__import__"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in loaders:
            name = node.args[0] if node.args else None
            if isinstance(name, ast.JoinedStr):
                name = name.values[0]
            yield name.value if isinstance(name, ast.Constant) else ""


def hidden_doors(path):
    """Names that a file loads outside its own room, where the import rules cannot see them."""
    place = str(path.relative_to(SOURCE))
    own = f"dobrushin.{room(path)}."
    names = [name for name in loaded_by_name(path) if not name.startswith(own)]
    return [] if place in MAY_LOAD_ANY_NAME else names


def fault(here, there):
    """Why no file of room `here` may import room `there`, or None if it may."""
    if there in SHARED or here == FRONT or (here, there) in MAY_IMPORT_LEAVES | LAZY:
        return None
    if here in SHARED:
        return "what is shared imports nothing else"
    if there == FRONT:
        return None if here in LEAVES else "a stage uses rooms, not the public names"
    if there in LEAVES:
        return "nothing depends on a leaf"
    if here in STAGES and STAGES[there] >= STAGES[here]:
        return "a stage imports only stages to its left"
    return None


def faults():
    """Doors against the flow: (file, room, why)."""
    return [
        (str(path.relative_to(SOURCE)), there, why)
        for path in files()
        for there in sorted(set(doors(path)))
        if (why := fault(room(path), there))
    ]


def cycle():
    """Rooms that import each other in a circle; empty if there are none. The front door and lazy doors are left out."""
    graph = {name: set() for name in rooms()}
    for path in files():
        graph[room(path)] |= {there for there in doors(path) if (room(path), there) not in LAZY}
    graph = {here: theres - {FRONT} for here, theres in graph.items() if here != FRONT}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def private_names_of_clients(path):
    """Names of the package that a client uses although they are not public: imports, and attributes with an underscore.

    The experiments use the library as anybody does. Image segmentation may also use the shared checks of arguments.
    """
    here = room(path)
    if here not in CLIENTS:
        return []
    allowed = {"dobrushin", f"dobrushin.{here}", *(f"dobrushin.{name}" for name in PUBLIC_MODULES | CLIENTS[here])}
    found = [
        module
        for module in imported_modules(path)
        if module.split(".")[0] == "dobrushin" and ".".join(module.split(".")[:2]) not in allowed
    ]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and ast.unparse(node.value) != "self":
            found += [] if node.attr.endswith("__") else [ast.unparse(node)]
    return found
