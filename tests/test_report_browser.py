"""Reports in a real browser without a window; skipped where there is none."""

import dataclasses

import numpy as np
import pytest

import dobrushin as db
from dobrushin import report
from dobrushin._shared.text import visible
from report_cases import CASES, HOSTILE, cases


@pytest.fixture(scope="module")
def made():
    return cases()


@pytest.fixture
def opened(browser, made, tmp_path):
    def open_case(case, **window):
        estimate, about = made[case]
        report.write(estimate, tmp_path / "page.html", **about)
        browser.open(tmp_path / "page.html", **window)
        return browser

    return open_case


# Not more than that of the window: phones widen `innerWidth` to what a page wants.
WIDTH = "document.scrollingElement.scrollWidth"


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("window", [{}, {"width": 360, "height": 740}, {"dark": True}], ids=["desk", "phone", "dark"])
def test_pages_load_without_complaints_and_fit(opened, case, window):
    browser = opened(case, **window)
    assert browser.complaints() == []
    assert browser.run(WIDTH) == window.get("width", 1200)
    assert browser.run("document.querySelectorAll('#body tr').length") > 0
    assert browser.run("window.pwned") is None
    assert browser.run("document.images.length") == 0
    background = browser.run("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") != window.get("dark", False)


def test_sections_are_there_only_with_something_in_them(browser, made, tmp_path):
    path = tmp_path / "page.html"
    seen = "[...document.querySelectorAll('section')].filter((part) => !part.hidden).map((part) => part.id)"
    links = "[...document.querySelectorAll('nav a')].map((link) => link.hash.slice(1))"
    for case, about, missing in (
        ("exact", {"diagnosis": False}, {"bound", "scan", "model"}),
        ("dobrushin", {"diagnosis": False}, {"model"}),
        ("observed", made["observed"][1], set()),
    ):
        made[case][0].report(path, **about)
        browser.open(path)
        assert browser.run(seen) == browser.run(links)
        assert {"asked", "answer", "certificate", "bound", "scan", "model", "repeat"} - set(
            browser.run(seen)
        ) == missing


def test_a_phone_shows_all_columns_and_whole_names(browser, tmp_path):
    names = [f"a variable with a rather long name {k}" for k in range(3)]
    path = tmp_path / "page.html"
    db.estimate(db.Ising({(names[0], names[1]): 0.5, (names[1], names[2]): 0.4}), names).report(path)
    browser.open(path, width=400, height=800)
    box = "document.querySelector('.scroller')"
    assert browser.run(f"{box}.scrollWidth <= {box}.clientWidth")
    assert browser.run("[...document.querySelectorAll('#body tr:first-child td')].map((td) => td.dataset.label)") == [
        "target", "state", "probability", "lower", "upper", "bias bound",
    ]  # fmt: skip
    labels = browser.run("[...document.querySelectorAll('#chart .name')].map((text) => text.firstChild.data)")
    assert labels == [f"{name} = {state}" for name in names for state in (-1, 1)]
    ends = "[...document.querySelectorAll('#chart text')].map((text) => text.getBoundingClientRect())"
    assert browser.run(f"{ends}.every((box) => box.left >= 0 && box.right <= 400)")


def test_the_browser_tests_would_see_a_bad_page(browser, tmp_path):
    """Negative control."""
    path = tmp_path / "bad.html"
    path.write_text("<div style='width: 3000px'>wide</div><img src=x onerror='window.pwned=1; console.error(1)'>")
    browser.open(path, width=360, height=740)
    browser.run("new Promise((done) => setTimeout(done, 200))")
    assert len(browser.complaints()) >= 2
    assert browser.run("window.pwned") == 1
    assert browser.run(WIDTH) > 3000


def test_markup_that_slipped_in_would_still_not_run(browser, made, tmp_path):
    path = tmp_path / "page.html"
    made["exact"][0].report(path)
    path.write_text(path.read_text().replace("<header>", f"<header>{HOSTILE[0][9:]}<script>window.pwned=1</script>"))
    browser.open(path)
    assert browser.run("window.pwned") is None
    assert "Content Security Policy" in "".join(browser.complaints())
    assert browser.run("document.querySelectorAll('#body tr').length") > 0


def test_names_are_shown_as_they_are(opened):
    browser = opened("exact")
    cells = browser.run("[...document.querySelectorAll('#body tr td:first-child')].map((cell) => cell.textContent)")
    expected = [visible(name) for name in HOSTILE for _ in range(2)]  # what cannot be seen is escaped
    assert cells[: len(expected)] == expected
    assert browser.run("document.title") == HOSTILE[0]
    assert browser.run("document.getElementById('command').textContent") == HOSTILE[3]


