"""Results as notebooks show them: complete, escaped, well formed, and without colours of their own."""

import importlib.util
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import dobrushin as db
from dobrushin._shared.text import Bar, card

DOCS = Path(__file__).parent.parent / "docs"
EVIL = '<script>alert("x")</script>&'


class Checker(HTMLParser):
    """Counts that every tag is closed, and keeps the text."""

    def __init__(self):
        super().__init__()
        self.open, self.text, self.tags = [], "", set()

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.tags.add(tag)
        assert not any(name.startswith("on") for name, _ in attrs)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def read_html(value):
    """What is on the page, if it is well formed."""
    checker = Checker()
    checker.feed(value._repr_html_() if hasattr(value, "_repr_html_") else value)
    assert checker.open == []
    assert not checker.tags & {"script", "style", "link", "img", "iframe"}
    return checker.text


def evil_model():
    names = (f"yes {EVIL}", "no")
    return db.Ising({(EVIL, "b"): 0.3, ("b", "c"): 0.2}, state_names=names)


def values():
    model = evil_model()
    scan = db.shortest_scan(model, ["b"], tolerance=0.1)
    data = db.sample(model, db.Scan.systematic(3, 60), chains=40, seed=1)
    yield "model", model
    yield "potts", db.Potts.grid(5, 5, states=12, couplings=0.1)
    yield "network", db.FactorGraph([2, 3], [((0, 1), np.zeros((2, 3)))])
    yield "local", db.Ising.grid(10**5, 10**5, couplings=0.1)
    yield "scan", db.Scan.systematic(3, 60)
    yield "result", scan
    yield "influence", db.influence(model)
    yield "rows", db.influence(model, rows=["b"])
    yield "variation", scan.variation
    yield "plan", db.plan(model, "b", method="dobrushin")
    yield "estimate", db.estimate(model, "all", evidence={"c": "no"})
    yield "chains", db.estimate(model, ["b", db.Joint("b", "c")], method="dobrushin", tolerance=0.1, seed=1)
    yield "uncertified", db.estimate(model, "b", method="uncertified", tolerance=0.1, seed=1)
    yield "statistic", db.estimate(model, db.Statistic.magnetisation(model))
    yield "many", db.estimate(db.Ising.grid(10, 10, couplings=0.1), "all")
    yield "samples", data
    yield "fit", db.fit(model, data.to_dataframe(), method="exact", iterations=12)
    yield "diagnosis", db.diagnose(model)
    yield "coalescence", db.coalescence(model, db.Scan.systematic(3, 60), runs=64, seed=1)
    yield "exact draws", db.exact_sample(model, [EVIL, "b"], draws=20, seed=1)
    yield "queries", db.estimate_many(model, [("b", {"c": f"yes {EVIL}"}), ("no", None)] + [("b", None)] * 30)
    yield "most likely", db.exact.most_likely(model)
    field = db.GaussianField([[2.0, -1.0], [-1.0, 2.0]], lower=0.0, upper=3.0, labels=[EVIL, "b"])
    sweeps = db.Scan.systematic(2, 40)
    yield "field", field
    yield "field samples", db.sample(field, sweeps, chains=10, seed=1)
    yield "field estimate", db.estimate(field, [EVIL, db.Exceeds("b", 1.0)], tolerance=0.2, seed=1)
    yield "field influence", db.influence(field)
    yield "field variation", db.variation(field, sweeps)
    yield "field diagnosis", db.diagnose(field)


VALUES = dict(values())


@pytest.mark.slow
@pytest.mark.parametrize("name", VALUES)
def test_everything_has_a_page_that_is_well_formed_and_escaped(name):
    page = VALUES[name]._repr_html_()
    text = read_html(VALUES[name])
    assert text
    assert "<script>" not in page
    assert len(page) < 30_000


