"""States by name: in at the doors, out in answers, and counted everywhere between."""

import itertools
import json
import pickle

import numpy as np
import pytest
from typer.testing import CliRunner

import dobrushin as db
from dobrushin._estimate.headline import telling_state
from dobrushin._models import state_names
from dobrushin._models.state_names import read_evidence, read_state
from dobrushin.cli.app import app
from dobrushin.io.npz import pack
from models import FAMILIES, SPRINKLER, random_model

MODEL = db.Ising({(0, 1): 0.3})


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "wet.bif"
    file.write_text(SPRINKLER)
    return file


@pytest.fixture
def network(path):
    return db.read(path)


def with_names(model):
    """The same model with names that say which state they are."""
    names = [tuple(f"s{state}" for state in model.states(i)) for i in range(model.n_variables)]
    return type(model)._from_form(model._form, model.labels, names)


def command(*args):
    return CliRunner().invoke(app, [str(arg) for arg in args])


@pytest.mark.parametrize("family", FAMILIES)
def test_names_and_numbers_are_the_same_evidence_and_the_same_answer(family):
    for seed in range(4):
        rng = np.random.default_rng(seed)
        plain = random_model(rng, family, n=4)
        named = with_names(plain)
        evidence = {0: int(rng.choice(plain.states(0)))}
        by_name = {0: f"s{evidence[0]}"}
        targets = [1, db.Joint(2, 3)]
        expected = db.estimate(plain, targets, evidence=evidence)
        for given in (evidence, by_name):
            answer = db.estimate(named, targets, evidence=given)
            np.testing.assert_array_equal(answer.value, expected.value)
            assert answer.asked.evidence == by_name
            for state, number in zip(answer.states, expected.states, strict=True):
                assert state == (tuple(f"s{s}" for s in number) if isinstance(number, tuple) else f"s{number}")
        rest = named.condition(by_name)
        assert dict(rest.state_names) == {i: named.state_names[i] for i in (1, 2, 3)}
        states = [plain.states(i)[0] for i in (1, 2, 3)]
        assert rest.log_density(states) == plain.condition(evidence).log_density(states)
        assert db.exact.log_partition(named, evidence=by_name) == db.exact.log_partition(plain, evidence=evidence)
        best, same = db.exact.most_likely(named, evidence=by_name), db.exact.most_likely(plain, evidence=evidence)
        assert best.states == {label: f"s{state}" for label, state in same.states.items()}
        assert best.log_density == same.log_density


@pytest.mark.parametrize("method", ["exact", "local", "dobrushin", "parts", "coalescence", "uncertified"])
def test_every_method_answers_by_name(method):
    grid = db.Potts.grid(5, 5, states=3, couplings=0.2).couplings.toarray()
    two = np.kron(np.eye(2), grid)  # so that there are parts
    model = db.Potts(two, states=3, state_names=("red", "green", "blue"))
    answer = db.estimate(model, [0, 30], evidence={2: "blue"}, tolerance=0.2, method=method, seed=1)
    assert answer.states == ["red", "green", "blue"] * 2
    assert answer[0].states == ["red", "green", "blue"]


@pytest.mark.parametrize("family", FAMILIES)
def test_names_are_kept_wherever_a_model_goes(family, tmp_path):
    model = with_names(random_model(np.random.default_rng(3), family, n=3))
    names = dict(model.state_names)
    assert dict(pickle.loads(pickle.dumps(model)).state_names) == names
    assert dict(model.to_factor_graph().state_names) == names
    db.write(model, tmp_path / "model.npz")
    again = db.read(tmp_path / "model.npz")
    assert dict(again.state_names) == names
    assert again == model
    joint = model.merge([[0, 2]]).state_names[0, 2]
    assert joint[1] == (names[0][0], names[2][1])
    assert len(joint) == len(names[0]) * len(names[2])


