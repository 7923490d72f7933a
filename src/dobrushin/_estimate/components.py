"""Each component of a model by its own best method, so that an easy part is not lost to a hard one. [trusted]

Components are independent of each other. Each has its share of the error probability, by its number of intervals: all
intervals hold at once as they would in one run (Bonferroni).
"""

from __future__ import annotations

import math
import os
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

from dobrushin._estimate.answer import Estimate
from dobrushin._estimate.method import REMEDY, Choice, Method, Plan, Rows, choose
from dobrushin._estimate.query import Query
from dobrushin._estimate.questions import Marginals, Question
from dobrushin._estimate.relevance import restrict_query
from dobrushin._estimate.targets import shown
from dobrushin._shared.running import Running
from dobrushin.errors import BudgetError, CertificateError

# Components of so many joint states (as a power of 2) have a clique tree for sure, and are answered together.
_SMALL = 16
# Marks the random bits of components after the first.
_OWN = (1990, 4)


@dataclass(frozen=True)
class _Piece:
    """Questions about some components, and which rows of the whole answer they are."""

    query: Query
    rows: NDArray[np.int64]
    method: Method | None = None
    reason: str = ""  # why there is no method

    @property
    def words(self) -> str:
        """What it is about, for people."""
        first = self.query.questions[0].targets[0]
        return f"the part of {shown(first)!r} ({self.query.model.n_variables} variables)"

    def plan(self, budget: float | None) -> _Piece:
        """The same with its best method; `budget` is what others have left of the updates."""
        try:
            return replace(self, method=choose(replace(self.query, budget=budget)))
        except (CertificateError, BudgetError) as refusal:
            return replace(self, reason=refusal.message)

    def answer(self, sequence: np.random.SeedSequence, running: Running) -> tuple[Estimate | None, str]:
        """What is known, and why it is not all that was asked for."""
        if self.method is None:
            return None, self.reason
        try:
            return self.method.answer(sequence, running), ""
        except (CertificateError, BudgetError) as failure:
            return failure.estimate, failure.message


class Components(Method):
    """One method for each component, or for several small ones together."""

    name: ClassVar[str] = "components"
    bias_is_proven: ClassVar[bool] = False

    def __init__(self, query: Query, plan: Plan, pieces: list[_Piece]) -> None:
        super().__init__(query, plan)
        self.pieces = pieces

    @classmethod
    def propose(cls, query: Query, choice: Choice) -> Method | None:
        if choice.best is not None or query.is_part:
            return choice.best
        pieces = _split(query)
        if len(pieces) < 2:
            if choice.by_name:
                raise cls.refuse("all targets are in one component.")
            return None
        choice.can_sample = True  # whoever comes next was asked about each component
        planned: list[_Piece] = []
        budget = query.budget
        for piece in pieces:
            planned.append(piece.plan(budget))
            if budget is not None and (method := planned[-1].method) is not None:
                budget = max(budget - method.needed_updates(), 1.0)
        if not any(piece.method for piece in planned):
            largest = max(planned, key=lambda piece: piece.query.model.n_variables)
            raise cls.refuse(f"{largest.words}: {largest.reason}")
        return cls(query, cls._draft(query, planned), planned)

    @classmethod
    def _draft(cls, query: Query, pieces: list[_Piece]) -> Plan:
        plans = [piece.method.plan for piece in pieces if piece.method is not None]
        counts = Counter(plan.method for plan in plans)
        counts["no certificate"] = len(pieces) - len(plans)
        words = ", ".join(f"{name} for {count}" for name, count in counts.items() if count)
        plan = cls.draft(
            query, f"{len(pieces)} parts that are independent: {words}", max(plan.bias or 0.0 for plan in plans),
            seconds=sum(plan.seconds for plan in plans),
            reaches_tolerance=not counts["no certificate"] and all(plan.reaches_tolerance for plan in plans),
        )  # fmt: skip
        is_certain = len(plans) == len(pieces) and all(plan.is_certain for plan in plans)
        return replace(plan, is_certain=is_certain, interval="none needed" if is_certain else plan.interval)

    def answer(self, sequence: np.random.SeedSequence, running: Running) -> Estimate:
        """`CertificateError` when some component has no answer, or a wide one; it carries those of the others."""
        columns = [np.concatenate(column) for column in zip(*map(_unknown, self.query.questions), strict=True)]
        assumptions, reasons, drawn, is_certain = [_INDEPENDENT], [], 0, True
        for piece in self.pieces:
            samples = piece.method is not None and not piece.method.plan.is_certain
            estimate, reason = piece.answer(*_own_run(drawn if samples else 0, sequence, running))
            drawn += samples
            if reason:
                reasons.append(f"{piece.words}: {reason}")
            if estimate is not None:
                is_certain &= estimate.confidence == 1.0
                assumptions += [words for words in estimate.assumptions if words not in assumptions]
                known = (estimate.mean, estimate.lower, estimate.upper, estimate.bias_bound)
                for column, values in zip(columns, known, strict=True):
                    column[piece.rows] = values
        confidence = 1.0 if is_certain else self.query.confidence
        whole = self.assemble([Rows(*columns)], confidence, tuple(assumptions), seed=None if is_certain else sequence)
        if reasons:
            remedy = f"The other intervals hold and are narrow enough. {REMEDY}"
            raise CertificateError({self.name: " ".join(reasons)}, remedy, whole)
        return whole

    def needed_updates(self) -> int:
        return sum(piece.method.needed_updates() for piece in self.pieces if piece.method is not None)

    @classmethod
    def explain(cls, estimate: Estimate) -> list[str]:
        return [
            "The model given the evidence falls apart into components that are independent of each other. Each was "
            f"answered by itself, by the method that is best for it: {estimate.plan.reason}.",
            f"All intervals hold at once with probability {estimate.confidence_text} or more: each component has its "
            "share of the error probability.",
        ]


