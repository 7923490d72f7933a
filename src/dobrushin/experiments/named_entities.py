"""Experiment beyond the paper: named entities in short messages by linear and skip chains, learned and certified.

W-NUT 2017 (Derczynski, Nichols, van Erp, Limsopatham): every token has one of 13 labels, B- and I- of six kinds of
entities, and O. A linear-chain conditional random field has weights for the words and for neighbouring labels; a
skip chain (Sutton and McCallum 2004) also ties together equal capitalised words of a text. `fit` learns both with exact
gradients, and every token of the test set gets a certified posterior. A box on the weights of pairs of labels is what
keeps such a model inside Dobrushin's condition: its price is measured in F1.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import dobrushin as db
from dobrushin.experiments.catalog import Arrays, Finding, Part, Store
from dobrushin.experiments.drawing import COLORS, GREY, finish, legend_below, panels
from dobrushin.experiments.named_entities_texts import (
    QUICK_TEXTS,
    Corpus,
    Text,
    crf_features,
    find_links,
    find_spans,
    read_corpus,
    score,
    shape_features,
)
from dobrushin.experiments.scans import certify

TOLERANCE, CONFIDENCE = 0.05, 0.99
# The objective is the log-likelihood of all texts minus this times the sum of squared weights (CRFsuite's `c2`).
PENALTY = 1.0
ITERATIONS = 100
# Bounds on the absolute weights of pairs of labels; with 0 the tokens are independent.
BOXES = (0.0, 0.5, 0.75, 1.0, 1.5, 2.0)
# Words of the longest text that the figure shows.
_EXAMPLE_WORDS = 24
# Sweeps of the systematic scan after which the bound of a token counts.
SWEEPS = 100


def features_of(text: Text, linked: bool, alike: Any) -> list[tuple[Any, Any]]:
    """Return the features of a text for a linear chain or, if `linked`, for a skip chain."""
    return list(crf_features(text.words, links=find_links(text.words) if linked else (), alike=alike))


def fit_chain(corpus: Corpus, linked: bool, iterations: int, **options: Any) -> db.Fit:
    """Learn the weights of a linear or skip chain with exact gradients."""
    graphs = [_graph(corpus, text) for text in corpus.train]
    rows = [features_of(text, linked, corpus.alike) for text in corpus.train]
    tags = [text.tags for text in corpus.train]
    return db.fit(graphs, tags, features=rows, ridge=2 * PENALTY / len(graphs), iterations=iterations, **options)


def _graph(corpus: Corpus, text: Text) -> db.FactorGraph:
    return db.FactorGraph([len(corpus.labels)] * len(text.words), [], state_names=corpus.labels)


def _models(corpus: Corpus, linked: bool, fit: db.Fit) -> list[db.Model]:
    return [fit.model_of(_graph(corpus, text), features_of(text, linked, corpus.alike)) for text in corpus.test]


def learn_chain(corpus: Corpus, linked: bool, iterations: int, seed: np.random.SeedSequence) -> dict[str, Any]:
    """Learn a chain, label the test set, and certify each token's posterior, by `estimate` and by sweeps.

    Learning is timed in CPU seconds, and the posteriors in wall-clock seconds.
    """
    fit_chain(
        replace(corpus, train=corpus.train[:5]), linked, 1
    )  # compile first, so that the clock does not include it
    begin = time.process_time()
    fit = fit_chain(corpus, linked, iterations)
    learnt = time.process_time() - begin
    models = _models(corpus, linked, fit)
    start = time.perf_counter()
    answers = [
        db.estimate(model, "all", tolerance=TOLERANCE, confidence=CONFIDENCE, seed=own)
        for model, own in zip(models, seed.spawn(len(models)), strict=True)
    ]
    seconds, shape = time.perf_counter() - start, (-1, len(corpus.labels))
    return {
        "weights": fit.parameters, "is pair": [len(name) == 3 for name in fit.names], "loss": _loss(corpus, fit),
        "iterations": len(fit.history), "seconds, learning": learnt, "seconds, posteriors": seconds,
        "posterior": np.concatenate([answer.value.reshape(shape) for answer in answers]),
        "half width": np.concatenate([answer.half_width.reshape(shape).max(axis=1) for answer in answers]),
        "methods": [answer.plan.method for answer in answers], **_label(corpus, models), **_certify(corpus, models),
    }  # fmt: skip


def _loss(corpus: Corpus, fit: db.Fit) -> float:
    """Return the penalised negative log-likelihood of all texts at the last iteration of the fit."""
    penalty = PENALTY * float(fit.parameters @ fit.parameters)
    return penalty - len(corpus.train) * float(fit.history.log_likelihood[-1])


def run_crfsuite(corpus: Corpus, iterations: int) -> dict[str, Any]:
    """Learn a linear chain with CRFsuite, using the same features and penalty, and label the test set."""
    import pycrfsuite

    begin = time.process_time()
    options = {"c1": 0.0, "c2": PENALTY, "max_iterations": iterations}
    options |= {"feature.possible_states": True, "feature.possible_transitions": True}
    trainer = pycrfsuite.Trainer(algorithm="lbfgs", params=options, verbose=False)
    for text in corpus.train:
        trainer.append([shape_features(text.words, place) for place in range(len(text.words))], text.tags)
    with TemporaryDirectory() as folder:
        path = str(Path(folder, "chain.crfsuite"))
        trainer.train(path)
        seconds = time.process_time() - begin
        tagger = pycrfsuite.Tagger()
        tagger.open(path)
        tags = [
            tag
            for text in corpus.test
            for tag in tagger.tag([shape_features(text.words, place) for place in range(len(text.words))])
        ]
        tagger.close()
    last = trainer.logparser.last_iteration
    return {"tags": corpus.codes(tags), "seconds, learning": seconds, "loss": last["loss"], "iterations": last["num"]}


def measure_box(corpus: Corpus, box: float, iterations: int, linear: Arrays) -> dict[str, Any]:
    """Learn a linear chain whose label-pair weights are limited to a box, starting from the unconstrained solution."""
    bounds = np.where(linear["is pair"], box, np.inf)
    fit = fit_chain(corpus, False, iterations, box=bounds, initial=np.clip(linear["weights"], -bounds, bounds))
    models = _models(corpus, False, fit)
    return {"loss": _loss(corpus, fit), **_label(corpus, models), **_certify(corpus, models)}


def _label(corpus: Corpus, models: Sequence[db.Model]) -> dict[str, Any]:
    """Return the most likely label of each token of the test set, as label numbers."""
    return {"tags": corpus.codes(tag for model in models for tag in db.exact.most_likely(model).states.values())}


def _certify(corpus: Corpus, models: Sequence[db.Model]) -> dict[str, Any]:
    """Bound the bias of each token after sweeps, and choose scans for the entities of the test set.

    "steps" has a row for each entity for which sweeps reach the tolerance: the number of steps of the shortest scan
    found (or of the sweeps, if fewer), and of the sweeps, for the same bound on the joint law of the entity's tokens.
    """
    bounds, rows, steps, mentions = [], [], [], 0
    for text, model in zip(corpus.test, models, strict=True):
        n, influence = len(text.words), db.influence(model)
        rows += influence.matrix.sum(axis=1).tolist()
        bounds += certify(influence, db.Scan.systematic(n, SWEEPS * n)).per_variable.tolist()
        for begin, end, _ in sorted(find_spans(text.tags)):
            mentions += 1
            targets = list(range(begin, end))
            if (plain := _systematic_steps(influence, targets)) is not None:
                steps.append([min(_chosen_steps(influence, targets), plain), plain])
    table = np.array(steps, dtype=np.int64).reshape(-1, 2)
    return {"bounds": bounds, "rows": rows, "mentions": mentions, "steps": table}


def _chosen_steps(influence: db.Influence, targets: list[int]) -> float:
    """Return the length of the shortest scan found; inf if none is found (with a spectral radius above 1)."""
    try:
        found = db.shortest_scan(influence, targets, tolerance=TOLERANCE)
    except db.ToleranceError as error:
        found = error.result
    return len(found.scan) if found.variation.value <= TOLERANCE else np.inf


def _systematic_steps(influence: db.Influence, targets: list[int]) -> int | None:
    """Return after how many steps the systematic scan's bound meets the tolerance; None if not in `SWEEPS` sweeps."""
    n = influence.n_variables
    at, values = certify(influence, db.Scan.systematic(n, SWEEPS * n), targets).curve(every=n)
    if values[-1] > TOLERANCE:
        return None
    whole = int(at[np.argmax(values <= TOLERANCE)])
    at, values = certify(influence, db.Scan.systematic(n, whole), targets).curve(every=1)
    return int(at[np.argmax(values <= TOLERANCE)])