@pytest.mark.parametrize(
    "model",
    [
        db.Ising.grid(9, 9, couplings=0.1, state_names=("down", "up")),
        db.Ising.grid(9, 9, couplings=0.1, state_names={3: ("down", "up"), 5: ("left", "right")}),
        db.Potts.grid(9, 9, states=3, couplings=0.1, state_names=("x", "y", ("z", 1))),
        db.Ising.grid(9, 9, couplings=0.1, state_names=(0, 1)).to_factor_graph(),
        db.FactorGraph([2, 3], [((0, 1), np.ones((2, 3)))], state_names=[("no", "yes"), ("x", "y", "z")]),
    ],
)
def test_folders_keep_names(model, tmp_path):
    db.write(model, tmp_path / "folder")
    stored = db.open_model(tmp_path / "folder")
    assert dict(stored.state_names) == dict(model.state_names)
    again = pickle.loads(pickle.dumps(stored))
    assert dict(again.state_names) == dict(model.state_names)
    expected = db.estimate(model, [0, 1], evidence={3: 1} if model.n_variables > 3 else None, method="exact")
    answer = db.estimate(stored, [0, 1], evidence={3: model._called(3)[1]} if model.n_variables > 3 else None)
    assert answer.states == expected.states
    assert (answer.lower <= expected.value + 1e-9).all()
    assert (answer.upper >= expected.value - 1e-9).all()
    assert db.io.lost_names(model, tmp_path / "folder") == ""
    db.write(stored, tmp_path / "copy")
    assert dict(db.open_model(tmp_path / "copy").state_names) == dict(model.state_names)


def test_names_of_a_folder_that_is_built(tmp_path):
    db.io.build_folder(tmp_path / "ring", 3, [([0, 1, 2], [1, 2, 0], [0.1] * 3)], state_names=("down", "up"))
    assert db.estimate(tmp_path / "ring", [0], evidence={1: "up"}).states == ["down", "up"]
    with pytest.raises(db.ArgumentError, match="2 names"):
        db.io.build_folder(tmp_path / "other", 2, [([0], [1], [0.1])], state_names=("down", "up", "top"))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("state_names.json", b"["),
        ("state_names.json", b'{"all": ["a"]}'),
        ("state_names.json", b'{"kinds": [["a", "a"]]}'),
        ("state_names.json", b'{"kinds": [["a", "b", "c"], ["d", "e"]]}'),
        ("state_names.json", b'{"kinds": 3}'),
        ("state_names.json", None),
        ("state_kind.npy", b"no array"),
        ("state_kind.npy", None),
        ("state_kind.npy", np.full(9, 7, dtype=np.int32)),
        ("manifest.json", b'{"state_names": 3}'),
    ],
)
def test_damaged_names_in_a_folder_are_told(name, content, tmp_path):
    model = db.Ising.grid(3, 3, couplings=0.1, state_names={3: ("down", "up"), 5: ("left", "right")})
    db.write(model, tmp_path / "grid")
    file = tmp_path / "grid" / name
    about = json.loads((tmp_path / "grid" / "manifest.json").read_text())
    file.unlink()
    if name == "manifest.json":
        file.write_text(json.dumps({**about, "state_names": 3}))
    elif isinstance(content, np.ndarray):
        np.save(file, content)
    elif content is not None:
        file.write_bytes(content)
    with pytest.raises((db.FormatError, FileNotFoundError), match=name.replace(".", r"\.")):
        db.estimate(tmp_path / "grid", [3, 5])


@pytest.mark.parametrize(
    "content", [b"[]", b'{"all": []}', b'{"all": ["a"]}', b'{"each": [["a", "b"]]}', b"{", b'{"each": 3}']
)
def test_broken_names_in_a_file_are_refused(content, tmp_path):
    db.write(db.Ising({(0, 1): 0.1}), tmp_path / "pair.npz")
    arrays = dict(np.load(tmp_path / "pair.npz"))
    arrays["state_names"] = np.frombuffer(content, dtype=np.uint8)
    (tmp_path / "bad.npz").write_bytes(pack(arrays))
    with pytest.raises(db.FormatError):
        db.read(tmp_path / "bad.npz")


def test_three_ways_to_give_names():
    couplings = {("a", "b"): 0.1, ("b", "c"): 0.1}
    common = db.Ising(couplings, state_names=("down", "up"))
    by_label = db.Ising(couplings, state_names={"b": ["down", "up"]})
    by_position = db.Ising(couplings, state_names=[("down", "up")] * 3)
    assert common == by_position
    assert common.state_names == dict.fromkeys("abc", ("down", "up"))
    assert by_label.state_names == {"b": ("down", "up")}
    assert len(by_label.state_names) == 1
    assert db.estimate(by_label, ["a", "b"]).states == [-1, 1, "down", "up"]
    assert dict(db.Ising(couplings).state_names) == {}
    assert repr(common.state_names).startswith("{'a': ('down', 'up')")
    graph = db.FactorGraph([2, 3], [((0, 1), np.zeros((2, 3)))], state_names=[None, ("x", "y", "z")])
    assert dict(graph.state_names) == {1: ("x", "y", "z")}
    flat = db.FactorGraph.from_arrays([2, 2], [np.array([[0, 1]])], [np.zeros((1, 2, 2))], state_names=("no", "yes"))
    assert flat.state_names[1] == ("no", "yes")


