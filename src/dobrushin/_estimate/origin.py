"""Where an answer comes from: what a proof of it is written from. It stays in the process that made it."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from dobrushin._estimate.answer import Estimate
    from dobrushin._estimate.method import Method
    from dobrushin._models import Model


@dataclass(frozen=True, eq=False)
class Origin:
    """The proposal that answered, what it drew, and the call that it answered.

    Attributes
    ----------
    method : Method
    run : Run or None
        What was drawn.
    model, evidence
        As the call had them.
    pieces : list of (rows, Estimate)
        The answers of the parts of an answer by parts, and which rows of it they are.
    """

    method: Method
    run: Any = None
    model: Model | None = None
    evidence: dict[Hashable, int] = field(default_factory=dict)
    pieces: list[tuple[NDArray[np.int64], Estimate]] = field(default_factory=list)

    def of_call(self, model: Model, evidence: dict[Hashable, int]) -> Origin:
        """The same for the model and the evidence of the call."""
        return replace(self, model=model, evidence=evidence)
