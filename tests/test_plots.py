"""Pictures: the numbers that they hold."""

import io
import itertools
import re
from pathlib import Path

import numpy as np
import pandas
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

import dobrushin as db
from dobrushin._shared.layout import spread
from dobrushin._shared.text import rounded_up
from dobrushin.plots import areas, maps, style
from sentences import check_sentence

MODEL = db.Ising.grid(4, 4, couplings=0.2, fields=0.1)
SCAN = db.Scan.systematic(16, 160)
BOUND = db.variation(MODEL, SCAN, targets=[0])
NAMED = db.Ising({("a$b$", "rain"): 0.4, ("rain", "_x"): 0.3, ("_x", "line\nbreak"): 0.2}, fields={"rain": 0.5})
ANSWER = db.estimate(MODEL, "all", tolerance=0.05, method="dobrushin", seed=1)
RUN = db.sample(MODEL, SCAN, chains=6, seed=1, record=db.Record(variables=[0, 5, 9], every=16))
STATIC = Path(__file__).parent.parent / "docs" / "_static"


def render(axes):
    """Draw for real, where warnings of the drawing appear."""
    figure = np.ravel(axes)[0].figure
    figure.savefig(buffer := io.BytesIO(), format="png", dpi=50)
    return buffer.getvalue()


def segments(ax):
    """Ends of all lines of all line collections."""
    lines = [line for part in ax.collections if hasattr(part, "get_segments") for line in part.get_segments()]
    return np.array(lines).reshape(-1, 2, 2)


# -- bound against steps -------------------------------------------------------------------


def test_bounds_of_every_kind_of_certificate():
    proof = db.coalescence(MODEL, SCAN, targets=[0], runs=500, seed=1)
    best = db.optimize_scan(MODEL, SCAN, targets=[0])
    ax = db.plots.bounds({"v": BOUND, "c": proof, "s": best}, every=40)
    for line, bound in zip(ax.lines, (BOUND, proof, best.variation), strict=True):
        steps, values = bound.curve(40)
        assert (line.get_xdata() == steps).all()
        assert (line.get_ydata() == values).all()
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels[0] == f"v: {rounded_up(BOUND.value, 2)}"
    assert labels[1] == f"c: {rounded_up(proof.value, 2)} (confidence 99.9%)"
    assert len({(line.get_color(), line.get_linestyle()) for line in ax.lines}) == 3


def test_bounds_that_are_zero_can_be_drawn():
    render(db.plots.bounds({"free": db.variation(db.Ising(np.zeros((2, 2))), db.Scan([0, 1]))}))
    render(db.plots.bounds({"there": db.variation(MODEL, SCAN, initial_disagreement=0.0)}))


# -- where a scan spends its steps ---------------------------------------------------------


def test_scan_map_counts_the_steps_of_each_part():
    scan = db.Scan([0, 0, 1, 5, 15, 15, 15, 15, 3, 3, 2, 2])
    panels = db.plots.scan_map(scan, shape=(4, 4), segments=3, targets=[15, 14])
    for k, ax in enumerate(panels):
        image = ax.images[0].get_array()
        assert (image.filled(0).ravel() == scan[4 * k : 4 * k + 4].counts(16)).all()
        assert ax.images[0].norm.vmax == 4
        assert ax.get_title() == f"steps {4 * k + 1}–{4 * k + 4}"
        # Around cells (3, 2) and (3, 3), with no line between them.
        assert len(segments(ax)) == 6
        assert segments(ax)[..., 0].min() == 1.5
        assert segments(ax)[..., 0].max() == 3.5
        assert set(segments(ax)[..., 1].ravel()) == {2.5, 3.5}
    label = panels[0].figure.axes[-1].get_ylabel()
    assert label == "updates per variable (blank: none)"


def test_scan_map_of_random_steps_has_expected_counts():
    ax = db.plots.scan_map(db.Scan.uniform(6, steps=15), shape=(2, 3), segments=1)
    assert np.allclose(ax.images[0].get_array(), 2.5)
    assert ax.figure.axes[-1].get_ylabel() == "expected updates per variable"