def test_a_large_model_has_names_without_an_object_for_each(tmp_path):
    grid = db.Ising.grid(200, 200, couplings=0.1, state_names=("down", "up"))
    assert grid._state_names.common == ("down", "up")
    assert db.estimate(grid, [0], evidence={1: "down"}).states == ["down", "up"]  # planned on a part
    lazy = db.Ising.grid(10**5, 10**5, couplings=0.1, state_names=("down", "up"))
    assert db.estimate(lazy, [0], evidence={1: "down"}).states == ["down", "up"]
    with pytest.raises(db.ArgumentError, match="a tuple of 2 names for all variables"):
        db.Ising.grid(10**5, 10**5, couplings=0.1, state_names={0: ("down", "up")})
    db.write(grid, tmp_path / "grid.npz")
    assert db.read(tmp_path / "grid.npz")._state_names.common == ("down", "up")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("up",), "as many names as variables have states"),
        (("up", "up"), "different names for different states"),
        ({"a": ("down", "up"), "z": ("x", "y")}, "labels of the model"),
        ({"a": ("down", "up", "top")}, "2 names, one for each state"),
        ([("down", "up")], "names for each of 2 variables"),
        (([1, 2], ["x", []]), "hashable"),
        ("no", "a tuple of names"),
        (7, "a tuple of names"),
    ],
)
def test_names_that_cannot_be_used_are_refused_in_a_sentence(names, message):
    with pytest.raises(db.ArgumentError, match=message):
        db.Ising({("a", "b"): 0.1}, state_names=names)


@pytest.mark.parametrize(
    ("evidence", "message"),
    [
        ({"rain": "yess"}, r"one of the states 'yes', 'no' of 'rain' \(the nearest is 'yes'\)\. Got 'yess'"),
        ({"rian": "yes"}, r"labels of the model \(the nearest: 'rain'\)\. Got 'rian'"),
        ({"rain": 2}, "one of the states 'yes', 'no' of 'rain'. Got 2"),
        ({"rain": True}, "one of the states"),
        ({"rain": ["yes"]}, "one of the states"),
    ],
)
def test_unknown_names_meet_the_nearest_ones(network, evidence, message):
    for ask in (
        lambda: network.condition(evidence),
        lambda: db.estimate(network, "grass", evidence=evidence),
        lambda: db.exact.log_partition(network, evidence=evidence),
        lambda: db.exact.most_likely(network, evidence=evidence),
    ):
        with pytest.raises(db.ArgumentError, match=message):
            ask()


@pytest.mark.parametrize("target", ["grasss", ["grasss"], db.Joint("grasss", "rain")])
def test_a_misspelt_target_meets_the_nearest_one(network, target):
    field = db.GaussianField([[1.0, 0.2], [0.2, 1.0]], labels=["grass", "rain"])
    for model in (network, field):
        if model is network or not isinstance(target, db.Joint):
            with pytest.raises(db.ArgumentError, match=r"labels of the model \(the nearest: 'grass'\)\. Got 'grasss'"):
                db.estimate(model, target)


def test_without_targets_all_variables_are_meant(network, path):
    for model in (network, path):
        assert db.estimate(model).targets == db.estimate(network, "all").targets
        assert str(db.plan(model, evidence={"rain": "yes"})) == str(db.plan(network, "all", evidence={"rain": "yes"}))


def test_of_many_states_only_the_nearest_are_listed():
    names = tuple(f"state {k:02d}" for k in range(30))
    model = db.Potts({(0, 1): 0.1}, states=30, state_names=names)
    with pytest.raises(db.ArgumentError, match="'state 17'") as caught:
        model.condition({0: "state17"})
    assert "state 29" not in str(caught.value)


