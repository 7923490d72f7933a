"""Learning from real data: conditional random fields beside python-crfsuite, missing values beside pyAgrum and pgmpy.

Needs the folder of data that the environment variable DOBRUSHIN_DATA names (`ner`, `bif`); peers that are not installed
are left out. Times are by the clock, and the processor's in brackets.

usage: python benchmarks/learning_data.py [crf] [em] [memory]
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import numpy as np

import dobrushin as db
from measure import Row, promises, wide_console

C2, MOST_ITERATIONS = 0.5, 250
RECORDS, SHARE_MISSING, MANY = 5000, 0.2, 1_000_000
Sentence = list[tuple[str, str]]


def main() -> None:
    """Run the parts that are asked for, and print a table of each."""
    parts = {"crf": random_fields, "em": networks, "memory": memory}
    parser = argparse.ArgumentParser(description="Learning from real data, beside other libraries.")
    parser.add_argument("parts", nargs="*", default=[], choices=[[], *parts])
    options = parser.parse_args()
    if "DOBRUSHIN_DATA" not in os.environ:
        parser.error("set DOBRUSHIN_DATA to the folder that has the data (in ner and bif)")
    folder, console = Path(os.environ["DOBRUSHIN_DATA"]), wide_console()
    for name in options.parts or parts:
        with console.status(name):
            rows = list(parts[name](folder))
        console.print(promises(name, rows))


def timed(call: Callable[[], Any]) -> tuple[Any, float, str]:
    """Return what a call returned, its seconds, and these with those of the processor as text."""
    clock, processor = time.perf_counter(), time.process_time()
    result = call()
    seconds = time.perf_counter() - clock
    return result, seconds, f"{seconds:.1f} s ({time.process_time() - processor:.1f} s)"


# -- named entities ------------------------------------------------------------------------------------------------


def random_fields(folder: Path) -> Iterator[Row]:
    """A linear chain with features of words, exact gradients; the same features and penalty in python-crfsuite."""
    train = read_sentences(folder / "ner" / "wnut17train.conll")
    test = read_sentences(folder / "ner" / "emerging.test.annotated")
    labels = tuple(sorted({tag for sentence in train for _, tag in sentence}))
    tags, wanted = ([[tag for _, tag in sentence] for sentence in part] for part in (train, test))
    words, new_words = ([token_features([word for word, _ in sentence]) for sentence in part] for part in (train, test))

    def graph(tokens: list[list[str]]) -> db.FactorGraph:
        return db.FactorGraph([len(labels)] * len(tokens), [], state_names=labels)

    def rows_of(tokens: list[list[str]]) -> Iterator[Any]:
        yield from enumerate(tokens)
        yield from (((t, t + 1), "next") for t in range(len(tokens) - 1))

    def ours() -> db.Fit:
        graphs, features = [graph(tokens) for tokens in words], [rows_of(tokens) for tokens in words]
        options: Any = {"ridge": 2 * C2 / len(train), "iterations": MOST_ITERATIONS, "gradient_tol": 1e-9}
        return db.fit(graphs, tags, features=features, **options)

    fit, seconds, text = timed(ours)
    loss = -fit.history.log_likelihood[-1] * len(train) + C2 * float(fit.parameters @ fit.parameters)
    found = [db.exact.most_likely(fit.model_of(graph(tokens), rows_of(tokens))).states for tokens in new_words]
    score = entity_f1(wanted, [[states[t] for t in range(len(states))] for states in found])
    yield Row("weights", str(len(fit.parameters)), "", None)
    try:
        import pycrfsuite
    except ImportError:
        yield Row("loss, F1, time", f"{loss:.1f}, {score:.2f}, {text}", "python-crfsuite is not installed", None)
        return
    path = os.path.join(tempfile.mkdtemp(), "model")
    trainer = pycrfsuite.Trainer(verbose=False)
    settings = {"c1": 0.0, "c2": C2, "max_iterations": MOST_ITERATIONS}
    trainer.set_params(settings | {"feature.possible_states": True, "feature.possible_transitions": True})

    def theirs() -> None:
        for tokens, own in zip(words, tags, strict=True):
            trainer.append(tokens, own)
        trainer.train(path)

    _, their_seconds, their_text = timed(theirs)
    their_loss = trainer.logparser.last_iteration["loss"]
    tagger = pycrfsuite.Tagger()
    tagger.open(path)
    their_score = entity_f1(wanted, [tagger.tag(tokens) for tokens in new_words])
    yield Row("loss (penalised)", f"{loss:.2f}", f"{their_loss:.2f} (python-crfsuite)", loss <= their_loss * 1.001)
    yield Row("F1 of entities", f"{score:.2f}", f"{their_score:.2f} ± 0.5", abs(score - their_score) <= 0.5)
    yield Row("time", text, f"5 x {their_text}", seconds <= 5 * their_seconds)


def read_sentences(path: Path) -> list[Sentence]:
    """Return the tokens of each sentence with their labels."""
    sentences: list[Sentence] = [[]]
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.strip():
            word, tag = line.split("\t")[:2]
            sentences[-1].append((word, tag))
        elif sentences[-1]:
            sentences.append([])
    return [sentence for sentence in sentences if sentence]


def token_features(words: list[str]) -> list[list[str]]:
    """Return the attributes of each token: its own, and some of its neighbours'."""

    def shape(word: str) -> str:
        kinds = ("X" if c.isupper() else "x" if c.islower() else "d" if c.isdigit() else c for c in word)
        return re.sub(r"(.)\1+", r"\1", "".join(kinds))

    def plain(word: str, where: str) -> list[str]:
        flags = [f"{where}title={word.istitle()}", f"{where}upper={word.isupper()}"]
        return [f"{where}word={word.lower()}", f"{where}shape={shape(word)}", *flags]

    found = []
    for t, word in enumerate(words):
        own = ["bias", *plain(word, ""), f"digit={word.isdigit()}"]
        own += [f"ends={word[-3:].lower()}", f"last={word[-2:].lower()}", f"begins={word[:3].lower()}"]
        before = plain(words[t - 1], "-") if t else ["first"]
        after = plain(words[t + 1], "+") if t + 1 < len(words) else ["last"]
        found.append(own + before + after)
    return found