PIXELS = "['map', 'bands'].map((id) => document.getElementById(id).toDataURL())"
NEXT = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


def test_the_slider_moves_the_pictures(opened):
    browser = opened("dobrushin")
    assert browser.run("document.getElementById('map-figure').hidden") is False
    before = browser.run(PIXELS)
    browser.run(
        "(() => { const time = document.getElementById('time'); time.value = 0;"
        " time.dispatchEvent(new Event('input')); })()"
    )
    start = browser.run(PIXELS)
    assert start[0] != before[0]
    assert start[1] != before[1]
    assert browser.run("document.getElementById('map').dataset.frame") == "0"
    # By keyboard.
    browser.run("document.getElementById('time').focus()")
    browser.press("ArrowRight", 39)
    browser.run(NEXT)
    assert browser.run("document.getElementById('map').dataset.frame") == "1"
    assert browser.run("document.getElementById('moment').textContent").startswith("step 1 of ")
    browser.press("End", 35)
    browser.run(NEXT)
    frames = browser.run("document.getElementById('time').max")
    assert browser.run("document.getElementById('bands').dataset.frame") == frames
    assert browser.run(PIXELS)[0] not in (before[0], start[0])
    assert browser.complaints() == []


def test_play_runs_and_stops(opened):
    browser = opened("coalescence", width=360, height=740)
    frame = "Number(document.getElementById('bands').dataset.frame)"
    first = browser.run(frame)
    browser.run("document.getElementById('play').click()")
    assert browser.run("document.getElementById('play').textContent") == "Pause"
    later = browser.run(
        "new Promise((done) => { const look = () => "
        f"({frame} > {first} ? done({frame}) : requestAnimationFrame(look)); look(); }})"
    )
    assert later > first
    browser.run("document.getElementById('play').click()")
    stopped = browser.run(frame)
    browser.run("new Promise((done) => setTimeout(done, 150))")
    assert browser.run(frame) == stopped
    assert browser.run("document.getElementById('play').getAttribute('aria-pressed')") == "false"


def test_many_rows_are_sorted_filtered_and_turned(browser, tmp_path):
    one = db.estimate(db.Ising({(0, 1): 0.5}), [0])
    count = 10_000
    means = np.random.default_rng(1).random(count)
    large = dataclasses.replace(
        one, targets=[f"gene {k}" for k in range(count)], states=[1] * count, value=means, lower=means - 0.01,
        upper=means + 0.01, bias_bound=np.full(count, 0.001),
    )  # fmt: skip
    large.report(tmp_path / "page.html")
    browser.open(tmp_path / "page.html")
    first = "document.querySelector('#body td').textContent"
    shown = "document.getElementById('shown').textContent"
    assert browser.run(shown) == "Rows 1 to 50 of 10,000"
    browser.run("document.getElementById('after').click()")
    assert (browser.run(first), browser.run(shown)) == ("gene 50", "Rows 51 to 100 of 10,000")
    browser.run("document.querySelectorAll('#heads button')[2].click()")
    assert browser.run(first) == f"gene {int(means.argmin())}"
    browser.run("document.querySelectorAll('#heads button')[2].click()")
    assert browser.run(first) == f"gene {int(means.argmax())}"
    assert browser.run("document.querySelectorAll('#heads th')[2].getAttribute('aria-sort')") == "descending"
    browser.run("document.querySelectorAll('#heads button')[0].click()")
    assert browser.run(first) == "gene 0"
    browser.run(
        "(() => { const box = document.getElementById('filter'); box.value = 'GENE 77 ='; "
        "box.dispatchEvent(new Event('input')); })()"
    )
    assert (browser.run(first), browser.run(shown)) == ("gene 77", "Rows 1 to 1 of 1")
    assert browser.run("document.querySelectorAll('#chart circle').length") == 1
    assert browser.complaints() == []


def test_a_page_can_be_read_without_scripts(opened):
    browser = opened("exact", scripts=False, width=360, height=740)
    text = browser.run("document.body.innerText")
    assert "Certified: exact up to rounding" in text
    assert HOSTILE[1] in text
    assert "How to repeat it" in text
    assert browser.run("document.querySelectorAll('noscript table tr').length") > len(HOSTILE)
    assert browser.run(WIDTH) == 360