def test_scan_map_takes_the_targets_of_a_search_and_looks_where_the_scan_is():
    model = db.Ising.grid(60, 50, couplings=0.1)
    found = db.shortest_scan(model, targets=[1525], tolerance=0.05)
    ax = db.plots.scan_map(found, shape=(60, 50), segments=1)
    left, right, bottom, top = ax.images[0].get_extent()
    assert right - left < 25
    counts = np.zeros((60, 50))
    counts[int(top + 0.5) : int(bottom + 0.5), int(left + 0.5) : int(right + 0.5)] = ax.images[0].get_array().filled(0)
    assert (counts.ravel() == found.scan.counts(3000)).all()
    assert np.allclose(segments(ax).mean(axis=(0, 1)), (25, 30))
    whole = db.optimize_scan(MODEL, SCAN)  # for all variables: none to point out
    assert not len(segments(db.plots.scan_map(whole, shape=(4, 4), segments=1)))


def test_scan_map_of_many_cells_shows_means_of_blocks():
    ax = db.plots.scan_map(db.Scan.systematic(900 * 700, steps=900 * 350), shape=(900, 700), segments=1, targets=[3])
    image = ax.images[0].get_array().filled(0)
    assert image.shape == (300, 234)
    assert np.allclose(image[:150], 1)
    assert not image[150:].any()
    assert "means of blocks of 3 × 3" in ax.figure.axes[-1].get_ylabel()
    assert (ax.lines[0].get_xdata(), ax.lines[0].get_ydata()) == ([3], [0])  # a circle: the cell cannot be seen
    render(ax)


def test_scan_map_of_a_graph():
    scan = db.Scan([1, 1, 1, 0, 2, 2])
    panels = db.plots.scan_map(scan, model=NAMED, segments=2, targets=["rain"])
    for ax, counts in zip(panels, ([0, 3], [1, 2]), strict=True):
        edges, blank, nodes = ax.collections
        assert len(edges.get_segments()) == 3
        assert sorted(nodes.get_array()) == [c for c in counts if c]
        assert len(blank.get_offsets()) + len(nodes.get_offsets()) == 4
        widths = np.concatenate([blank.get_linewidths(), nodes.get_linewidths()])
        assert (widths == widths.max()).sum() == 1  # the target
    assert len({text.get_text() for text in panels[0].texts}) == 4
    huge = db.Ising.grid(200, 200, couplings=0.1)
    ax = db.plots.scan_map(db.Scan([7, 8, 7]), model=huge, segments=1, targets=[9])
    assert "(3 of 40000 variables)" in ax.figure.axes[-1].get_ylabel()
    assert len(ax.collections[0].get_segments()) == 2
    dense = db.Ising(np.full((250, 250), 0.001) * (1 - np.eye(250)))
    ax = db.plots.scan_map(db.Scan.systematic(250, 250), model=dense, segments=1)
    assert "31125 edges not drawn" in ax.figure.axes[-1].get_ylabel()


def test_layout_keeps_the_distances_of_a_graph():
    path = spread(6, np.array([[i, i + 1] for i in range(5)]))
    apart = np.linalg.norm(path[:, None] - path[None], axis=2)
    assert np.allclose(apart, np.abs(np.subtract.outer(np.arange(6), np.arange(6))), atol=1e-2)
    grid = db.Ising.grid(7, 7, couplings=0.1)
    drawn = maps._subgraph(grid, np.arange(49))
    lengths = np.linalg.norm(np.diff(drawn.places[drawn.edges], axis=1)[:, 0], axis=1)
    assert lengths.min() > 0.7
    assert lengths.max() < 1.3
    assert np.linalg.norm(drawn.places[0] - drawn.places[48]) > 6
    # Parts that are not connected do not overlap, and none is lost; nor are nodes that lie alike.
    parts = spread(9, np.array([[0, 1], [1, 2], [2, 0], [3, 4]]))
    apart = np.linalg.norm(parts[:, None] - parts[None], axis=2) + 9 * np.eye(9)
    assert apart.min() > 0.5
    complete = spread(30, np.array(list(itertools.combinations(range(30), 2))))
    apart = np.linalg.norm(complete[:, None] - complete[None], axis=2) + 9 * np.eye(30)
    assert np.isfinite(complete).all()
    assert apart.min() > 0.05
    assert np.array_equal(spread(30, np.empty((0, 2), dtype=np.int64)).shape, (30, 2))


# -- influence -----------------------------------------------------------------------------


