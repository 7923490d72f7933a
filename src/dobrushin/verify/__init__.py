"""The checker: whether a proof file holds, without the library that wrote it; see the page `docs/proofs.md`."""

import os
from dataclasses import dataclass
from pathlib import Path

HOLDS, SAMPLED, FAILS = "holds", "holds if the blocks that were not replayed are like those that were", "does not hold"
BELIEVED = "holds if chains gave the numbers in the file"
_RELATIVE = "what the file says of the model is so, and no other factor touches what is updated, summed or unbounded"


@dataclass(frozen=True)
class Verdict:
    """What the checker found: the verdict in words, why it does not hold, and what the claim rests on."""

    verdict: str  # one of the four
    reason: str = ""
    claim: tuple[str, ...] = ()
    checked: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """0 where everything was checked and holds, 3 where some draws were not made again, 1 else."""
        return {HOLDS: 0, SAMPLED: 3, BELIEVED: 3}.get(self.verdict, 1)

    @property
    def holds(self) -> bool:
        """Whether everything was checked, and holds."""
        return self.verdict == HOLDS

    def __str__(self) -> str:
        lines = [f"Verdict: {self.verdict}", *([f"  {self.reason}"] if self.reason else [])]
        for title, sentences in (("Claim", self.claim), ("Checked", self.checked), ("Assumed", self.assumptions)):
            shown = sentences if len(sentences) <= 24 else (*sentences[:12], "...", *sentences[-11:])
            cut = [f"  {line if len(line) < 500 else line[:500] + ' ...'}" for line in shown]
            lines += [f"{title}:", *cut] if shown else []
        return "\n".join("".join(c if c.isprintable() else ascii(c)[1:-1] for c in line) for line in lines)


def verify(
    path: str | os.PathLike[str], model: str | os.PathLike[str] | None = None, replay: int | str | None = None
) -> Verdict:
    """Check a proof file.

    Parameters
    ----------
    path, model : str or path
        What `write_proof` wrote; a model file (UAI, or the library's own .npz or folder) to compare its factors with.
    replay : "all", int or None
        How many blocks of chains to draw again; by default all where that takes about a minute at most, and else as
        many as it takes to find counts that are off by half of an interval's half-width, but for a chance of 1e-6.

    Examples
    --------
    >>> import dobrushin as db, pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "answer.proof"
    >>> _ = db.estimate(db.Ising.grid(1000, 1000, couplings=0.2), targets=[0], method="dobrushin", proof=path)
    >>> verify(path).verdict
    'holds'
    """
    from dobrushin.verify.checks import Proof
    from dobrushin.verify.document import Document, Rejected, compare
    from dobrushin.verify.sums import METHODS

    if replay is not None and replay != "all" and (not isinstance(replay, int) or replay < 1):
        raise ValueError(f"replay must be 'all', a positive whole number or None, not {replay!r}")
    content, _ = Path(path).read_bytes(), Path(path if model is None else model).stat()  # both are there
    try:
        proof = Proof(Document(content), 2**62 if isinstance(replay, str) else replay)
        proof.check(METHODS)
        about = _RELATIVE if model is None else compare(proof, os.fspath(model))
    except Rejected as failure:
        return Verdict(FAILS, str(failure))
    except Exception as error:  # a broken zip, text or array can raise whatever it likes
        what = "The file" if model is None else f"The file, or {model} beside it,"
        return Verdict(FAILS, f"{what} cannot be checked ({type(error).__name__}: {error}).")
    verdict = BELIEVED if proof.is_believed else HOLDS if proof.replayed == proof.blocks else SAMPLED
    claim = proof.document.claim["words"]
    return Verdict(verdict, "", *(tuple(dict.fromkeys(w)) for w in (claim, proof.checked, [*proof.assumptions, about])))


__all__ = ["Verdict", "verify"]
