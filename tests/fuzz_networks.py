"""Files of Bayesian networks, made up: XMLBIF and Hugin, their literal reading, and BIF written back."""

from __future__ import annotations

import itertools
import re
from xml.sax.saxutils import escape

import numpy as np

from dobrushin import io as files
from dobrushin.errors import ArgumentError
from dobrushin.io.source import Source

NAMES = ("a", "b", "c_1", "rain", "x.y", "\u00e9t\u00e9", "two words", "it's")


def random_tables(rng, names):
    """States, parents and rows of a network: rows that sum to 1, the last parent fastest."""
    chosen = rng.sample(names, rng.randrange(1, 6))
    states = {name: [f"s{k}" for k in range(rng.randrange(1, 4))] for name in chosen}
    tables = []
    for k, name in enumerate(chosen):
        parents = rng.sample(chosen[:k], min(k, rng.randrange(3)))
        size, rows = len(states[name]), []
        for _ in itertools.product(*(states[p] for p in parents)):
            weights = [rng.randrange(0, 9) for _ in range(size)]
            total = sum(weights)
            rows.append([weight / total for weight in weights] if total else [1 / size] * size)
        tables.append((name, parents, rows))
    return states, tables


def make_xmlbif(rng):
    states, tables = random_tables(rng, NAMES)
    text = ['<?xml version="1.0"?>\n'] if rng.random() < 0.8 else []
    text.append("<!-- made -->" if rng.random() < 0.3 else "")
    text.append('<BIF VERSION="0.3"><NETWORK><NAME>n</NAME>\n')
    for name, own in states.items():
        kind = rng.choice((' TYPE="nature"', ""))
        outcomes = "".join(f"<OUTCOME>{escape(state)}</OUTCOME>" for state in own)
        text.append(f"<VARIABLE{kind}><NAME>{escape(name)}</NAME>{outcomes}</VARIABLE>\n")
    for name, parents, rows in tables:
        given = "".join(f"<GIVEN>{escape(parent)}</GIVEN>" for parent in parents)
        numbers = " ".join(repr(x) for row in rows for x in row)
        text.append(f"<DEFINITION><FOR>{escape(name)}</FOR>{given}<TABLE>{numbers}</TABLE></DEFINITION>\n")
    return "".join([*text, "</NETWORK></BIF>\n"]).encode()


def make_hugin(rng):
    states, tables = random_tables(rng, [name for name in NAMES if name.isidentifier()])
    text = [rng.choice(("net { }\n", "% made\nnet { node_size = (80 40); }\n", 'net { name = "n"; }\n'))]
    for name, own in states.items():
        quoted = " ".join(f'"{state}"' for state in own)
        text.append(f"{rng.choice(('node', 'discrete node'))} {name} {{ states = ( {quoted} ); position = (1 2); }}\n")
    for name, parents, rows in tables:
        bar = f"| {' '.join(parents)} " if parents else ""
        numbers = "".join(f"( {' '.join(map(repr, row))} )" for row in rows)
        text.append(f"potential ( {name} {bar}) {{ data = {numbers if not parents else f'({numbers})'}; }}\n")
    return "".join(text).encode()


def same_numbers(kind, data, model):
    """Whether the tables of a model have the numbers of the file, but for sums that are slightly off 1."""
    text = data.decode()
    if kind == "xmlbif":
        if "<!" in text or "&" in text or "<![CDATA[" in text:
            return True
        rows = re.findall(r"<TABLE[^>]*>([^<]*)</TABLE", text)
    else:
        if "%" in text or '"' in re.sub(r'states\s*=\s*\((\s*"[^"]*")+\s*\)', "", text):
            return True
        rows = [re.sub(r"[()]", " ", row) for row in re.findall(r"\bdata\s*=([^;]*);", text)]
    numbers = np.array([float(word) for row in rows for word in row.split()])
    logs = np.concatenate([model.factor(k)[1].ravel() for k in range(model.n_factors)] or [np.empty(0)])
    with np.errstate(divide="ignore"):
        here, there = np.sort(np.exp(np.log(numbers))), np.sort(np.exp(logs))
    # Variables with one state are left out, and with them factors that have no other.
    ones = len(here) - len(there)
    here = np.delete(here, np.flatnonzero(np.isclose(here, 1.0, atol=0.02))[: max(0, ones)])
    return len(here) == len(there) and np.allclose(here, there, rtol=0, atol=1.1e-5)


def survives_bif(model):
    """Whether a model that BIF can hold comes back from a .bif file as it was; a model of doubtful sums may not fit."""
    try:
        data = files.FORMATS["bif"].write(model)
    except ArgumentError:
        return True
    again = files.FORMATS["bif"].read(Source("again.bif", data, 2**20))
    if [str(label) for label in model.labels] != list(again.labels):
        return False
    for label, other in zip(model.labels, again.labels, strict=True):
        if tuple(map(str, model._called(model.index(label)))) != again.state_names[other]:
            return False
    factors = [{tuple(g.factor(k)[0]): g.factor(k)[1] for k in range(g.n_factors)} for g in (model, again)]
    for scope, table in factors[0].items():
        found = next((s for s in factors[1] if set(s) == set(scope)), None)
        if found is None:
            return False
        turned = np.transpose(factors[1][found], [found.index(i) for i in scope])
        if not np.allclose(np.exp(turned), np.exp(table), rtol=0, atol=1.1e-5):
            return False
    return True