# -- the experiment ----------------------------------------------------------------------------------------------------


def compute(store: Store) -> dict[str, Any]:
    """Learn and certify a linear chain, a skip chain, and linear chains in boxes; also run CRFsuite if it is installed.

    Parameters
    ----------
    store : Store
        All texts and 100 iterations; 300 texts to learn from and 300 to test on, and 30 iterations, if quick.
    """
    corpus, mark = read_corpus(store)
    iterations, boxes = store.pick(30, ITERATIONS), store.pick(BOXES[1:3], BOXES)
    about: dict[str, Any] = {"mark": mark, "penalty": PENALTY, "iterations": iterations}
    data: dict[str, Any] = {"corpus": corpus, "crfsuite": None}
    for number, name in enumerate(("linear", "skip")):
        data[name] = store.part(name, learn_chain, corpus, name == "skip", iterations, store.seed_of(number), **about)
    if find_spec("pycrfsuite") is not None:
        data["crfsuite"] = store.part("crfsuite", run_crfsuite, corpus, iterations, **about)
    linear = data["linear"]
    parts = [Part(f"box-{box}", measure_box, (corpus, box, iterations // 2, linear), about) for box in boxes]
    data["boxes"] = {**dict(zip(boxes, store.parts(parts), strict=True)), np.inf: linear}
    return data


def f1(corpus: Corpus, part: Arrays) -> float:
    """Return the F1 score of the labels in percent."""
    return score((text.tags for text in corpus.test), corpus.split(part["tags"]))[2]


def certified_share(part: Arrays) -> float:
    """Return the share of tokens whose bias is certified to be within the tolerance."""
    return float((part["bounds"] <= TOLERANCE).mean())


def findings(data: dict[str, Any]) -> list[Finding]:
    """Compare the expected results with the measurements."""
    linear, skip = (f1(data["corpus"], data[name]) for name in ("linear", "skip"))
    few = "Too few texts to compare: a quick run." if len(data["corpus"].train) <= QUICK_TEXTS else ""
    return [
        *_beside_crfsuite(data, linear, few),
        Finding(
            "F1 of a skip chain, not below the linear chain's",
            "-",
            f"{skip:.2f} and {linear:.2f}: {_count_links(data['corpus'].test)} of {len(data['corpus'].test)} texts "
            f"have links",
            skip >= linear,
            few,
        ),
        *(_posteriors(name, data[name]) for name in ("linear", "skip")),
        *_boxes(data),
    ]


def _beside_crfsuite(data: dict[str, Any], linear: float, few: str) -> list[Finding]:
    own, other = data["linear"], data["crfsuite"]
    what = "F1 of a linear chain within 0.5 points of CRFsuite's, with the same features and penalty"
    quick = "time to learn under 5 times CRFsuite's"
    if other is None:
        why = "python-crfsuite is not installed: pip install python-crfsuite."
        return [
            Finding(what, "-", f"{linear:.2f}; CRFsuite not run", False, why),
            Finding(quick, "-", "not run", False, why),
        ]
    theirs = f1(data["corpus"], other)
    seconds, their_seconds = (float(part["seconds, learning"]) for part in (own, other))
    return [
        Finding(
            what,
            "-",
            f"{linear:.2f} and {theirs:.2f}; objective {own['loss']:.1f} after {own['iterations']} iterations and "
            f"{other['loss']:.1f} after {other['iterations']}, {len(own['weights'])} weights",
            abs(linear - theirs) <= 0.5,
            few,
        ),
        Finding(
            quick,
            "-",
            f"{seconds:.1f} s and {their_seconds:.1f} s of the processor: {seconds / their_seconds:.1f}×",
            seconds < 5 * their_seconds,
            few,
        ),
    ]


def _posteriors(name: str, part: Arrays) -> Finding:
    seconds, widest = float(part["seconds, posteriors"]), float(part["half width"].max())
    methods = ", ".join(f"{count} {method}" for method, count in Counter(part["methods"].tolist()).most_common())
    return Finding(
        f"{name} chain: posteriors of all tokens of the test set within {TOLERANCE}, at {CONFIDENCE}, in 10 minutes",
        "-",
        f"{len(part['half width'])} tokens within {widest:.2g} in {seconds:.0f} s (texts by method: {methods})",
        widest <= TOLERANCE and seconds < 600,
    )


def _boxes(data: dict[str, Any]) -> list[Finding]:
    corpus, boxes = data["corpus"], data["boxes"]
    share = {box: certified_share(part) for box, part in boxes.items()}
    most = {box: part["steps"] for box, part in boxes.items() if box and 2 * len(part["steps"]) > part["mentions"]}
    ratio = {box: float(np.median(own[:, 1] / own[:, 0])) for box, own in most.items()}
    fewer = "; ".join(
        f"{_named(box)}: {len(own)} of {boxes[box]['mentions']} entities, median {np.median(own[:, 0]):.0f} instead of "
        f"{np.median(own[:, 1]):.0f} steps, {ratio[box]:.1f}× fewer"
        for box, own in most.items()
    )
    price = "; ".join(f"{_named(box)}: {share[box]:.1%}, F1 {f1(corpus, part):.2f}" for box, part in boxes.items())
    rows = float(np.median(boxes[np.inf]["rows"]))
    return [
        Finding(
            f"scans chosen for the tokens of one entity need fewer steps than sweeps (joint law within {TOLERANCE})",
            "-",
            fewer,
            bool(ratio) and min(ratio.values()) > 1,
        ),
        Finding(
            f"tokens with a Dobrushin certificate of {TOLERANCE}: fewer as the box on weights of label pairs grows",
            "-",
            f"{price} (median row sum of influence without a box {rows:.2f})",
            bool((np.diff(list(share.values())) <= 0).all()),
        ),
    ]


def _named(box: float) -> str:
    return "no box" if np.isinf(box) else f"box {box:g}"


def _count_links(texts: Iterable[Text]) -> int:
    return sum(bool(find_links(text.words)) for text in texts)


def _choose_example(data: dict[str, Any]) -> tuple[int, int]:
    """Return a range of tokens in a short text with links, on which linear and skip chain differ most."""
    texts = data["corpus"].test
    ends = np.cumsum([0, *(len(text.words) for text in texts)])
    change = np.abs(data["linear"]["posterior"] - data["skip"]["posterior"]).max(axis=1)
    short = [k for k, text in enumerate(texts) if len(text.words) <= _EXAMPLE_WORDS]
    linked = [k for k in short if find_links(texts[k].words)] or short
    best = max(linked, key=lambda k: float(change[ends[k] : ends[k + 1]].max()))
    return int(ends[best]), int(ends[best + 1])


def draw(data: dict[str, Any]) -> dict[str, Any]:
    """Draw the cost of a certificate, lengths of scans, and the posterior of one text under both chains."""
    corpus, boxes = data["corpus"], data["boxes"]
    figure, axes = panels(1, 3, width=4.8, height=4.4)
    left, middle, right = axes[0]
    shares, scores = [100 * certified_share(part) for part in boxes.values()], [f1(corpus, p) for p in boxes.values()]
    left.plot(shares, scores, "o-", color=COLORS["DoGS"])
    for share, own, box in zip(shares, scores, boxes, strict=True):
        left.annotate(_named(box), (share, own), xytext=(5, 4), textcoords="offset points", fontsize=8)
    left.set_xlim(-4, 118)
    finish(left, "what a certificate costs", f"tokens certified within {TOLERANCE}, %", "F1 of entities, %", "", False)
    colors = ("#0072B2", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#D55E00")
    drawn = [(box, part["steps"]) for box, part in boxes.items() if box and 10 * len(part["steps"]) > part["mentions"]]
    top = max((own.max() for _, own in drawn), default=1)
    for (box, own), color in zip(drawn, colors, strict=False):
        middle.plot(own[:, 1], own[:, 0], ".", color=color, markersize=4, alpha=0.6, label=_named(box))
    middle.plot([1, top], [1, top], color=GREY, linewidth=0.8)
    finish(middle, f"joint law of one entity within {TOLERANCE}", "steps of systematic sweeps",
           "steps of a scan chosen for the entity", log="xy")  # fmt: skip
    _draw_example(right, data)
    return {"named-entities": figure, "boxes": _tabulate(data)}


def _draw_example(ax: Any, data: dict[str, Any]) -> None:
    begin, end = _choose_example(data)
    words = [word if len(word) <= 16 else f"{word[:15]}…" for text in data["corpus"].test for word in text.words][
        begin:end
    ]
    outside = data["corpus"].labels.index("O")
    places = np.arange(end - begin)
    for shift, (name, color) in zip((-0.2, 0.2), (("linear", GREY), ("skip", COLORS["DoGS"])), strict=True):
        chance = 1 - data[name]["posterior"][begin:end, outside]
        ax.barh(places + shift, chance, 0.4, color=color, label=f"{name} chain")
    ax.set_yticks(places, words, fontsize=max(4, min(8, 170 // len(words))))
    ax.invert_yaxis()
    ax.set_xlim(0, 1)
    ax.set_title("P(token is in an entity), one text", fontsize=10)
    ax.tick_params(axis="x", labelsize=8)
    ax.spines[["top", "right"]].set_visible(False)
    legend_below(ax)


def _tabulate(data: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Return a table of results by the width of the box that limits label-pair weights."""
    rows: list[tuple[Any, ...]] = [
        ("box", "F1", "tokens certified", "median row sum", "entities", "with a scan", "steps", "sweeps")
    ]
    for box, part in data["boxes"].items():
        steps = np.median(part["steps"], axis=0) if len(part["steps"]) else np.full(2, np.nan)
        numbers = f1(data["corpus"], part), certified_share(part), float(np.median(part["rows"]))
        counts = int(part["mentions"]), len(part["steps"])
        rows.append((_named(box), *(f"{number:.4g}" for number in numbers), *counts, *(f"{x:g}" for x in steps)))
    return rows
