"""What a run keeps."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any

from dobrushin._shared import validate as check
from dobrushin.errors import ArgumentError


@dataclass(frozen=True)
class Record:
    """What `sample` keeps of a run.

    Parameters
    ----------
    variables : labels, optional
        Which variables; default all that the scan can see (those it updates, and their neighbours).
    every : int, optional
        Keep the states after every so many steps; default only after the last.
    states : bool
        Keep the states themselves.
    counts : bool
        Count how often each variable is in each state, over all chains and kept steps.

    Examples
    --------
    >>> import dobrushin as db
    >>> model = db.Ising.grid(4, 4, couplings=0.2)
    >>> keep = db.Record(variables=[0], every=16, states=False, counts=True)
    >>> run = db.sample(model, db.Scan.systematic(16, 160), chains=100, seed=1, record=keep)
    >>> int(run.counts.sum())
    1000
    """

    variables: Iterable[Hashable] | None = None
    every: int | None = None
    states: bool = True
    counts: bool = False

    def __post_init__(self) -> None:
        if self.variables is not None:
            if isinstance(self.variables, str) or not isinstance(self.variables, Iterable):
                raise ArgumentError("Record", "variables", "labels", self.variables)
            object.__setattr__(self, "variables", tuple(self.variables))
        if self.every is not None:
            check.count(self.every, "Record", "every")
        if not self.states and not self.counts:
            raise ArgumentError("Record", "states", "True when 'counts' is False: something must be kept", self.states)


def read_record(record: Any) -> Record:
    """A Record, or one of its short forms: None, "final", "counts", or labels."""
    if isinstance(record, Record):
        return record
    if record is None or (isinstance(record, str) and record == "final"):
        return Record()
    if isinstance(record, str) and record == "counts":
        return Record(states=False, counts=True)
    if isinstance(record, Iterable) and not isinstance(record, str):
        return Record(variables=list(record))
    raise ArgumentError("sample", "record", "None, 'final', 'counts', labels or a Record", record)