_INDEPENDENT = "the model falls apart into independent components, and each was answered by itself"


def _unknown(question: Question) -> Rows:
    """What holds for any model."""
    least, most = (np.full(len(question), float(end)) for end in question.bounds)
    return Rows(least + (most - least) / question.choices, least, most, most - least)


def _own_run(number: int, sequence: np.random.SeedSequence, running: Running) -> tuple[np.random.SeedSequence, Running]:
    """Random bits and file of a component; the first one has those of the call, so that it can be resumed from them."""
    if not number:
        return sequence, running
    child = np.random.SeedSequence(sequence.entropy, spawn_key=(*sequence.spawn_key, *_OWN, number))
    if running.checkpoint is None:
        return child, running
    return child, replace(running, checkpoint=Path(f"{os.fspath(running.checkpoint)}.component{number}"))


def _split(query: Query) -> list[_Piece]:
    """The questions by components: one piece for each that is large, and one for all small ones."""
    group = _groups(query)
    pieces: dict[int, tuple[list[Question], list[NDArray[np.int64]]]] = {}
    first = 0
    for question in query.questions:
        rows = first + np.arange(len(question))
        first += len(question)
        for number, part, own in _parts(question, group[question.positions]):
            questions, places = pieces.setdefault(number, ([], []))
            questions.append(part)
            places.append(rows[own])
    if len(pieces) < 2:
        return []
    return [_Piece(_share(query, questions), np.concatenate(places)) for questions, places in pieces.values()]


def _share(query: Query, questions: list[Question]) -> Query:
    """The query about some components, with their share of the error probability."""
    share = sum(question.intervals for question in questions) / query.intervals
    confidence = math.nextafter(1.0 - (1.0 - query.confidence) * share, 1.0)  # rounded upwards
    own, _ = restrict_query(replace(query, questions=questions, method="auto"))
    return replace(own, confidence=confidence, relevance=query.relevance)


def _parts(question: Question, groups: NDArray[np.int64]) -> list[tuple[int, Question, NDArray[np.bool_]]]:
    """A question by the groups of its variables: group, question, and which of the rows it has."""
    if not isinstance(question, Marginals):
        return [(int(groups[0]), question, np.ones(len(question), dtype=bool))]
    parts: list[tuple[int, Question, NDArray[np.bool_]]] = []
    for number in dict.fromkeys(groups.tolist()):
        own = groups == number
        chosen = np.flatnonzero(own).tolist()
        labels, values = [question.labels[k] for k in chosen], [question.values[k] for k in chosen]
        part = Marginals(question.positions[own], labels, values)
        parts.append((number, part, np.repeat(own, question.sizes)))
    return parts


def _groups(query: Query) -> NDArray[np.int64]:
    """A number for each variable: that of its component, where a question may join several; -1 if these are small."""
    component = query.model._form.components().astype(np.int64)
    count = int(component.max()) + 1
    chains = [component[question.positions] for question in query.questions if not isinstance(question, Marginals)]
    ends = [np.concatenate([np.empty(0, dtype=np.int64), *(c[cut] for c in chains)]) for cut in (np.s_[:-1], np.s_[1:])]
    joined = sparse.coo_array((np.ones(len(ends[0])), (ends[0], ends[1])), shape=(count, count))
    group = csgraph.connected_components(joined, directed=False)[1].astype(np.int64)[component]
    size = np.bincount(group, weights=np.log2(query.model.cardinalities))
    return np.where(size[group] <= _SMALL, -1, group)
