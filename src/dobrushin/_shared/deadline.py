"""How long the planning of a call may take as a whole, for stages that look at it now and then.

The clock is the last guard. Stages decide by the work that they expect, so that the same call gives the same plan.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextvars import ContextVar, Token
from types import TracebackType

from dobrushin.errors import BudgetError

# Seconds that planning may take when a call says nothing about time, and the part of the call's time when it does.
PLANNING, PLANNING_SHARE = 30.0, 0.25
_REMEDY = "Ask for fewer targets or a larger tolerance, or for one method by name."


class Deadline:
    """A limit in seconds that runs from the moment it is made.

    In a `with` statement it becomes the current one, which stages far below ask for (`current`); the one before it
    comes back at the end.

    Attributes
    ----------
    limit : float
        Seconds; may be infinite.
    what : str
        What has this limit, as an error calls it.
    """

    def __init__(
        self,
        limit: float,
        what: str = "Planning",
        *,
        remedy: str = _REMEDY,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limit, self.what, self._remedy, self._clock = limit, what, remedy, clock
        self._begin = clock()
        self._tokens: list[Token[Deadline]] = []

    @property
    def spent(self) -> float:
        """Seconds since it was made."""
        return self._clock() - self._begin

    @property
    def left(self) -> float:
        """Seconds that are left; 0 when it is over."""
        return max(0.0, self.limit - self.spent)

    @property
    def is_over(self) -> bool:
        """Whether nothing is left."""
        return self.spent > self.limit

    def check(self, stage: str = "") -> None:
        """`BudgetError` when it is over; `stage` says in the error where the time ran out."""
        if self.is_over:
            raise self.error(f"{self.what} ({stage})" if stage else self.what)

    def error(self, what: str) -> BudgetError:
        """What to raise for something that would need more time than there is."""
        return BudgetError(what, self.spent, self.limit, "seconds or more", self._remedy)

    def part(self, share: float) -> Deadline:
        """A limit for the next stage, which may take this share of what is left."""
        return Deadline(self.left * share, self.what, remedy=self._remedy, clock=self._clock)

    def __enter__(self) -> Deadline:
        self._tokens.append(_CURRENT.set(self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del kind, error, trace
        _CURRENT.reset(self._tokens.pop())


NO_DEADLINE = Deadline(math.inf)
_CURRENT: ContextVar[Deadline] = ContextVar("dobrushin_deadline", default=NO_DEADLINE)


def current() -> Deadline:
    """The limit of the call that is being planned; without one, a limit that is never over."""
    return _CURRENT.get()


def planning_deadline(seconds: float | None) -> Deadline:
    """The limit on the planning of a call that may take so many seconds as a whole; None: a call without a limit."""
    return Deadline(PLANNING if seconds is None else min(PLANNING, PLANNING_SHARE * seconds))
