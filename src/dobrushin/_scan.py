"""Scans: which variable each step of a Gibbs sampler updates."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any, ClassVar, Literal
from zipfile import BadZipFile

import numpy as np
from numpy.typing import ArrayLike

from dobrushin._kernels.waves import levels
from dobrushin._models.model import Model
from dobrushin._models.near import Numbering
from dobrushin._models.sources import as_model
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import Array, Floats, Ints, distinct, frozen
from dobrushin._shared.call import public
from dobrushin._shared.text import card, counted
from dobrushin.errors import ArgumentError

if TYPE_CHECKING:
    from dobrushin.typing import ModelLike


@dataclass(frozen=True, eq=False)
class Cycle:
    """Segment of a scan: `steps` updates in the order of a cycle of positions, beginning at its index `first`."""

    cycle: range | Ints  # positions; a range stands for 0..n-1
    first: int
    steps: int
    is_random: ClassVar[Literal[False]] = False

    @property
    def is_systematic(self) -> bool:
        return isinstance(self.cycle, range)

    @property
    def period(self) -> int:
        """Number of steps after which the cycle of updates repeats."""
        return len(self.cycle)

    def array(self) -> Ints:
        return np.arange(len(self.cycle)) if isinstance(self.cycle, range) else self.cycle

    def at(self, steps: Ints) -> Ints:
        """Return the positions that are updated in the steps with these numbers."""
        place = (self.first + steps) % len(self.cycle)
        return place if self.is_systematic else self.array()[place]

    def order(self) -> Ints:
        """Return the updated positions, one for each step, as a new array."""
        if self.steps < len(self.cycle):
            return self.at(np.arange(self.steps))
        return np.resize(np.roll(self.array(), -self.first), self.steps)

    def cut(self, lo: int, hi: int) -> Cycle:
        """Return the segment of steps `lo` to `hi` - 1."""
        return Cycle(self.cycle, (self.first + lo) % len(self.cycle), hi - lo)

    def within(self, part: Numbering) -> Cycle:
        """Renumber the positions for a submodel that contains all updated positions."""
        return Cycle(frozen(part.own(self.updates())), 0 if self.steps < len(self.cycle) else self.first, self.steps)

    def updates(self) -> Ints:
        """Return the positions of the cycle, or of its first steps if there are fewer; some may be repeated."""
        return self.order() if self.steps < len(self.cycle) else self.array()

    def counts(self) -> Array:
        whole, rest = divmod(self.steps, len(self.cycle))
        counts = np.bincount(self.cut(0, rest).order(), minlength=self.size())
        return counts + whole * np.bincount(self.array(), minlength=self.size()) if whole else counts

    def size(self) -> int:
        """Return one more than the largest updated position."""
        if self.is_systematic and self.steps >= len(self.cycle):
            return len(self.cycle)
        return 1 + int(self.updates().max(initial=-1))

    def __str__(self) -> str:
        if self.is_systematic:
            return f"systematic over {len(self.cycle)}{f' from {self.first}' if self.first else ''}"
        shown = self.cut(0, min(self.steps, 8)).order()
        return f"order=[{' '.join(map(str, shown))}{' ...' if self.steps > 8 else ''}]"


@dataclass(frozen=True, eq=False)
class Draw:
    """Segment of a scan: `steps` updates of positions drawn independently, by default uniformly from 0..n-1."""

    n: int
    probabilities: Floats | None
    steps: int
    is_random: ClassVar[Literal[True]] = True
    period: ClassVar[int] = 1

    def vector(self) -> Floats:
        return np.full(self.n, 1.0 / self.n) if self.probabilities is None else self.probabilities

    def cut(self, lo: int, hi: int) -> Draw:
        """Return a segment with the number of steps from `lo` to `hi` - 1."""
        return Draw(self.n, self.probabilities, hi - lo)

    def within(self, part: Numbering) -> Draw:
        """Renumber the positions for a submodel that contains all updated positions."""
        q, reached = np.zeros(part.size), self.updates()
        q[part.own(reached)] = self.vector()[reached]
        return Draw(part.size, frozen(q), self.steps)

    def updates(self) -> Ints:
        """Return the positions with positive probability."""
        return np.flatnonzero(self.vector())

    def counts(self) -> Floats:
        return self.steps * self.vector()

    def size(self) -> int:
        return self.n

    def __str__(self) -> str:
        return f"{'uniform' if self.probabilities is None else 'random'} over {self.n}"


Segment = Cycle | Draw  # `is_random` says which one


def read_order(order: Any) -> Ints:
    """Check an order of updates, which must not be empty, and return its positions as an array."""
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
    """Check the probabilities of variables (they must sum to 1 up to 1e-9) and return them as given."""
    q = check.real_array(probabilities, "probabilities")
    if q.ndim != 1 or not q.size:
        raise ArgumentError("probabilities", "one number per variable", probabilities)
    check.all_entries((q >= 0) & (q <= 1), q, "probabilities", "between 0 and 1")
    if abs(q.sum() - 1) > 1e-9:
        raise ArgumentError("probabilities", "numbers that sum to 1", got=f"the sum {q.sum()!r}")
    return q


class Scan:
    """An order in which a Gibbs sampler updates variables, fixed or random.

    Parameters
    ----------
    order : array of int
        Positions of the variables, first step first. Functions that take a model and a scan also take a list of labels.

    Notes
    -----
    A scan is the sequence of probability vectors q_1, ..., q_T of the paper; a fixed order has q_t = e_{i_t}.

    Examples
    --------
    >>> import dobrushin as db
    >>> scan = db.Scan([0, 1, 2]) + db.Scan.systematic(3, steps=5)
    >>> scan.order
    array([0, 1, 2, 0, 1, 2, 0, 1])
    >>> scan[-3:], len(scan), scan.counts()
    (Scan(steps=3, systematic over 3 from 2), 8, array([3, 3, 2]))
    >>> len(db.Scan.systematic(10**6, steps=10**8))
    100000000
    """

    @public()
    def __init__(self, order: ArrayLike) -> None:
        cycle = read_order(order)
        self._segments: tuple[Segment, ...] = (Cycle(cycle, 0, len(cycle)),)

    @classmethod
    @public()
    def systematic(cls, model: ModelLike | int, steps: int | None = None, *, sweeps: int | None = None) -> Scan:
        """Return a systematic scan: all variables are updated in their order, again and again.

        Parameters
        ----------
        model : Model, or the number of variables
        steps, sweeps : int
            Length of the scan: either in updates, or in sweeps of one update of each variable.

        Examples
        --------
        >>> import dobrushin as db
        >>> db.Scan.systematic(3, steps=7).order
        array([0, 1, 2, 0, 1, 2, 0])
        >>> db.Scan.systematic(db.Ising.grid(10, 10, couplings=0.2), sweeps=10)
        Scan(steps=1000, systematic over 100)
        """
        n = _size_of(model)
        return cls._of((Cycle(range(n), 0, _length(n, steps, sweeps)),))

    @classmethod
    @public()
    def uniform(cls, model: ModelLike | int, steps: int | None = None, *, sweeps: int | None = None) -> Scan:
        """Return a random scan: each step updates a variable drawn uniformly. Parameters are those of `systematic`.

        Examples
        --------
        >>> import dobrushin as db
        >>> db.Scan.uniform(4, steps=10)
        Scan(steps=10, uniform over 4)
        """
        n = _size_of(model)
        return cls._of((Draw(n, None, _length(n, steps, sweeps)),))

    @classmethod
    @public()
    def random(cls, probabilities: ArrayLike, steps: int) -> Scan:
        """Return a random scan: each step updates a variable drawn with these probabilities, one for each variable.

        Examples
        --------
        >>> import dobrushin as db
        >>> db.Scan.random([0.5, 0.25, 0.25], steps=8).counts()
        array([4., 2., 2.])
        """
        q = read_probabilities(probabilities)
        return cls._of((Draw(len(q), frozen(q / q.sum()), check.count(steps, "steps")),))

    @classmethod
    def _of(cls, segments: tuple[Segment, ...]) -> Scan:
        scan = cls.__new__(cls)
        scan._segments = segments
        return scan

    @property
    def is_random(self) -> bool:
        """Return whether some step updates a variable that is drawn at random."""
        return any(segment.is_random for segment in self._segments)

    @property
    def _size(self) -> int:
        """One more than the largest position that can be updated."""
        return max(segment.size() for segment in self._segments)

    @property
    @public()
    def order(self) -> Ints:
        """Positions of the updated variables, first step first; an `ArgumentError` is raised for random scans."""
        if self.is_random:
            raise ArgumentError("scan", "a fixed order, not a random one", self)
        orders = [segment.order() for segment in self._segments if not segment.is_random]
        return orders[0] if len(orders) == 1 else np.concatenate(orders)

    @public()
    def step_probabilities(self, t: int, n: int | None = None) -> Floats:
        """Return the probability with which step `t` (counted from 0) updates each of `n` variables: the vector q_t."""
        if not 0 <= t < len(self):
            raise ArgumentError("t", f"from 0 to {len(self) - 1}", t)
        return self[t : t + 1].counts(self._size if n is None else n).astype(np.float64)

    @public()
    def counts(self, n: int | None = None) -> Array:
        """Return how often each variable is updated; for random scans, the expected number.

        Parameters
        ----------
        n : int, optional
            Number of variables; default one more than the largest position.
        """
        n = self._size if n is None else check.count(n, "n", self._size)
        total: Array = np.zeros(n, dtype=np.float64 if self.is_random else np.int64)
        for segment in self._segments:
            counts = segment.counts()
            total[: len(counts)] += counts
        return total

    def _updates(self, n: int) -> Ints:
        """Return the sorted positions below `n` that some step can update."""
        if any(not s.is_random and s.is_systematic and s.steps >= s.period == n for s in self._segments):
            return np.arange(n)
        return distinct(np.concatenate([segment.updates() for segment in self._segments]), n)

    def _within(self, part: Numbering) -> Scan:
        """Renumber the scan for a submodel that contains all updated variables; `_lift` is the inverse."""
        return Scan._of(tuple(segment.within(part) for segment in self._segments))

    def _lift(self, part: Numbering | None) -> Scan:
        """Renumber the scan of a submodel for the whole model; without a `part`, return it unchanged."""
        if part is not None and self.is_random:
            return Scan.random(part.spread(self.counts(part.size) / len(self), 0.0), len(self))
        return self if part is None else Scan(part.positions[self.order])

    @public()
    def levels(self, model: Model) -> Ints:
        """Return a level for each step; steps of one level update variables that are not neighbours.

        These steps commute. Updating level by level gives the same law as updating step by step, and the same draws if
        each step has its own random numbers.

        Parameters
        ----------
        model : Model

        Returns
        -------
        array of int
            For each step the number of steps on the longest chain of dependent steps before it.

        Examples
        --------
        >>> import dobrushin as db
        >>> db.Scan.systematic(4, steps=8).levels(db.Ising({(0, 1): 0.1, (1, 2): 0.1, (2, 3): 0.1}))
        array([0, 1, 2, 3, 2, 3, 4, 5])
        """
        model = as_model(model)
        start, neighbor = model._form.adjacency
        self._check_fits(model.n_variables)
        return levels(frozen(self.order.astype(np.int32)), start, neighbor, model.n_variables)

    def _check_fits(self, n: int) -> None:
        """Raise `ArgumentError` if a step updates a position that a model of `n` variables does not have."""
        step = 0
        for segment in self._segments:
            if segment.size() > n:
                if segment.is_random:
                    requirement, got = f"over {counted(n, 'variable')}", counted(segment.n, "variable")
                    raise ArgumentError("scan", requirement, got=got, where=f"step {step}")
                order = segment.cut(0, min(segment.steps, segment.period)).order()
                k = int(np.argmax(order >= n))
                raise ArgumentError("scan", f"of positions from 0 to {n - 1}", int(order[k]), f"step {step + k}")
            step += segment.steps

    def __len__(self) -> int:
        return sum(segment.steps for segment in self._segments)

    def __iter__(self) -> Iterator[int]:
        return iter(self.order.tolist())

    def __add__(self, other: object) -> Scan:
        if not isinstance(other, Scan):
            return NotImplemented
        return Scan._of(self._segments + other._segments)

    @public()
    def __getitem__(self, key: int | slice) -> Any:
        if not isinstance(key, slice):
            if not isinstance(key, Integral):
                raise TypeError(f"steps of a scan are selected by a number or a slice, not by {key!r}")
            t = int(key) + (len(self) if key < 0 else 0)
            if not 0 <= t < len(self):
                raise IndexError(f"step {key} of a scan of {counted(len(self), 'step')}")
            return int(self[t : t + 1].order[0])
        lo, hi, stride = key.indices(len(self))
        if stride != 1:
            return Scan(self.order[key])
        pieces, before = [], 0
        for segment in self._segments:
            a, b = max(lo - before, 0), min(hi - before, segment.steps)
            if a < b:
                pieces.append(segment.cut(a, b))
            before += segment.steps
        if not pieces:
            raise ArgumentError("slice", "at least one step", key)
        return Scan._of(tuple(pieces))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Scan):
            return NotImplemented
        if len(self) != len(other):
            return False
        ends = np.unique(np.concatenate([np.cumsum([s.steps for s in scan._segments]) for scan in (self, other)]))
        n, start = max(self._size, other._size), 0
        for end in ends:
            mine, yours = self[start:end], other[start:end]
            if mine.is_random != yours.is_random:
                return False
            one, two = (s.step_probabilities(0, n) if s.is_random else s.order for s in (mine, yours))
            if (one != two).any():
                return False
            start = end
        return True

    __hash__ = None  # type: ignore[assignment]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the scan to a file in NumPy's .npz format; nothing is appended to the name.

        Examples
        --------
        >>> import dobrushin as db, tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "scan.npz"
        >>> db.Scan.systematic(5, steps=10**7).save(path)
        >>> len(db.Scan.load(path)), path.stat().st_size < 2000
        (10000000, True)
        """
        with open(path, "wb") as file:
            np.savez_compressed(file, **self._to_arrays())

    def _to_arrays(self) -> dict[str, Any]:
        arrays: dict[str, Any] = {"format": np.array("dobrushin scan 1")}
        for k, segment in enumerate(self._segments):
            if segment.is_random:
                arrays[f"{k}.draw"] = np.array([segment.n, segment.steps], dtype=np.int64)
                if segment.probabilities is not None:
                    arrays[f"{k}.probabilities"] = segment.probabilities
            else:
                arrays[f"{k}.cycle"] = np.array([segment.first, segment.steps], dtype=np.int64)
                arrays[f"{k}.order"] = np.array(segment.period) if segment.is_systematic else segment.cycle
        return arrays

    @classmethod
    def _from_arrays(cls, arrays: dict[str, Any]) -> Scan:
        """Return the scan that `_to_arrays` turned into arrays; raise KeyError or ValueError for other arrays."""
        arrays = dict(arrays)
        if str(arrays.pop("format")) != "dobrushin scan 1":
            raise ValueError
        segments: list[Segment] = []
        while arrays:
            k = len(segments)
            if f"{k}.cycle" in arrays:
                (first, steps), order = map(int, arrays.pop(f"{k}.cycle")), arrays.pop(f"{k}.order")
                cycle = range(check.count(int(order), "order")) if order.ndim == 0 else read_order(order)
                if not 0 <= first < len(cycle) or steps < 1:
                    raise ValueError
                segments.append(Cycle(cycle, first, steps))
                continue
            (n, steps), q = map(int, arrays.pop(f"{k}.draw")), arrays.pop(f"{k}.probabilities", None)
            check.count(steps, "steps")
            if q is not None:  # stored probabilities are normalised: doing so again would change their last digits
                n, q = len(q), frozen(read_probabilities(q))
            segments.append(Draw(check.count(n, "n"), q, steps))
        if not segments:
            raise ValueError
        return cls._of(tuple(segments))

    @classmethod
    @public()
    def load(cls, path: str | os.PathLike[str]) -> Scan:
        """Read a scan from a file that `save` wrote."""
        try:
            with open(path, "rb") as file, np.load(file, allow_pickle=False) as stored:
                return cls._from_arrays(dict(stored))
        except OSError as error:
            if error.errno is not None:
                raise
            raise ArgumentError("path", "a file that Scan.save wrote", os.fspath(path)) from None
        except (KeyError, ValueError, IndexError, EOFError, TypeError, BadZipFile, zlib.error):
            raise ArgumentError("path", "a file that Scan.save wrote", os.fspath(path)) from None

    def _repr_html_(self) -> str:
        parts = [str(segment) for segment in self._segments[:8]]
        return card(
            f"Scan of {len(self):,} steps", [("parts", " + ".join(parts) + " + ..." * (len(self._segments) > 8))]
        )

    def __repr__(self) -> str:
        more = ", ..." if len(self._segments) > 4 else ""
        return f"Scan(steps={len(self)}, {' + '.join(map(str, self._segments[:4]))}{more})"


