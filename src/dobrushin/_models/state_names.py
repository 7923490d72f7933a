"""Names of states: reading them from arguments, and showing them in results.

Internally the states of a variable are numbered from 0, or are -1 and +1.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dobrushin._shared import validate as check
from dobrushin._shared.arrays import Array, without_repeats
from dobrushin._shared.text import counted, hint, nearest
from dobrushin.errors import ArgumentError

if TYPE_CHECKING:
    from dobrushin._models.model import Model

Names = tuple[Hashable, ...]
_KINDS = "a tuple of names for all variables, a dict from labels to names, or a list of names by position"
# Names of states that a message lists; of more names, only those similar to the given value are listed.
_MAX_LISTED = 8


class StateNames(NamedTuple):
    """The names of the states of all variables: the same for all (`common`), or by position (`own`)."""

    common: Names | None = None
    own: Sequence[Names | None] = ()  # None where a variable has no names
    of_spins: bool = False  # the states 0, 1 stand for spins; functions of states get -1, +1

    def at(self, i: int) -> Names | None:
        return self.own[i] if self.common is None else self.common

    def restrict(self, positions: Array) -> StateNames:
        """Return the names of the states of some variables, in the order of `positions`."""
        if self.common is not None:
            return self
        return self._replace(own=tuple(self.own[i] for i in positions.tolist()))


def call_states(states: Array, names: Names | None, spins: bool) -> Array:
    """Return an array of a variable's states as names, or unchanged if they have no names."""
    if names is None:
        return states
    digits = states.astype(np.int64)
    return np.array([*names, None], dtype=object)[:-1][(digits + 1) // 2 if spins else digits]


class NamesByLabel(Mapping[Hashable, Names]):
    """Mapping from labels to the names of the states; variables without names of states are left out."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def __getitem__(self, label: Hashable) -> Names:
        position = check.label_position(label, self._model.labels, self._model._lookup)
        names = None if position is None else self._model._names_at(position)
        if names is None:
            raise KeyError(label)
        return names

    def __iter__(self) -> Iterator[Hashable]:
        names = self._model._state_names
        if names is None:
            return iter(())
        return (label for i, label in enumerate(self._model.labels) if names.at(i) is not None)

    def __len__(self) -> int:
        names = self._model._state_names
        if names is None:
            return 0
        return self._model.n_variables if names.common else sum(own is not None for own in names.own)

    def __repr__(self) -> str:
        shown = [f"{label!r}: {self[label]!r}" for label, _ in zip(self, range(5), strict=False)]
        return "{" + ", ".join(shown[:4]) + (", ..." if len(shown) > 4 else "") + "}"


def read_state_names(value: Any, model: Model) -> StateNames | None:
    """Read the argument `state_names` of a family; None if no variable has names."""
    if value is None or isinstance(value, StateNames):
        return value
    if isinstance(value, Mapping):
        own: list[Names | None] = [None] * model.n_variables
        if not value:
            return None
        known = check.positions(list(value), model.labels, model._lookup, "state_names")
        for i, (label, names) in zip(known.tolist(), value.items(), strict=True):
            own[i] = read_names(names, int(model.cardinalities[i]), f"label {label!r}")
        return StateNames(own=tuple(own))
    if not check.is_several(value):
        raise ArgumentError("state_names", _KINDS, value)
    items = list(value)
    if items and all(item is None or isinstance(item, list | tuple) for item in items):
        return _read_list(items, model)
    sizes = without_repeats(model.cardinalities)
    if (other := sizes != len(items)).any():
        where = f"label {model.labels[int(np.argmax(other))]!r}"
        requirement = f"as many names as variables have states ({int(sizes[other][0])})"
        raise ArgumentError("state_names", requirement, got=counted(len(items), "name"), where=where)
    return StateNames(common=read_names(items, len(items), ""))


def _read_list(items: list[Any], model: Model) -> StateNames | None:
    if len(items) != model.n_variables:
        requirement = f"names for each of {counted(model.n_variables, 'variable')}"
        raise ArgumentError("state_names", requirement, got=f"{len(items)} entries")
    sizes = model.cardinalities.tolist()
    own = tuple(None if names is None else read_names(names, sizes[i], f"index {i}") for i, names in enumerate(items))
    if all(names is None for names in own):
        return None
    return StateNames(common=own[0]) if len(set(own)) == 1 else StateNames(own=own)


def read_names(value: Any, size: int, where: str = "") -> Names:
    """Read the names of the states of one variable, or of all variables."""
    if not check.is_several(value):
        raise ArgumentError("state_names", "a tuple of names for each variable", value, where)
    names = tuple(value)
    if not all(isinstance(name, Hashable) and name is not None and name == name for name in names):
        raise ArgumentError("state_names", "names that are hashable (strings, say), and not None", names, where)
    if len(names) != size:
        raise ArgumentError("state_names", f"{size} names, one for each state", names, where)
    if len(set(names)) < size:
        raise ArgumentError("state_names", "different names for different states", names, where)
    return names


# -- states that callers give ------------------------------------------------------------------


def read_evidence(model: Model, evidence: Any) -> dict[int, int]:
    """Return evidence as a dict from positions to observed states; the user may give states by name or number."""
    check.evidence(evidence)
    if not evidence:
        return {}
    positions = check.positions(list(evidence), model.labels, model._lookup, "evidence")
    if model._state_names is None and (states := _read_numbers(model, positions, evidence.values())) is not None:
        return dict(zip(positions.tolist(), states, strict=True))
    return {
        i: read_state(model, i, value, "evidence")
        for i, value in zip(positions.tolist(), evidence.values(), strict=True)
    }


def _read_numbers(model: Model, positions: Array, values: Iterable[Any]) -> list[int] | None:
    """Read the states of variables without state names all at once; None unless all are valid state numbers."""
    numbers = list(values)
    if not all(map(check.is_whole, numbers)):
        return None
    states = list(map(int, numbers))
    array = np.array(states)
    is_state = abs(array) == 1 if model._spins else (array >= 0) & (array < model.cardinalities[positions])
    return states if is_state.all() else None


def shown_evidence(model: Model, observed: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
    """Return evidence for display, with names of states where variables have them."""
    if model._state_names is None:
        return dict(observed)
    positions = [(label, model.index(label)) for label in observed]
    return {label: model._called(i)[model._states_at(i).index(observed[label])] for label, i in positions}


def read_state(model: Model, i: int, value: Any, argument: str) -> int:
    """Return the number of a state that the user gave by name or number."""
    states, names = model._states_at(i), model._names_at(i)
    if names is not None and isinstance(value, Hashable) and value in names:
        return states[names.index(value)]
    if is_number_of_state(value, states, names):
        return int(value)
    where = f"label {model.labels[i]!r}"
    raise ArgumentError(argument, expected_states(model, i, value), value, where)


def is_number_of_state(value: Any, states: range, names: Sequence[Hashable] | None) -> bool:
    """Return whether a value that is not a state's name is the number of a state.

    A number is refused as ambiguous if names are numbers, or if it is spelled like the name of another state.
    """
    if not check.is_real(value) or value not in states:
        return False
    if names is None:
        return True
    if any(check.is_real(name) for name in names):
        return False
    return str(int(value)) not in names or names.index(str(int(value))) == states.index(int(value))


def expected_states(model: Model, i: int, value: Any) -> str:
    """Return a list of a variable's states for a message; if there are many, only those similar to the given value."""
    states, names = model._states_at(i), model._names_at(i)
    if names is None:
        listed = "-1, +1" if states.step == 2 else f"0 to {len(states) - 1}"
    elif len(names) <= _MAX_LISTED:
        listed = ", ".join(map(repr, names))
    else:
        shown = nearest(value, names) or list(names[:_MAX_LISTED])
        listed = ", ".join(map(repr, shown)) + ", ..."
    close = hint(value, names) if names is not None and len(names) <= _MAX_LISTED else ""
    return f"one of the states {listed} of {model.labels[i]!r}{close}"
