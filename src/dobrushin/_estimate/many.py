"""Answer many queries about one model, in this process or over an executor."""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Callable, Iterable, Iterator, KeysView, Mapping, ValuesView
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np

from dobrushin._estimate.answer import Estimate
from dobrushin._estimate.headline import given_words, visible_numbers
from dobrushin._estimate.query import read_settings
from dobrushin._estimate.several import Content, Outcomes, Pair, answer_some
from dobrushin._models.sources import as_model
from dobrushin._shared.call import NO_DEADLINE, Deadline, bar, entered, public
from dobrushin._shared.environment import require
from dobrushin._shared.executors import (
    TimeUp,
    Trouble,
    Within,
    cores,
    raise_trouble,
    read_executor,
    receive,
    run_pieces,
    share,
    shares_memory,
    workers_of,
)
from dobrushin._shared.running import RunOptions, kept_seed, read_options, read_time_limit, seed_sequence
from dobrushin._shared.state_file import fingerprint
from dobrushin._shared.text import card
from dobrushin.errors import ArgumentError
from dobrushin.typing import EstimateMethod, Evidence, ModelLike, Seed, Targets

if TYPE_CHECKING:
    import pandas

# Largest number of queries sent to a worker at a time, and the seconds after which the worker returns its answers: the
# answers that a lost worker has not returned are lost too.
_MAX_QUERIES_AT_ONCE = 64
_PIECE_SECONDS = 2.0
# Largest number of errors printed.
_MAX_SHOWN_ERRORS = 3
_REQUIREMENT = "pairs (targets, evidence), where the evidence is a mapping from labels to states, or None"