def _size_of(model: Any) -> int:
    return check.count(model, "model") if check.is_whole(model) else as_model(model).n_variables


def _length(n: int, steps: int | None, sweeps: int | None) -> int:
    if (steps is None) == (sweeps is None):
        raise ArgumentError("steps", f"{'given' if steps is None else 'left out'}, or 'sweeps' must", steps)
    return check.count(steps, "steps") if sweeps is None else n * check.count(sweeps, "sweeps")


def as_scan(scan: Any, source: Any = None) -> Scan:
    """Return the argument `scan` of a call as a `Scan`.

    It may be a `Scan`, a `ScanResult`, or a list of labels of the variables of `source` in the order of updates.
    """
    scan = getattr(scan, "scan", scan)
    if isinstance(scan, Scan):
        return scan
    labels = [] if source is None or isinstance(scan, str) or not check.is_several(scan) else list(scan)
    if not labels:
        raise ArgumentError("scan", "a Scan, a ScanResult or variables in the order of their updates", scan)
    order: list[Any] = [check.label_position(label, source.labels, source._lookup) for label in labels]
    if None in order:
        label = labels[step := order.index(None)]
        raise ArgumentError("scan", f"of {check.expected_labels(source.labels, label)}", label, f"step {step}")
    return Scan(order)
