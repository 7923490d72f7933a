"""The question behind an answer, and the transcript from which its proof is written."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from dobrushin._estimate.method import Method
    from dobrushin._estimate.query import Settings
    from dobrushin._models import Model


class Call(NamedTuple):
    """Arguments that reproduce an answer, together with the model and the seed."""

    targets: Any
    evidence: Any
    settings: Settings


@dataclass(frozen=True, eq=False)
class Transcript:
    """Method and draws of an answer, kept if a proof is wanted.

    Attributes
    ----------
    method : Method
    run : Run or None
        The draws.
    parts : list of (Transcript or None), or None
        For "parts" one transcript for each part, None for a part without an answer; None before all are answered.
    """

    method: Method
    run: Any = None
    parts: list[Transcript | None] | None = None


class Asked:
    """The question behind an estimate: model, evidence and arguments.

    Attributes
    ----------
    model : Model or None
        The model; None after pickling, and so in other processes.
    fingerprint : str or None
        `Model.fingerprint`.
    evidence : dict
        Observed states by label, with the names of states if they have any; likelihoods for soft evidence.
    weighed : Model or None
        The model multiplied by the likelihoods of the soft evidence; the given model if there is none.
    observed : dict
        The evidence that is not soft, by label, with states as the model numbers them.
    call : Call or None
        Arguments that reproduce the answer; None if they were not kept.
    transcript : Transcript or None
        Method and draws, if a proof is wanted. The transcript is not pickled.
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
        """Return the fingerprint of the model, computed on first access."""
        return self._fingerprint if self.model is None else self.model.fingerprint

    def told(self, transcript: Transcript | None) -> Asked:
        """Return the question with the transcript of an answer."""
        return Asked(self.model, self.evidence, self.weighed, self.observed, self._fingerprint, self.call, transcript)

    def __reduce__(self) -> tuple[Any, ...]:
        return Asked, (None, self.evidence, None, self.observed, self.fingerprint)
