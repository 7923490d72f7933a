"""Write proofs of answers: the plan, the outcomes of draws, and the claim."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import singledispatch
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dobrushin._estimate.answer import Asked, Estimate, Transcript
from dobrushin._estimate.estimator import prepare_query
from dobrushin._estimate.method import Method, Nothing
from dobrushin._estimate.parts import ByParts
from dobrushin._estimate.query import Space, workspace
from dobrushin._estimate.questions import JointMarginal, SingleMarginals, TargetQuestion
from dobrushin._estimate.targets import _mean, _sum
from dobrushin._models import Model
from dobrushin._proof.archive import Arrays, seed_from, text_of, write_file
from dobrushin._proof.part_of_model import PartOfModel, positions_in, positions_of
from dobrushin._shared.running import Running, seed_sequence
from dobrushin.errors import ArgumentError, BudgetError, CertificateError

# Limits are rounded outwards to a unit of 10**-6 times the interval's width (at least 1e-6), plus one unit.
_END_DIGITS, _LEAST_WIDTH = 6, 1e-6
# Limits on the check of a proof just written, by the checker's estimate.
_CHECK_SECONDS, _CHECK_BYTES = 1200.0, 2.0**34
# Methods whose only error is rounding, which the checker bounds in its own way.
_ROUNDED = ("exact", "symmetry")
# Extra relative width of sums, for the rounding of the checker.
_SUM_MARGIN = 1e-11


class Piece(NamedTuple):
    """The rows of an answer that one method gives, with this method, its model, its run and its questions."""

    method: Any  # None: nothing is known
    model: Model
    run: Any
    questions: list[TargetQuestion]
    rows: NDArray[np.int64]
    number: int  # among the pieces that draw


class Draft:
    """The plan of a proof while it is written: its arrays and questions, and the part of the model that it needs."""

    def __init__(self, model: Model, part: PartOfModel) -> None:
        self.model, self.part = model, part
        self.arrays = Arrays()
        self.questions: list[dict[str, Any]] = []

    def numbers(self, model: Model, positions: Any) -> NDArray[np.int64]:
        """Return the proof's numbers of variables, given their positions in a method's model."""
        return self.part.numbers(positions_in(self.model, model, positions))

    def ask(self, method_model: Model, question: TargetQuestion) -> list[int]:
        """Add a question about a method's model to the plan; return its numbers (one for each marginal)."""
        first = len(self.questions)
        numbers = self.numbers(method_model, question.positions).tolist()
        if isinstance(question, SingleMarginals):
            self.questions += [{"kind": "law", "variables": [v]} for v in numbers]
        elif isinstance(question, JointMarginal):
            self.questions.append({"kind": "law", "variables": numbers})
        else:
            self.questions.append(_linear(question, numbers, self.model._spins))
        return list(range(first, len(self.questions)))


Written = tuple[dict[str, Any], dict[str, Any]]  # the plan of a part, and its outcomes when there are some

# By the name of the method: the variables whose factors matter, by position in its model; and its writer.
Inside = Callable[[Method], Any]
Writer = Callable[[Draft, Piece, list[int]], list[Written]]
WRITERS: dict[str, tuple[Inside, Writer]] = {}


def register(name: str, inside: Inside, write: Writer) -> None:
    """Register the writer of a method, and the function that says which variables need all their factors."""
    WRITERS[name] = inside, write


def _writer(name: str) -> tuple[Inside, Writer]:
    if name not in WRITERS:
        known = ", ".join(repr(known) for known in WRITERS)
        raise ArgumentError("estimate", f"one that was answered by {known} or 'parts'", name)
    return WRITERS[name]


def seed_of_plan(asked: Asked) -> np.random.SeedSequence:
    """Return the seed that is derived from the questions and the plan, before anything is drawn."""
    if all(piece.method is None or piece.method.plan.is_certain for piece in _pieces(asked)):
        return np.random.SeedSequence(0)
    plan, _, draft = _compose(asked)
    return np.random.SeedSequence(seed_from(text_of(plan), draft.arrays.arrays))


