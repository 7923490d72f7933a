"""What an answer is about, and what a proof of it is written from."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from dobrushin._estimate.method import Method
    from dobrushin._estimate.query import Settings
    from dobrushin._models import Model


class Call(NamedTuple):
    """What gives the same answer again, besides the model and the seed."""

    targets: Any
    evidence: Any
    settings: Settings


@dataclass(frozen=True, eq=False)
class Transcript:
    """Who answered, and what was drawn: kept where a proof is wanted.

    Attributes
    ----------
    method : Method
    run : Run or None
        What was drawn.
    parts : list of (Transcript or None), or None
        Of an answer by parts one for each part, None where nothing is known; None before they are answered.
    """

    method: Method
    run: Any = None
    parts: list[Transcript | None] | None = None


class Asked:
    """What an estimate is about.

    Attributes
    ----------
    model : Model or None
        None in another process than the one that was asked, and after pickling.
    fingerprint : str or None
        `Model.fingerprint`.
    evidence : dict
        Observed states by label, by their names where they have some; likelihoods where it is soft.
    weighed : Model or None
        The model with the soft evidence in it, which is answered; the same one where there is none.
    observed : dict
        The other evidence by label, as the model counts states.
    call : Call or None
        What gives the same answer again; None where nobody kept it.
    transcript : Transcript or None
        How it was answered, where a proof is wanted. It stays in the process that made it.
    """

    def __init__(
        self,
        model: Model | None = None,
        evidence: Mapping[Hashable, Any] | None = None,
        weighed: Model | None = None,
        observed: Mapping[Hashable, Any] | None = None,
        fingerprint: str | None = None,
        call: Call | None = None,
        transcript: Transcript | None = None,
    ) -> None:
        self.model, self.evidence, self._fingerprint = model, dict(evidence or {}), fingerprint
        self.weighed, self.observed = weighed, dict(observed or {})
        self.call, self.transcript = call, transcript

    @property
    def fingerprint(self) -> str | None:
        """The fingerprint of the model, computed when it is asked for."""
        return self._fingerprint if self.model is None else self.model.fingerprint

    def told(self, transcript: Transcript | None) -> Asked:
        """Return the same with the transcript of an answer."""
        return Asked(self.model, self.evidence, self.weighed, self.observed, self._fingerprint, self.call, transcript)

    def __reduce__(self) -> tuple[Any, ...]:
        return Asked, (None, self.evidence, None, self.observed, self.fingerprint)