@pytest.mark.slow
@pytest.mark.parametrize("name", VALUES)
def test_pages_take_their_colours_from_where_they_are(name):
    colours = re.findall(r"(?:color|background|border[a-z-]*): ?([^;\"]+)", VALUES[name]._repr_html_())
    allowed = {"none", "0", "collapse", "inherit", "currentColor", "1px solid rgba(128, 128, 128, 0.45)"}
    assert {colour.strip() for colour in colours} <= allowed


def test_pages_say_what_matters():
    text = read_html(VALUES["estimate"])
    assert EVIL in text
    assert "c = no" in text
    assert "exact to 1e-12" in text
    assert "what it rests on" in text
    assert "NOT CERTIFIED" in read_html(VALUES["uncertified"])
    assert "proved, not diagnosed" in read_html(VALUES["chains"])
    assert "... 180 more rows ..." in read_html(VALUES["many"])
    assert VALUES["model"].fingerprint in read_html(VALUES["model"])
    assert "Dobrushin's condition" in read_html(VALUES["influence"])
    assert "steps" in read_html(VALUES["scan"])
    assert "converged" in read_html(VALUES["fit"])
    assert "without any bound" in read_html(VALUES["samples"])
    assert f"{EVIL}': 0." in read_html(VALUES["samples"])
    assert "tolerance" in read_html(VALUES["plan"])
    assert "not coalesced" in read_html(VALUES["coalescence"])
    assert f"yes {EVIL}: 0." in read_html(VALUES["exact draws"])
    assert f"c = 'yes {EVIL}'" in read_html(VALUES["queries"])
    assert "12 more queries" in read_html(VALUES["queries"])
    assert "labels of the model" in read_html(VALUES["queries"])
    assert "deviation" in read_html(VALUES["field samples"])


def test_bounds_are_rounded_up_and_said_in_their_own_distance():
    model = db.Ising.grid(5, 5, couplings=0.2)
    found = db.shortest_scan(model, [0], tolerance=0.01).variation
    said = float(re.search(r"at most ([0-9.e-]+)", found._repr_html_()).group(1))
    assert found.target_bounds.max() <= said <= 1.001 * found.target_bounds.max()
    field = db.GaussianField.grid(3, 3)
    assert "in Wasserstein distance" in db.variation(field, db.Scan.systematic(9, 90))._repr_html_()
    assert ">probability<" not in db.estimate(field)._repr_html_()  # no empty column for bars


def test_bars_show_the_value_and_its_interval():
    page = card("x", (), ("bar",), [[Bar(0.25, 0.2, 0.4)]])
    assert "width: 25.00%" in page
    assert "left: 20.00%; width: 20.00%" in page
    assert 'aria-label="0.25, between 0.20 and 0.40"' in page
    outside = card("x", (), ("bar",), [[Bar(1.5, -1.0, 2.0)]])
    assert "width: 100.00%" in outside


# -- marginals on the graph --------------------------------------------------------------------


def sprinkler():
    return db.FactorGraph(
        [2, 2, 2],
        [((0,), np.log([0.2, 0.8])), ((0, 1), np.log([[0.1, 0.9], [0.5, 0.5]])),
         ((0, 1, 2), np.log([[[0.9, 0.1], [0.8, 0.2]], [[0.7, 0.3], [0.1, 0.9]]]))],
        labels=["rain", "sprinkler", "grass"],
        state_names=[("yes", "no"), ("on", "off"), ("wet", "dry")],
    )  # fmt: skip


def test_small_networks_are_drawn_with_their_marginals():
    answer = db.estimate(sprinkler(), ["rain", "sprinkler"], evidence={"grass": "wet"})
    page = answer._repr_html_()
    assert page.count("<polygon") == 3  # an arrow from each parent
    assert "observed: wet" in page
    assert f">{answer['rain'].value[0]:.3f}</text>" in page
    soft = db.estimate(sprinkler(), "rain", evidence={"grass": {"wet": 0.9, "dry": 0.2}})._repr_html_()
    assert "soft evidence" in soft
    assert "grass: wet 0.9 / dry 0.2" in soft
    undirected = db.estimate(db.Ising.grid(3, 3, couplings=0.1), [4])._repr_html_()
    assert undirected.count("<line") == 12
    assert "<polygon" not in undirected


