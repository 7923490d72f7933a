"""Split a query into subproblems, each with its own best method, so that a hard one does not spoil the rest. [trusted]

A subproblem consists of the targets in one connected component, or of the targets among the variables relevant to one
target: in a Bayesian network these may have small treewidth where the whole model has not. The error probability is
shared in proportion to the number of intervals, so that all intervals hold at once, as in one run (Bonferroni).
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

from dobrushin._estimate.answer import Asked, Estimate, Transcript
from dobrushin._estimate.choice import choose, find_relevant, restrict_query
from dobrushin._estimate.exact import Exact
from dobrushin._estimate.method import REMEDY, AnswerRows, Choice, Method, Plan, carry_estimate, interrupted
from dobrushin._estimate.query import Query
from dobrushin._estimate.questions import SingleMarginals, TargetQuestion
from dobrushin._estimate.targets import shown
from dobrushin._shared.running import Running, child_seed
from dobrushin._shared.text import counted
from dobrushin.errors import BudgetError, CertificateError, Interrupted, WorkerError

# Components of at most 2**_SMALL_BITS joint states always have a clique tree, and are answered together.
_SMALL_BITS = 16
# Largest product of variables and targets for which the relevant variables of each target are found.
_MAX_PAIRS = 4_000_000
# A certain answer for the whole query, expected within this number of seconds, is preferred.
_SOON_SECONDS = 0.5
# Number of subproblems that may be simulated although they will miss the tolerance: each takes 30 s or more.
_MAX_HARD_PARTS = 1
# Key of the random bits of sampled subproblems after the first.
_OWN = (1990, 4)


@dataclass(frozen=True)
class _Piece:
    """One subproblem: its query, and the rows of the whole answer that it fills."""

    query: Query
    rows: NDArray[np.int64]
    method: Method | None = None
    reason: str = ""  # why no method was found
    partial: Estimate | None = None  # intervals that were found although no method reaches the tolerance

    @property
    def words(self) -> str:
        """Return the name of the subproblem for messages."""
        first = self.query.questions[0].rows[0][0]
        return f"the part of {shown(first)!r} ({counted(self.query.model.n_variables, 'variable')})"

    @property
    def draws(self) -> bool:
        return self.method is not None and not self.method.plan.is_certain

    def answer(self, sequence: np.random.SeedSequence, running: Running) -> tuple[Estimate | None, str]:
        """Return the subproblem's estimate or None, and the reason if it misses the tolerance, else ""."""
        if self.method is None:
            return self.partial, self.reason
        try:
            with carry_estimate(self.method.query, self.method.plan, adapt=self.method.narrow):
                return self.method.narrow(self.method.answer(sequence, running)), ""
        except (CertificateError, BudgetError) as failure:
            return failure.result, failure.message


