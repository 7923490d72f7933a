"""Named entities: reading texts, features, scores, and a quick run on a hundred sentences."""

import copy
import itertools

import numpy as np
import pytest

import dobrushin as db
from dobrushin.experiments import catalog, named_entities
from dobrushin.experiments.catalog import MissingData, Store
from dobrushin.experiments.named_entities_texts import (
    FILES,
    Text,
    crf_features,
    find_links,
    find_spans,
    read_conll,
    score,
    shape_features,
)

NAMES, PLACES, VERBS = ("Ann", "Bob", "Eve"), ("Paris", "Rome", "Oslo"), ("visits", "sees", "leaves")


def make_texts(rng, count):
    """Sentences about people and places; a name that is repeated is an entity both times."""
    texts = []
    for _ in range(count):
        name, place, verb = (str(rng.choice(words)) for words in (NAMES, PLACES, VERBS))
        rows = [(name, "B-person"), (verb, "O"), (place, "B-location")]
        if rng.random() < 0.3:
            rows.insert(1, ("Smith", "I-person"))
        if rng.random() < 0.4:
            rows += [("and", "O"), (place, "B-location"), ("!", "O")]
        texts.append(rows)
    return texts


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(5)
    for name, count in zip(FILES, (100, 40), strict=True):
        texts = make_texts(rng, count)
        lines = ["".join(f"{word}\t{tag}\n" for word, tag in rows) for rows in texts]
        (tmp_path / name).write_text("\n".join(lines))
    return tmp_path


def test_a_quick_run_on_a_hundred_sentences(folder, monkeypatch):
    monkeypatch.setattr(named_entities, "find_spec", lambda _: None)
    store = Store(quick=True, data=folder, folder=folder / "out")
    found = catalog.run("named-entities", store)
    assert found.holds, found.findings
    missing = [finding for finding in found.findings if "CRFsuite" in finding.what]
    assert [(finding.verdict, "python-crfsuite" in finding.why) for finding in missing] == [("differs", True)] * 2
    assert {path.suffix for path in found.files} == {".npz", ".csv", ".png", ".svg", ".pdf"}

    def refuse(part):
        assert part == "figures", f"{part} was computed again"

    again = Store(quick=True, data=folder, folder=folder / "out" / "named-entities-quick", say=refuse)
    data = named_entities.compute(again)
    assert named_entities.f1(data["corpus"], data["linear"]) > 95
    check_posteriors(data)
    check_boxes(data)
    worse = copy.deepcopy(data)
    worse["skip"]["half width"][3] = 0.06
    failed = [finding.what for finding in named_entities.findings(worse) if finding.verdict == "FAILS"]
    assert [what.startswith("skip chain: posteriors") for what in failed] == [True]
    worse = copy.deepcopy(data)
    worse["boxes"][0.5]["bounds"][:] = 1.0
    assert any(finding.verdict == "FAILS" for finding in named_entities.findings(worse))


def test_crfsuite_learns_the_same_chain(folder):
    pytest.importorskip("pycrfsuite", reason="python-crfsuite is not installed")
    corpus, _ = named_entities.read_corpus(Store(data=folder))
    own = named_entities.learn_chain(corpus, False, 200, np.random.SeedSequence(1))
    theirs = named_entities.run_crfsuite(corpus, 200)
    assert theirs["loss"] == pytest.approx(own["loss"], rel=1e-5)
    assert own["tags"] == theirs["tags"]


def check_posteriors(data):
    """The posteriors of a text are those of enumeration, with the weights of the fit."""
    corpus = data["corpus"]
    k = min(range(len(corpus.test)), key=lambda k: len(corpus.test[k].words))
    begin = sum(len(text.words) for text in corpus.test[:k])
    text = corpus.test[k]
    fit = named_entities.fit_chain(corpus, False, 30)
    np.testing.assert_allclose(fit.parameters, data["linear"]["weights"], atol=1e-12)
    place = dict(zip(fit.names, fit.parameters, strict=True))
    states = list(itertools.product(corpus.labels, repeat=len(text.words)))
    energy = [
        sum(place.get((name, tag), 0.0) for t, tag in enumerate(tags) for name in shape_features(text.words, t))
        + sum(place[("next", a, b)] for a, b in itertools.pairwise(tags))
        for tags in states
    ]
    weights = np.exp(np.array(energy) - max(energy))
    for t in range(len(text.words)):
        law = [weights[[tags[t] == label for tags in states]].sum() / weights.sum() for label in corpus.labels]
        off = np.abs(data["linear"]["posterior"][begin + t] - law)
        assert off.max() <= data["linear"]["half width"][begin + t] + 1e-12


