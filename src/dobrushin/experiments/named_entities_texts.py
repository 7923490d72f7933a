"""Texts with labelled tokens: reading them, features of their words, and scores of predicted labels."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import dobrushin as db
from dobrushin.experiments.catalog import MissingData, Store

FILES = ("wnut17train.conll", "emerging.test.annotated")
QUICK_TEXTS = 300
_MISSING = (
    f"This experiment needs the messages of W-NUT 2017: give --data FOLDER, where FOLDER or FOLDER/ner has {FILES[0]} "
    f"and {FILES[1]}."
)

Feature = Callable[[Sequence[str], int], Iterable[str]]


class Text(NamedTuple):
    """A text: its tokens and their labels."""

    words: tuple[str, ...]
    tags: tuple[str, ...]


@dataclass(frozen=True)
class Corpus:
    """Training texts, test texts, and the labels in the training texts."""

    train: list[Text]
    test: list[Text]
    labels: list[str]

    def codes(self, tags: Iterable[str]) -> list[int]:
        """Return the numbers of labels, by position in the list of labels."""
        place = {label: k for k, label in enumerate(self.labels)}
        return [place[tag] for tag in tags]

    @cached_property
    def alike(self) -> dict[str, NDArray[np.float64]]:
        """Return the names of a link's features: both tokens in entities of one kind, or both outside of entities."""
        kinds = np.array([label.partition("-")[2] for label in self.labels])
        same = kinds[:, None] == kinds
        outside = kinds == ""
        return {"one kind": (same & ~outside) * 1.0, "both outside": (same & outside) * 1.0}

    def split(self, codes: Any) -> list[list[str]]:
        """Split label numbers of the whole test set into an array for each text."""
        ends = np.cumsum([len(text.words) for text in self.test])[:-1]
        return [[self.labels[k] for k in own] for own in np.split(np.asarray(codes), ends)]


def read_conll(path: Path) -> list[Text]:
    """Read a file with a token and its label on each line, and an empty line between texts.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from dobrushin.experiments.named_entities_texts import read_conll
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "two.conll")
    ...     _ = path.write_text("in\\tO\\nParis\\tB-location\\n\\nhi\\tO\\n")
    ...     read_conll(path)
    [Text(words=('in', 'Paris'), tags=('O', 'B-location')), Text(words=('hi',), tags=('O',))]
    """
    texts: list[Text] = []
    rows: list[list[str]] = []
    for number, line in enumerate([*path.read_text(encoding="utf-8").split("\n"), ""], 1):
        if line.strip():
            rows.append(line.rstrip("\r").split("\t"))
            if len(rows[-1]) != 2 or not all(rows[-1]):
                raise db.FormatError(str(path), "a token, a tab and a label", repr(line), number)
        elif rows:
            words, tags = zip(*rows, strict=True)
            texts.append(Text(words, tags))
            rows = []
    return texts


def read_corpus(store: Store) -> tuple[Corpus, int]:
    """Read the texts, and return them with a checksum of the files; raise `MissingData` if files are missing."""
    folder = store.find_data("ner", *FILES)
    if folder is None:
        raise MissingData(_MISSING)
    train, test = (read_conll(folder / name)[: store.pick(QUICK_TEXTS, None)] for name in FILES)
    labels = sorted({tag for text in train for tag in text.tags})
    test = [text for text in test if set(text.tags) <= set(labels)]
    return Corpus(train, test, labels), zlib.crc32(b"".join((folder / name).read_bytes() for name in FILES))


def shape_of(word: str) -> str:
    """Return the shape of a word: one letter or digit for each run of capitals, small letters or digits.

    Examples
    --------
    >>> from dobrushin.experiments.named_entities_texts import shape_of
    >>> shape_of("McDonald's"), shape_of("2017"), shape_of("@user_1")
    ("XxXx'x", 'd', '@x_d')
    """
    for letters, sign in (("[A-Z]+", "X"), ("[a-z]+", "x"), ("[0-9]+", "d")):
        word = re.sub(letters, sign, word)
    return word


