"""Write the checker as one file: ``python -m dobrushin.verify.single_file OUT``."""

import ast
import sys
from pathlib import Path

# Each module needs those before it.
MODULES = (
    *("document", "claim", "model", "readers/tables", "readers/networks", "readers/energies"),
    *(
        "readers/graphs",
        "readers/arrays",
        "readers/__init__",
        "compare",
        "proof",
        "certificates",
        "draws",
        "counts",
    ),
    *("clusters", "sums", "fields", "__init__", "__main__"),
)
HEADER = '''"""Check proof files of dobrushin: python {name} answer.proof [model-file].

This is the package `dobrushin.verify` in one file. It needs Python 3.11 and NumPy.
"""
'''


def single_file(name: str) -> str:
    """Return the text of all modules as one file, with the imports of other packages at the top."""
    imports, bodies = set[str](), list[str]()
    for module in MODULES:
        text = (Path(__file__).parent / f"{module}.py").read_text(encoding="utf-8")
        about, *rest = ast.parse(text).body
        found = [node for node in rest if isinstance(node, ast.Import | ast.ImportFrom)]
        imports |= set(map(ast.unparse, found))
        title = f"{module}.py\n\n{ast.literal_eval(ast.unparse(about))}".strip()
        lines = [f"# {line}".rstrip() for line in ("-" * 96, *title.splitlines())]
        body = text.splitlines()[found[-1].end_lineno :]  # imports stand at the head of a module
        bodies.append("\n".join([*lines, *body]).strip())
    own = {line for line in imports if line.startswith("from dobrushin.verify")}
    head = sorted(imports - own, key=lambda line: (line.startswith("from"), line))
    return "\n".join([HEADER.format(name=name), *head, "", *("\n\n\n".join(bodies), "")])


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(single_file(Path(sys.argv[1]).name), encoding="utf-8")