class ByParts(Method):
    """The method "parts": subproblems that are answered separately, each by its own method."""

    name: ClassVar[str] = "parts"
    bias_is_proven: ClassVar[bool] = False

    def __init__(self, query: Query, plan: Plan, pieces: list[_Piece]) -> None:
        super().__init__(query, plan)
        self.pieces = pieces

    @classmethod
    def propose(cls, query: Query, choice: Choice) -> Method | None:
        best = choice.best
        # A quick answer to the whole query is taken as it is: the search for subproblems takes time as well.
        if query.is_part or (best is not None and (not best.plan.is_certain or best.plan.seconds <= _SOON_SECONDS)):
            return best
        pieces = _split(query)
        if len(pieces) < 2:
            if choice.by_name:
                raise cls.refuse("all targets depend on the same variables, so the query cannot be split.")
            return best
        choice.can_sample = True  # later methods are considered for each subproblem
        if best is not None:
            faster = _plan_faster(pieces, query.budget, best.plan.seconds)
            return best if faster is None else cls(query, cls._draft(query, faster), faster)
        planned = _plan_all(pieces, query.budget)
        if not any(piece.method for piece in planned):
            largest = max(planned, key=lambda piece: piece.query.model.n_variables)
            unfinished = cls(query, cls.draft(query, "no part has a certificate", None), planned)
            choice.so_far.append(unfinished.so_far)
            raise cls.refuse(f"{largest.words}: {largest.reason}")
        return cls(query, cls._draft(query, planned), planned)

    @classmethod
    def _draft(cls, query: Query, pieces: list[_Piece]) -> Plan:
        plans = [piece.method.plan for piece in pieces if piece.method is not None]
        counts = Counter(plan.method for plan in plans)
        counts["no certificate"] = len(pieces) - len(plans)
        words = ", ".join(f"{name} for {count}" for name, count in counts.items() if count)
        plan = cls.draft(
            query, f"{len(pieces)} parts, each answered separately: {words}", max(plan.bias or 0.0 for plan in plans),
            seconds=sum(plan.seconds for plan in plans), other_updates=sum(plan.updates for plan in plans),
            reaches_tolerance=not counts["no certificate"] and all(plan.reaches_tolerance for plan in plans),
        )  # fmt: skip
        is_certain = len(plans) == len(pieces) and all(plan.is_certain for plan in plans)
        return replace(plan, is_certain=is_certain, interval="none needed" if is_certain else plan.interval)

    def answer(self, sequence: np.random.SeedSequence, running: Running) -> Estimate:
        """Answer all subproblems and return their answers as one estimate.

        Raise `CertificateError`, with all intervals, if a subproblem misses the tolerance.
        """
        # The vacuous limits are valid for every model.
        least = np.concatenate([np.full(len(question), question.bounds[0]) for question in self.query.questions])
        most = np.concatenate([np.full(len(question), question.bounds[1]) for question in self.query.questions])
        choices = np.concatenate([question.choices for question in self.query.questions])
        found_by = np.array(["none"] * len(least), dtype=object)
        columns = [least + (most - least) / choices, least, most, most - least]
        assumptions, reasons, drawn, is_certain = [_BY_PARTS], [], 0, True
        stopped_by: str | None = None
        ended: Interrupted | WorkerError | None = None
        parts: list[Transcript | None] = [None] * len(self.pieces)
        for k, piece in enumerate(self.pieces):
            estimate: Estimate | None
            try:
                estimate, reason = piece.answer(*_own_run(drawn if piece.draws else 0, sequence, running))
            except (Interrupted, WorkerError) as trouble:
                ended, estimate, reason = trouble, trouble.result, ""
            drawn += piece.draws
            if reason:
                reasons.append(f"{piece.words}: {reason}")
            if estimate is not None:
                parts[k] = None if estimate.asked is None else estimate.asked.transcript
                is_certain &= estimate.confidence == 1.0
                assumptions += [words for words in estimate.assumptions if words not in assumptions]
                known = (estimate.value, estimate.lower, estimate.upper, estimate.bias_bound)
                for column, values in zip(columns, known, strict=True):
                    column[piece.rows] = values
                found_by[piece.rows] = estimate.methods
                stopped_by = stopped_by or estimate.stopped_by
            if ended is not None:
                break
        confidence, seed = (1.0, None) if is_certain else (self.query.confidence, sequence)
        whole = self.assemble([AnswerRows(*columns)], confidence, tuple(assumptions), seed=seed)
        whole = replace(whole, stopped_by=stopped_by)
        if self.query.proof:
            whole = replace(whole, asked=Asked(transcript=Transcript(self, parts=parts)))
        if ended is not None:
            raise ended.with_result(whole) if isinstance(ended, WorkerError) else interrupted(whole)
        if reasons:
            whole = replace(whole, found_by=tuple(found_by))
            remedy = f"The other intervals are valid and reach the tolerance. {REMEDY}"
            raise CertificateError({self.name: " ".join(reasons)}, remedy, result=whole)
        return whole

    def so_far(self) -> Estimate | None:
        """Return the certain intervals that were found while the subproblems were planned."""
        try:
            return self.answer(np.random.SeedSequence(0), Running())
        except CertificateError as error:
            return error.result

    def needed_updates(self) -> int:
        return sum(piece.method.needed_updates() for piece in self.pieces if piece.method is not None)

    @classmethod
    def explain(cls, estimate: Estimate) -> list[str]:
        return [
            "Each target depends on some variables of the model only. Targets that depend on the same variables form a "
            f"part, and each part was answered by the cheapest suitable method ({estimate.plan.reason}).",
            f"All intervals hold at once with probability {estimate.confidence_text} or more: each part has its share "
            "of the error probability.",
        ]


_BY_PARTS = "targets that depend on the same variables form a part, and each part was answered separately"


def _plan_all(pieces: list[_Piece], budget: float | None) -> list[_Piece]:
    """Choose a method for each subproblem.

    After `_MAX_HARD_PARTS` subproblems that miss the tolerance, only exact sums are tried for the others.
    """
    planned: list[_Piece] = []
    hard = 0
    for piece in pieces:
        name = "auto" if hard < _MAX_HARD_PARTS else Exact.name
        try:
            method = choose(replace(piece.query, method=name, budget=budget))
        except (CertificateError, BudgetError) as refusal:
            planned.append(replace(piece, reason=refusal.message, partial=refusal.result))
            hard += 1
            continue
        planned.append(replace(piece, method=method))
        hard += not method.plan.reaches_tolerance
        if budget is not None:
            budget = max(budget - method.needed_updates(), 1.0)
    return planned


def _plan_faster(pieces: list[_Piece], budget: float | None, seconds: float) -> list[_Piece] | None:
    """Choose methods with which all subproblems together take less than `seconds`; None if that is impossible.

    All of them must reach the tolerance. The largest subproblems come first, so that the search ends early if they take
    too long.
    """
    planned: list[_Piece] = []
    for piece in reversed(pieces):
        try:
            method = choose(replace(piece.query, budget=budget))
        except (CertificateError, BudgetError):
            return None
        seconds -= method.plan.seconds
        if seconds <= 0.0 or not method.plan.reaches_tolerance:
            return None
        planned.append(replace(piece, method=method))
        if budget is not None:
            budget = max(budget - method.needed_updates(), 1.0)
    return planned[::-1]