def test_influence_matrix_and_row_sums():
    bound = db.Influence([[0, 0.3, 0], [0.7, 0, 0.6], [0, 0.2, 0]], labels=["a", "b", "c"])
    matrix, sums = db.plots.influence(bound)
    assert (matrix.images[0].get_array().filled(0) == bound.matrix.toarray()).all()
    assert np.allclose([bar.get_height() for bar in sums.patches], [0.3, 1.3, 0.2])
    colors = [bar.get_facecolor() for bar in sums.patches]
    assert colors[0] == colors[2] != colors[1]
    assert sums.get_title() == "row sums: 1 of 3 not below 1"
    assert [line.get_ydata()[0] for line in sums.lines] == [1.0]
    assert [text.get_text() for text in matrix.get_xticklabels()] == ["a", "b", "c"]
    low, high = sums.get_ylim()
    assert low == 0
    assert high > 1.3


def test_influence_of_many_variables_shows_the_largest():
    model = db.Ising.grid(30, 30, couplings=np.random.default_rng(1).uniform(0, 0.4, 1740))
    bound = db.influence(model)
    matrix, sums = db.plots.influence(bound)
    k = 5
    image = matrix.images[0].get_array().filled(0)
    dense = bound.matrix.toarray()
    assert (image == dense.reshape(180, k, 180, k).max(axis=(1, 3))).all()
    assert f"largest in blocks of {k} × {k}" in matrix.get_title()
    assert np.allclose(sums.lines[0].get_ydata(), dense.sum(axis=1))
    high = sums.lines[1].get_ydata()
    assert len(high) == (dense.sum(axis=1) >= 1).sum() > 0
    large = db.plots.influence(db.Ising.grid(1, 5000, couplings=0.3))[1]
    assert len(large.lines[0].get_ydata()) == 1667
    assert large.get_xlabel() == "variable i (largest of each 3)"


def test_influence_of_some_rows_shows_no_others():
    bound = db.influence(db.Ising.grid(10, 10, couplings=0.2), rows=[3, 40])
    matrix, sums = db.plots.influence(bound)
    values = sums.lines[0].get_ydata()
    assert np.flatnonzero(~np.isnan(values)).tolist() == [3, 40]
    assert matrix.get_title() == "influence: 2 of 100 rows"
    none = db.plots.influence(db.Ising(np.zeros((3, 3))))
    assert none[0].images[0].get_array().filled(0).sum() == 0
    render(none)


# -- marginals -----------------------------------------------------------------------------


def test_marginals_hold_the_intervals():
    ax = db.plots.marginals(ANSWER)
    mean, lower, upper = (part[1::2] for part in (ANSWER.value, ANSWER.lower, ANSWER.upper))
    ends = segments(ax)
    assert (ends[:, 0, 0] == lower).all()
    assert (ends[:, 1, 0] == upper).all()
    points = ax.lines[-1]
    assert (points.get_xdata() == mean).all()
    assert (points.get_ydata() == ends[:, 0, 1]).all()
    assert [text.get_text() for text in ax.get_yticklabels()] == [str(i) for i in range(16)]
    assert ax.get_xlabel() == "probability of state 1"
    assert ax.get_title() == "certified at confidence 99%"
    assert ax.yaxis_inverted()


def test_marginals_of_several_states_joint_ones_and_statistics():
    model = db.Potts.grid(2, 3, states=3, couplings=0.2)
    targets = [0, 4, db.Joint(1, 2), db.Statistic.total(model, [0, 1]), db.Statistic.energy(model)]
    answer = db.estimate(model, targets, method="exact")
    probabilities, statistics = db.plots.marginals(answer)
    names = [text.get_text() for text in probabilities.get_yticklabels()]
    assert names[:6] == ["0: 0", "0: 1", "0: 2", "4: 0", "4: 1", "4: 2"]
    assert names[6] == "1, 2: 0, 0"
    assert len(names) == 15
    assert (probabilities.lines[-1].get_xdata() == answer.value[:15]).all()
    assert (statistics.lines[-1].get_xdata() == answer.value[15:]).all()
    texts = [text.get_text() for text in statistics.get_yticklabels()]
    assert texts[0] == "total\n1.999999999999 to 2.000000000001"
    assert probabilities.get_title() == "exact, but for rounding"
    # Rounding is not blown up to fill the axis.
    one = db.plots.marginals(db.estimate(MODEL, [0], method="exact"))
    assert one.get_xlim()[1] - one.get_xlim()[0] >= 0.1
    only = db.plots.marginals(db.estimate(model, targets[3]))
    assert isinstance(only, Axes)
    render([probabilities, statistics])