def entity_f1(wanted: list[list[str]], found: list[list[str]]) -> float:
    """Return the F1 score of whole entities, in percent."""

    def spans(tags: list[str]) -> set[tuple[int, int, str]]:
        result, start, kind = set(), -1, ""
        for t, tag in enumerate([*tags, "O"]):
            if start >= 0 and (tag[0] != "I" or tag[2:] != kind):
                result.add((start, t, kind))
                start = -1
            if tag[0] == "B" or (tag[0] == "I" and start < 0):
                start, kind = t, tag[2:]
        return result

    pairs = [(spans(a), spans(b)) for a, b in zip(wanted, found, strict=True)]
    right = sum(len(a & b) for a, b in pairs)
    return 200.0 * right / sum(len(a) + len(b) for a, b in pairs)


# -- Bayesian networks with missing values -------------------------------------------------------------------------


def alarm(folder: Path, records: int) -> tuple[db.Model, list[tuple[str, str]], Any]:
    """Return the network, its edges, and a data frame of records with gaps."""
    import pandas

    model: Any = db.read(folder / "bif" / "alarm.bif.gz")
    # The tables of the file have the parents first and the variable last.
    tables = {scope[-1]: (scope[:-1], np.exp(log)) for scope, log in map(model.factor, range(model.n_factors))}
    random, x = np.random.default_rng(1), np.zeros((records, model.n_variables), dtype=np.int8)
    for i in TopologicalSorter({i: parents for i, (parents, _) in tables.items()}).static_order():
        parents, table = tables[i]
        rows = np.broadcast_to(table[tuple(x[:, p] for p in parents)], (records, table.shape[-1]))
        x[:, i] = np.minimum((random.random(records)[:, None] > rows.cumsum(axis=1)).sum(axis=1), table.shape[-1] - 1)
    x[random.random(x.shape, dtype=np.float32) < SHARE_MISSING] = -1
    edges = [(model.labels[p], model.labels[i]) for i, (parents, _) in tables.items() for p in parents]
    columns = {}
    for i, label in enumerate(model.labels):
        columns[label] = pandas.Categorical.from_codes(x[:, i], list(model.state_names[label]))
    return model, edges, pandas.DataFrame(columns)


