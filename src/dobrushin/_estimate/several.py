"""Some queries, answered in this process: one after the other, or planned so and drawn together on the GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from time import monotonic
from typing import Any, NamedTuple

import numpy as np

from dobrushin._estimate.answer import Estimate
from dobrushin._estimate.estimator import Prepared, answer_query, prepare_query
from dobrushin._estimate.method import answer_by
from dobrushin._estimate.query import Settings
from dobrushin._estimate.runs import Run
from dobrushin._sampling.batches import Job, Outcome
from dobrushin._sampling.sampler import MANY_UPDATES
from dobrushin._shared.deadline import NO_DEADLINE, Deadline
from dobrushin._shared.device import cupy, is_available
from dobrushin._shared.log import log
from dobrushin._shared.memory_guard import guard_memory
from dobrushin._shared.running import Running
from dobrushin.errors import BudgetError, CertificateError

# For how long queries are planned before their chains are drawn: then there is something to show; and the variables
# that models which wait for it may have.
_SECONDS_TOGETHER, _MOST_VARIABLES = 2.0, 2**20
# Seconds of a query that is begun when no time is left.
_NO_TIME = 1e-9

Pair = tuple[Any, Any]  # targets and evidence
Outcomes = dict[int, Estimate | Exception]  # by the number of the query
Left = Callable[[], float | None]  # seconds that are left; None where there is no limit


class Content(NamedTuple):
    """What all queries share."""

    model: Any
    settings: Settings
    sequence: np.random.SeedSequence

    def seed(self, k: int) -> np.random.SeedSequence:
        """The seed of query number k: not from `spawn`, so that it does not matter how many were begun before it."""
        return np.random.SeedSequence(self.sequence.entropy, spawn_key=(*self.sequence.spawn_key, k))

    def within(self, seconds: float | None) -> tuple[Settings, Running]:
        """How to answer a query in so many seconds."""
        time = None if seconds is None else max(_NO_TIME, seconds)
        deadline = NO_DEADLINE if time is None else Deadline(time, "The query")
        return self.settings._replace(time=time), Running(backend=self.settings.backend, deadline=deadline)

    @property
    def on_device(self) -> bool:
        """Whether chains may be drawn on the GPU."""
        if not self.model.is_discrete or self.settings.backend == "cpu":
            return False
        return self.settings.backend == "cuda" or is_available()


def answer_some(content: Content, queries: Mapping[int, Pair], left: Left) -> Iterator[Outcomes]:
    """The answers to queries by number, or why there are none, as they are found.

    On Ctrl-C those that are planned are drawn and answered first.
    """
    if not content.on_device:
        for k, query in queries.items():
            yield {k: _answer(content, k, query, left())}
        return
    waiting = iter(queries.items())
    trouble: KeyboardInterrupt | None = None
    while trouble is None:
        wave = _Wave(content, left)
        try:
            for k, query in waiting:
                wave.plan(k, query)
                if wave.is_full:
                    break
        except KeyboardInterrupt as pressed:
            trouble = pressed
        if not wave.plans and not wave.outcomes:
            break
        yield wave.answer()
    if trouble is not None:
        raise trouble


def _answer(content: Content, k: int, query: Pair, seconds: float | None) -> Estimate | Exception:
    """The answer to query number k, within some seconds, or why there is none."""
    settings, running = content.within(seconds)
    try:
        return _light(guard_memory(answer_query)(content.model, *query, settings, content.seed(k), running))
    except Exception as error:
        return _light_error(error)


class _Planned(NamedTuple):
    """A query that is planned, and the run that answers it."""

    prepared: Prepared
    run: Run


class _Wave:
    """Queries that are planned one by one, and whose chains or sets are drawn together."""

    def __init__(self, content: Content, left: Left) -> None:
        self.content, self.left = content, left
        self.plans: dict[int, _Planned] = {}
        self.outcomes: Outcomes = {}
        self._begin = monotonic()
        self._variables = 0  # of all models that wait

    @property
    def is_full(self) -> bool:
        """Whether those that are planned should be answered now."""
        seconds, left = _SECONDS_TOGETHER, self.left()
        if left is not None:
            seconds = min(seconds, left)
        return self._variables > _MOST_VARIABLES or monotonic() - self._begin > seconds

    def plan(self, k: int, query: Pair) -> None:
        """Plan a query; it is answered at once, if nothing is drawn for it."""
        settings, running = self.content.within(self.left())
        try:
            prepared = guard_memory(prepare_query)(self.content.model, *query, settings, running)
            run = prepared.method.begin(self.content.seed(k), running)
            if run is None:
                self.outcomes[k] = _light(prepared.answer(self.content.seed(k)))
                return
        except Exception as error:
            self.outcomes[k] = _light_error(error)
            return
        self.plans[k] = _Planned(prepared, run)
        self._variables += run.query.model.n_variables

    def answer(self) -> Outcomes:
        """All answers."""
        drawn = self._draw()
        for k, (prepared, run) in self.plans.items():
            try:
                answer = _finish(prepared, run, *drawn[k]) if k in drawn else prepared.answer(self.content.seed(k))
            except Exception as error:
                self.outcomes[k] = _light_error(error)
            else:
                self.outcomes[k] = _light(answer)
        return self.outcomes

    def _draw(self) -> dict[int, tuple[Job, Outcome]]:
        """Draw what can be drawn together: jobs with their outcomes, by the number of the query."""
        total = sum(run.plan.updates for _, run in self.plans.values())
        if self.content.settings.backend == "auto" and total < MANY_UPDATES:
            return {}
        try:
            cupy()
        except (ImportError, RuntimeError):
            return {}  # each query says what is missing
        from dobrushin._sampling.cuda.device_kernel import out_of_memory
        from dobrushin._sampling.cuda.together import Chains, can_join, draw_together

        wanted = {}
        for k, (_, run) in self.plans.items():
            parts = run.job()
            if parts is not None and can_join(chains := Chains(*parts)):
                wanted[k] = chains
        try:
            outcomes = draw_together(list(wanted.values()))
        except (MemoryError, out_of_memory()) as error:
            log.info("the GPU has not enough memory for many runs at once: one by one (%s)", error)
            return {}
        return {k: (wanted[k].job, outcome) for k, outcome in zip(wanted, outcomes, strict=True)}


def _finish(prepared: Prepared, run: Run, job: Job, outcome: Outcome) -> Estimate:
    def estimate() -> Estimate:
        return run.finish(job, outcome)

    return prepared.complete(lambda: answer_by(estimate, prepared.method, prepared.running))


def _light(answer: Estimate) -> Estimate:
    """An answer without what it takes a whole process to hold for many."""
    return replace(answer, samples=None, certificate=None, _origin=None)


def _light_error(error: Exception) -> Exception:
    """An error that does not carry what `_light` leaves out."""
    if isinstance(error, CertificateError) and error.estimate is not None:
        return error.carrying(_light(error.estimate))
    if isinstance(error, BudgetError) and error.estimate is not None:
        return error.carrying(error.plan, _light(error.estimate))
    return error.with_traceback(None)
