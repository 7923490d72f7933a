"""What an answer is about, and where it comes from: what a proof of it is written from."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from dobrushin._estimate.answer import Estimate
    from dobrushin._estimate.method import Method
    from dobrushin._models import Model


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
    """

    def __init__(
        self,
        model: Model | None,
        evidence: Mapping[Hashable, Any],
        weighed: Model | None = None,
        observed: Mapping[Hashable, int] | None = None,
        fingerprint: str | None = None,
    ) -> None:
        self.model, self.evidence, self._fingerprint = model, dict(evidence), fingerprint
        self.weighed, self.observed = weighed, dict(observed or {})

    @property
    def fingerprint(self) -> str | None:
        """The fingerprint of the model, computed when it is asked for."""
        return self._fingerprint if self.model is None else self.model.fingerprint

    def __reduce__(self) -> tuple[Any, ...]:
        return Asked, (None, self.evidence, None, self.observed, self.fingerprint)


@dataclass(frozen=True, eq=False)
class Origin:
    """The proposal that answered, what it drew, and the call that it answered. It stays in the process that made it.

    Attributes
    ----------
    method : Method
    run : Run or None
        What was drawn.
    asked : Asked or None
        What the call was about.
    pieces : list of (rows, Estimate)
        The answers of the parts of an answer by parts, and which rows of it they are.
    """

    method: Method
    run: Any = None
    asked: Asked | None = None
    pieces: list[tuple[NDArray[np.int64], Estimate]] = field(default_factory=list)
