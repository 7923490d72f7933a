"""Reports and what notebooks show, checked by axe-core in a real browser; skipped where either is missing.

axe-core is found in ``node_modules`` here (``npm install --no-save axe-core``), or at the path in ``DOBRUSHIN_AXE``.
"""

import json
import os
from pathlib import Path

import pytest

import dobrushin as db
from browser import Browser, installed
from dobrushin import report
from report_cases import CASES, cases
from test_notebooks import VALUES

HERE = Path(__file__).parent.parent
PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>A notebook</title><style>
body {{ font: 14px sans-serif; margin: 1em; background: {paper}; color: {ink} }}</style></head>
<body><main><h1>A notebook</h1>{body}</main></body></html>"""
COLOURS = {"light": ("#fff", "#111"), "dark": ("#111", "#eee")}
RUN = """axe.run(document, {resultTypes: ["violations"], iframes: false}).then((found) =>
  JSON.stringify(found.violations.map((v) => [v.impact, v.id, v.nodes.slice(0, 3).map((n) => n.html)])))"""


@pytest.fixture(scope="module")
def axe():
    path = Path(os.environ.get("DOBRUSHIN_AXE") or HERE / "node_modules" / "axe-core" / "axe.min.js")
    if not path.is_file():
        pytest.skip("axe-core is not installed (npm install --no-save axe-core)")
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def browser():
    path = installed()
    if path is None:
        pytest.skip("no Chromium is installed")
    try:
        found = Browser(path)
    except (OSError, RuntimeError, TimeoutError) as error:
        pytest.skip(f"{path} does not start: {error}")
    yield found
    found.close()


def violations(browser, axe):
    """What is serious on the page that is open."""
    browser.run(axe + "; 0")
    return [found for found in json.loads(browser.run(RUN)) if found[0] in ("serious", "critical")]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_reports_have_no_serious_faults(axe, browser, dark, tmp_path):
    made = cases()
    for case in CASES:
        estimate, about = made[case]
        report.write(estimate, tmp_path / "page.html", **about)
        browser.open(tmp_path / "page.html", dark=dark)
        assert violations(browser, axe) == [], case


@pytest.mark.parametrize(("scheme", "width"), [("light", 1200), ("dark", 360)])
def test_what_notebooks_show_has_no_serious_faults(axe, browser, scheme, width, tmp_path):
    paper, ink = COLOURS[scheme]
    answer = db.estimate(db.Ising.grid(3, 3, couplings=0.1), [0, 4], evidence={8: 1})
    bar = '<div><label>sampling <progress value="0.34" max="1">34%</progress></label> 34 %, 12 s left</div>'
    shown = [bar, answer._repr_html_(), answer.report()._repr_html_(), *(v._repr_html_() for v in VALUES.values())]
    body = "".join(f"<section>{part}</section>" for part in shown)
    (tmp_path / "page.html").write_text(PAGE.format(paper=paper, ink=ink, body=body), encoding="utf-8")
    browser.open(tmp_path / "page.html", width=width, dark=scheme == "dark")
    assert violations(browser, axe) == []


def test_the_check_sees_a_bad_page(axe, browser, tmp_path):
    body = '<p style="color: #ccc">hardly there</p><img src="x.png"><div role="progressbar"></div>'
    (tmp_path / "page.html").write_text(PAGE.format(paper="#fff", ink="#111", body=body), encoding="utf-8")
    browser.open(tmp_path / "page.html")
    assert {"color-contrast", "image-alt", "aria-progressbar-name"} <= {found[1] for found in violations(browser, axe)}