@dataclass(frozen=True, eq=False, repr=False)
class Estimates:
    """Answers to many queries; the intervals of each query are valid at once with the stated confidence.

    Attributes
    ----------
    queries : list of (targets, evidence)
    answers : dict from int to Estimate
        Answers by the number of the query, without samples and certificate: `estimate` with the query and
        ``answers[k].seed`` reproduces the full answer.
    errors : dict from int to Exception
        Errors of queries without an answer, by the number of the query.
    seed : int or SeedSequence
        Seed that repeats all answers.

    Examples
    --------
    >>> import dobrushin as db
    >>> model = db.Ising.grid(10, 10, couplings=0.2)
    >>> answers = db.estimate_many(model, [([0], None), ([0], {1: 1, 10: 1}), ([0], {1: 2})], tolerance=0.05, seed=1)
    >>> answers
    Estimates: 2 of 3 queries answered
      query 2: The 'evidence' argument of dobrushin.estimate_many must be one of the states -1, +1 of 1. Got 2 at ...
    >>> bool(answers[1][0].value[1] > answers[0][0].value[1] + 0.1)
    True
    """

    queries: list[Pair]
    answers: dict[int, Estimate]
    errors: dict[int, Exception]
    seed: Any
    _name: str

    def __len__(self) -> int:
        return len(self.queries)

    @public()
    def __getitem__(self, number: int) -> Estimate:
        """Return the answer to the query with this number; if it has none, raise its error."""
        try:
            k = range(len(self.queries))[number]
        except (IndexError, TypeError):
            requirement = f"the number of one of the {len(self.queries)} queries"
            raise ArgumentError("number", requirement, number) from None
        if k in self.errors:
            raise self.errors[k]
        if k not in self.answers:
            raise ArgumentError("number", "the number of a query that was answered", number)
        return self.answers[k]

    def __iter__(self) -> Iterator[Estimate]:
        """Iterate over the answers in order of the queries; raise the error of a query that has none."""
        return (self[k] for k in range(len(self.queries)))

    def to_dataframe(self) -> pandas.DataFrame:
        """Return all rows of all answers as a pandas DataFrame; the column ``query`` has the number of the query.

        Examples
        --------
        >>> import dobrushin as db
        >>> model = db.Ising({("a", "b"): 0.5}, fields={"a": 1.0})
        >>> answers = db.estimate_many(model, [(["a"], None), (["b"], {"a": -1})])
        >>> answers.to_dataframe()[["query", "target", "state", "probability"]].round(3)
           query target  state  probability
        0      0      a     -1        0.119
        1      0      a      1        0.881
        2      1      b     -1        0.731
        3      1      b      1        0.269
        """
        library = require("pandas", "formats")
        if not self.answers:
            return library.DataFrame(columns=["query", "target", "state", "value", "lower", "upper", "bias_bound"])
        frames = [self.answers[k].to_dataframe() for k in sorted(self.answers)]
        table = library.concat(frames, ignore_index=True)
        table.insert(0, "query", np.repeat(sorted(self.answers), [len(frame) for frame in frames]))
        return table

    def to_json(self, indent: int | None = None) -> str:
        """Return all answers and errors as JSON text: one object for each query, with its `answer` or its `error`.

        An answer is what `Estimate.to_json` writes; both are null for a query that was not begun.

        Examples
        --------
        >>> import dobrushin as db, json
        >>> model = db.Ising({("a", "b"): 0.5}, fields={"a": 1.0})
        >>> stored = json.loads(db.estimate_many(model, [(["a"], None), (["b"], {"a": -1})]).to_json())
        >>> stored["queries"][1]["answer"]["headline"]
        'P(b = -1 | a = -1) = 0.73105857863, exact to 1e-12'
        """
        queries = []
        for k in range(len(self)):
            answer, error = self.answers.get(k), self.errors.get(k)
            record = None if answer is None else json.loads(answer.to_json())
            queries.append({"answer": record, "error": None if error is None else str(error)})
        seed = self.seed if isinstance(self.seed, int) else str(self.seed)
        return json.dumps({"format": "dobrushin estimates 1", "seed": seed, "queries": queries}, indent=indent)

    def _repr_html_(self) -> str:
        rows = []
        for k in visible_numbers(len(self)):
            answer = self.answers.get(k)
            evidence = self.queries[k][1] if answer is None or answer.asked is None else answer.asked.evidence
            result = str(self.errors.get(k, "not answered")) if answer is None else answer.headline
            rows.append([str(k), given_words(evidence or {}), result])
        if len(rows) < len(self):
            rows.insert(len(rows) // 2, ["...", "", f"{len(self) - len(rows)} more queries"])
        heading = f"{len(self.answers):,} of {len(self):,} queries answered"
        return card(heading, [("seed", str(self.seed))], ("query", "given", "answer"), rows)

    def __str__(self) -> str:
        lines = [f"Estimates: {len(self.answers)} of {len(self.queries)} queries answered"]
        lines += [f"  query {k}: {self.errors[k]}" for k in sorted(self.errors)[:_MAX_SHOWN_ERRORS]]
        if len(self.errors) > _MAX_SHOWN_ERRORS:
            lines.append(f"  ... and {len(self.errors) - _MAX_SHOWN_ERRORS} more errors (attribute 'errors')")
        return "\n".join(lines)

    __repr__ = __str__


@public("answering")
def estimate_many(
    model: ModelLike,
    queries: Iterable[tuple[Targets, Evidence | None]],
    *,
    tolerance: float = 0.01,
    confidence: float = 0.99,
    seed: Seed = None,
    method: EstimateMethod = "auto",
    budget: float | None = None,
    time_limit: float | None = None,
    progress: bool | None = None,
    finished: Estimates | None = None,
    run: RunOptions | None = None,
) -> Estimates:
    """Answer many queries (targets, evidence) about one model.

    Parameters
    ----------
    model : Model
        Sent to each worker once.
    queries : iterable of (targets, evidence)
        Targets and evidence as for `estimate`; the evidence may be None.
    tolerance, confidence, method, budget
        Settings of each query, as for `estimate`.
    seed : int, SeedSequence, Generator or None
        The draws of a query depend only on the seed and on the number of the query, not on the executor.
    finished : Estimates, optional
        Result of an earlier call with the same arguments, to resume from: its answers are kept, and queries that
        failed or were stopped by the time limit are tried again.
    time_limit : number, optional
        Time limit in seconds for all queries. The query running at the limit has a partial result; queries not yet
        begun have a `BudgetError` in ``errors``.
    progress : bool, optional
        Show progress. None: only in a terminal or notebook; True: always; False: never.
    run : RunOptions, optional
        Executor, GPU, and the memory for exact sums. Without an executor one query is answered after the other, each
        on all cores; on a GPU, many are drawn at once. Planning is Python code, so threads gain nothing; a
        `ProcessPoolExecutor` or ``client.get_executor()`` of Dask does. A checkpoint is refused: see `finished`.

    Returns
    -------
    Estimates
        A query that cannot be answered has its error in ``errors``; the others are still answered.

    Raises
    ------
    Interrupted
        On Ctrl-C; ``error.result`` has the answers so far, to be passed as ``finished``.
    WorkerError
        When the executor ends early, as a process pool does when a worker dies; also with ``error.result``.

    Notes
    -----
    The confidence applies to each query. For all the intervals of m queries to be valid at once with probability 1 - a,
    set the confidence to 1 - a / m.

    Examples
    --------
    >>> import dobrushin as db
    >>> model = db.Ising.grid(1000, 1000, couplings=0.2)
    >>> answers = db.estimate_many(model, [([k], {k + 1: 1}) for k in range(5)], tolerance=0.05, seed=1)
    >>> [round(float(answer.value[1]), 1) for answer in answers]
    [0.6, 0.6, 0.6, 0.6, 0.6]
    """
    model = as_model(model)
    asked = _read_queries(queries)
    options = read_options(run, ("checkpoint",))
    executor = read_executor(options.executor)
    deadline = read_time_limit(options.time_limit if time_limit is None else time_limit)
    settings = read_settings(model, tolerance, confidence, method, budget, None, options)
    name = fingerprint(model, asked, replace(settings, backend="auto", memory_limit=None))
    answers: dict[int, Estimate] = {}
    cut_short: dict[int, Estimate] = {}  # partial results of queries that are tried again
    if finished is not None:
        known = _take_over(finished, name, seed)
        answers = {k: answer for k, answer in known.items() if answer.stopped_by is None}
        cut_short = {k: answer for k, answer in known.items() if answer.stopped_by is not None}
        seed = finished.seed
    sequence = seed_sequence(seed)
    errors = _find_unsendable(asked, executor)
    with (
        share(Content(model, settings, sequence), executor) as shared,
        bar(len(asked), "answering", "queries", deadline) as report,
    ):
        work = _Work(asked, shared, report, answers, errors, deadline)
        trouble = work.here() if executor is None else work.over(executor)
    if isinstance(trouble, TimeUp):
        errors |= {k: deadline.error("The query") for k in work.left()}
    for k in cut_short.keys() - answers.keys():
        answers[k] = cut_short[k]
        errors.pop(k, None)
    for error in errors.values():
        if isinstance(error, ArgumentError):
            error.name_function("estimate_many")
    result = Estimates(asked, answers, errors, kept_seed(sequence), name)
    hint = "The same call with finished=error.result continues from there."
    raise_trouble(trouble, result, len(answers) + len(errors), len(result), "queries", hint=hint)
    return result


@dataclass
class _Work:
    """The queries of a call, with their answers and errors so far.

    `here` and `over` answer them; they return the reason if they stopped early, else None.
    """

    asked: list[Pair]
    shared: Any
    report: Callable[[int], None] | None
    answers: dict[int, Estimate]
    errors: dict[int, Exception]
    deadline: Deadline

    def left(self) -> list[int]:
        """Return the numbers of the queries without answer or error."""
        return [k for k in range(len(self.asked)) if k not in self.answers and k not in self.errors]

    def here(self) -> Trouble | None:
        """Answer the queries in this process, using all cores."""
        try:
            self._look({})
            queries = {k: self.asked[k] for k in self.left()}
            for found in answer_some(self.shared, queries, self.deadline):
                self._keep({0: found})
                self._look({})
        except (KeyboardInterrupt, TimeUp) as trouble:
            return trouble
        return None

    def over(self, pool: Executor) -> Trouble | None:
        """Answer the queries over an executor, several at a time in one task.

        Queries for which a task had no time left are sent again in the next round.
        """
        inside = shares_memory(pool)
        stopped = threading.Event() if inside else None
        whole = Within(cores(), stopped)
        size = 1 if inside else _MAX_QUERIES_AT_ONCE
        while left := self.left():
            size = max(1, min(size, -(-len(left) // (4 * workers_of(pool)))))
            pieces = [left[lo : lo + size] for lo in range(0, len(left), size)]
            done: dict[int, Outcomes] = {}

            def submit(pool: Executor, number: int, pieces: list[list[int]] = pieces) -> Future[Any]:
                some = {k: self.asked[k] for k in pieces[number]}
                seconds = None if self.deadline is NO_DEADLINE else self.deadline.left
                return pool.submit(answer_piece, self.shared, some, whole, seconds)

            begin = monotonic()
            stop = stopped.set if stopped else (lambda: None)
            look = partial(self._look, done)
            try:
                trouble = run_pieces(pool, submit, range(len(pieces)), done, look=look, stop=stop)
            finally:
                self._keep(done)
            if trouble is not None:
                return trouble
            pace = (monotonic() - begin) * workers_of(pool) / max(1, len(left) - len(self.left()))  # seconds a query
            size = 1 if inside else int(min(_MAX_QUERIES_AT_ONCE, _PIECE_SECONDS / pace))
        return None

    def _keep(self, done: dict[int, Outcomes]) -> None:
        for part in done.values():
            self.answers |= {k: found for k, found in part.items() if isinstance(found, Estimate)}
            self.errors |= {k: found for k, found in part.items() if isinstance(found, Exception)}

    def _look(self, done: dict[int, Outcomes]) -> None:
        if self.report:
            self.report(len(self.answers) + len(self.errors) + sum(map(len, done.values())))
        if self.deadline.is_over:
            raise TimeUp


def answer_piece(shared: Any, queries: dict[int, Pair], whole: Within, seconds: float | None) -> Outcomes:
    """Answer queries in a worker, within a number of seconds; return answers and errors by query number."""
    begin = monotonic()
    deadline = NO_DEADLINE if seconds is None else Deadline(seconds, "The query", clock=monotonic)
    outcomes: Outcomes = {}

    def is_enough() -> bool:
        return deadline.is_over or monotonic() - begin > _PIECE_SECONDS

    with entered(within=whole), suppress(KeyboardInterrupt):  # Ctrl-C may reach workers too: keep the answers so far
        for found in answer_some(receive(shared), queries, deadline, is_enough):
            if whole.is_stopped:
                break
            outcomes |= found
    return outcomes


def _read_queries(queries: Any) -> list[Pair]:
    if isinstance(queries, str | Mapping) or not isinstance(queries, Iterable):
        raise ArgumentError("queries", _REQUIREMENT, queries)
    read = []
    for k, query in enumerate(queries):
        if not isinstance(query, tuple | list) or len(query) != 2 or not isinstance(query[1], Mapping | None):
            raise ArgumentError(f"queries[{k}]", _REQUIREMENT, query)
        targets, evidence = query
        if isinstance(targets, Iterator | KeysView | ValuesView):  # can be read only once, or cannot be pickled
            targets = list(targets)
        read.append((targets, None if evidence is None else dict(evidence)))
    return read


def _find_unsendable(asked: list[Pair], executor: Executor | None) -> dict[int, Exception]:
    """Return an error for each query that cannot be pickled for a process pool, by the number of the query."""
    errors: dict[int, Exception] = {}
    for k, query in enumerate(asked if isinstance(executor, ProcessPoolExecutor) else ()):
        try:
            pickle.dumps(query)
        except Exception as error:
            requirement = f"one that can be pickled for a process pool: functions must be importable ({error})"
            errors[k] = ArgumentError(f"queries[{k}]", requirement, query)
    return errors


def _take_over(finished: Any, name: str, seed: Any) -> dict[int, Estimate]:
    """Return the answers of an earlier call; raise `ArgumentError` unless it had the same arguments."""
    same = "the result of a call with the same model, queries, seed, tolerance, confidence, method and budget"
    if not isinstance(finished, Estimates):
        raise ArgumentError("finished", same, finished)
    seeds = [] if seed is None else [seed_sequence(own).generate_state(4).tolist() for own in (seed, finished.seed)]
    if finished._name != name or any(numbers != seeds[0] for numbers in seeds):
        raise ArgumentError("finished", same, got="the result of a call with other arguments")
    return dict(finished.answers)