def test_many_marginals_are_sorted_and_thinned_and_the_axis_says_so():
    rng = np.random.default_rng(3)
    for columns, drawn in ((20, 60), (200, 400)):
        model = db.Ising.grid(3, columns, couplings=0.2, fields=rng.normal(size=(3, columns)))
        answer = db.estimate(model, "all", method="exact")
        ax = db.plots.marginals(answer)
        points = ax.lines[-1]
        assert len(points.get_ydata()) == len(segments(ax)) == drawn
        assert (np.diff(points.get_ydata()) >= 0).all()
        assert points.get_ydata()[[0, -1]].tolist() == [answer.value[1::2].min(), answer.value[1::2].max()]
        said = "" if drawn == 60 else ", 400 of them drawn"
        assert ax.get_xlabel() == f"{3 * columns} rows sorted by probability{said}"
    # Sixteen names do not fit on a small Axes.
    small = db.plots.marginals(ANSWER, ax=Figure(figsize=(3, 2)).subplots())
    assert small.get_xlabel() == "16 rows sorted by probability"


def test_chances_of_a_field_are_called_so_once():
    field = db.GaussianField.grid(3, 20, rho=0.3)
    few, many = (db.estimate(field, [db.Exceeds(i, 0.0) for i in range(n)]) for n in (5, 60))
    assert db.plots.marginals(few).get_xlabel() == "probability"
    assert db.plots.marginals(many).get_ylabel() == "probability"


def test_what_is_not_certified_cannot_be_missed():
    answer = db.estimate(MODEL, [0, 1], tolerance=0.05, method="uncertified", seed=1)
    for ax in (db.plots.marginals(answer), db.plots.against_exact(answer, db.exact.marginals(MODEL))):
        assert ax.get_title() == "NOT CERTIFIED: bias unknown, confidence 99%"
        assert ax.title.get_color() == style.look(ax).alarm
        assert to_rgb(ax.lines[-1].get_markerfacecolor()) == (1, 1, 1)
    certified = db.plots.marginals(ANSWER)
    assert certified.title.get_color() != style.look(certified).alarm
    assert certified.lines[-1].get_markerfacecolor() == certified.lines[-1].get_color()


def test_marginals_by_simulation_show_their_confidence():
    model = db.Ising.grid(3, 3, couplings=0.4)
    answer = db.estimate(model, [0, 4], tolerance=0.1, confidence=0.9, method="coalescence", seed=1)
    ax = db.plots.marginals(answer)
    assert ax.get_title() == "certified at confidence 90%"
    assert (segments(ax)[:, 1, 0] == answer.upper[1::2]).all()


# -- estimate against exact ----------------------------------------------------------------


def test_misses_are_marked_and_named():
    exact = db.exact.marginals(MODEL)
    exact[5] = exact[5] + [-0.3, 0.3]
    ax = db.plots.against_exact(ANSWER, exact)
    diagonal, holding, missing = ax.lines
    truth = np.array([p[1] for p in exact])
    others = np.arange(16) != 5
    assert (diagonal.get_xdata() == diagonal.get_ydata()).all()
    assert (holding.get_xdata() == truth[others]).all()
    assert (holding.get_ydata() == ANSWER.value[1::2][others]).all()
    assert (missing.get_xdata(), missing.get_ydata()) == ([truth[5]], [ANSWER.value[11]])
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["15 intervals that hold", "1 interval that misses"]
    assert [t.get_text() for t in ax.texts] == ["5: 1"]
    ends = segments(ax)
    assert {tuple(end) for end in ends[:, 0]} == set(zip(truth, ANSWER.lower[1::2], strict=True))
    assert {tuple(end) for end in ends[:, 1]} == set(zip(truth, ANSWER.upper[1::2], strict=True))
    shifted = db.plots.against_exact(ANSWER, exact, difference=True)
    assert np.allclose(shifted.lines[1].get_ydata(), (ANSWER.value[1::2] - truth)[others])
    assert (shifted.lines[0].get_ydata() == 0).all()
    assert shifted.get_ylabel() == "estimate less exact"