def test_a_number_is_not_taken_for_a_state_that_is_called_otherwise():
    model = db.Ising({("a", "b"): 0.1}).to_factor_graph()
    turned = db.FactorGraph._from_form(model._form, model.labels, ("1", "0"))
    for evidence in ({"a": 1}, {"a": 0}):
        with pytest.raises(db.ArgumentError, match="one of the states '1', '0'"):
            turned.condition(evidence)
    in_order = db.FactorGraph._from_form(model._form, model.labels, ("0", "1"))
    assert in_order.condition({"a": 1}) == in_order.condition({"a": "1"})
    numbers = db.FactorGraph._from_form(model._form, model.labels, (1, 2))
    assert numbers.condition({"a": 1}) == model.condition({"a": 0})._name_states(numbers._state_names)
    with pytest.raises(db.ArgumentError, match="one of the states 1, 2"):
        numbers.condition({"a": 0})


def test_networks_bring_their_names(network, path):
    assert network.state_names == db.io.state_names(path)
    frame = db.estimate(network, ["rain", "sprinkler"], evidence={"grass": "wet"}).to_dataframe()
    assert frame["state"].tolist() == ["yes", "no", "off", "low", "high"]


def test_bits_are_called_0_and_1():
    dimod = pytest.importorskip("dimod")
    bqm = dimod.BinaryQuadraticModel({"a": 1.0, "b": 0.0}, {("a", "b"): -2.0}, 0.0, "BINARY")
    model = db.from_dimod(bqm)
    answer = db.estimate(model, "all", evidence={"a": 0})
    assert answer.states == [0, 1]
    assert db.estimate(model, "a").value[1] == pytest.approx((np.exp(-1) + np.exp(1)) / (2 + np.exp(-1) + np.exp(1)))
    with pytest.raises(db.ArgumentError, match="one of the states 0, 1"):
        db.estimate(model, "b", evidence={"a": -1})
    assert db.from_dimod(bqm.spin).state_names == {}


def test_bits_of_files_are_called_0_and_1(tmp_path):
    (tmp_path / "pair.coo").write_text("# vartype=BINARY\n0 1 -2.0\n0 0 1.0\n")
    model = db.read(tmp_path / "pair.coo")
    assert model.state_names[0] == (0, 1)
    big = db.Ising.grid(150, 150, couplings=0.1, state_names=(0, 1))
    answer = db.estimate(big, [0], evidence={1: 0})  # evidence goes to a part, as spins
    np.testing.assert_array_equal(
        answer.value, db.estimate(db.Ising.grid(150, 150, couplings=0.1), [0], evidence={1: -1}).value
    )


# -- what people see ---------------------------------------------------------------------------


def test_no_picture_of_a_network_speaks_of_state_1(network):
    for targets in ("all", ["rain"], ["rain", "grass"]):
        ax = db.plots.marginals(db.estimate(network, targets))
        texts = [text.get_text() for text in ax.get_yticklabels()] + [ax.get_xlabel(), ax.get_ylabel()]
        assert not any("state 1" in text or ": 1" in text or ": 0" in text for text in texts), texts
    assert db.plots.marginals(db.estimate(network, ["rain"])).get_xlabel() == "probability of yes"
    many = db.Ising.grid(30, 30, couplings=0.1, state_names=("yes", "no"))
    assert db.plots.marginals(db.estimate(many, "all")).get_ylabel() == "probability of yes"
    spins = db.estimate(db.Ising({(0, 1): 0.1}), "all")
    assert db.plots.marginals(spins).get_xlabel() == "probability of state 1"


def test_traces_are_drawn_by_name(network):
    run = db.sample(network, db.Scan.systematic(3, 60), chains=5, seed=1, record=db.Record(every=3))
    rain, sprinkler, _ = db.plots.trace(run)
    assert rain.get_ylabel() == "share of yes"
    drawn = rain.lines[-1].get_ydata()[-1]
    assert drawn == pytest.approx((run.states[..., 0] == 0).mean())
    assert {text.get_text() for text in sprinkler.get_legend().get_texts()} == {"off", "low", "high"}
    ax = db.plots.trace(run, ["sprinkler"], show="states")
    assert [text.get_text() for text in ax.figure.axes[-1].get_yticklabels()] == ["off", "low", "high"]
    several = db.plots.trace(run, show="states")[0]
    assert several.figure.axes[-1].get_ylabel() == "number of the state"
    spins = db.sample(MODEL, db.Scan.systematic(2, 20), chains=3, seed=1, record=db.Record(every=2))
    assert db.plots.trace(spins, [0]).get_ylabel() == "share of state 1"


