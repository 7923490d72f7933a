"""Pictures: the Axes that they use, their colours and names, bad input, and that they touch nothing else."""

import io
import itertools

import matplotlib
import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

import dobrushin as db
from dobrushin.plots import style
from sentences import check_sentence

MODEL = db.Ising.grid(4, 4, couplings=0.2, fields=0.1)
SCAN = db.Scan.systematic(16, 160)
BOUND = db.variation(MODEL, SCAN, targets=[0])
NAMED = db.Ising({("a$b$", "rain"): 0.4, ("rain", "_x"): 0.3, ("_x", "line\nbreak"): 0.2}, fields={"rain": 0.5})
ANSWER = db.estimate(MODEL, "all", tolerance=0.05, method="dobrushin", seed=1)
RUN = db.sample(MODEL, SCAN, chains=6, seed=1, record=db.Record(variables=[0, 5, 9], every=16))

PICTURES = {
    "bounds": lambda **ax: db.plots.bounds({"systematic": BOUND}, **ax),
    "scan_map": lambda **ax: db.plots.scan_map(SCAN, shape=(4, 4), segments=2, **ax),
    "scan_map of a graph": lambda **ax: db.plots.scan_map(SCAN, model=MODEL, segments=1, **ax),
    "influence": lambda **ax: db.plots.influence(MODEL, **ax),
    "marginals": lambda **ax: db.plots.marginals(ANSWER, **ax),
    "against_exact": lambda **ax: db.plots.against_exact(ANSWER, db.exact.marginals(MODEL), **ax),
    "trace": lambda **ax: db.plots.trace(RUN, **ax),
    "trace of states": lambda **ax: db.plots.trace(RUN, [5], show="states", **ax),
}
PANELS = {"scan_map": 2, "influence": 2, "trace": 3}


def render(axes):
    """Draw for real, where warnings of the drawing appear."""
    figure = np.ravel(axes)[0].figure
    figure.savefig(buffer := io.BytesIO(), format="png", dpi=50)
    return buffer.getvalue()


# -- what all have in common ---------------------------------------------------------------


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_touch_no_setting_and_pyplot_knows_their_figures(name):
    before = dict(matplotlib.rcParams)
    axes = PICTURES[name]()
    assert len(render(axes)) > 1000
    assert all(isinstance(ax, Axes) for ax in np.ravel(axes))
    assert np.shape(axes) == ((PANELS[name],) if name in PANELS else ())
    assert dict(matplotlib.rcParams) == before
    assert plt.get_fignums() == [np.ravel(axes)[0].figure.number]


@pytest.mark.parametrize("name", PICTURES)
def test_draws_on_the_axes_that_it_is_given_and_returns_them(name):
    count = PANELS.get(name, 1)
    given = Figure(layout="constrained").subplots(1, count)
    got = PICTURES[name](ax=given)
    assert [a is b for a, b in zip(np.ravel(got), np.ravel(given), strict=True)] == [True] * count
    assert all(ax.has_data() for ax in np.ravel(given))
    listed = list(np.ravel(Figure().subplots(1, count)))
    assert np.ravel(PICTURES[name](ax=listed)).tolist() == listed
    render(got)


@pytest.mark.parametrize("name", PICTURES)
def test_wrong_axes_are_refused(name):
    count = PANELS.get(name, 1)
    what = "a matplotlib Axes" if count == 1 else f"{count} matplotlib Axes"
    for wrong in ("left", 3, Figure(), Figure().subplots(1, count + 1), [None] * count):
        with pytest.raises(db.ArgumentError, match=rf"'ax' argument of dobrushin.plots.\w+ must be {what}\. Got"):
            PICTURES[name](ax=wrong)


@pytest.mark.parametrize("name", PICTURES)
def test_says_what_to_install(name, monkeypatch):
    import importlib

    real = importlib.import_module

    def missing(module):
        if module.startswith("matplotlib"):
            raise ImportError(module)
        return real(module)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(ImportError, match=r"needs matplotlib, .* pip install 'dobrushin\[plots\]'"):
        PICTURES[name]()


@pytest.mark.parametrize("name", PICTURES)
@pytest.mark.parametrize(("outside", "inside"), [("white", "white"), ("#14181e", "#14181e"), ("white", "black")])
def test_text_can_be_read_on_light_and_dark(name, outside, inside):
    figure = Figure(facecolor=outside, layout="constrained")
    given = figure.subplots(1, PANELS.get(name, 1))
    for ax in np.ravel(given):
        ax.set_facecolor(inside)
    PICTURES[name](ax=given)
    figure.canvas.draw()
    for ax in figure.axes:  # those of colour bars too
        ticks = [text for text in (*ax.get_xticklabels(), *ax.get_yticklabels()) if text.get_text()]
        for text in (ax.title, ax.xaxis.label, ax.yaxis.label, *ticks):
            assert style._contrast(to_rgb(text.get_color()), to_rgb(outside)) >= 3, text
        legend = ax.get_legend()
        for text in (*ax.texts, *(legend.get_texts() if legend else ())):
            assert style._contrast(to_rgb(text.get_color()), to_rgb(inside)) >= 4.5, text