@pytest.mark.parametrize(
    ("model", "targets"),
    [
        (db.Ising.grid(6, 6, couplings=0.1), [0]),
        (db.Ising.grid(3, 3, couplings=0.1), db.Joint(0, 1)),
        (db.Ising.grid(10**5, 10**5, couplings=0.1), [0]),
        (db.GaussianField([[2.0, -1.0], [-1.0, 2.0]]), [0]),
    ],
)
def test_other_graphs_are_not_drawn(model, targets):
    assert "<svg" not in db.estimate(model, targets, tolerance=0.1)._repr_html_()


def test_boxes_do_not_overlap_and_parents_stand_above():
    page = db.estimate(sprinkler(), "all")._repr_html_()
    boxes = re.findall(r'<rect x="([-\d.]+)" y="([-\d.]+)" width="168" height="([\d.]+)"', page)
    places = np.array(boxes, dtype=float)
    for i in range(3):
        for j in range(i):
            apart_x = abs(places[i, 0] - places[j, 0]) >= 168
            apart_y = abs(places[i, 1] - places[j, 1]) >= max(places[i, 2], places[j, 2])
            assert apart_x or apart_y
    rain, sprinkler_box, grass = places[:, 1]
    assert rain < sprinkler_box < grass


def test_the_report_is_shown_in_its_place(tmp_path):
    answer = db.estimate(evil_model(), "b", evidence={"c": "no"})
    page = answer.report()
    frame = page._repr_html_()
    assert frame.startswith("<iframe title=")
    assert 'sandbox="allow-scripts"' in frame
    assert "<script>" not in frame  # the page is an attribute
    page.save(tmp_path / "page.html")
    answer.report(tmp_path / "same.html", model=answer.asked.model, diagnosis=False)
    assert (tmp_path / "page.html").read_text() == (tmp_path / "same.html").read_text() == page.html
    assert repr(page).startswith("Page('P(b = no | c = no) = ")


# -- a real kernel -----------------------------------------------------------------------------


def kinds(notebook):
    """What the cells of a notebook show, but for progress, which depends on how long it takes."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return [
        [
            sorted(output["data"])
            for output in cell.outputs
            if output.output_type == "execute_result" or "image/png" in output["data"]
        ]
        for cell in cells
    ]


@pytest.mark.slow
def test_the_tutorial_runs_and_shows_what_is_stored():
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    spec = importlib.util.spec_from_file_location("make_notebook", DOCS / "make_notebook.py")
    maker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(maker)
    notebook, stored = maker.make(), nbformat.read(maker.PATH, as_version=4)
    assert [cell.source for cell in notebook.cells] == [cell.source for cell in stored.cells]
    long = next(cell for cell in stored.cells if "coalescence" in cell.source)
    assert "<progress" in long.outputs[0]["data"]["text/html"]  # a call of about ten seconds
    for cell in notebook.cells:
        cell.source = cell.source.replace("64 * 40", "64")
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    assert kinds(notebook) == kinds(stored)
    cells = {cell.source.split("\n")[-1]: cell.get("outputs") for cell in notebook.cells}
    assert "<svg" in cells["answer"][0]["data"]["text/html"]
    assert "<iframe" in cells["answer.report()"][0]["data"]["text/html"]
    for line in ("db.plots.marginals(answer)", "plt.show()"):
        assert any("image/png" in output["data"] for output in cells[line])


def test_pyplot_knows_figures_where_it_is_used():
    from matplotlib import pyplot as plt

    ax = db.plots.marginals(db.estimate(sprinkler(), "all"))
    assert plt.get_fignums() == [ax.figure.number]