def test_which_of_two_states_is_spoken_of():
    assert [telling_state(pair) for pair in (["No", "Yes"], [True, False], [0, 1], ["b", "a"])] == [1, 0, 1, 0]


def test_headlines_are_plain(network):
    assert db.estimate(network, "rain").headline == "P(rain = yes) = 0.2, exact to 1e-12"
    assert db.estimate(network, "all").headline == "7 probabilities, exact to 1e-12"
    chains = db.estimate(network, "rain", method="dobrushin", tolerance=0.05, seed=1).headline
    assert chains.startswith("P(rain = yes) = 0.")
    assert chains.endswith(", with 99% confidence; proved, not diagnosed")
    loose = db.estimate(network, "rain", method="uncertified", tolerance=0.05, seed=1).headline
    assert "NOT CERTIFIED" in loose
    wet = db.Statistic.event(["rain"], lambda x: x[:, 0] == 0, name="wet day")
    assert db.estimate(network, wet).headline == "P(wet day) = 0.2, exact to 1e-12"


def test_headlines_have_the_evidence_and_the_likeliest_state(network):
    """The state that means yes is shown where there is one; ties go to the last number."""
    rain = db.estimate(network, "rain", evidence={"grass": "wet"}).headline
    assert rain.startswith("P(rain = yes | grass = wet) = 0.")
    assert " given rain = yes, exact" in db.estimate(network, evidence={"rain": "yes"}).headline
    down = db.Ising({(0, 1): 0.3}, fields={0: -1.0})
    assert db.estimate(down, 0).headline.startswith("P(0 = -1) = 0.8")
    assert db.estimate(db.Ising({(0, 1): 0.3}), 0).headline.startswith("P(0 = 1) = 0.5,")
    levels = db.Potts({(0, 1): 0.5}, states=3, unaries=[[0.0, 2.0, 0.0]] * 2, state_names=("low", "mid", "high"))
    assert db.estimate(levels, 0).headline.endswith(" (most likely of 3 states)")
    assert db.estimate(levels, 0).headline.startswith("P(0 = mid) = 0.8")
    joint = db.estimate(levels, db.Joint(0, 1), evidence={}).headline
    assert joint.startswith("P(0 = mid, 1 = mid) = ")
    flat = db.Potts({(0, 1): 0.5}, states=3)
    loose = db.estimate(flat, 0, method="dobrushin", tolerance=0.1, seed=1).headline
    assert "(largest estimate of 3 states)" in loose
    many = db.Ising({(0, k): 0.1 for k in range(1, 8)})
    assert "| 1 = 1, 2 = 1, 3 = 1, ...)" in db.estimate(many, 0, evidence=dict.fromkeys(range(1, 6), 1)).headline


def test_a_headline_does_not_promise_more_than_the_interval():
    model = db.Ising.grid(30, 30, couplings=0.2)
    for seed in range(5):
        answer = db.estimate(model, [0], method="dobrushin", tolerance=0.03, seed=seed)
        value, off = (float(part) for part in answer.headline.split("= ")[2].split(",")[0].split(" +- "))
        row = answer.states.index(int(answer.headline.split("= ")[1].split(")")[0]))
        assert value - off <= answer.lower[row]
        assert value + off >= answer.upper[row]
    with pytest.raises(AssertionError):  # the check sees an interval that is too narrow
        assert value - off / 2 <= answer.lower[1]


def test_json_has_real_types_and_names(network):
    data = json.loads(db.estimate(network, "sprinkler", evidence={"grass": 1, "rain": "no"}).to_json())
    assert data["format"] == "dobrushin estimate 2"
    assert data["certified"] is True
    assert data["stopped_by"] is None
    assert data["seed"] is None
    assert data["model"] == network.fingerprint
    assert data["evidence"] == [{"target": "grass", "state": "dry"}, {"target": "rain", "state": "no"}]
    assert [row["state"] for row in data["rows"]] == ["off", "low", "high"]
    assert all(isinstance(row["value"], float) for row in data["rows"])
    sampled = json.loads(db.estimate(network, "rain", method="uncertified", tolerance=0.1, seed=5).to_json())
    assert sampled["certified"] is False
    assert sampled["seed"] == 5