def networks(folder: Path) -> Iterator[Row]:
    """Tables of `alarm` from records with gaps, from uniform tables on."""
    model, edges, frame = alarm(folder, RECORDS)
    given: Any = model
    flat = []
    for scope, log in map(given.factor, range(given.n_factors)):
        flat.append((scope, np.full(log.shape, -np.log(log.shape[-1]))))
    start = db.FactorGraph(model.cardinalities, flat, model.labels, state_names=model.state_names)

    def value(network: db.Model) -> float:
        return float(db.fit(network, frame, iterations=1).history.log_likelihood[0]) * RECORDS

    fit, seconds, text = timed(lambda: db.fit(start, frame, method=db.EM(prior=1.0), iterations=500))
    ours = float(fit.history.log_likelihood[-1]) * RECORDS
    rising = bool((np.diff(fit.history.log_likelihood) >= -1e-9).all())
    yield Row("log-likelihood", f"{ours:.1f} ({len(fit.history)} steps)", f"{value(model):.1f} at the truth", None)
    yield Row("log-likelihood never falls", str(rising), "True", rising)
    texts = frame.astype(object)
    try:
        import pyagrum
    except ImportError:
        yield Row("time", text, "pyAgrum is not installed", None)
    else:
        with tempfile.TemporaryDirectory() as place:
            path = os.path.join(place, "records.csv")
            texts.where(frame.notna(), "?").to_csv(path, index=False)
            net = pyagrum.BayesNet()
            for label in model.labels:
                net.add(pyagrum.LabelizedVariable(label, label, list(model.state_names[label])))
            for edge in edges:
                net.addArc(*edge)

            def theirs() -> Any:
                learner = pyagrum.BNLearner(path, net, ["?"])
                learner.useEM(1e-2)
                learner.useSmoothingPrior(1.0)
                return learner.learnParameters(net.dag())

            learned, their_seconds, their_text = timed(theirs)
            their_value = value(db.from_pyagrum(learned))
        yield Row("log-likelihood, pyAgrum", f"{ours:.1f}", f"{their_value:.1f} or more", ours >= their_value - 5.0)
        yield Row("time, pyAgrum", text, f"half of {their_text}", 2 * seconds <= their_seconds)
    yield pgmpy_row(model, frame, seconds / len(fit.history))


def pgmpy_row(model: db.Model, frame: Any, seconds: float) -> Row:
    """A step with the inference of pgmpy, whose own expectation maximisation drops records with gaps."""
    try:
        from pgmpy.inference import VariableElimination
        from pgmpy.readwrite import BIFReader
    except ImportError:
        return Row("time of a step, pgmpy", f"{seconds:.2f} s", "pgmpy is not installed", None)
    with tempfile.TemporaryDirectory() as place:
        db.write(model, os.path.join(place, "alarm.bif"))
        network = BIFReader(os.path.join(place, "alarm.bif")).get_model()
    inference, few = VariableElimination(network), 2

    def expected_counts() -> None:
        for _, record in frame.head(few).iterrows():
            seen = record.dropna().to_dict()
            families = [[label, *network.get_parents(label)] for label in network.nodes]
            for hidden in ([label for label in family if label not in seen] for family in families):
                if hidden:
                    inference.query(hidden, evidence=seen, show_progress=False)

    _, theirs, _ = timed(expected_counts)
    theirs *= RECORDS / few
    measured, required = f"{seconds:.2f} s", f"a twentieth of {theirs:.0f} s, from {few} records"
    return Row("time of a step, pgmpy", measured, required, 20 * seconds <= theirs)


def memory(folder: Path) -> Iterator[Row]:
    """A step with very many records."""
    model, _, frame = alarm(folder, MANY)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    _, _, text = timed(lambda: db.fit(model, frame, iterations=1))
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    yield Row(f"memory for {MANY} records", f"{after:.2f} GiB ({before:.2f} before), {text}", "2 GiB", after < 2.0)


if __name__ == "__main__":
    main()