def test_against_a_dict_and_against_another_estimate():
    answer = db.estimate(NAMED, ["rain", "_x"], tolerance=0.05, method="dobrushin", seed=2)
    truth = dict(zip(NAMED.labels, db.exact.marginals(NAMED), strict=True))
    ax = db.plots.against_exact(answer, truth)
    assert ax.lines[1].get_xdata().tolist() == [truth["rain"][1], truth["_x"][1]]
    joint = db.Joint("rain", "_x")
    rough = db.estimate(NAMED, ["_x", joint], tolerance=0.1, method="dobrushin", seed=3)
    fine = db.estimate(NAMED, [db.Joint("rain", "_x"), "a$b$", "_x"], method="exact")
    ax = db.plots.against_exact(rough, fine)
    assert (ax.lines[1].get_xdata() == [*fine["_x"].value[1:], *fine["rain", "_x"].value]).all()
    # Two wide ones: both intervals are drawn, and one misses where they do not meet.
    ax = db.plots.against_exact(rough, rough)
    assert len(segments(ax)) == 10
    statistic = db.Statistic.magnetisation(NAMED)
    ax = db.plots.against_exact(*(db.estimate(NAMED, statistic, method=m, tolerance=0.1, seed=1) for m in
                                  ("dobrushin", "exact")))  # fmt: skip
    assert ax.get_legend().get_texts()[0].get_text() == "1 interval that holds"
    render(ax)


# -- trace ---------------------------------------------------------------------------------


def test_trace_of_running_shares():
    panels = db.plots.trace(RUN)
    assert [ax.get_title() for ax in panels] == ["variable 0", "variable 5", "variable 9"]
    hits = RUN.states[:, :, 1] == 1
    shares = np.cumsum(hits, axis=1) / np.arange(1, 11)
    *single, together = panels[1].lines
    assert len(single) == 6
    for line, share in zip(single, shares, strict=True):
        assert np.allclose(line.get_ydata(), share)
    assert np.allclose(together.get_ydata(), shares.mean(axis=0))
    assert together.get_xdata().tolist() == list(range(1, 11))
    one = db.plots.trace(RUN, 9)
    assert isinstance(one, Axes)
    assert one.get_ylabel() == "share of state 1"


def test_trace_of_several_states_and_of_long_runs():
    model = db.Potts.grid(2, 2, states=3, couplings=0.3)
    run = db.sample(model, db.Scan.systematic(4, 12_000), chains=30, seed=1, record=db.Record(every=4))
    ax = db.plots.trace(run, [2])
    assert [line.get_label() for line in ax.lines] == ["0", "1", "2"]
    assert all(len(line.get_xdata()) == 1000 for line in ax.lines)
    shares = np.array([line.get_ydata() for line in ax.lines])
    assert np.allclose(shares.sum(axis=0), 1)
    assert np.allclose(shares[:, -1], [(run.states[:, :, 2] == k).mean() for k in range(3)])
    many = db.Potts.grid(1, 2, states=9, couplings=0.3)
    run = db.sample(many, db.Scan.systematic(2, 400), chains=3, seed=1, record=db.Record(every=2))
    ax = db.plots.trace(run, [0])
    assert len(ax.lines) == 5
    assert "4 rarer ones not drawn" in ax.get_ylabel()


def test_trace_of_states():
    ax = db.plots.trace(RUN, [5], show="states")
    assert (ax.images[0].get_array() == RUN.states[:, :, 1]).all()
    assert ax.figure.axes[-1].get_yticks().tolist() == [-1, 1]
    many = db.sample(MODEL, SCAN, chains=300, seed=1, record=db.Record(variables=[3], every=16))
    ax = db.plots.trace(many, show="states")
    assert ax.images[0].get_array().shape == (100, 10)
    assert ax.get_ylabel() == "chain (the first 100 of 300)"


# -- maps of areas -------------------------------------------------------------------------

FIELD = db.GaussianField(
    [[2.0, -1.0, 0.0], [-1.0, 2.0, 0.0], [0.0, 0.0, 1.0]], linear=[1.0, 0.0, 0.3], labels=["a", "b", "c"]
)
RING = [(0.0, 0.0), (2.0, 0.0), (2.0, 2.0), (0.0, 2.0)]
HOLE = [(0.5, 0.5), (1.5, 0.5), (1.5, 1.5), (0.5, 1.5)]


