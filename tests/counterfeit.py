"""Counterfeit proofs, made from nothing: files in the right format, with right checksums, for claims that are false."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile

import numpy as np

from dobrushin.verify import checks, summed, verify
from dobrushin.verify.document import Document, Rejected

SCAN = {"cycle": "scan", "first": 0, "steps": 1}
METHODS = {
    "dobrushin": checks.check_dobrushin, "coalescence": checks.check_coalescence, "exact": summed.check_exact,
    "local": summed.check_local, "variation": summed.check_variation, "nothing": summed.check_nothing,
}  # fmt: skip


def marginal(v):
    """The question about one variable."""
    return {"kind": "marginal", "variables": [v]}


def exact(count, order="order"):
    """A part that sums everything."""
    own = list(range(count))
    return {"method": "exact", "questions": own, "dropped": "", "orders": [{"order": order, "questions": own}]}


def chains(count, trials, /, **changes):
    """A part that draws, and what it drew."""
    plan = {
        "method": "dobrushin", "questions": list(range(count)), "confidence": 0.99, "dropped": "", "scan": SCAN,
        "kernel": "factors", "places": "places", "start": "", "chains": max(1, trials), "trials": trials, "aim": 0.1,
    }  # fmt: skip
    outcome = {"run": 0, "drawn": trials, "early": False, "block": trials, "counts": "counts", "means": []}
    for name, value in changes.items():
        (outcome if name in outcome else plan)[name] = value
    return plan, outcome


class Counterfeit:
    """All that a file says; `write` makes checksums, the seed, the words and the list of assumptions right."""

    def __init__(self, states, factors, questions, lower, upper, part, outcome=None, **arrays):
        tables = [np.asarray(table, dtype=float) for _, table in factors]
        self.arrays = {
            "states": np.array(states),
            "positions": np.arange(len(states)),
            "arity": np.array([len(scope) for scope, _ in factors], dtype=np.int64),
            "scope": np.array([v for scope, _ in factors for v in scope], dtype=np.int64),
            "tables": np.concatenate([np.empty(0), *(table.ravel() for table in tables)]),
        } | {name: np.asarray(array) for name, array in arrays.items()}
        self.drawn = [name for name in self.arrays if name.startswith("counts")]
        confidence = part.get("confidence", 1.0)
        self.plan = {
            "model": {"variables": len(states), "fingerprint": ""}, "names": [str(v) for v in range(len(states))],
            "spins": False, "evidence": [], "questions": questions, "tolerance": 1.0, "confidence": confidence,
            "parts": [part],
        }  # fmt: skip
        origin = "plan" if "kernel" in part else "none"
        self.outcomes = {"seed": {"origin": origin, "entropy": "0", "spawn_key": []}, "parts": [outcome or {}]}
        self.claim = {"lower": lower, "upper": upper, "words": [], "assumptions": []}

    def write(self, path):
        """The file; the checker itself is asked for words and assumptions, as a forger would."""
        for _ in range(2):
            self._write(path)
            try:
                proof = checks.Proof(Document(path), None)
                try:
                    proof.check(METHODS)
                finally:
                    self.claim["assumptions"] = proof.assumptions
                    self.claim["words"] = proof.claim_in_words()
            except (Rejected, ArithmeticError, LookupError, MemoryError, TypeError, ValueError):
                continue
        self._write(path)
        return path

    def _write(self, path):
        for part, own in ((self.plan, False), (self.outcomes, True)):
            part["arrays"] = {
                name: {
                    "kind": array.dtype.str,
                    "shape": list(array.shape),
                    "sha256": hashlib.sha256(array.tobytes()).hexdigest(),
                }
                for name, array in self.arrays.items()
                if (name in self.drawn) is own
            }
        if self.outcomes["seed"]["origin"] == "plan":
            self.outcomes["seed"]["entropy"] = str(self.seed())
        document = {"format": "dobrushin proof 1", "plan": self.plan, "outcomes": self.outcomes, "claim": self.claim}
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("proof.json", json.dumps(document))
            for name, array in self.arrays.items():
                data = io.BytesIO()
                np.save(data, array)
                archive.writestr(f"{name}.npy", data.getvalue())

    def outcomes_of(self, path, count):
        """What the chains of the first part give."""
        self._write(path)
        part = checks.Part(checks.Proof(Document(path), None), 0, self.plan["parts"][0], self.outcomes["parts"][0])
        factors, _ = part.leave_out()
        return part.walk(factors, part.scan(), ()).outcomes(np.arange(count))

    def seed(self):
        """The seed of the plan."""
        text = json.dumps(self.plan, sort_keys=True, separators=(",", ":"))
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "big")

    def verdict(self, path, model=None, replay=None):
        """What the checker says."""
        return verify(self.write(path), model, replay)


__all__ = ["METHODS", "SCAN", "Counterfeit", "chains", "exact", "marginal"]
