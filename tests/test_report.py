"""Reports: what is in the file."""

import base64
import dataclasses
import errno
import hashlib
import json
import os
import re
from html.parser import HTMLParser

import networkx as nx
import numpy as np
import pytest

import dobrushin as db
from dobrushin import report
from dobrushin._estimate.targets import shown as shown_as
from dobrushin._shared.text import visible
from dobrushin.report import content as rows
from dobrushin.report import page, scan_picture
from report_cases import CASES, HOSTILE, cases, hostile_model


class Parsed(HTMLParser):
    """Tags with their attributes, and the text of each script and style."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.texts, self.open = [], {}, None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self.open = dict(attrs).get("id", tag)

    def handle_data(self, data):
        if self.open:
            self.texts[self.open] = self.texts.get(self.open, "") + data

    def handle_endtag(self, tag):
        if tag in ("script", "style"):
            self.open = None


def written(tmp_path, estimate, **about):
    path = tmp_path / "page.html"
    report.write(estimate, path, **about)
    return Parsed(path.read_text("utf-8"))


def data_of(parsed):
    return json.loads(parsed.texts["data"])


@pytest.fixture(scope="module")
def made():
    return cases()


# ---- the file -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES)
def test_a_page_stands_by_itself_and_no_name_becomes_markup(made, case, tmp_path):
    estimate, about = made[case]
    parsed = written(tmp_path, estimate, **about)
    text = (tmp_path / "page.html").read_text("utf-8")
    assert not re.search(r"https?:|//\w+\.|@import|url\(|\beval\b|innerHTML|document\.write", text)
    names = [tag for tag, _ in parsed.tags]
    assert names.count("script") == 2
    assert names.count("style") == 1
    assert not {"img", "b", "link", "iframe", "object", "form"} & set(names)
    for tag, attributes in parsed.tags:
        assert not [name for name in attributes if name.startswith("on") or name in ("src", "style")], tag
        assert attributes.get("href", "#").startswith("#")
    policy = next(a["content"] for t, a in parsed.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; ")
    for kind in ("script", "style"):
        digest = base64.b64encode(hashlib.sha256(parsed.texts[kind].encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert not set("<>&\n\r\u2028\u2029") & set(parsed.texts["data"])
    assert parsed.texts["data"].isascii()
    found = data_of(parsed)
    shown = list(dict.fromkeys(found["rows"]["names"]))
    wanted = [visible(str(shown_as(t))) for t in estimate.targets]
    assert [name for name in shown if len(name) < 200] == [n for n in dict.fromkeys(wanted) if len(n) < 200]


def test_the_guards_of_these_tests_see_what_they_should():
    """Negative control: names that are put in as they are break the page, and the tests above would see it."""
    text = json.dumps({"name": HOSTILE[0]})
    broken = Parsed(f'<script type="application/json" id="data">{text}</script>')
    assert "img" in [tag for tag, _ in broken.tags]
    with pytest.raises(json.JSONDecodeError):
        json.loads(broken.texts["data"])
    assert "<" not in page.embed({"name": HOSTILE[0]})


@pytest.mark.parametrize("case", CASES)
def test_rounding_never_makes_an_interval_narrower(made, case, tmp_path):
    estimate, about = made[case]
    found = data_of(written(tmp_path, estimate, **about, diagnosis=False))["rows"]
    decimals = found["decimals"]
    assert (np.array(found["lower"]) <= estimate.lower).all()
    assert (np.array(found["upper"]) >= estimate.upper).all()
    width = np.array(found["upper"]) - np.array(found["lower"])
    assert (width <= 2 * estimate.half_width + 2.1 * 10.0**-decimals).all()
    for shown, bound in zip(found["bias"], estimate.bias_bound, strict=True):
        assert (shown is None) == np.isnan(bound)
        assert shown is None or bound <= shown <= 1.1 * bound + 1e-300
    for k in range(len(estimate)):  # what is shown has the same value, so it is rounded outwards too
        _, _, mean, lower, upper, _ = rows.cell_texts(found, k)
        assert (float(lower), float(upper)) == (found["lower"][k], found["upper"][k])
        assert float(lower) <= float(mean) <= float(upper)


def test_what_is_not_certified_says_so_first(made, tmp_path):
    found = data_of(written(tmp_path, made["uncertified"][0]))
    assert found["verdict"]["level"] == "bad"
    assert found["verdict"]["headline"].startswith("NOT CERTIFIED")
    static = (tmp_path / "page.html").read_text().split("<noscript>")[1].split("</noscript>")[0]
    assert static.index("NOT CERTIFIED") < static.index("<table>")
    assert found["curve"] is None
    for case in CASES:
        if case != "uncertified":
            assert data_of(written(tmp_path, made[case][0]))["verdict"]["level"] == "good"
    narrow = dataclasses.replace(made["dobrushin"][0].plan, tolerance=1e-4)
    wide = dataclasses.replace(made["dobrushin"][0], plan=narrow)
    assert data_of(written(tmp_path, wide))["verdict"]["level"] == "warn"


def test_statistical_bounds_come_with_their_confidence(made, tmp_path):
    estimate, about = made["coalescence"]
    found = data_of(written(tmp_path, estimate, **about))
    assert "99%" in found["certificate"]["bias"]
    assert "99%" in dict(found["certificate"]["facts"])["Largest bias bound"]
    assert "confidence 99.9%" in found["curve"]["words"]
    assert found["curve"]["values"][0] == 1
    assert found["curve"]["values"][-1] < 0.05
    proven = data_of(written(tmp_path, made["dobrushin"][0]))
    assert proven["certificate"]["bias"] == ""


def test_the_curve_ends_at_the_certificate(made, tmp_path):
    estimate = made["dobrushin"][0]
    found = data_of(written(tmp_path, estimate))["curve"]
    assert found["steps"][-1] == len(estimate.plan.scan)
    end = estimate.certificate.value / 2  # two targets
    assert end <= found["values"][-1] <= 1.001 * end


def test_the_page_says_what_was_asked_and_how_to_repeat_it(made, tmp_path):
    estimate, about = made["dobrushin"]
    found = data_of(written(tmp_path, estimate, **about))
    assert found["asked"]["targets"] == ["45150", "0"]
    assert found["asked"]["evidence"] == ["45000 = 1", "3 = -1"]
    model = about["model"]
    names = {"model": model}
    exec(found["reproduce"]["command"], names)
    assert (names["answer"].value == estimate.value).all()
    facts = dict(found["reproduce"]["facts"])
    assert facts["seed"] == "1"
    assert {"Python", "numpy", "numba", "dobrushin"} <= set(facts)
    assert data_of(written(tmp_path, estimate, command="dobrushin estimate x.uai"))["reproduce"]["command"] == (
        "dobrushin estimate x.uai"
    )
    keyed = dataclasses.replace(estimate, seed=np.random.SeedSequence(5, spawn_key=(1, 2)))
    seed = dict(data_of(written(tmp_path, keyed))["reproduce"]["facts"])["seed"]
    assert eval(seed, {"np": np}).generate_state(1) == keyed.seed.generate_state(1)


def test_the_code_of_a_page_runs_whatever_was_asked(tmp_path):
    field = db.GaussianField(np.eye(3) + 0.2, labels=["a b", "it's", "c"])
    ising = db.Ising.grid(5, 5, couplings=0.2)
    cases = [
        (field, [db.Exceeds("it's", 0.25), db.Quantile("c", 0.5), "c"], {"a b": 1.0}),
        (
            ising,
            [db.Joint(0, 1), *range(2, 20)],
            {np.int64(24): 1, 22: {1: 0.7, -1: 0.2}, **dict.fromkeys(range(20, 22), -1)},
        ),
    ]
    for model, targets, evidence in cases:
        seed = np.random.SeedSequence(5, spawn_key=(1, 2))
        answer = db.estimate(model, targets, evidence=evidence, tolerance=0.1, seed=seed)
        names = {"model": model}
        exec(data_of(written(tmp_path, answer))["reproduce"]["command"], names)
        assert (names["answer"].value == answer.value).all()


def test_likelihoods_are_said_in_words(tmp_path):
    model = db.Ising({("a", "b"): 0.4}, state_names=("no", "yes"))
    answer = db.estimate(model, "b", evidence={"a": {"yes": 0.7, "no": 0.2}})
    page = tmp_path / "page.html"
    db.report.write(answer, page, model=model, evidence={"a": {"yes": 0.7, "no": 0.2}})
    assert '"a: yes 0.7 / no 0.2"' in page.read_text(encoding="utf-8")


def test_the_graph_of_a_small_model_is_on_the_page(made, tmp_path):
    model = db.Ising({("<a>", "b"): 0.4, ("b", "c"): 0.2}, state_names=("no", "yes"))
    written(tmp_path, db.estimate(model, ["b", "c"], evidence={"<a>": "yes"}))
    figure = (tmp_path / "page.html").read_text("utf-8").split('<figure class="network"')[1].split("</figure>")[0]
    assert all(text in figure for text in (">&lt;a&gt;<", ">observed: yes<", ">b<", ">no<"))
    assert figure.count("<line ") == 2
    written(tmp_path, made["dobrushin"][0])
    assert '<figure class="network"' not in (tmp_path / "page.html").read_text("utf-8")


def test_names_that_have_no_room_in_the_graph_are_its_tooltips():
    name = "concentration_of_<b>_in_blood"
    model = db.Ising({(name, "short"): 0.5})
    page = report.render(db.estimate(model, "all")).html
    assert "<title>concentration_of_&lt;b&gt;_in_blood</title>concentration_of_&lt;b&gt;_in…</text>" in page
    assert ">short</text>" in page


def test_the_diagnosis_is_shown_line_by_line(tmp_path):
    model = hostile_model()
    estimate = db.estimate(model, [HOSTILE[0]])
    diagnosis = db.diagnose(model)
    found = data_of(written(tmp_path, estimate, model=model, diagnosis=diagnosis))["diagnosis"]
    assert [f"  {key:13}{text}" for key, text in found["lines"][1:]] == str(diagnosis).splitlines()[1:]
    assert data_of(written(tmp_path, estimate, model=model))["diagnosis"]["lines"]
    assert not data_of(written(tmp_path, estimate, model=model, diagnosis=False))["diagnosis"]["lines"]
    assert "was not given" in data_of(written(tmp_path, estimate))["diagnosis"]["note"]


@pytest.mark.parametrize("end", ["", "y" * 300, "\u2028" * 300])
def test_thousands_of_rows_and_long_names_keep_a_page_small(end, tmp_path):
    model = db.Ising({(0, 1): 0.5})
    one = db.estimate(model, [0])
    count = 100_000
    many = {name: np.tile(getattr(one, name), count) for name in ("value", "lower", "upper", "bias_bound")}
    labels = [f"{'x' * 300}{k}{end}" for k in range(count) for _ in range(2)]
    large = dataclasses.replace(one, targets=labels, states=[-1, 1] * count, **many)
    found = data_of(written(tmp_path, large))
    assert (tmp_path / "page.html").stat().st_size < 2e6
    assert (len(found["rows"]["value"]), found["rows"]["total"]) == (rows.MAX_ROWS, 2 * count)
    assert len(set(found["rows"]["names"])) == rows.MAX_ROWS // 2  # cut, and still told apart
    static = (tmp_path / "page.html").read_text().split("<noscript>")[1].split("</noscript>")[0]
    assert static.count("<tr>") == 201
    assert "of 200000 rows" in static


def test_writing_twice_gives_the_same_page(made, tmp_path):
    estimate, about = made["dobrushin"]
    estimate.report(tmp_path / "one.html", **about)
    report.write(estimate, str(tmp_path / "two.html"), **about)
    assert (tmp_path / "one.html").read_bytes() == (tmp_path / "two.html").read_bytes()


# ---- the moving picture -------------------------------------------------------------------------------------------


def seen_by(model, targets, evidence=None, **about):
    estimate = db.estimate(model, targets, evidence=evidence, method="dobrushin", tolerance=0.1, seed=1)
    evidence = evidence or {}
    around = scan_picture.surroundings(estimate, model, model.condition(evidence), evidence)
    return estimate, around, scan_picture.picture(estimate.plan.scan, around, about.get("shape"))


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (db.Ising.grid(7, 9, couplings=0.1), (7, 9)),
        (db.Ising.grid(9, 7, couplings=0.1, periodic=True), (9, 7)),
        (db.Potts.grid(2, 30, states=3, couplings=0.1), (2, 30)),
        (db.Potts.grid(30, 2, states=3, couplings=0.1), (30, 2)),
        (db.Ising.grid(40, 3, couplings=0.1, periodic=True), (40, 3)),
        (db.Ising({(k, k + 1): 0.1 for k in range(29)}), None),
        (db.Ising({(k, (k + 1) % 30): 0.1 for k in range(30)}), None),
        (db.Ising({(k, k + d): 0.1 for k in range(28) for d in (1, 2)}), None),
        (db.Ising({(a, b): 0.02 for a in range(12) for b in range(a)}), None),
        (db.Ising(dict.fromkeys(nx.random_regular_graph(3, 60, seed=1).edges, 0.1)), None),
        (db.Ising({}, fields=np.zeros(6)), None),
    ],
)
def test_grids_are_recognised_and_nothing_else(model, shape):
    targets = [model.labels[0]]
    if isinstance(model, db.Ising) and not model.couplings.nnz:
        around = scan_picture.Surroundings(
            6, np.arange(6), np.arange(6), *model._form.adjacency, np.array([0]), np.empty(0, dtype=np.int64)
        )
    else:
        around = seen_by(model, targets)[1]
    grid = scan_picture.as_grid(around, None)
    assert (None if grid is None else (grid.rows, grid.columns)) == shape


def decoded(picture):
    return np.frombuffer(base64.b64decode(picture["grid"]["points"]), dtype="<u2")


@pytest.mark.parametrize("evidence", [None, {0: 1, 47: -1, 52: 1}])
def test_the_map_shows_the_scan_step_by_step(evidence):
    model = db.Ising.grid(9, 11, couplings=0.15)
    estimate, around, picture = seen_by(model, [50, 60], evidence)
    found = picture["grid"]
    assert found["part"][0] <= 9
    order = around.sites[estimate.plan.scan.order]
    points = decoded(picture)
    assert picture["frames"] == picture["points"] == len(points) == len(order)
    sites = dict(zip(points.tolist(), order.tolist(), strict=True))
    row, column = np.divmod(order, 11)
    top, left = max(0, row.min() - 1), max(0, column.min() - 1)
    assert (points == (row - top) * found["columns"] + column - left).all()
    assert found["columns"] == min(11, column.max() + 2) - left
    assert found["rows"] == min(9, row.max() + 2) - top
    assert [sites[k] for k in found["targets"]] == [50, 60]
    assert not set(found["observed"]) & set(sites)
    assert len(found["observed"]) <= len(evidence or {})


def test_far_targets_get_a_map_with_the_emptiness_cut_out():
    model = db.Ising.grid(400, 300, couplings=0.1)
    _, _, picture = seen_by(model, [0, 200 * 300 + 150])
    found = picture["grid"]
    assert max(found["rows"], found["columns"]) < 40
    assert (len(found["row_cuts"]), len(found["column_cuts"])) == (1, 1)
    assert len(found["targets"]) == 2


def test_large_scans_are_thinned_without_stripes():
    model = db.Ising.grid(1000, 1000, couplings=0.1)
    estimate, around, _ = seen_by(model, [500_500])
    scan = db.Scan.systematic(10**6, steps=10**12) + estimate.plan.scan
    picture = scan_picture.picture(scan, around, None)
    assert len(json.dumps(picture)) < 800_000
    assert picture["frames"] <= 2000
    points = decoded(picture)
    cells = picture["grid"]["rows"] * picture["grid"]["columns"]
    counts = np.bincount(points, minlength=cells)
    assert (counts > 0).mean() > 0.9  # every k-th step alone would be the same few variables
    assert max(picture["grid"]["rows"], picture["grid"]["columns"]) <= 180


def test_random_steps_are_drawn_with_their_probabilities():
    q = np.array([0.5, 0.0, 0.25, 0.25])
    scan = db.Scan.random(q, steps=40_000) + db.Scan([1, 1])
    found = scan_picture.positions_at(scan, np.arange(len(scan)), np.random.default_rng(0))
    counts = np.bincount(found[:-2], minlength=4) / 40_000
    assert np.abs(counts - q).max() < 0.02
    assert counts[1] == 0
    assert found[-2:].tolist() == [1, 1]
    assert scan_picture.picture(scan, None, None)["random"]


def test_distances_are_those_of_the_graph():
    links = nx.random_regular_graph(3, 80, seed=2)
    links.add_edge(80, 81)  # apart from the rest
    model = db.Ising(dict.fromkeys(links.edges, 0.1))
    _, around, _ = seen_by(model, [3, 10])
    lengths = nx.multi_source_dijkstra_path_length(links, {3, 10})
    expected = [lengths.get(label, -1) for label in model.labels]
    assert around.distances(np.arange(model.n_variables)).tolist() == expected


def test_bands_add_up_to_all_updates(made, tmp_path):
    for case in ("dobrushin", "coalescence", "uncertified", "observed"):
        for about in (made[case][1], {}):
            found = data_of(written(tmp_path, made[case][0], **about, diagnosis=False))["scan"]
            bands = found["bands"]
            share = np.frombuffer(base64.b64decode(bands["share"]), dtype=np.uint8)
            share = share.reshape(bands["moments"], bands["bands"])
            assert (share.sum(axis=1) >= 255).all()
            assert bands["top"] + 1 >= bands["bands"]
            if case != "coalescence" or about:
                assert bands["kind"] in ("distance", "position")
    assert data_of(written(tmp_path, made["dobrushin"][0]))["scan"]["bands"]["kind"] == "distance"


def test_models_that_are_never_made_as_a_whole(tmp_path):
    model = db.Ising.grid(10**6, 10**6, couplings=lambda edges: np.full(len(edges), 0.1))
    found = data_of(written(tmp_path, db.estimate(model, [5 * 10**11], tolerance=0.05, method="dobrushin", seed=1)))
    assert found["scan"]["bands"]["kind"] == "distance"


# ---- errors -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("about", "words"),
    [
        (
            {"model": 3},
            "The 'model' argument of dobrushin.report.write must be a model, the path of a file, or a model of dimod, "
            "pgmpy, pyAgrum, networkx, PyMC or thrml. Got 3.",
        ),
        ({"model": db.Ising.grid(2, 2)}, "'model' .* must be the model that was estimated, and 'evidence' what"),
        ({"model": db.Ising.grid(5, 5), "evidence": {3: 1}}, "'model' .* the model that was estimated"),
        ({"model": db.Ising.grid(5, 5), "evidence": {99: 1}}, "'evidence'"),
        ({"evidence": [1]}, "'evidence' .* a dict"),
        ({"shape": (5, 5)}, "'shape' .* given together with the model"),
        ({"model": db.Ising.grid(5, 5), "shape": (5, 4)}, r"'shape' .* \(rows, columns\) of 25 variables"),
        ({"model": db.Ising.grid(5, 5), "shape": 5}, "'shape' .* pair"),
        ({"model": db.Ising.grid(5, 5), "shape": (5, -5)}, "'shape'"),
        ({"title": 3}, "'title' .* text"),
        ({"command": ["ls"]}, "'command' .* text"),
        ({"diagnosis": "bad"}, "'diagnosis' .* a Diagnosis"),
    ],
)
def test_wrong_arguments_are_named(about, words, tmp_path):
    estimate = db.estimate(db.Ising.grid(5, 5, couplings=0.1), [12], method="dobrushin", tolerance=0.1, seed=1)
    with pytest.raises(ValueError, match=words):
        report.write(estimate, tmp_path / "page.html", **about)
    assert not list(tmp_path.iterdir())


def test_wrong_paths_are_named(made, tmp_path, monkeypatch):
    estimate = made["exact"][0]
    for path, words in (
        (tmp_path, "a file, not of a folder"),
        (tmp_path / "no" / "page.html", "in a folder that exists"),
        ("", "the name of a file"),
        ("a\0b", "a path"),
        (3.5, "a path"),
    ):
        with pytest.raises(ValueError, match=words):
            report.write(estimate, path)
    with pytest.raises(ValueError, match="an Estimate"):
        report.write(estimate.plan, tmp_path / "page.html")
    (tmp_path / "page.html").write_text("what was there")

    def refuse(*_):
        raise OSError(errno.ENOSPC, "No space left on device", "a temporary name")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match=r"The report cannot be written \(No space left on device\): '.*page.html'"):
        report.write(estimate, tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text() == "what was there"
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_to(made, tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(PermissionError, match="The report cannot be written"):
        report.write(made["exact"][0], tmp_path / "page.html")