def write_answer(estimate: Estimate, path: str | os.PathLike[str]) -> None:
    """Write the proof of an answer; see `Estimate.write_proof`."""
    asked = estimate.asked
    if asked is None or asked.weighed is None:
        raise ArgumentError("estimate", "one that was made in this process", estimate.headline)
    if asked.transcript is None:
        estimate = _answer_again(estimate, asked, workspace(asked.weighed))
    write_claim(_transcript(estimate.asked).method.query.space, estimate, path)


def _answer_again(estimate: Estimate, asked: Asked, space: Space) -> Estimate:
    """Repeat the call that gave an answer, with the same seed, now recording what a proof needs."""
    if not space.is_replayed:
        requirement = (
            "one for which proof= or verify= was set beforehand: chains of a field are then as many as was planned, "
            "with bounds that the checker can make again"
        )
        raise ArgumentError("estimate", requirement, estimate.headline)
    if estimate.plan.method != ByParts.name:
        _writer(estimate.plan.method)
    again: Estimate | None = None
    if asked.call is not None:
        targets, evidence, settings = asked.call
        settings, sequence = replace(settings, proof=True), seed_sequence(estimate.seed)
        running = Running(backend=settings.backend)
        try:
            again = prepare_query(asked.model, targets, evidence, settings, running).answer(sequence)
        except (CertificateError, BudgetError) as error:
            again = error.result
    ends = [(answer.value, answer.lower, answer.upper) for answer in (estimate, again) if answer is not None]
    if again is None or not all(np.array_equal(a, b) for a, b in zip(*ends, strict=True)):
        requirement = "one for which proof= or verify= was set beforehand (repeating the call gave another answer)"
        raise ArgumentError("estimate", requirement, estimate.headline)
    return again


def _transcript(asked: Asked | None) -> Transcript:
    assert asked is not None
    assert asked.transcript is not None
    return asked.transcript


@singledispatch
def write_claim(space: Any, estimate: Estimate, path: str | os.PathLike[str]) -> None:
    """Write the proof of an answer; the class of `space`, the model with its cached results, selects the version."""
    del space
    asked: Any = estimate.asked
    plan, outcomes, draft = _compose(asked)
    write_file(path, plan, outcomes, _claim(estimate, asked), draft.arrays, estimate.seed)


def answer_with_proof(estimate: Estimate, path: str | os.PathLike[str] | None, verify: bool) -> Estimate:
    """Write the proof of an answer, check it if `verify`, and return the answer with a note on its proof."""
    words = "written"
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "answer.proof") if path is None else path
        write_answer(estimate, file)
        if verify:
            from dobrushin.verify import verify_proof as check

            verdict = check(file, time_limit=_CHECK_SECONDS, memory_limit=_CHECK_BYTES)
            if verdict.exit_code not in (0, 3):
                reason = f"its proof {verdict.verdict}: {verdict.reason}"
                raise CertificateError({estimate.plan.method: reason}, "", result=estimate)
            about_chances = estimate.plan.noun == "probability"
            words = "verified" if verdict.holds else f"{'some blocks' if about_chances else 'bounds'} verified"
    if path is not None:
        words += f" (dobrushin verify {os.fspath(path)})"
    return replace(estimate, proof=words)


def _pieces(asked: Asked) -> list[Piece]:
    transcript = _transcript(asked)
    method, query = transcript.method, transcript.method.query
    if not isinstance(method, ByParts):
        rows = np.arange(sum(len(question) for question in query.questions))
        return [Piece(method, query.model, transcript.run, query.questions, rows, 0)]
    answered: list[Transcript | None] = [None] * len(method.pieces) if transcript.parts is None else transcript.parts
    pieces, drawn = [], 0
    for piece, part in zip(method.pieces, answered, strict=True):
        # Before anything is drawn, the planned method counts; afterwards the one that has answered.
        own = piece.method if transcript.parts is None else None if part is None else part.method
        own = None if isinstance(own, Nothing) else own
        model = query.model if own is None else own.query.model
        run = None if part is None else part.run
        pieces.append(Piece(own, model, run, piece.query.questions, piece.rows, drawn))
        drawn += piece.method is not None and not piece.method.plan.is_certain
    return pieces


