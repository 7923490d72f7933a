"""Segments: the pieces that a scan is kept as. What differs between fixed and random steps is here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from dobrushin._models.near import Numbering
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import Array, Floats, Ints, frozen
from dobrushin.errors import ArgumentError


@dataclass(frozen=True, eq=False)
class Cycle:
    """`steps` steps through a cycle of positions, from its place `first`."""

    cycle: range | Ints  # a range is 0..n-1
    first: int
    steps: int
    is_random: ClassVar[Literal[False]] = False

    @property
    def is_systematic(self) -> bool:
        """Whether the cycle is 0..n-1."""
        return isinstance(self.cycle, range)

    @property
    def period(self) -> int:
        """Steps after which the positions come again."""
        return len(self.cycle)

    def array(self) -> Ints:
        """The cycle as an array."""
        return np.arange(len(self.cycle)) if isinstance(self.cycle, range) else self.cycle

    def at(self, steps: Ints) -> Ints:
        """The positions that these steps update."""
        place = (self.first + steps) % len(self.cycle)
        return place if self.is_systematic else self.array()[place]

    def order(self) -> Ints:
        """The positions, step by step, as an array of its own."""
        if self.steps < len(self.cycle):
            return self.at(np.arange(self.steps))
        return np.resize(np.roll(self.array(), -self.first), self.steps)

    def cut(self, lo: int, hi: int) -> Cycle:
        """Steps lo to hi."""
        return Cycle(self.cycle, (self.first + lo) % len(self.cycle), hi - lo)

    def trim(self) -> Cycle:
        """Drop the positions of the cycle that the steps do not reach."""
        return self if self.steps >= len(self.cycle) else Cycle(self.order(), 0, self.steps)

    def within(self, part: Numbering) -> Cycle:
        """Renumber the steps for a part that holds all positions that they reach."""
        used = self.trim()
        return Cycle(frozen(part.own(used.array())), used.first, used.steps)

    def updates(self) -> Ints:
        """Positions that some step updates, perhaps more than once."""
        return self.trim().array()

    def counts(self) -> Array:
        """How often each position occurs."""
        whole, rest = divmod(self.steps, len(self.cycle))
        size = self.size()
        counts = np.bincount(self.cut(0, rest).order(), minlength=size)
        return counts + whole * np.bincount(self.array(), minlength=size) if whole else counts

    def size(self) -> int:
        """One more than the largest position."""
        if self.is_systematic and self.steps >= len(self.cycle):
            return len(self.cycle)
        return 1 + int(self.updates().max(initial=-1))

    def roundings(self, width: int) -> int:
        """Count the roundings of one entry through all steps, for rows of up to `width` influences."""
        return (width + 1) * self.steps

    def check_fits(self, n: int, step: int) -> None:
        """Fail at the first step that updates a variable beyond `n`; the steps are counted from `step`."""
        if self.size() > n:
            order = self.cut(0, min(self.steps, len(self.cycle))).order()
            k = int(np.argmax(order >= n))
            requirement = f"of positions from 0 to {n - 1}"
            raise ArgumentError("scan", requirement, int(order[k]), f"step {step + k}")

    def to_arrays(self) -> dict[str, Any]:
        """The segment as arrays by name."""
        order = np.array(len(self.cycle)) if self.is_systematic else self.cycle
        return {"cycle": np.array([self.first, self.steps], dtype=np.int64), "order": order}

    @classmethod
    def from_arrays(cls, arrays: dict[str, Any]) -> Cycle:
        """The inverse of `to_arrays`."""
        first, steps = (int(v) for v in arrays["cycle"])
        order = arrays["order"]
        cycle = range(check.count(int(order), "order")) if order.ndim == 0 else read_order(order)
        if not 0 <= first < len(cycle) or steps < 1:
            raise ValueError
        return cls(cycle, first, steps)

    def __str__(self) -> str:
        if self.is_systematic:
            return f"systematic over {len(self.cycle)}{f' from {self.first}' if self.first else ''}"
        shown = self.cut(0, min(self.steps, 8)).order()
        return f"order=[{' '.join(map(str, shown))}{' ...' if self.steps > 8 else ''}]"


@dataclass(frozen=True, eq=False)
class Draw:
    """`steps` independent steps, each with the same probabilities (None: uniform on 0..n-1)."""

    n: int
    probabilities: Floats | None
    steps: int
    is_random: ClassVar[Literal[True]] = True
    period: ClassVar[int] = 1

    def vector(self) -> Floats:
        """Probability of each position."""
        return np.full(self.n, 1.0 / self.n) if self.probabilities is None else self.probabilities

    def cut(self, lo: int, hi: int) -> Draw:
        """Steps lo to hi."""
        return Draw(self.n, self.probabilities, hi - lo)

    def within(self, part: Numbering) -> Draw:
        """Renumber the steps for a part that holds all positions that they reach."""
        q, reached = np.zeros(part.size), self.updates()
        q[part.own(reached)] = self.vector()[reached]
        return Draw(part.size, frozen(q), self.steps)

    def updates(self) -> Ints:
        """Positions that some step can update."""
        return np.flatnonzero(self.vector())

    def counts(self) -> Floats:
        """Expected number of occurrences of each position."""
        return self.steps * self.vector()

    def size(self) -> int:
        """Number of positions."""
        return self.n

    def roundings(self, width: int) -> int:
        """Count the roundings of one entry through all steps, for rows of up to `width` influences."""
        return (width + 5) * self.steps

    def check_fits(self, n: int, step: int) -> None:
        """Fail if the steps, of which the first has number `step`, choose among more than `n` variables."""
        if self.n > n:
            raise ArgumentError("scan", f"over {n} variables", got=f"{self.n} variables", where=f"step {step}")

    def to_arrays(self) -> dict[str, Any]:
        """The segment as arrays by name."""
        arrays: dict[str, Any] = {"draw": np.array([self.n, self.steps], dtype=np.int64)}
        return arrays if self.probabilities is None else {**arrays, "probabilities": self.probabilities}

    @classmethod
    def from_arrays(cls, arrays: dict[str, Any]) -> Draw:
        """The inverse of `to_arrays`."""
        n, steps = (int(v) for v in arrays["draw"])
        check.count(steps, "steps")
        if (q := arrays.get("probabilities")) is None:
            return cls(check.count(n, "n"), None, steps)
        read_probabilities(q)
        # Normalised before it was written: not again, which would change the last digits.
        return cls(len(q), frozen(q), steps)

    def __str__(self) -> str:
        return f"{'uniform' if self.probabilities is None else 'random'} over {self.n}"


# Told apart by `is_random`.
Segment = Cycle | Draw


def read_order(order: Any) -> Ints:
    """Positions, at least one."""
    try:
        array = np.asarray(order)
    except ValueError:
        array = np.empty(())
    if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
        raise ArgumentError("order", "a sequence of positions", order)
    check.all_entries((array >= 0) & (array < 2**60), array, "order", "non-negative positions")
    if not array.size:
        raise ArgumentError("order", "at least one step", order)
    return frozen(array.astype(np.int64))


def read_probabilities(probabilities: Any) -> Floats:
    """Numbers that sum to 1, nearly; not normalised."""
    q = check.real_array(probabilities, "probabilities")
    if q.ndim != 1 or not q.size:
        raise ArgumentError("probabilities", "one number per variable", probabilities)
    check.all_entries((q >= 0) & (q <= 1), q, "probabilities", "between 0 and 1")
    if abs(q.sum() - 1) > 1e-9:
        raise ArgumentError("probabilities", "numbers that sum to 1", got=f"the sum {q.sum()!r}")
    return q