def test_the_command_line_speaks_by_name(path, tmp_path):
    report = tmp_path / "page.html"
    result = command("estimate", path, "--target", "rain", "--evidence", "grass=wet", "--report", report)
    assert result.exit_code == 0
    assert result.output.startswith("P(rain = yes | ")
    page = report.read_text()
    assert "grass = wet" in page
    assert db.read(path).fingerprint in page
    by_number = command("estimate", path, "--target", "rain", "--evidence", "grass=0", "--json")
    rows = json.loads(by_number.output)["rows"]
    assert [row["state"] for row in rows] == ["yes", "no"]
    wrong = command("estimate", path, "--evidence", "gras=wet")
    assert wrong.exit_code == 2
    assert "(the nearest: 'grass')" in wrong.stderr
    wrong = command("estimate", path, "--evidence", "grass=wett")
    assert "the nearest is 'wet'" in wrong.stderr
    assert "(the nearest: 'sprinkler')" in command("estimate", path, "--target", "sprinkle").stderr


def test_sample_prints_and_writes_names(path, tmp_path):
    code = command("sample", path, "--chains", 50, "--seed", 1, "--output", tmp_path / "states.csv")
    assert code.exit_code == 0
    assert "sprinkler" in code.output
    assert "state 0" not in code.output
    lines = (tmp_path / "states.csv").read_text().splitlines()
    assert lines[0] == "chain,draw,rain,sprinkler,grass"
    assert {line.split(",")[3] for line in lines[1:]} <= {"off", "low", "high"}
    found = json.loads(command("sample", path, "--chains", 50, "--seed", 1, "--json").output)
    assert [(row["variable"], row["state"]) for row in found["rows"]][:5] == [
        ("rain", "yes"), ("rain", "no"), ("sprinkler", "off"), ("sprinkler", "low"), ("sprinkler", "high"),
    ]  # fmt: skip
    assert found["seed"] == 1


def test_the_command_line_opens_folders(tmp_path):
    db.write(db.Ising.grid(9, 9, couplings=0.1, state_names=("down", "up")), tmp_path / "grid.npz")
    assert command("convert", tmp_path / "grid.npz", tmp_path / "grid").exit_code == 0
    result = command("estimate", tmp_path / "grid", "--target", 0, "--evidence", "1=up", "--json")
    assert [row["state"] for row in json.loads(result.output)["rows"]] == ["down", "up"]
    assert "--beta" in command("estimate", tmp_path / "grid", "--beta", 2).stderr


def test_observed_spins_are_written_to_result_files(tmp_path):
    db.write(db.Ising({(0, 1): 0.5}), tmp_path / "pair.npz")
    out = tmp_path / "pair.mar"
    result = command("estimate", tmp_path / "pair.npz", "--evidence", "0=-1", "--output", out)
    assert result.exit_code == 0, result.stderr
    assert db.io.read_marginals(out)[0].tolist() == [1.0, 0.0]


def test_fits_read_names_and_keep_them():
    pandas = pytest.importorskip("pandas")
    model = db.Ising({("a", "b"): 0.5}, state_names=("no", "yes"))
    numbers = np.array([[1, 1], [1, 1], [-1, -1], [-1, 1], [1, 1]])
    words = np.where(numbers > 0, "yes", "no")
    fits = [
        db.fit(model, pandas.DataFrame(data, columns=["a", "b"]), method="exact", box=2.0) for data in (numbers, words)
    ]
    np.testing.assert_array_equal(fits[0].parameters, fits[1].parameters)
    assert fits[1].model.state_names == model.state_names
    with pytest.raises(db.ArgumentError, match="one of the states 'no', 'yes'"):
        db.fit(model, pandas.DataFrame([["yes", "maybe"]], columns=["a", "b"]), method="exact")


def test_samples_are_called_by_name_in_data_frames_and_counted_in_arrays(network, tmp_path):
    pytest.importorskip("pandas")
    run = db.sample(network, db.Scan.systematic(3, 30), chains=50, seed=1)
    frame = run.to_dataframe()
    assert set(frame["sprinkler"]) <= {"off", "low", "high"}
    assert (frame["rain"] == "yes").tolist() == (run.states[:, 0] == 0).tolist()
    assert run.states.dtype.kind == "i"
    run.save(tmp_path / "run.npz")
    assert db.Samples.load(tmp_path / "run.npz").to_dataframe().equals(frame)
    spins = db.Ising({(0, 1): 0.5}, state_names={1: ("down", "up")})
    frame = db.sample(spins, db.Scan.systematic(2, 30), chains=50, seed=1).to_dataframe()
    assert set(frame[0]) == {-1, 1}
    assert set(frame[1]) == {"down", "up"}


