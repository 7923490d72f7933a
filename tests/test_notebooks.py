"""Results as notebooks show them: complete, escaped, well formed, and without colours of their own."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest

import dobrushin as db
from dobrushin._shared.html import Bar, card

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


VALUES = dict(values())


@pytest.mark.parametrize("name", VALUES)
def test_everything_has_a_page_that_is_well_formed_and_escaped(name):
    page = VALUES[name]._repr_html_()
    text = read_html(VALUES[name])
    assert text
    assert "<script>" not in page
    assert len(page) < 30_000


@pytest.mark.parametrize("name", VALUES)
def test_pages_take_their_colours_from_where_they_are(name):
    colours = re.findall(r"(?:color|background|border[a-z-]*): ?([^;\"]+)", VALUES[name]._repr_html_())
    allowed = {"none", "0", "collapse", "inherit", "currentColor", "1px solid rgba(128, 128, 128, 0.45)"}
    assert {colour.strip() for colour in colours} <= allowed


def test_pages_say_what_matters():
    text = read_html(VALUES["estimate"])
    assert EVIL in text
    assert "c = no" in text
    assert "exactly" in text
    assert "what it rests on" in text
    assert "NOT CERTIFIED" in read_html(VALUES["uncertified"])
    assert "proved, not diagnosed" in read_html(VALUES["chains"])
    assert "... 180 more rows ..." in read_html(VALUES["many"])
    assert VALUES["model"].fingerprint in read_html(VALUES["model"])
    assert "Dobrushin's condition" in read_html(VALUES["influence"])
    assert "steps" in read_html(VALUES["scan"])
    assert "converged" in read_html(VALUES["fit"])
    assert "without any bound" in read_html(VALUES["samples"])
    assert f"yes {EVIL}: 0." in read_html(VALUES["samples"])
    assert "tolerance" in read_html(VALUES["plan"])


def test_bars_show_the_value_and_its_interval():
    page = card("x", (), ("bar",), [[Bar(0.25, 0.2, 0.4)]])
    assert "width: 25.00%" in page
    assert "left: 20.00%; width: 20.00%" in page
    assert 'aria-label="0.25, between 0.2 and 0.4"' in page
    outside = card("x", (), ("bar",), [[Bar(1.5, -1.0, 2.0)]])
    assert "width: 100.00%" in outside