def test_colours_that_can_be_read_are_left_alone():
    ax = Figure(facecolor="#14181e").subplots()
    ax.set_facecolor("none")
    ax.xaxis.label.set_color("#ffd0d0")
    assert style.look(ax).frame == style.look(ax).ink == "#ffd0d0"
    # Where one can see through everything, the text says what is behind.
    clear = Figure(facecolor="none").subplots()
    clear.set_facecolor("none")
    assert style.look(clear).colors == style.ON_LIGHT
    clear.xaxis.label.set_color("white")
    assert style.look(clear).colors == style.ON_DARK
    assert style.look(clear).ink == "white"
    # Half a shade of black is grey; a panel of a figure inside a dark one is dark.
    ax.set_facecolor((0, 0, 0, 0.5))
    assert style.look(ax).colors == style.ON_DARK
    inner = Figure(facecolor="black").subfigures(1, 2)[0].subplots()
    inner.set_facecolor("none")
    assert style.look(inner).ink == style.CHALK


# Simulated colour vision, on linear RGB (Machado, Oliveira and Fernandes, 2009, severity 1).
VISION = {
    "normal": np.eye(3),
    "protanopia": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "deuteranopia": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "tritanopia": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}


def seen(color, vision):
    """CIE Lab coordinates of a colour as it is seen."""
    c = np.array(to_rgb(color))
    linear = np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)
    rgb = np.clip(np.array(VISION[vision]) @ linear, 0, 1)
    to_xyz = np.array([[0.4125, 0.3576, 0.1804], [0.2127, 0.7152, 0.0722], [0.0193, 0.1192, 0.9503]])
    t = to_xyz @ rgb / (0.9505, 1.0, 1.0888)
    f = np.where(t > 0.008856, np.cbrt(t), 7.787 * t + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def nearest(colors, vision):
    return min(np.linalg.norm(seen(a, vision) - seen(b, vision)) for a, b in itertools.combinations(colors, 2))


@pytest.mark.parametrize("vision", VISION)
def test_colours_are_told_apart_with_every_vision(vision):
    for colors, background in ((style.ON_LIGHT, "white"), (style.ON_DARK, "#14181e")):
        assert nearest(colors, vision) > 12
        assert all(style._contrast(to_rgb(c), to_rgb(background)) >= 3 for c in colors)
    alike = nearest(("#D55E00", "#B07A00"), vision)  # a pair that would not do
    assert (alike < 12) == (vision in ("protanopia", "deuteranopia"))


def test_names_are_plain_text():
    assert style.plain("a$b$") == r"a\$b\$"
    assert style.plain("line\nbreak\x00") == r"line\nbreak\x00"
    assert style.plain("x" * 100) == "x" * 39 + "…"
    assert style.entry("_x") == " _x"
    axes = [
        db.plots.bounds({"a$b$ \\frac": BOUND, "_x": BOUND, "$": BOUND}),
        db.plots.marginals(db.estimate(NAMED, "all")),
        db.plots.influence(NAMED)[0],
        db.plots.scan_map(db.Scan.systematic(4, 8), model=NAMED, segments=1, targets=["a$b$"]),
    ]
    for ax in axes:
        render(ax)
        texts = [*ax.texts, *(ax.get_legend().get_texts() if ax.get_legend() else ax.get_yticklabels())]
        for text in texts:
            _, is_math = text._preprocess_math(text.get_text())
            assert not is_math, text
            assert "\n" not in text.get_text()
    assert len(axes[0].get_legend().get_texts()) == 3
    assert [t.get_text() for t in axes[1].get_yticklabels()] == [r"a\$b\$", "rain", "_x", r"line\nbreak"]


def test_names_are_not_given_to_tex():
    with matplotlib.rc_context({"text.usetex": True}):
        named = db.plots.marginals(db.estimate(NAMED, "all"))
        curves = db.plots.bounds({"a_b": BOUND})
        graph = db.plots.scan_map(db.Scan.systematic(4, 8), model=NAMED, segments=1)
        matrix, _ = db.plots.influence(NAMED)
        run = db.sample(NAMED, db.Scan.systematic(4, 8), seed=1, record=db.Record(every=4))
        title = db.plots.trace(run, ["a$b$"]).title
    assert title.get_text() == r"variable a\$b\$"
    names = [title, *named.get_yticklabels(), *curves.get_legend().get_texts(), *graph.texts, *matrix.get_xticklabels()]
    assert len(names) == 14
    assert not any(text.get_usetex() for text in names)


# -- bad input -----------------------------------------------------------------------------

P = db.plots
FINAL = db.sample(MODEL, SCAN, chains=2, seed=1)
TREE = db.Ising({(i // 2, i): 0.1 for i in range(1, 2500)})
CASES = {
    "no dict": (lambda: P.bounds([BOUND]), "'variations' .* a dict from names to Variation, Coalescence or ScanResult"),
    "a number as a bound": (lambda: P.bounds({"x": 0.3}), "'variations' .* a dict .* Got {'x': 0.3}"),
    "no curve": (lambda: P.bounds({}), "'variations' .* at least one curve. Got {}"),
    "every": (lambda: P.bounds({"x": BOUND}, every=0), "'every' .* at least 1. Got 0"),
    "order as a scan": (lambda: P.scan_map([0, 1], (1, 2)), "'scan' .* of their updates. Got [0, 1]"),
    "neither": (lambda: P.scan_map(SCAN), "'shape' .* if no 'model' is given. Got None"),
    "shape as a number": (lambda: P.scan_map(SCAN, 16), "'shape' .* (rows, columns). Got 16"),
    "empty shape": (lambda: P.scan_map(SCAN, (0, 16)), "'shape' .* at least 1. Got 0"),
    "small shape": (lambda: P.scan_map(SCAN, (3, 5)), "'scan' .* of positions from 0 to 14. Got 15 at step 15"),
    "other shape": (lambda: P.scan_map(SCAN, (5, 5), MODEL), "'shape' .* of 16 variables. Got (5, 5)"),
    "shape of a result": (lambda: P.scan_map(db.optimize_scan(MODEL, SCAN), (5, 5)), "'shape' .* of 16 variables"),
    "model of a result": (lambda: P.scan_map(db.optimize_scan(MODEL, SCAN), model=NAMED), "'model' .* of 16 variables"),
    "huge shape": (lambda: P.scan_map(SCAN, (10**6, 10**6)), "'shape' .* of at most 67108864 variables"),
    "huge panels": (lambda: P.scan_map(SCAN, (5000, 5000)), "'segments' .* at most 2 for 25000000 variables. Got 4"),
    "no model": (lambda: P.scan_map(SCAN, model="x"), "'model' .* there is no such file"),
    "large graph": (
        lambda: P.scan_map(db.Scan.systematic(2500, 2500), model=TREE),
        "'model' .* at most 2000 variables to draw as a graph (for grids give 'shape'). Got 2500 variables",
    ),
    "segments": (lambda: P.scan_map(SCAN, (4, 4), segments=0), "'segments' .* at least 1. Got 0"),
    "more parts than steps": (
        lambda: P.scan_map(db.Scan([0, 1]), (1, 2), segments=3),
        "'segments' .* at most 2 for 2 steps. Got 3",
    ),
    "target off the grid": (lambda: P.scan_map(SCAN, (4, 4), targets=[16]), "'targets' .* (0 to 15). Got 16"),
    "unknown target": (lambda: P.scan_map(SCAN, model=NAMED, targets=["sun"]), "'scan' .* from 0 to 3"),
    "unknown name": (lambda: P.scan_map(db.Scan([0]), None, NAMED, 1, ["sun"]), "'targets' .* Got 'sun' at index 0"),
    "matrix as influence": (lambda: P.influence(np.eye(2)), "'model' .* a model or an Influence"),
    "samples as estimate": (lambda: P.marginals(RUN), "'estimate' .* an Estimate. Got Samples"),
    "no estimate": (lambda: P.against_exact(None, []), "'estimate' .* an Estimate. Got None"),
    "a number as exact": (lambda: P.against_exact(ANSWER, 0.5), "'exact' .* or an Estimate. Got 0.5"),
    "text as exact": (lambda: P.against_exact(ANSWER, "all"), "'exact' .* or an Estimate. Got 'all'"),
    "too few marginals": (lambda: P.against_exact(ANSWER, [[0.5, 0.5]]), "'exact' .* Got 1 marginals at label 1"),
    "marginals of other sizes": (
        lambda: P.against_exact(ANSWER, [[0.2, 0.3, 0.5]] * 16),
        "'exact' .* 2 probabilities. Got shape (3,) at label 0",
    ),
    "no probability": (lambda: P.against_exact(ANSWER, [[-1.0, 2.0]] * 16), "'exact' .* probabilities. Got [-1.0"),
    "other targets": (lambda: P.against_exact(ANSWER, {"x": [0.5, 0.5]}), "'exact' .* about some of the targets"),
    "names by position": (
        lambda: P.against_exact(db.estimate(NAMED, "all"), db.exact.marginals(NAMED)),
        "'exact' .* a dict from labels to marginals, where labels are not 0 to n-1. Got 4 marginals at label",
    ),
    "estimate as samples": (lambda: P.trace(ANSWER), "'samples' .* Samples. Got 32 probabilities"),
    "final states": (lambda: P.trace(FINAL), "'samples' .* record=db.Record(every=...). Got the last draw only"),
    "counts": (
        lambda: P.trace(db.sample(MODEL, SCAN, record="counts")),
        "'samples' .* recorded at intervals .* Got counts only",
    ),
    "unkept variable": (lambda: P.trace(RUN, [3]), "'variables' .* labels of the model (0, 5, 9). Got 3 at index 0"),
    "show": (lambda: P.trace(RUN, show="all"), "'show' .* one of 'means', 'states'. Got 'all'"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_one_clear_sentence(name):
    check_sentence(*CASES[name])
