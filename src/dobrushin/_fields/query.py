"""A question about a field, read and checked; and what its methods share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dobrushin._estimate.method import Method, Plan
from dobrushin._estimate.query import Settings
from dobrushin._estimate.targets import Target
from dobrushin._fields.anchor import Anchor, FieldSpace, space_of
from dobrushin._fields.model import GaussianField
from dobrushin._fields.questions import FieldMean, FieldQuestion, FieldReader
from dobrushin._models.model import Model
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import distinct
from dobrushin.errors import ArgumentError

KIND = "field"


@dataclass(frozen=True)
class FieldQuery:
    """A call of `plan` or `estimate` on a field, read and checked."""

    model: GaussianField
    questions: list[FieldQuestion]
    tolerance: float
    confidence: float
    method: str
    budget: float | None
    time: float | None = None
    proof: bool = False
    relevance: str = ""

    @classmethod
    def make(cls, model: Any, questions: list[FieldQuestion], settings: Settings) -> FieldQuery:
        """A query with the settings of a call; bounds of a statistic are given, and no proof can state them."""
        for k, asked in enumerate(questions) if settings.proof else ():
            if isinstance(asked, FieldMean) and asked.name is not None:
                questions[k] = replace(asked, bounds=(-math.inf, math.inf))
        own = (
            settings.tolerance, settings.confidence, settings.method, settings.budget, settings.time, settings.proof,
        )  # fmt: skip
        return cls(model, questions, *own)

    @property
    def space(self) -> FieldSpace:
        """What is known about the field."""
        return space_of(self.model)

    @property
    def anchor(self) -> Anchor:
        """Where chains start."""
        return self.space.anchor

    @property
    def intervals(self) -> int:
        """How many intervals have to hold at once."""
        return len(self.questions)

    @property
    def error(self) -> float:
        """The probability with which each of them may be wrong."""
        return (1.0 - self.confidence) / self.intervals

    @cached_property
    def positions(self) -> NDArray[np.int64]:
        """The variables that any question looks at, increasing."""
        named = np.concatenate([question.positions for question in self.questions])
        return distinct(named, self.model.n_variables)

    def columns(self, question: FieldQuestion) -> NDArray[np.int64]:
        """Places of a question's variables among these."""
        return np.searchsorted(self.positions, question.positions)


class FieldMethod(Method):
    """A way to an answer about a field."""

    query: FieldQuery  # type: ignore[assignment]
    kind: ClassVar[str] = KIND

    @classmethod
    def draft_field(cls, query: FieldQuery, reason: str, bias: float | None, interval: str, **parts: Any) -> Plan:
        """A plan of this method."""
        averaged = not all(question.is_counted for question in query.questions)
        return Plan(
            cls.name, reason, query.tolerance, query.confidence, bias, interval, query.intervals,
            stops_early=averaged and not cls.is_certain and not query.proof, is_certain=cls.is_certain, kind=KIND,
            **parts,
        )  # fmt: skip


def read_field_query(model: GaussianField, targets: Any, settings: Settings) -> FieldQuery:
    """The questions behind targets: labels ask for means."""
    return FieldQuery.make(model, _questions(model, targets), settings)


def _questions(model: GaussianField, targets: Any) -> list[FieldQuestion]:
    reader = FieldReader(model)
    if check.is_text(targets, "all") and not _is_label(model, targets):
        return [reader.read_label(i) for i in range(model.n_variables)]
    if isinstance(targets, np.ndarray) and targets.ndim == 0:
        targets = targets.item()
    if isinstance(targets, Target) or _is_label(model, targets):
        targets = [targets]
    if isinstance(targets, str) or not isinstance(targets, Iterable):
        known = check.expected_labels(model.labels, targets)
        raise ArgumentError("targets", f"'all', Exceeds, Between, Quantile, Statistic or {known}", targets)
    items = list(targets)
    if not items:
        raise ArgumentError("targets", "at least one target", items)
    plain = [item for item in items if not isinstance(item, Target)]
    positions: list[int] = []
    if plain:
        positions = check.positions(plain, model.labels, model._lookup, "targets").tolist()
    left = iter(positions)
    return [item.ask(reader) if isinstance(item, Target) else reader.read_label(next(left)) for item in items]


def refuse_observed(model: Model, targets: Any, evidence: Mapping[Any, float]) -> None:
    """Refuse targets that look at variables whose values are given."""
    known = {model.index(label) for label in evidence}
    items = list(targets) if check.is_several(targets) and not _is_label(model, targets) else [targets]
    for item in items:
        for label in item.variables if isinstance(item, Target) else [item]:
            if check.label_position(label, model.labels, model._lookup) in known:
                raise ArgumentError("targets", "variables that are not in the evidence", label)


def _is_label(model: Model, value: Any) -> bool:
    return check.label_position(value, model.labels, model._lookup) is not None