# -- identity ----------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_equal_models_are_equal_and_others_are_not(family):
    one, same = (random_model(np.random.default_rng(5), family, n=4) for _ in range(2))
    assert one == same
    assert hash(one) == hash(same)
    assert one.fingerprint == same.fingerprint
    other = random_model(np.random.default_rng(6), family, n=4)
    assert one != other
    assert one.fingerprint != other.fingerprint
    assert one != with_names(one)
    assert one.fingerprint != with_names(one).fingerprint
    renamed = type(one)._from_form(one._form, ["a", "b", "c", "d"])
    assert one != renamed
    assert renamed.fingerprint != one.fingerprint
    assert one != "a model"
    assert pickle.loads(pickle.dumps(one)) == one
    assert len({one, same, other, with_names(one)}) == 3


def test_a_fingerprint_does_not_change_from_release_to_release():
    model = db.Ising({("a", "b"): 0.5, ("b", "c"): -0.25}, fields={"a": -0.0}, state_names={"a": ("no", "yes")})
    assert model.fingerprint == "89a93b1e6c73d936"
    same = db.Ising({("a", "b"): 0.5, ("b", "c"): -0.25}, state_names={"a": ("no", "yes")})
    assert same == model
    assert same.fingerprint == model.fingerprint
    assert db.Ising.grid(10**5, 10**5, couplings=lambda edge: 0.1 * (edge > 5)).fingerprint is None


def test_a_model_that_is_never_whole_is_only_itself():
    one, other = (db.Ising.grid(10**5, 10**5, couplings=0.1) for _ in range(2))
    assert one == one
    assert one != other
    assert len({one, other}) == 2


def test_an_estimate_says_what_it_is_about_also_elsewhere(network):
    answer = db.estimate(network, "rain", evidence={"grass": "wet"})
    assert answer.asked.model is network
    again = pickle.loads(pickle.dumps(answer))
    assert again.asked.model is None
    assert again.asked.fingerprint == network.fingerprint
    assert again.asked.evidence == {"grass": "wet"}


def test_none_is_refused_as_a_name_with_its_reason():
    with pytest.raises(db.ArgumentError, match="and not None"):
        db.FactorGraph([2], [([0], np.zeros(2))], state_names=[(None, "x")])


def read_one_by_one(model, evidence):
    return {i: read_state(model, i, value, "evidence") for i, value in evidence.items()}


def outcome(read, model, evidence):
    """Return the types and values that were read, or the refusal as text."""
    try:
        return [(i, type(state), state) for i, state in read(model, evidence).items()]
    except db.ArgumentError as refusal:
        return str(refusal)


@pytest.mark.parametrize("family", FAMILIES)
def test_whole_numbers_are_read_at_once_as_one_by_one(family, monkeypatch):
    model = random_model(np.random.default_rng(5), family, n=4)
    beyond = [*model.states(0), -2, 2, 9, 2**63, -(2**63) - 1, 10**400]
    for values in itertools.product(beyond, (model.states(1)[-1], np.int8(1), np.uint64(1), 0, 1.0, True)):
        evidence = dict(enumerate(values))
        assert outcome(read_evidence, model, evidence) == outcome(read_one_by_one, model, evidence)
    monkeypatch.setattr(state_names, "read_state", None)  # a call for each of many states takes seconds
    evidence = {i: np.int64(model.states(i)[0]) for i in range(3)}
    answer = db.estimate(model, [3], evidence=evidence)
    assert answer.asked.evidence == answer.asked.observed == evidence


def test_evidence_outside_of_a_ball_is_counted_but_not_read_again():
    model = db.Ising.grid(150, 150, couplings=0.2)
    evidence = dict.fromkeys(range(0, model.n_variables, 7), 1)
    near = db.estimate(model, [75 * 150 + 77], evidence=evidence, tolerance=0.01)
    assert near.plan.method == "local"
    whole = db.estimate(model.condition(evidence), [75 * 150 + 77], tolerance=0.01)
    assert (abs(near.value - whole.value) <= near.half_width + whole.half_width).all()
