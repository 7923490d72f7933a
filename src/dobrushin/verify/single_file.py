"""Write the checker as one file: ``python -m dobrushin.verify.single_file OUT``."""

import ast
import sys
from pathlib import Path

# Each module needs those before it.
MODULES = (
    *("document", "claim", "model", "modelfile", "proof", "certificates", "intervals", "draws"),
    *("counts", "sums", "fields", "__init__", "__main__"),
)
HEADER = '''"""Check proof files of dobrushin: python {name} answer.proof [model-file].

This is the package `dobrushin.verify` in one file. It needs Python 3.11 and NumPy.
"""
'''


def single_file(name: str) -> str:
    """Return the text of all modules, with the imports of other packages at its head."""
    imports, bodies = set[str](), list[str]()
    for module in MODULES:
        text = Path(__file__).with_name(f"{module}.py").read_text(encoding="utf-8")
        lines, tree = text.splitlines(), ast.parse(text)
        for node in tree.body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                if not ast.unparse(node).startswith("from dobrushin.verify"):
                    imports.add(ast.unparse(node))
                lines[node.lineno - 1 : node.end_lineno] = [""] * _height(node)
        first = tree.body[0]
        about = [f"# {line}".rstrip() for line in (ast.get_docstring(tree) or "").splitlines()]
        lines[: first.end_lineno] = [f"# {'-' * 96}", f"# {module}.py", "#", *about]
        bodies.append("\n".join(lines).strip())
    head = "\n".join(sorted(imports, key=lambda line: (line.startswith("from"), line)))
    return f"{HEADER.format(name=name)}\n{head}\n\n" + "\n\n\n".join(bodies) + "\n"


def _height(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(single_file(Path(sys.argv[1]).name), encoding="utf-8")
