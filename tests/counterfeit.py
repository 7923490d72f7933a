"""Counterfeit proofs, made from nothing: files in the right format, with right checksums, for claims that are false."""

from __future__ import annotations

import io
import json
import math
import zipfile

import numpy as np

from dobrushin.verify import MEMORY_LIMIT, METHODS, verify_proof
from dobrushin.verify.document import Budget, Document
from dobrushin.verify.draws import Walk
from dobrushin.verify.proof import Proof, ProofPart


def marginal(v):
    """The question about one variable."""
    return {"kind": "law", "variables": [v]}


def exact(count, order="order"):
    """A part that sums everything."""
    own = list(range(count))
    return {"method": "sums", "questions": own, "order": order, "border": "border", "sweep": "sweep", "sweeps": 0}


def bound():
    """A part that bounds the bias of one step."""
    return {"method": "variation", "questions": [0], "scan": "scan", "steps": 1, "error": "error",
            "initial": "initial", "matrix": ""}  # fmt: skip


def chains(count, trials, /, **changes):
    """A part that draws, and what it drew."""
    plan = {
        "method": "dobrushin", "questions": list(range(count)), "confidence": 0.99, "scan": "scan", "steps": 1,
        "kernel": "factors", "places": "places", "start": "", "chains": max(1, trials), "trials": trials, "aim": 0.1,
        "run": 0,
    }  # fmt: skip
    outcome = {"drawn": trials, "block": trials, "counts": "counts", "means": []}
    for name, value in changes.items():
        (outcome if name in outcome else plan)[name] = value
    return plan, outcome


class Counterfeit:
    """All that a file says."""

    def __init__(self, states, factors, questions, lower, upper, part, outcome=None, **arrays):
        tables = [np.asarray(table, dtype=float) for _, table in factors]
        self.arrays = {
            "states": np.array(states),
            "positions": np.arange(len(states)),
            "arity": np.array([len(scope) for scope, _ in factors], dtype=np.int64),
            "scope": np.array([v for scope, _ in factors for v in scope], dtype=np.int64),
            "tables": np.concatenate([np.empty(0), *(table.ravel() for table in tables)]),
        } | {name: np.asarray(array) for name, array in arrays.items()}
        if part is not None and part["method"] == "variation":
            self.arrays |= {"error": np.zeros(len(states)), "initial": np.ones(len(states))}
        if part is not None and part["method"] == "sums":
            none = {"border": np.zeros(len(self.arrays["order"]), dtype=int), "sweep": np.empty(0, dtype=int)}
            self.arrays = none | self.arrays
        self.plan = {
            "variables": len(states), "fingerprint": "", "names": [str(v) for v in range(len(states))], "states": {},
            "evidence": [], "dropped": [], "questions": questions, "confidence": (part or {}).get("confidence", 1.0),
            "parts": [] if part is None else [part],
        }  # fmt: skip
        self.outcomes = {"seed": [], "parts": [] if part is None else [outcome or {}]}
        self.claim = {"lower": lower, "upper": upper}

    def write(self, path):
        """The file."""
        document = {"format": "dobrushin proof 2", "plan": self.plan, "outcomes": self.outcomes, "claim": self.claim}
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("proof.json", json.dumps(document))
            for name, array in self.arrays.items():
                data = io.BytesIO()
                np.save(data, array)
                archive.writestr(f"{name}.npy", data.getvalue())
        return path

    def outcomes_of(self, path, count):
        """What the chains of the first part give."""
        part = first_part(opened(self.write(path)))
        return Walk(part, part.scan()).outcomes(np.arange(count))

    def verdict(self, path, model=None, replay=None):
        """What the checker says."""
        return verify_proof(self.write(path), model, replay)


def opened(path, seconds=1e9):
    """The proof in a file, read and not checked."""
    return Proof(Document(path.read_bytes(), Budget(seconds, 16 * MEMORY_LIMIT)))


def first_part(proof):
    """The first part of a proof that was read."""
    plan = proof.plan["parts"][0]
    return ProofPart(proof, plan, proof.document.outcomes["parts"][0], METHODS[plan["method"]])


def of_field(sites, couplings, question, low, high, numbers=(), **part):
    """A file about a field whose variables are standard normal but for what is said."""
    usual = {"m": 1.0, "linear": 0.0, "exposure": 0.0, "trials": 0.0, "lower": -math.inf, "upper": math.inf,
             "point": 0.0, "far": 1.01, "drift": 0.0}  # fmt: skip
    rows = np.array([[(usual | own)[name] for own in sites] for name in usual])
    plan = {"method": "field", "questions": [0], "scan": "scan", "steps": 1, "sites": "sites", "levels": {},
            "chains": 1, "slip": 0.0, "confidence": 0.9} | part  # fmt: skip
    factors = [(pair, [[0.0, 0.0], [0.0, -q]]) for pair, q in couplings.items()]
    return Counterfeit([2] * len(sites), factors, [question], [[low]], [[high]], plan, {"numbers": [list(numbers)]},
                       scan=np.array([0]), sites=rows)  # fmt: skip


__all__ = ["METHODS", "Counterfeit", "bound", "chains", "exact", "first_part", "marginal", "of_field", "opened"]
