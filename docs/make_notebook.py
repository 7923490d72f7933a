"""Write the tutorial notebook, executed, and pictures of it: `python docs/make_notebook.py`.

Needs the extra `test`, and Chromium for the pictures.
"""

from __future__ import annotations

import html
import sys
import tempfile
from pathlib import Path

import nbclient
import nbformat

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))
PATH, PICTURES = HERE / "tutorials" / "notebook.ipynb", HERE / "_static"
# Cells on the pictures: the network with evidence, and the bound with its bar.
SHOWN = (5, 15)
# Cells of text begin with #; the rest is code.
CELLS = '''# # A clinic in a notebook
#
# A Bayesian network with names, evidence that is certain and evidence that is not, and answers that say how far they
# can be trusted. The network is that of Lauritzen and Spiegelhalter (1988).
----
import pathlib, tempfile
import dobrushin as db

text = """network asia { }
variable asia { type discrete [ 2 ] { yes, no }; }
variable tub { type discrete [ 2 ] { yes, no }; }
variable smoke { type discrete [ 2 ] { yes, no }; }
variable lung { type discrete [ 2 ] { yes, no }; }
variable bronc { type discrete [ 2 ] { yes, no }; }
variable either { type discrete [ 2 ] { yes, no }; }
variable xray { type discrete [ 2 ] { yes, no }; }
variable dysp { type discrete [ 2 ] { yes, no }; }
probability ( asia ) { table 0.01, 0.99; }
probability ( tub | asia ) { (yes) 0.05, 0.95; (no) 0.01, 0.99; }
probability ( smoke ) { table 0.5, 0.5; }
probability ( lung | smoke ) { (yes) 0.1, 0.9; (no) 0.01, 0.99; }
probability ( bronc | smoke ) { (yes) 0.6, 0.4; (no) 0.3, 0.7; }
probability ( either | lung, tub ) { (yes, yes) 1, 0; (no, yes) 1, 0; (yes, no) 1, 0; (no, no) 0, 1; }
probability ( xray | either ) { (yes) 0.98, 0.02; (no) 0.05, 0.95; }
probability ( dysp | bronc, either ) { (yes, yes) 0.9, 0.1; (no, yes) 0.7, 0.3; (yes, no) 0.8, 0.2; (no, no) 0.1, 0.9; }
"""
path = pathlib.Path(tempfile.mkdtemp()) / "asia.bif"
path.write_text(text)
network = db.read(path)
network
----
# A path can stand wherever a model can. A small network shows its marginals in its nodes.
----
db.estimate(path, "all")
----
# A smoker with a dark spot on the X-ray. States have the names of the file.
----
answer = db.estimate(network, "all", evidence={"smoke": "yes", "xray": "yes"})
answer
----
# The radiologist is not sure: likelihoods take the place of a state.
----
db.estimate(network, "lung", evidence={"smoke": "yes", "xray": {"yes": 0.8, "no": 0.2}})
----
# Results go elsewhere as tables and pictures.
----
answer.to_dataframe().head()
----
db.plots.marginals(answer)
----
import matplotlib.pyplot as plt

db.plots.influence(db.influence(network))
plt.show()
----
# ## Large models
#
# A million spins, of which only what is near the target is looked at.
----
grid = db.Ising.grid(1000, 1000, couplings=0.2, state_names=("down", "up"))
db.estimate(grid, [0], evidence={1: "up"}, method="dobrushin", seed=1)
----
# Where Dobrushin's condition fails, simulation certifies. A call that takes longer than a moment shows how far it is.
----
torus = db.Ising.grid(60, 60, couplings=0.4, periodic=True)
scan = db.Scan.systematic(3600, steps=3600 * 400)
db.coalescence(torus, scan, targets=[0], runs=64 * 40, seed=1)
----
# ## The report
#
# Everything about an answer on one page, in its place; `answer.report("page.html")` writes it to a file.
----
answer.report()
'''


def make() -> nbformat.NotebookNode:
    """The notebook without outputs."""
    notebook = nbformat.v4.new_notebook(metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}})
    for k, text in enumerate(CELLS.strip().split("\n----\n")):
        is_text = text.startswith("# ")
        content = "\n".join(line.removeprefix("#").removeprefix(" ") for line in text.split("\n")) if is_text else text
        cell = nbformat.v4.new_markdown_cell(content) if is_text else nbformat.v4.new_code_cell(content)
        cell["id"] = f"cell-{k}"
        notebook.cells.append(cell)
    return notebook


def main() -> None:
    notebook = make()
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", record_timing=False).execute()
    notebook.metadata.pop("language_info", None)
    nbformat.write(notebook, PATH)
    for name, (paper, ink) in {"light": ("#fff", "#111"), "dark": ("#111", "#e8e8e8")}.items():
        take_picture(notebook, PICTURES / f"notebook-{name}.png", paper, ink)


def take_picture(notebook: nbformat.NotebookNode, path: Path, paper: str, ink: str) -> None:
    """What some cells show, on paper of this colour."""
    from browser import Browser, installed

    if (chromium := installed()) is None:
        return
    parts = []
    for k in SHOWN:
        cell = notebook.cells[k]
        code = html.escape(cell.source)
        shown = "".join(output["data"].get("text/html", "") for output in cell.outputs if "data" in output)
        parts.append(f"<pre>{code}</pre>{shown}")
    style = f"body {{ font: 14px sans-serif; background: {paper}; color: {ink}; margin: 16px }}"
    style += " pre { padding: 8px; border: 1px solid rgba(128, 128, 128, 0.5) }"
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        page.write_text(f'<!doctype html><meta charset="utf-8"><style>{style}</style>{"".join(parts)}', "utf-8")
        browser = Browser(chromium)
        browser.open(page, width=760, height=600)
        browser.screenshot(path)
        browser.close()


if __name__ == "__main__":
    main()
