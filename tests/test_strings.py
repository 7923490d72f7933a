"""Names from files in everything that people read: no control character, and no line that looks like an answer."""

import csv
import logging
import re
import unicodedata
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import dobrushin as db
from dobrushin._shared.text import csv_cell, printable, visible
from dobrushin.cli.app import app

FAKE = "rain = yes) = 0.99 exactly\nP(snow = no) = 0.99 exactly"
HOSTILE = [
    FAKE,
    "\x1b[2K\x1b[1A\x1b[31mP(0 = 1) = 0.99 exactly",
    "a\r\nNOT CERTIFIED\x00\x07\x08",
    "a\u202eb\u2066c\u200d\u2028d\u2029e\ufeff\u00ad",
    "\u3164", "\u2800\u034f", "\u00a0 \t ", "", "'", "\\", "[bold]x[/bold]", "[link=http://x]y",
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>', "=cmd|' /C calc'!A0", "@SUM(1)", "+1+1", "-2+3", "$x^2$", "_x", "%s %d {0}",
    "x" * 10**5, "\n" * 10**5, "\udc80", "0 = 1) = 0.60 +- 0.01, with 99% confidence; proved, not diagnosed",
]  # fmt: skip
NAMES = st.one_of(st.sampled_from(HOSTILE), st.text(max_size=30))
# Control and format characters, surrogates, line and paragraph separators.
FORBIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
ANSWER = re.compile(r"\s*(P\(|E\(|NOT CERTIFIED|holds)", re.IGNORECASE)


def is_clean(text):
    return all(c == "\n" or unicodedata.category(c) not in FORBIDDEN for c in text)


def model_of(names):
    """Two variables and three states with names from a list of at least five."""
    tables = [([0], np.array([0.0, 1.0])), ([0, 1], np.array([[0.0, 1.0, 0.5], [0.2, 0.1, 0.3]]))]
    return db.FactorGraph([2, 3], tables, names[:2], state_names=[("no", names[2]), ("no", *names[3:5])])


csv.field_size_limit(10**7)
FIVE = st.lists(NAMES, min_size=5, max_size=5, unique=True).filter(lambda names: "no" not in names)


@given(NAMES)
def test_a_printable_name_is_one_clean_line(name):
    for text in (printable(name), printable((name, 1)), printable((name,))):
        assert text.strip()
        assert "\n" not in text
        assert is_clean(text)
        assert not ANSWER.match(text)
        assert len(text) <= 100
    assert printable(name) == printable(name)
    assert is_clean(visible(name))
    if name.isalnum() and len(name) <= 80 and name.isascii():
        assert printable(name) == name


@given(st.integers() | st.floats() | st.booleans() | st.none())
def test_numbers_are_never_cut(number):
    assert printable(number) == str(number)
    assert csv_cell(number) is number or number != number


@given(NAMES)
def test_cells_are_no_formulas(name):
    cell = csv_cell(name)
    assert is_clean(cell)
    assert cell.lstrip()[:1] not in {"=", "@"}
    if cell.lstrip()[:1] in {"+", "-"}:
        float(cell)


@settings(max_examples=40, deadline=None)
@given(FIVE)
@example(HOSTILE[:5])
@example(HOSTILE[5:10])
@example(HOSTILE[10:15])
@example(HOSTILE[15:20])
@example(HOSTILE[20:25])
def test_answers_show_hostile_names_as_names(names):
    model = model_of(names)
    answers = [
        db.estimate(model, names[0], evidence={names[1]: names[3]}),
        db.estimate(model, db.Joint(*names[:2])),
        db.estimate(model, "all", evidence={}, method="dobrushin", tolerance=0.2, seed=1),
    ]
    for answer in answers:
        lines = str(answer).split("\n")
        assert is_clean(str(answer))
        assert "\n" not in answer.headline
        assert lines[0] == answer.headline
        assert not any(ANSWER.match(line) for line in lines[1:])
        assert max(map(len, lines)) < 600
        shown = answer._repr_html_()
        assert is_clean(shown)
        assert_is_text(shown)
        table = answer.to_dataframe().to_csv(index=False)
        assert is_clean(table)
        assert len(table.strip("\n").split("\n")) == len(answer) + 1
    assert is_clean(repr(model))


class _Tags(HTMLParser):
    def handle_starttag(self, tag, attrs):
        assert tag not in {"script", "img"}, tag
        assert not any(name.startswith("on") for name, _ in attrs)


def assert_is_text(page):
    _Tags().feed(page)


@pytest.mark.parametrize("start", range(21))
def test_the_command_line_and_its_files_show_them_as_names(start, tmp_path, caplog):
    names = HOSTILE[start : start + 5]
    path = tmp_path / "model.npz"
    db.write(model_of(names), path)
    page, table = tmp_path / "page.html", tmp_path / "answer.csv"
    with caplog.at_level(logging.DEBUG, logger="dobrushin"):
        run = CliRunner().invoke(
            app, ["estimate", str(path), "--report", str(page), "--output", str(table), "--verbose"]
        )
    assert run.exit_code == 0, run.output
    assert is_clean(run.output)
    assert sum(bool(ANSWER.match(line)) for line in run.stdout.split("\n")) <= 1
    assert is_clean(caplog.text)
    assert is_clean(page.read_text())
    with table.open(newline="") as file:
        rows = list(csv.reader(file))
    assert len(rows) == 6
    for row in rows[1:]:
        assert is_clean("".join(row))
        assert all(cell[:1] not in {"=", "@"} for cell in row)
    run = CliRunner().invoke(app, ["inspect", str(path)])
    assert is_clean(run.output)


@pytest.mark.parametrize("start", range(0, 25, 5))
def test_pictures_show_them_as_names(start):
    answer = db.estimate(model_of(HOSTILE[start : start + 5]), "all")
    axes = db.plots.marginals(answer)
    for axis in np.atleast_1d(axes).ravel():
        axis.figure.canvas.draw()
        texts = [text.get_text() for text in axis.findobj(match=lambda part: hasattr(part, "get_text"))]
        assert all(is_clean(text) for text in texts)


def test_labels_of_numbers_and_words_look_as_before():
    for name in ("rain", 3, -1, 0.5, "x[1, 0]", "two words", "s0", "café", ("a", 1), "<=50", "a.b-c", True):
        assert printable(name) == str(name)