def _compose(asked: Asked) -> tuple[dict[str, Any], list[dict[str, Any]], Draft]:
    """Compose the plan of a proof; return it with the outcomes of its parts, and with the draft that was made for it.

    The outcomes are empty before anything is drawn.
    """
    assert asked.weighed is not None
    model, query, pieces = asked.weighed, _transcript(asked).method.query, _pieces(asked)
    methods = [piece.method for piece in pieces if piece.method is not None]
    inside = []
    for piece in pieces:
        if piece.method is None:
            own = np.concatenate([question.positions for question in piece.questions])
        else:
            own = np.asarray(_writer(piece.method.name)[0](piece.method))
        inside.append(positions_in(model, piece.model, own))
    # Positions of the variables that methods kept, if they left out variables that cannot matter to the targets.
    left_out = any(method.query.space.place is not None for method in methods)
    known = [positions_of(model, method.query.model.labels) for method in methods]
    kept = np.concatenate(known) if left_out else None
    draft = Draft(model, PartOfModel(model, asked.observed, np.concatenate(inside), kept))
    parts: list[Written] = []
    for piece in pieces:
        numbers = [k for question in piece.questions for k in draft.ask(piece.model, question)]
        if piece.method is not None:
            parts += _writer(piece.method.name)[1](draft, piece, numbers)
    draft.part.write(draft.arrays)
    plan = draft.part.describe(draft.questions) | {
        "fingerprint": model.fingerprint or "",
        "confidence": float(query.confidence) if any("confidence" in part for part, _ in parts) else 1.0,
        "parts": [part for part, _ in parts],
    }
    return plan, [outcome for _, outcome in parts], draft


def _linear(question: Any, numbers: list[int], spins: bool) -> dict[str, Any]:
    """Return a question about the mean or the sum of states of some variables.

    Other statistics raise `ArgumentError`, because a proof cannot contain a Python function.
    """
    statistic = question.statistic
    if statistic.f not in (_mean, _sum):
        requirement = (
            "about marginals, joint marginals, magnetisation or total: a Python function cannot travel in a proof"
        )
        raise ArgumentError("estimate", requirement, statistic.name)
    fixed = np.delete(question.template, question.moving)
    step, first = (2, -1) if spins or question.are_digits else (1, 0)
    return {
        "kind": "linear",
        "name": statistic.name,
        "variables": numbers,
        "slope": step,
        "offset": first * len(numbers) + int(fixed.sum()),
        "divisor": len(question.template) if statistic.f is _mean else 1,
        "bounds": [float(statistic.bounds[0]), float(statistic.bounds[1])],
    }


def _claim(estimate: Estimate, asked: Asked) -> dict[str, Any]:
    lower: list[list[float]] = []
    upper: list[list[float]] = []
    for piece in _pieces(asked):
        method, rest = piece.method, piece.rows
        for question in piece.questions:
            rows, rest = rest[: len(question)], rest[len(question) :]
            # The checker has its own bound on the rounding of sums.
            room: Any = _SUM_MARGIN if method is not None and method.plan.is_certain else 0.0
            if method is not None and method.name in _ROUNDED:
                room = 4.0 * estimate.bias_bound[rows] + _SUM_MARGIN
            low, high = round_outwards(estimate.lower[rows], estimate.upper[rows], room, question)
            cuts = np.cumsum(question.sizes)[:-1] if isinstance(question, SingleMarginals) else np.empty(0, np.int64)
            lower += [part.tolist() for part in np.split(low, cuts)]
            upper += [part.tolist() for part in np.split(high, cuts)]
    return {"lower": lower, "upper": upper}


def round_outwards(
    low: NDArray[np.float64], high: NDArray[np.float64], room: Any, question: TargetQuestion
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Round limits of intervals outwards to a few digits, leaving `room` for the rounding of the checker."""
    least, most = question.bounds
    unit = 10.0 ** (np.floor(np.log10(np.maximum(high - low, _LEAST_WIDTH))) - _END_DIGITS)
    unit *= max(1.0, 10.0 ** math.ceil(math.log10(question.span)))
    below = (np.floor((low - room) / unit) - 1.0) * unit
    above = (np.ceil((high + room) / unit) + 1.0) * unit
    return np.maximum(below, float(least)), np.minimum(above, float(most))
