"""Answer several queries in one process: planned one by one, and drawn one by one or together on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import Any, NamedTuple

import numpy as np

from dobrushin._estimate.answer import Estimate
from dobrushin._estimate.estimator import Prepared, prepare_query
from dobrushin._estimate.query import Settings
from dobrushin._estimate.runs import Run
from dobrushin._sampling.batches import Job, Outcome
from dobrushin._sampling.sampler import MANY_UPDATES
from dobrushin._shared.call import NO_DEADLINE, Deadline, guarded
from dobrushin._shared.device import is_available, may_be_available
from dobrushin._shared.environment import log
from dobrushin._shared.running import Running
from dobrushin.errors import BudgetError, CertificateError

# Largest number of seconds of planning before chains are drawn, so that progress is visible; and largest number of
# variables of all planned models together.
_SECONDS_TOGETHER, _MAX_VARIABLES_TOGETHER = 2.0, 2**20
# Time limit in seconds of a query that begins when no time is left.
_NO_TIME = 1e-9

Pair = tuple[Any, Any]  # targets and evidence
Outcomes = dict[int, Estimate | Exception]  # by the number of the query


class Content(NamedTuple):
    """The model, the settings and the seed that all queries share."""

    model: Any
    settings: Settings
    sequence: np.random.SeedSequence

    def seed(self, k: int) -> np.random.SeedSequence:
        """Return the seed of query number k.

        It does not come from `SeedSequence.spawn`, since it would then depend on the queries begun before.
        """
        return np.random.SeedSequence(self.sequence.entropy, spawn_key=(*self.sequence.spawn_key, k))

    def within(self, deadline: Deadline) -> tuple[Settings, Running]:
        """Return the settings, and the run settings with the time left until `deadline`, of a query that begins now."""
        if deadline is NO_DEADLINE:
            return self.settings, Running(backend=self.settings.backend)
        seconds = max(_NO_TIME, deadline.left)
        running = Running(backend=self.settings.backend, deadline=Deadline(seconds, "The query"))
        return replace(self.settings, time_limit=seconds), running


def answer_some(
    content: Content, queries: Mapping[int, Pair], deadline: Deadline, is_enough: Callable[[], bool] = lambda: False
) -> Iterator[Outcomes]:
    """Answer queries by number; yield answers or errors as they are found, until `is_enough` returns true.

    Queries that have been planned by then are still answered; on Ctrl-C, only those that can be drawn together.
    """
    waiting, backend = iter(queries.items()), content.settings.backend
    may_wait = backend == "cuda" or (backend == "auto" and may_be_available())
    while True:
        wave = _Wave(content, deadline, may_wait)
        try:
            for k, query in waiting:
                if (known := wave.plan(k, query)) is not None:
                    yield {k: known}
                if wave.is_full or is_enough():
                    break
        except KeyboardInterrupt:
            yield from wave.answer_together()
            raise
        if not wave.is_begun:
            return
        yield from wave.answer_together()
        for k, (prepared, _) in wave.plans.items():
            yield {k: _try(prepared.answer, content.seed(k))}
        if is_enough():
            return


class _Wave:
    """A group of queries, planned one by one, whose chains or bounding sets are drawn together on a GPU."""

    def __init__(self, content: Content, deadline: Deadline, may_wait: bool) -> None:
        self.content, self.deadline, self.may_wait = content, deadline, may_wait
        self.plans: dict[int, tuple[Prepared, Run]] = {}  # planned queries whose draws wait
        self.is_begun = False
        self._begin = monotonic()
        self._models: dict[int, int] = {}  # number of variables of each planned model

    @property
    def is_full(self) -> bool:
        """Return whether it is time to answer the planned queries."""
        seconds = min(_SECONDS_TOGETHER, self.deadline.left)
        return sum(self._models.values()) > _MAX_VARIABLES_TOGETHER or monotonic() - self._begin > seconds

    def plan(self, k: int, query: Pair) -> Estimate | Exception | None:
        """Plan a query. Return its answer or error at once, or None if its draws wait for those of other queries."""
        self.is_begun = True
        asked, seed = (self.content.model, *query), self.content.seed(k)
        settings, running = self.content.within(self.deadline)

        def find() -> Estimate | None:
            prepared = prepare_query(*asked, settings, running)
            run = prepared.method.begin(seed, running) if self.may_wait else None
            if run is None or not run.can_wait:
                return prepared.answer(seed)
            self.plans[k] = prepared, run
            self._models[id(run.query.model)] = run.query.model.n_variables
            return None

        return _try(find)

    def answer_together(self) -> Iterator[Outcomes]:
        """Draw the waiting queries that can be drawn together, and yield their answers; the others stay in `plans`."""
        done: Outcomes = {}
        try:
            for k, (job, outcome) in self._draw().items():
                prepared, run = self.plans[k]
                done[k] = _try(prepared.complete, partial(run.finish, job, outcome))
                del self.plans[k]
        except KeyboardInterrupt:
            yield done
            raise
        yield done

    def _draw(self) -> dict[int, tuple[Job, Outcome]]:
        """Draw the waiting queries together on the GPU; return the job and the outcome of each, by query number."""
        total = sum(run.plan.updates for _, run in self.plans.values())
        is_auto = self.content.settings.backend == "auto"
        if not self.plans or (is_auto and (total < MANY_UPDATES or not is_available())):
            return {}
        from dobrushin._sampling.cuda.together import Chains, can_join, draw_together

        try:
            jobs = {k: Chains(*run.job()) for k, (_, run) in self.plans.items()}
            wanted = {k: chains for k, chains in jobs.items() if can_join(chains)}
            outcomes = draw_together(list(wanted.values()))
        except Exception as error:  # any error of the GPU: each query then fails or succeeds by itself
            log.info("drawing %d runs at once on the GPU failed; drawing them one by one (%s)", len(self.plans), error)
            return {}
        return {k: (wanted[k].job, outcome) for k, outcome in zip(wanted, outcomes, strict=True)}


def _try(answer: Callable[..., Any], *arguments: Any) -> Any:
    """Return the answer, or the error that was raised.

    Samples, certificate and transcript are dropped, because they can be large.
    """

    def light(answer: Estimate) -> Estimate:
        asked = None if answer.asked is None else replace(answer.asked, transcript=None)
        return replace(answer, samples=None, certificate=None, asked=asked)

    try:
        with guarded():
            found = answer(*arguments)
        return None if found is None else light(found)
    except Exception as error:
        if isinstance(error, CertificateError | BudgetError) and error.result is not None:
            return error.with_result(light(error.result))
        return error.with_traceback(None)
