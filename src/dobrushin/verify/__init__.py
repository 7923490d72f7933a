"""The checker: whether a proof file holds, by plain arithmetic, without the library that wrote it.

It imports nothing but the standard library and NumPy. What it does is described on the page `docs/proofs.md`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

HOLDS, SAMPLED, FAILS = "holds", "holds if the blocks that were not replayed are like those that were", "does not hold"
_CODES = {HOLDS: 0, SAMPLED: 3, FAILS: 1}


@dataclass(frozen=True)
class Verdict:
    """What the checker found.

    Attributes
    ----------
    verdict : str
        "holds"; "holds if the blocks that were not replayed are like those that were"; or "does not hold".
    reason : str
        Why it does not hold; empty where it does.
    claim, checked, assumptions : tuple of str
        What is claimed, what was made again, and what the claim rests on besides.
    """

    verdict: str
    reason: str = ""
    claim: tuple[str, ...] = ()
    checked: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """0 where everything was checked and holds, 3 for a replay of some blocks, 1 else."""
        return _CODES[self.verdict]

    @property
    def holds(self) -> bool:
        """Whether everything was checked, and holds."""
        return self.verdict == HOLDS

    def __str__(self) -> str:
        lines = [f"Verdict: {self.verdict}"]
        if self.reason:
            lines.append(f"  {self.reason}")
        for title, sentences in (("Claim", self.claim), ("Checked", self.checked), ("Assumed", self.assumptions)):
            if sentences:
                shown = sentences if len(sentences) <= 24 else (*sentences[:12], "...", *sentences[-11:])
                lines += [f"{title}:", *(f"  {line if len(line) < 500 else line[:500] + ' ...'}" for line in shown)]
        return "\n".join("".join(c if c.isprintable() else ascii(c)[1:-1] for c in line) for line in lines)


def verify(
    path: str | os.PathLike[str], model: str | os.PathLike[str] | None = None, replay: int | str | None = None
) -> Verdict:
    """Check a proof file.

    Parameters
    ----------
    path : str or path
        What `Estimate.write_proof` wrote.
    model : str or path, optional
        A model file (UAI, or the library's own .npz or folder): the factors of the proof are compared with it.
    replay : "all", int or None
        Draw all chains again; or so many blocks of them, which the checker picks at random; or, by default, all where
        that takes about a minute at most, and else as many blocks as it takes to find counts that are off by half of
        an interval's half-width, but for a chance of 1e-6.

    Returns
    -------
    Verdict

    Examples
    --------
    >>> import dobrushin as db, pathlib, tempfile
    >>> from dobrushin.verify import verify
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "answer.proof"
    >>> million = db.Ising.grid(1000, 1000, couplings=0.2)
    >>> _ = db.estimate(million, targets=[0], method="dobrushin", proof=path)
    >>> verify(path).verdict
    'holds'
    """
    from dobrushin.verify import checks, summed
    from dobrushin.verify.document import Document, Rejected

    methods: dict[str, Any] = {
        "dobrushin": checks.check_dobrushin, "coalescence": checks.check_coalescence, "exact": summed.check_exact,
        "local": summed.check_local, "variation": summed.check_variation, "nothing": summed.check_nothing,
    }  # fmt: skip
    if replay is not None and replay != "all" and (not isinstance(replay, int) or replay < 1):
        raise ValueError(f"replay must be 'all', a positive whole number or None, not {replay!r}")
    try:
        proof = checks.Proof(Document(os.fspath(path)), 2**62 if isinstance(replay, str) else replay)
        proof.check(methods)
        about = _compare(proof, model)
    except Rejected as failure:
        return Verdict(FAILS, str(failure))
    except OSError:
        raise
    except Exception as error:
        return Verdict(FAILS, f"The file cannot be checked ({type(error).__name__}: {error}).")
    if proof.blocks:
        how = "all" if proof.replayed == proof.blocks else f"{proof.replayed}, picked at random,"
        proof.checked.append(f"draws and counts of {how} of {proof.blocks} blocks of chains, from the seed")
    verdict = HOLDS if proof.replayed == proof.blocks else SAMPLED
    return Verdict(verdict, "", tuple(proof.document.claim["words"]), tuple(proof.checked), (*proof.assumptions, about))


def _compare(proof: Any, model: str | os.PathLike[str] | None) -> str:
    """Compare the factors with a model file; what is left to assume about them."""
    if model is None:
        return "the factors in the file are those of the model, and no other factor touches what they update or sum"
    from dobrushin.verify.model_file import compare

    return compare(proof, os.fspath(model))


__all__ = ["Verdict", "verify"]