def _own_run(number: int, sequence: np.random.SeedSequence, running: Running) -> tuple[np.random.SeedSequence, Running]:
    """Return the seed and the checkpoint of sampled subproblem number `number`.

    The first one uses those of the call, so that it can be resumed.
    """
    if not number:
        return sequence, running
    child = child_seed(sequence, *_OWN, number)
    if running.checkpoint is None:
        return child, running
    return child, replace(running, checkpoint=Path(f"{os.fspath(running.checkpoint)}.part{number}"))


def _split(query: Query) -> list[_Piece]:
    """Split the query into subproblems; return an empty list if there is only one."""
    homes = _by_relevance(query) or _by_component(query)
    pieces: dict[int, tuple[list[TargetQuestion], list[NDArray[np.int64]]]] = {}
    first = 0
    for question, home in zip(query.questions, homes, strict=True):
        rows = first + np.arange(len(question))
        first += len(question)
        for number, part, own in _cut(question, home):
            questions, places = pieces.setdefault(number, ([], []))
            questions.append(part)
            places.append(rows[own])
    if len(pieces) < 2:
        return []
    whole = [_Piece(_share(query, questions), np.concatenate(places)) for questions, places in pieces.values()]
    # Small subproblems first, so that a hard one cannot use up their time.
    return sorted(whole, key=lambda piece: piece.query.model.n_variables)


def _share(query: Query, questions: list[TargetQuestion]) -> Query:
    """Return the query of one subproblem, with its share of the error probability."""
    share = sum(question.intervals for question in questions) / query.intervals
    confidence = math.nextafter(1.0 - (1.0 - query.confidence) * share, 1.0)  # rounded upwards
    if confidence >= 1.0:
        raise ByParts.refuse(
            f"the error probability {1.0 - query.confidence:.3g} is too small to be shared by the parts of this query."
        )
    own, _ = restrict_query(replace(query, questions=questions))
    return replace(own, confidence=confidence, relevance=query.relevance)


def _cut(question: TargetQuestion, home: NDArray[np.int64]) -> Iterator[tuple[int, TargetQuestion, NDArray[np.bool_]]]:
    """Split a question by subproblem: yield the number of the subproblem, its question, and a mask of its rows.

    `home` has the number of the subproblem of each variable of the question.
    """
    if not isinstance(question, SingleMarginals):
        yield int(home[0]), question, np.ones(len(question), dtype=bool)
        return
    for number in dict.fromkeys(home.tolist()):
        own = home == number
        chosen = np.flatnonzero(own).tolist()
        labels, values = [question.labels[k] for k in chosen], [question.values[k] for k in chosen]
        names = None if question.names is None else [question.names[k] for k in chosen]
        part = SingleMarginals(question.positions[own], labels, values, names)
        yield number, part, np.repeat(own, question.sizes)


def _by_component(query: Query) -> list[NDArray[np.int64]]:
    """Return, for each variable of each question, the number of its component; -1 for all small components.

    Components that share a question count as one.
    """
    component = query.model._form.components().astype(np.int64)
    count = int(component.max()) + 1
    chains = [
        component[question.positions] for question in query.questions if not isinstance(question, SingleMarginals)
    ]
    ends = [np.concatenate([np.empty(0, dtype=np.int64), *(c[cut] for c in chains)]) for cut in (np.s_[:-1], np.s_[1:])]
    joined = sparse.coo_array((np.ones(len(ends[0])), (ends[0], ends[1])), shape=(count, count))
    group = csgraph.connected_components(joined, directed=False)[1].astype(np.int64)[component]
    size = np.bincount(group, weights=np.log2(query.model.cardinalities))
    group = np.where(size[group] <= _SMALL_BITS, -1, group)
    return [group[question.positions] for question in query.questions]


def _by_relevance(query: Query) -> list[NDArray[np.int64]] | None:
    """Group the variables of the questions by relevance; return the number of the group of each variable.

    The target with the most relevant variables begins the first group, which has all targets among these variables; the
    next group is found in the same way among the other targets. Return None if there are too many targets, or if all
    variables are relevant to all targets of a component: groups are then connected components.
    """
    form, n = query.model._form, query.model.n_variables
    # Targets that are answered together: number of the question, columns of the question, positions of the variables.
    units: list[tuple[int, slice, NDArray[np.int64]]] = []
    for k, question in enumerate(query.questions):
        size = len(question.positions)
        width = 1 if isinstance(question, SingleMarginals) else size
        columns = [slice(first, first + width) for first in range(0, size, width)]
        units += [(k, places, question.positions[places]) for places in columns]
    if n * len(units) > _MAX_PAIRS or all(form.sum_out(np.arange(n) == v)[1].all() for v in (0, n - 1)):
        return None
    matters = np.stack([find_relevant(form, positions)[1] for *_, positions in units])
    homes = [np.full(len(question.positions), -1, dtype=np.int64) for question in query.questions]
    waiting = np.ones(len(units), dtype=bool)
    for number in np.argsort(-matters.sum(axis=1), kind="stable").tolist():
        if waiting[number]:
            for unit in np.flatnonzero(waiting).tolist():
                k, places, positions = units[unit]
                if matters[number, positions].all():
                    homes[k][places] = number
                    waiting[unit] = False
    return homes