def check_boxes(data):
    """Without weights of pairs every token is independent; no scan for an entity is longer than the sweeps."""
    assert list(data["boxes"]) == [*named_entities.BOXES[1:3], np.inf]
    for box, part in data["boxes"].items():
        steps = part["steps"]
        assert (steps[:, 0] <= steps[:, 1]).all()
        assert len(steps) <= part["mentions"] == sum(len(find_spans(text.tags)) for text in data["corpus"].test)
        assert len(part["bounds"]) == sum(len(text.words) for text in data["corpus"].test)
        if np.isfinite(box):  # the influence of a neighbour is at most tanh of the largest change of half a log-odds
            assert max(part["rows"]) <= 2 * np.tanh(box)


def test_where_the_search_for_a_scan_gives_up_the_sweeps_count():
    strong = db.influence(db.Ising.grid(3, 3, couplings=1.0))
    assert named_entities._chosen_steps(strong, [4]) == np.inf
    assert named_entities._systematic_steps(strong, [4]) is None
    weak = db.influence(db.Ising({(i, i + 1): 0.2 for i in range(5)}))
    chosen, plain = (count(weak, [2]) for count in (named_entities._chosen_steps, named_entities._systematic_steps))
    assert chosen <= plain
    for steps, holds in ((plain, True), (plain - 1, False)):
        bound = db.variation(weak, db.Scan.systematic(6, steps), targets=[2]).value
        assert (bound <= named_entities.TOLERANCE) is holds


def test_reading(tmp_path):
    path = tmp_path / "texts.conll"
    path.write_bytes(b"in\tO\r\nR\xc3\xb4me\tB-location\r\n\t\r\n\nhi\tO")
    assert read_conll(path) == [Text(("in", "Rôme"), ("O", "B-location")), Text(("hi",), ("O",))]
    path.write_text("in\tO\nRome\n")
    with pytest.raises(db.FormatError, match=r"line 2: expected a token, a tab and a label, found 'Rome'"):
        read_conll(path)
    with pytest.raises(MissingData, match=r"wnut17train\.conll"):
        named_entities.read_corpus(Store(data=tmp_path))


def test_features_of_a_text():
    words = ["RT", "Ann", ":", "Ann", "and", "I", "saw", "Ann"]
    assert find_links(words) == [(1, 3), (3, 7)]
    rows = list(crf_features(words, [lambda words, t: [words[t]]], find_links(words)))
    assert rows[:7] == [((t, t + 1), "next") for t in range(7)]
    assert rows[7:9] == [((1, 3), "same word"), ((3, 7), "same word")]
    assert rows[9:] == [(t, [word]) for t, word in enumerate(words)]
    found = shape_features(words, 0)
    assert {"word rt", "shape X", "capital", "all capitals", "nothing before", "after ann"} <= set(found)
    assert "digit" in shape_features(["B2"], 0)


def test_a_feature_function_that_returns_nothing_is_one_sentence():
    def careless(words, place):
        words[place].lower()

    with pytest.raises(db.ArgumentError, match=r"that return lists of names\. Got None at careless, word 0, 'Ann'\.$"):
        list(crf_features(["Ann"], [shape_features, careless]))


def test_scores_are_of_whole_entities():
    truth = [["B-person", "I-person", "O", "B-location"], ["O"]]
    assert score(truth, truth) == (100.0, 100.0, 100.0)
    assert score(truth, [["B-person", "O", "O", "B-location"], ["B-person"]]) == pytest.approx((100 / 3, 50, 40))
    assert score(truth, [["O"] * 4, ["O"]]) == (0, 0, 0)
    assert find_spans(["I-person", "B-person", "I-location"]) == {
        (0, 1, "person"),
        (1, 2, "person"),
        (2, 3, "location"),
    }