def polygon(shift, *rings):
    return {"type": "Polygon", "coordinates": [[(x + shift, y) for x, y in ring] for ring in rings]}


AREAS = {
    "a": polygon(0.0, RING, HOLE),
    "b": {"type": "MultiPolygon", "coordinates": [[[(x + 2.0, y) for x, y in reversed(RING)]]]},
    "other": polygon(4.0, RING),
}


class Shape:
    """A shape as shapely has them."""

    def __init__(self, plain):
        self.__geo_interface__ = plain


class Frame:
    """A table with a geometry, as geopandas has them."""

    def __init__(self, areas):
        self.geometry = pandas.Series({label: Shape(plain) for label, plain in areas.items()})


def test_maps_hold_the_values_of_areas():
    answer = db.estimate(FIELD, [db.Summary("a", threshold=0.5), db.Summary("b", threshold=0.5), "c"])
    table = db.Summary.table(answer)
    for column in ("mean", "sd", "> 0.5", "95%"):
        axes = db.plots.choropleth(answer, Frame(AREAS), column)
        blank, drawn = axes[0].collections
        assert drawn.get_array().tolist() == table.loc[["a", "b"], column].tolist()
        assert (len(blank.get_paths()), len(drawn.get_paths())) == (1, 2)  # nothing is known about the third area
        reach = (table[f"{column} upper"] - table[f"{column} lower"]) / 2
        assert np.allclose(axes[1].collections[-1].get_array(), reach[["a", "b"]], atol=0.0)
        assert axes[0].figure.axes[2].get_ylabel() == column
    assert db.plots.choropleth(answer, AREAS)[0].figure.axes[2].get_ylabel() == "mean"
    render(axes)


def test_holes_of_areas_stay_empty():
    """Rings of holes run the other way, in whatever order they were given."""
    answer = db.estimate(FIELD, ["a"])
    for hole in (HOLE, HOLE[::-1]):
        for outer in (RING, RING[::-1]):
            axes = db.plots.choropleth(answer, {"a": polygon(0.0, outer, hole)})
            (path,) = axes[0].collections[0].get_paths()
            turns = [np.sign(areas._area(np.asarray(ring)[:-1])) for ring in path.to_polygons()]
            assert turns == [1.0, -1.0]


def test_maps_of_averages_say_whether_they_are_certified():
    priors = {rho: db.GaussianField.leroux(np.array([[0, 1], [1, 0]]), rho, labels=["a", "b"]) for rho in (0.2, 0.6)}
    solved = db.average_over(priors, lambda prior: prior.normal({"a": 1.0}))
    assert db.plots.choropleth(solved, AREAS)[0].get_title() == "for certain"
    guessed = db.average_over(priors, lambda prior: prior.normal({"a": 1.0}), weighting="laplace")
    assert db.plots.choropleth(guessed, AREAS)[0].get_title().startswith("NOT CERTIFIED")


def test_bad_maps_get_a_sentence():
    answer = db.estimate(FIELD, ["a"])
    check_sentence(lambda: db.plots.choropleth(answer, AREAS, "sd"), "column .* one of 'mean'. Got 'sd'")
    check_sentence(lambda: db.plots.choropleth(answer, {"x": AREAS["a"]}), "areas .* about some of the labels")
    check_sentence(lambda: db.plots.choropleth(answer, {"a": 3}), "areas .* label 'a'")
    check_sentence(lambda: db.plots.choropleth(answer, []), "areas .* GeoDataFrame")
    check_sentence(lambda: db.plots.choropleth(ANSWER, AREAS), "an answer about a field")
    check_sentence(lambda: db.plots.choropleth(3, AREAS), "estimate .* an Estimate or an Average")


# -- the page ------------------------------------------------------------------------------


def test_pictures_of_the_page_are_there_and_small():
    text = (STATIC.parent / "plots.md").read_text()
    named = re.findall(r"_static/(plots-\S+\.png)", text)
    assert len(named) == 2 * len(db.plots.__all__) + 2  # scan_map has two pictures
    assert sorted(named) == sorted(path.name for path in STATIC.glob("plots-*.png"))
    assert all((STATIC / name).stat().st_size < 60_000 for name in named)
    assert all(f"db.plots.{name}(" in text for name in db.plots.__all__)
