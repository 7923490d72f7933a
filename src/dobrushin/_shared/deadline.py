"""How long the planning of a call may take as a whole, for stages that look at it now and then.

The clock is the last guard. Stages decide by the work that they expect, so that the same call gives the same plan.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextvars import Token
from types import TracebackType
from typing import TypeVar

from dobrushin._shared import call
from dobrushin._shared.clock import seconds as working_clock
from dobrushin.errors import BudgetError

# Seconds that planning may take when a call says nothing about time, and the part of the call's time when it does.
PLANNING, PLANNING_SHARE = 30.0, 0.25
# Seconds by the clock that planning has in any case.
_MOMENT = 1.0
# Parts of a limit: that of stages by the clock, the rest being for what they do after their last look at it; and that
# of expected work.
_CLOCK, _WORK = 0.85, 0.5
# Items of a loop between looks at the limit.
_LOOK = 1024
_Item = TypeVar("_Item")
_REMEDY = "Ask for fewer targets or a larger tolerance, or for one method by name."


class LateError(BudgetError):
    """Work that took longer than it may, or that is expected to."""


class Deadline:
    """A limit in seconds that runs from the moment it is made; it stands still while code is compiled.

    Two accounts may run against it: the clock, and the work that stages say they are about to do (`charge`). That of
    planning gives expected work half of the limit, so that on an ordinary machine it decides, and the clock is only
    the last guard. Others go by the clock alone.

    In a `with` statement it becomes the current one, which stages far below ask for (`current`); the one before it
    comes back at the end.

    Attributes
    ----------
    limit : float
        Seconds by the clock; may be infinite.
    work : float
        Seconds of expected work; may be infinite.
    what : str
        What has this limit, as an error calls it.
    """

    def __init__(
        self,
        limit: float,
        what: str = "Planning",
        *,
        work: float = math.inf,
        remedy: str = _REMEDY,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.limit, self.work, self.what, self._remedy = limit, work, what, remedy
        self._clock = clock or working_clock
        self.expected = 0.0
        self._begin = self._clock()
        self._outer: Deadline | None = None
        self._tokens: list[Token[call.Call]] = []

    @property
    def spent(self) -> float:
        """Seconds since it was made."""
        return self._clock() - self._begin

    @property
    def left(self) -> float:
        """Seconds that are left by the clock; 0 when it is over."""
        return max(0.0, self.limit - self.spent)

    @property
    def work_left(self) -> float:
        """Seconds of expected work that are left: the same for the same call, whatever the clock says."""
        return max(0.0, self.work - self.expected)

    @property
    def is_over(self) -> bool:
        """Whether nothing is left by the clock."""
        return self.spent > self.limit

    def check(self, stage: str = "") -> None:
        """`LateError` when it is over; `stage` says in the error where the time ran out."""
        if self.is_over:
            raise self._late(stage, self.spent, self.limit)

    def charge(self, seconds: float, stage: str = "") -> None:
        """Take so many seconds of expected work from what is left; `LateError` where they are not."""
        self.check(stage)
        if self.expected + seconds > self.work:
            raise self._late(stage, self.expected + seconds, self.work)
        self._spend(seconds)

    def error(self, what: str) -> LateError:
        """What to raise for something that would need more time than there is."""
        return LateError(what, self.spent, self.limit, "seconds or more", self._remedy)

    def part(self, share: float, what: str = "A stage of planning") -> Deadline:
        """A limit for the next stage, which may take this share of the expected work that is left.

        By the clock it may take somewhat more: on a busy machine, too, it is the work that decides.
        """
        limits = {"limit": self.left * math.sqrt(share), "work": self.work_left * share}
        part = Deadline(**limits, what=what, remedy=self._remedy, clock=self._clock)
        part._outer = self
        return part

    def _spend(self, seconds: float) -> None:
        self.expected += seconds
        if self._outer is not None:
            self._outer._spend(seconds)

    def _late(self, stage: str, seconds: float, limit: float) -> LateError:
        what = f"{self.what} ({stage})" if stage else self.what
        return LateError(what, seconds, limit, "seconds or more", self._remedy)

    def __enter__(self) -> Deadline:
        self._tokens.append(call.enter(call.current().with_deadline(self)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del kind, error, trace
        call.leave(self._tokens.pop())


NO_DEADLINE = Deadline(math.inf)


def current() -> Deadline:
    """The limit of the call that is being planned; without one, a limit that is never over."""
    return call.current().deadline or NO_DEADLINE


def watch(items: Iterable[_Item], stage: str) -> Iterator[_Item]:
    """The items one by one, with a look at the limit now and then."""
    for k, item in enumerate(items):
        if k % _LOOK == 0:
            current().check(stage)
        yield item


def planning_deadline(seconds: float | None, is_saved: bool = False) -> Deadline:
    """The limit on the planning of a call that may take so many seconds as a whole; None: a call without a limit.

    A call that is saved may go on later, with more time: its plan is that of a call without a limit.
    """
    if is_saved:
        return Deadline(max(PLANNING if seconds is None else seconds, _MOMENT), work=_WORK * PLANNING)
    limit = PLANNING if seconds is None else min(PLANNING, PLANNING_SHARE * seconds)
    # A call with very little time may take a moment longer: a plan that is nearly there is better than none.
    return Deadline(max(_CLOCK * limit, _MOMENT), work=_WORK * limit)