def shape_features(words: Sequence[str], place: int) -> list[str]:
    """Return the usual features of a token: its word, the word's prefixes and suffixes, shape, and neighbours.

    Examples
    --------
    >>> from dobrushin.experiments.named_entities_texts import shape_features
    >>> shape_features(["in", "Paris"], 1)[:7]
    ['bias', 'word paris', 'begins pa', 'begins par', 'ends is', 'ends ris', 'shape Xx']
    """
    word, lower = words[place], words[place].lower()
    found = ["bias", f"word {lower}", f"begins {lower[:2]}", f"begins {lower[:3]}", f"ends {lower[-2:]}"]
    found += [f"ends {lower[-3:]}", f"shape {shape_of(word)}"]
    has = {"capital": word[0].isupper(), "all capitals": word.isupper(), "digit": any(map(str.isdigit, word))}
    found += [name for name, is_so in has.items() if is_so]
    for side, other in (("before", place - 1), ("after", place + 1)):
        if 0 <= other < len(words):
            found += [f"{side} {words[other].lower()}", f"{side}, shape {shape_of(words[other])}"]
        else:
            found.append(f"nothing {side}")
    return found


def find_links(words: Sequence[str]) -> list[tuple[int, int]]:
    """Return pairs of equal capitalised words of at least two letters, each paired with its last occurrence before.

    Examples
    --------
    >>> from dobrushin.experiments.named_entities_texts import find_links
    >>> find_links("I met Ann and I like Ann , Ann !".split())
    [(2, 6), (6, 8)]
    """
    last: dict[str, int] = {}
    links = []
    for place, word in enumerate(words):
        if len(word) > 1 and word[0].isupper():
            if word in last:
                links.append((last[word], place))
            last[word] = place
    return links


def crf_features(
    words: Sequence[str],
    functions: Sequence[Feature] = (shape_features,),
    links: Iterable[tuple[int, int]] = (),
    alike: Any = "same word",
) -> Iterator[tuple[Any, Any]]:
    """Yield the features of a conditional random field for one text, in the form that `fit` and `Fit.model_of` take.

    Parameters
    ----------
    words : list of str
    functions : list of functions
        Each returns names of features, given the words and a place among them.
    links : list of pairs
        Places of tokens that are tied together beside the neighbours: see `find_links`.
    alike : attributes
        The attributes of a link.

    Examples
    --------
    >>> from dobrushin.experiments.named_entities_texts import crf_features
    >>> for row in crf_features(["Ann", "sleeps"], [lambda words, place: [words[place][-1]]]):
    ...     print(row)
    ((0, 1), 'next')
    (0, ['n'])
    (1, ['s'])
    """
    yield from (((place, place + 1), "next") for place in range(len(words) - 1))
    yield from ((link, alike) for link in links)
    for place in range(len(words)):
        names: list[str] = []
        for function in functions:
            found = function(words, place)
            if found is None:
                where = f"{getattr(function, '__name__', function)}, word {place}, {words[place]!r}"
                raise db.ArgumentError("functions", "functions that return lists of names", got="None", where=where)
            names += found
        yield place, names


def find_spans(tags: Sequence[str]) -> set[tuple[int, int, str]]:
    """Return the entities as (first token, end, kind). A new entity begins at B-, and where the kind changes.

    Examples
    --------
    >>> from dobrushin.experiments.named_entities_texts import find_spans
    >>> sorted(find_spans(["B-person", "I-person", "I-location", "O", "B-person", "B-person"]))
    [(0, 2, 'person'), (2, 3, 'location'), (4, 5, 'person'), (5, 6, 'person')]
    """
    spans, begin, kind = set(), 0, ""
    for place, tag in enumerate([*tags, "O"]):
        part, _, now = tag.partition("-")
        if kind and (part != "I" or now != kind):
            spans.add((begin, place, kind))
            kind = ""
        if now and not kind:
            begin, kind = place, now
    return spans


def score(truth: Iterable[Sequence[str]], found: Iterable[Sequence[str]]) -> tuple[float, float, float]:
    """Return precision, recall and F1 of whole entities, in percent.

    Examples
    --------
    >>> from dobrushin.experiments.named_entities_texts import score
    >>> score([["B-person", "O", "B-person"]], [["B-person", "B-person", "O"]])
    (50.0, 50.0, 50.0)
    """
    both = found_all = true_all = 0
    for tags, own in zip(truth, found, strict=True):
        true, mine = find_spans(tags), find_spans(own)
        both, found_all, true_all = both + len(true & mine), found_all + len(mine), true_all + len(true)
    shares = both / max(1, found_all), both / max(1, true_all), 2 * both / max(1, found_all + true_all)
    return shares[0] * 100, shares[1] * 100, shares[2] * 100
