"""Check proof files, without the library that wrote them (docs/proofs.md).

Read the modules in this order: `document` (reads the file within limits of time and memory),
`claim` (puts the claim into sentences), `model` (the model as log-tables), `compare` (compares
these tables with a model file, which `readers` read), `proof` (its parts, and how their error
probabilities add up), `certificates` (bounds on the bias of scans), `draws` and `counts` (redraw
chains and count their outcomes), then the other ways to prove answers: `clusters`, `sums` (with
symmetry) and `fields`; and the verdict here. To add a way to prove answers, write a module with a
`ProofMethod` and register it in METHODS.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dobrushin.verify.certificates import check_variation
from dobrushin.verify.clusters import check_clusters
from dobrushin.verify.compare import Reference
from dobrushin.verify.counts import check_chains, check_sets
from dobrushin.verify.document import Budget, Document, NotComparable, Rejected, TooLarge
from dobrushin.verify.fields import NUMBERS, check_field
from dobrushin.verify.proof import Proof, ProofMethod
from dobrushin.verify.sums import check_sums, check_symmetry

HOLDS, FAILS = "holds", "does not hold"
SAMPLED = "holds if the blocks that were not replayed are like those that were"
BELIEVED = "holds if the numbers that the file supplies are right"
NOT_COMPARED, TOO_LARGE = "could not be compared with the model file", "was not checked"
EXIT_CODES = {HOLDS: 0, FAILS: 1, SAMPLED: 3, BELIEVED: 3, NOT_COMPARED: 4, TOO_LARGE: 4}
TIME_LIMIT, MEMORY_LIMIT = 60.0, 2.0**30
ABOUT_FILE = (
    "the model is as the file says: no further factor contains a variable that is updated, summed"
    " or (in a field) unbounded"
)
WIDTH, MAX_LINES = 500, 24  # of the verdict as it is printed

SCAN = {"scan": str, "steps": int}
CHAINS_OF = {**SCAN, "confidence": float, "chains": int}
DRAWN = {**CHAINS_OF, "kernel": str, "places": str, "start": str}
DRAWN |= {"trials": int, "aim": float, "run": int}
CLUSTERS = {"confidence": float, "chains": int, "trials": int, "aim": float, "kernel": str}
CLUSTERS |= {"past": int, "rounds": int, "edges": str, "colours": str}
OUTCOME = {"drawn": int, "block": int, "counts": str, "means": list}
BOUND = {**SCAN, "error": str, "initial": str, "matrix": str}
SUMMED = {"order": str, "border": str, "sweep": str, "sweeps": int}
FIELD = {**CHAINS_OF, "sites": str, "levels": dict, "slip": float}
LAWS = {"law", "linear"}
METHODS = {
    "dobrushin": ProofMethod(check_chains, LAWS, DRAWN, OUTCOME),
    "coalescence": ProofMethod(
        check_sets, {*LAWS, "joint"}, {**DRAWN, "words": int}, {**OUTCOME, "attempt": int}
    ),
    "clusters": ProofMethod(check_clusters, {"law"}, CLUSTERS, OUTCOME),
    "symmetry": ProofMethod(check_symmetry, {"law"}, {}, {}),
    "sums": ProofMethod(check_sums, LAWS, SUMMED, {}),
    "variation": ProofMethod(check_variation, {"distance"}, BOUND, {}),
    "field": ProofMethod(check_field, {"joint", "bias", *NUMBERS}, FIELD, {"numbers": list}),
}


@dataclass(frozen=True)
class Verdict:
    """Result of a check.

    It has the verdict in words, its reason unless it is "holds", the claim, and what was checked
    and what is assumed.
    """

    verdict: str
    reason: str = ""
    claim: tuple[str, ...] = ()
    checked: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """Exit code of the verdict.

        0: the claim holds; 1: it does not hold; 3: it holds if unchecked numbers are right; 4: not
        decided.
        """
        return EXIT_CODES[self.verdict]

    @property
    def holds(self) -> bool:
        """True if the claim was checked completely and holds."""
        return self.verdict == HOLDS

    def __str__(self) -> str:
        lines = [f"Verdict: {self.verdict}", *([f"  {_line(self.reason)}"] if self.reason else [])]
        blocks = (("Claim", self.claim), ("Checked", self.checked), ("Assumed", self.assumptions))
        for title, sentences in blocks:
            shown = list(sentences)
            if len(shown) > MAX_LINES:
                left_out = f"... {len(shown) - MAX_LINES} lines ..."
                shown = [*shown[: MAX_LINES // 2], left_out, *shown[-MAX_LINES // 2 :]]
            lines += [f"{title}:", *(f"  {_line(sentence)}" for sentence in shown)] if shown else []
        return "\n".join(lines)


def _line(sentence: str) -> str:
    """Return a sentence on one line of visible characters, leaving out the middle of a long one."""
    line = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in sentence)
    if len(line) <= WIDTH:
        return line
    first, last = line[: WIDTH // 2].rpartition(" ")[0], line[-WIDTH // 2 :].partition(" ")[2]
    return f"{first} [...] {last}"


def verify_proof(
    path: str | os.PathLike[str],
    model: str | os.PathLike[str] | None = None,
    replay: int | str | None = None,
    time_limit: float = TIME_LIMIT,
    memory_limit: float = MEMORY_LIMIT,
    beta: float = 1.0,
) -> Verdict:
    """Check that a proof file proves its claim.

    Parameters
    ----------
    path : str or path
        The file that `write_proof` wrote.
    model : str or path, optional
        A model file to compare the factors with, of any format that `read` reads, or a folder.
    replay : "all" or int, optional
        How many blocks of chains to draw again. By default all if the time limit allows it; else
        enough to detect counts that are wrong by a quarter of an interval's width with
        probability 1 - 1e-6.
    time_limit : float
        Seconds that the check may take, by its own estimate; larger files are not checked. None of
        it is for the blocks that `replay` asks for.
    memory_limit : float
        Bytes that the check may take.
    beta : float
        Inverse temperature, for model files that hold energies.

    Examples
    --------
    >>> import dobrushin as db, pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "answer.proof"
    >>> million = db.Ising.grid(1000, 1000, couplings=0.2)
    >>> _ = db.estimate(million, targets=[0], method="dobrushin", proof=path)
    >>> verify_proof(path).verdict
    'holds'
    """
    if replay is not None and replay != "all" and (not isinstance(replay, int) or replay < 1):
        raise ValueError(f"replay must be 'all', a positive whole number or None, not {replay!r}")
    for name, limit in (("time_limit", time_limit), ("memory_limit", memory_limit)):
        if not limit > 0.0:
            raise ValueError(f"{name} must be a positive number, not {limit!r}")
    if not 0.0 < beta < float("inf"):
        raise ValueError(f"beta must be positive and finite, not {beta!r}")
    Path(path if model is None else model).stat()  # both entries must be in the file
    try:
        most = 2**62 if isinstance(replay, str) else replay
        return _check(os.fspath(path), model, beta, most, Budget(time_limit, memory_limit))
    except TooLarge as failure:
        return Verdict(TOO_LARGE, str(failure))
    except Rejected as failure:
        return Verdict(FAILS, str(failure))
    except OSError:
        raise
    except Exception as error:  # a broken zip, text or array can raise anything
        return Verdict(FAILS, f"The file cannot be checked ({type(error).__name__}: {error}).")


def _check(path: str, model: Any, beta: float, replay: int | None, budget: Budget) -> Verdict:
    budget.charge(f"the file {path}", briefly=32.0 * os.stat(path).st_size)
    proof = Proof(Document(Path(path).read_bytes(), budget), replay)
    unread = ""
    if model is not None:
        try:
            proof.reference = Reference(proof, os.fspath(model), beta)
        except NotComparable as failure:
            unread = str(failure)
    proof.check(METHODS)
    verdict = BELIEVED if proof.believes else HOLDS
    if proof.replayed < proof.blocks:
        verdict = SAMPLED
    about = ABOUT_FILE
    if proof.reference:
        where = f"{len(proof.closed)} variables are those of {model}"
        proof.checked.append(f"the factors at {where} (not counting variables of one state)")
        about = f"the model is that of {model}"
        about += f" at the inverse temperature {beta!r}" if beta != 1.0 else ""
    sentences = (proof.sentences(), proof.checked, [*proof.assumptions, about])
    claim, checked, assumed = (tuple(dict.fromkeys(lines)) for lines in sentences)
    if unread:
        verdict, unread = NOT_COMPARED, f"{unread} By itself the proof {verdict}."
    return Verdict(verdict, unread, claim, checked, assumed)


__all__ = ["Verdict", "verify_proof"]
