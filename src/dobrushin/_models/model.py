"""The base class of all models."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dobrushin._models.derived import merge, split_evidence
from dobrushin._models.forms import Form, ImpossibleEvidence, PartSource, Variables
from dobrushin._models.graph import WithGraph
from dobrushin._models.memory import Memory, lasting
from dobrushin._models.near import ModelPart, Numbering, ScanRegion, find_ball, region_of
from dobrushin._models.state_names import Names, NamesByLabel, StateNames, read_evidence, read_state_names
from dobrushin._shared import validate as check
from dobrushin._shared.arrays import Array, Floats, Ints
from dobrushin._shared.call import public
from dobrushin._shared.text import card, counted
from dobrushin.errors import ArgumentError
from dobrushin.typing import Evidence, NamesOfStates

if TYPE_CHECKING:
    from typing import Self

    from dobrushin._models.factors import FactorGraph


# Numbers that `log_density` keeps in memory at a time, about 64 MB.
_CHUNK_NUMBERS = 8_000_000
# Hexadecimal digits of a fingerprint: 2^-64 is the chance that two models share them.
_FINGERPRINT_DIGITS = 16


class Model(WithGraph):
    """Base class of all models: a distribution on finitely many discrete variables, up to its normalising constant.

    Variables have labels (0..n-1 unless given) and positions (always 0..n-1). States are -1/+1 in `Ising` and `SpinMRF`
    and 0..k-1 in all others; arrays of states have shape ``(..., n_variables)``.

    States may have names: every family takes ``state_names``, which is a tuple of names for all variables, a dict from
    labels to such tuples, or a list of tuples by position. Evidence can then be given by names, and answers show names.
    Arrays of states, and functions of them, always use numbers.

    The constructor of a family reads its arguments and passes a form to this class: an internal representation of the
    distribution without labels and names, on which all inference works.
    """

    _form: Form  # the distribution without labels and names; a lazy model has none
    _state_names: StateNames | None = None
    _is_whole: bool = True  # whether the model is in memory; a lazy model is not
    _is_discrete: bool = True  # whether its variables have finitely many states

    @public()
    def __init__(self, form: Form, labels: Sequence[Hashable] | None = None, state_names: NamesOfStates = None) -> None:
        self._form = form
        self._labels = check.read_labels(labels, form.n_variables)
        self._name_states(read_state_names(state_names, self))

    @classmethod
    def _from_form(cls, form: Form, labels: Sequence[Hashable] | None, state_names: Any = None) -> Self:
        """Make a model of this family from its internal form, without calling the family's constructor."""
        model = cls.__new__(cls)
        Model.__init__(model, form, labels, state_names)
        return model

    def _name_states(self, names: StateNames | None) -> Self:
        """Set the names of the states of a new model, and return the model."""
        if names is not None:
            self._state_names = names
        return self

    @property
    def _lowered(self) -> Variables:
        """Return the model's internal form; for a lazy model the object that builds any part of it."""
        return self._form

    def __getstate__(self) -> dict[str, Any]:
        return lasting(self)

    @property
    def _error(self) -> float:
        """Return a bound on the error of the log-density from rounding potentials (see `Variables.error`)."""
        return self._lowered.error

    def _off_by(self, error: float) -> Self:
        """Increase the error bound of a new model, and return the model."""
        self._lowered.off_by(error)
        return self

    @cached_property
    def _memory(self) -> Memory:
        """Return the cache of values computed from the model.

        Values that do not depend on labels are cached in `Form.memory`.
        """
        return Memory()

    # -- variables -------------------------------------------------------------------------

    @property
    def n_variables(self) -> int:
        """Return the number of variables."""
        return len(self._labels)

    @property
    def labels(self) -> Sequence[Hashable]:
        """Return the names of the variables, by position (a `range` unless names were given)."""
        return self._labels

    @property
    def cardinalities(self) -> Ints:
        """Return the number of states of each variable."""
        return self._lowered.cardinalities

    @cached_property
    def _lookup(self) -> dict[Hashable, int] | None:
        return check.lookup_table(self._labels)

    @public()
    def index(self, label: Hashable) -> int:
        """Return the position of the variable with this label."""
        position = check.label_position(label, self._labels, self._lookup)
        if position is None:
            raise ArgumentError("label", check.expected_labels(self._labels, label), label)
        return position

    @property
    def state_names(self) -> Mapping[Hashable, Names]:
        """Return the names of the states of each variable, by label; variables without names of states are left out.

        Examples
        --------
        >>> import dobrushin as db
        >>> model = db.Ising({("sun", "rain"): -0.4}, state_names=("no", "yes"))
        >>> model.state_names["rain"]
        ('no', 'yes')
        >>> answer = db.estimate(model, "sun", evidence={"rain": "yes"})
        >>> answer.states, answer.value.round(2)
        (['no', 'yes'], array([0.69, 0.31]))
        """
        return NamesByLabel(self)

    def _names_at(self, i: int) -> Names | None:
        return None if self._state_names is None else self._state_names.at(i)

    def _called(self, i: int) -> Sequence[Any]:
        """Return the states of the variable at position `i` by name, or by number if they have no names."""
        return self._names_at(i) or self._states_at(i)

    def _names_of(self, positions: Array) -> StateNames | None:
        return None if self._state_names is None else self._state_names.restrict(positions)

    @public()
    def neighbors(self, i: int) -> NDArray[np.intp]:
        """Return the positions of the variables that share a term with the variable at position `i`."""
        self._check_position(i)
        start, neighbor = self._form.adjacency
        return neighbor[start[i] : start[i + 1]].astype(np.intp)

    @property
    def _spins(self) -> bool:
        return self._lowered.spins

    # -- probabilities ---------------------------------------------------------------------

    @public()
    def log_density(self, states: ArrayLike) -> Any:
        """Return the logarithm of the unnormalised probability of each row of `states`.

        Parameters
        ----------
        states : array of shape (..., n_variables)

        Returns
        -------
        float or array of shape (...)
            -inf for forbidden states.

        Examples
        --------
        >>> import dobrushin as db
        >>> db.Ising({(0, 1): 0.5}).log_density([[1, 1], [1, -1]])
        array([ 0.5, -0.5])
        """
        array = self._check_states(states)
        rows = array.reshape(-1, self.n_variables)
        step = max(1, _CHUNK_NUMBERS // max(1, self._form.numbers_per_state))
        parts = [self._form.log_density(rows[k : k + step]) for k in range(0, len(rows), step)]
        total = np.concatenate(parts) if parts else np.empty(0)
        return total.reshape(array.shape[:-1])[()]

    @public()
    def conditional(self, i: int, states: ArrayLike) -> Floats:
        """Return the law of the variable at position `i` given all other variables.

        Parameters
        ----------
        i : int
            Position of the variable.
        states : array of shape (..., n_variables)
            Its own entry is ignored.

        Returns
        -------
        array of shape (..., cardinality)
            Probabilities of its states in increasing order.

        Examples
        --------
        >>> import dobrushin as db
        >>> db.Potts({(0, 1): 1.0}, states=3).conditional(0, [0, 2]).round(3)
        array([0.212, 0.212, 0.576])
        """
        self._check_position(i)
        array = self._check_states(states)
        log_weights = self._form.log_weights(i, array)
        top = log_weights.max(axis=-1, keepdims=True)
        if (forbidden := np.isneginf(top[..., 0])).any():
            raise ArgumentError(
                "states",
                f"such that variable {self._labels[i]!r} has an allowed state",
                np.asarray(array)[check.first(forbidden)] if forbidden.ndim else array,
            )
        weights = np.exp(log_weights - top)
        return weights / weights.sum(axis=-1, keepdims=True)

    # -- other models made from this one ---------------------------------------------------

    @public()
    def condition(self, evidence: Evidence) -> Model:
        """Return the model of the remaining variables, given the values of some.

        Parameters
        ----------
        evidence : dict from label to state
            States by name or by number. A dict from states to likelihoods in place of a state is soft evidence:
            ``{"test": {"positive": 0.9, "negative": 0.2}}``. The variable stays, and the model becomes a `FactorGraph`.

        Returns
        -------
        Model
            With the remaining labels, of the same family (for a family of your own, of the built-in one with the same
            form). Its `log_density` differs from the original one by a constant.

        Examples
        --------
        >>> import dobrushin as db
        >>> rest = db.Ising({("a", "b"): 0.5, ("b", "c"): 0.2}).condition({"a": -1})
        >>> rest.labels, rest.fields
        (('b', 'c'), array([-0.5,  0. ]))
        """
        model, hard, soft = split_evidence(self, evidence, lambda _: True)
        rest = model._fix(model._read_evidence(hard))
        if soft and rest._state_names is not None:  # it has become a FactorGraph, whose states are 0, 1
            rest._name_states(rest._state_names._replace(of_spins=False))
        return rest

    def _read_evidence(self, evidence: Any) -> dict[int, Any]:
        """Return evidence as a dict from positions to observed states or values."""
        return read_evidence(self, evidence)

    def _fix(self, given: Mapping[int, Any]) -> Model:
        """Return the model of the remaining variables, given observed states as a dict from positions to states."""
        if not given:
            return self
        known = np.array(list(given), dtype=np.int64)
        if len(known) == self.n_variables:
            raise ArgumentError("evidence", "on fewer than all variables", got=counted(len(known), "value"))
        fixed = np.zeros(self.n_variables, dtype=bool)
        fixed[known] = True
        state: Array = np.zeros(self.n_variables, dtype=self._form.state_type)
        state[known] = list(given.values())
        try:
            rest = self._form.condition(fixed, state)
        except ImpossibleEvidence as fault:
            label = self._labels[fault.position]
            raise ArgumentError("evidence", fault.requirement, got=fault.got, where=f"label {label!r}") from None
        kept = np.flatnonzero(~fixed)
        return self._part_model(rest, self._labels_at(kept), kept)

    def _part_model(self, form: Form, labels: Sequence[Hashable], positions: Ints) -> Model:
        """Make the model of some variables from its internal form; it shares state names and cache with this model."""
        part = form.to_model(labels)._name_states(self._names_of(positions))
        part._memory.share(self._memory)
        return part

    @public()
    def merge(self, groups: Iterable[Iterable[Hashable]]) -> FactorGraph:
        """Return the model in which each group of variables is replaced by one joint variable.

        A Gibbs update of a joint variable is a block update of the group, so scans, certificates and
        samplers serve blocks without change.

        Parameters
        ----------
        groups : list of lists of labels
            Disjoint. Variables in no group stay single.

        Returns
        -------
        FactorGraph
            A joint variable takes the place of the first variable of its group; its label is the
            tuple of the group's labels, and its state is ``np.ravel_multi_index`` of the members'
            states (0..k-1, so -1 counts as 0) in the order given. Names of states are tuples of the members' names.

        Examples
        --------
        >>> import dobrushin as db
        >>> pairs = db.Ising.grid(2, 2, couplings=0.5).merge([[0, 1], [2, 3]])
        >>> pairs.labels, pairs.cardinalities
        (((0, 1), (2, 3)), array([4, 4]))
        """
        return merge(self, groups)

    def to_factor_graph(self) -> FactorGraph:
        """Convert the model to a `FactorGraph`, where -1/+1 become 0/1."""
        from dobrushin._models.factors import FactorGraph

        return FactorGraph._from_form(self._form.tables(), self._labels, self._state_names)

    # -- parts -----------------------------------------------------------------------------

    def _parts(self) -> PartSource | None:
        """Return an object that can build any part of the model by itself; None if this is impossible."""
        return self._form.parts()

    @property
    def _has_parts(self) -> bool:
        """Return whether any part of the model can be built without the rest."""
        return check.are_positions(self._labels) and self._parts() is not None

    def _near(self, centres: Ints, radius: int) -> ModelPart:
        """Build a model of the variables within `radius` edges of the centres (see `find_ball`)."""
        parts = self._parts()
        if parts is None:
            raise ArgumentError("model", "one without forbidden combinations of states", self)
        inside, inner = find_ball(parts, centres, radius)
        form = parts.part(inside, inner).off_by(parts.error)
        model = self._part_model(form, inside.tolist(), inside)
        return ModelPart(model, inner, Numbering(self.n_variables, inside))

    def _refuse_forbidden(self, evidence: Mapping[Any, int]) -> None:
        """Raise ArgumentError if an observed state is forbidden by its unary potential.

        The keys of `evidence` are positions.
        """
        parts = self._parts()
        if parts is None or not evidence:
            return
        known, digits = np.array(list(evidence), dtype=np.int64), np.array(list(evidence.values()), dtype=np.int64)
        if (forbidden := parts.is_forbidden(known, digits)).any():
            where = f"label {known[int(np.argmax(forbidden))]}"
            raise ArgumentError("evidence", "possible", got="a forbidden state", where=where)

    def _region(self, updated: Ints) -> tuple[Form, ScanRegion]:
        """Return the model's internal form, and its region around the updated variables (increasing positions).

        The region has these variables and their neighbours. A lazy model returns the form of this part only.
        """
        return self._form, region_of(self._form, updated)

    def _form_of(self, region: ScanRegion) -> Form:
        """Return the internal form of the model in which the region's variables have the positions `region.place`."""
        return self._form

    # -- identity --------------------------------------------------------------------------

    @property
    def fingerprint(self) -> str | None:
        """Return an identifier of the model: 16 hexadecimal digits.

        It depends on parameters, labels and names of states only.

        None for a `LocalModel`, which is lazy.

        Examples
        --------
        >>> import dobrushin as db
        >>> db.Ising({(0, 1): 0.5}).fingerprint
        '748bc6ad1abed6f7'
        """
        return self._fingerprint if self._is_whole else None

    @cached_property
    def _fingerprint(self) -> str:
        digest = hashlib.blake2b(digest_size=_FINGERPRINT_DIGITS // 2)
        digest.update(self._form.stored_as.encode())
        for name, array in sorted(self._form.to_arrays().items()):
            # One type, without negative zeros, so that equal numbers have equal bytes on every machine.
            plain = array.astype("<f8") + 0.0 if array.dtype.kind == "f" else array.astype("<i8")
            digest.update(f"\n{name} {plain.dtype.str} {len(plain)}\n".encode())
            digest.update(np.ascontiguousarray(plain).data if plain.size else b"")
        if not isinstance(self.labels, range):
            digest.update(f"\nlabels {_text(tuple(self.labels))}".encode("utf-8", "surrogatepass"))
        for label, names in self.state_names.items():
            digest.update(f"\nstates {_text((label, *names))}".encode("utf-8", "surrogatepass"))
        return digest.hexdigest()

    def __eq__(self, other: object) -> bool:
        """Return whether the other model has the same internal form, parameters, labels and names of states."""
        if self is other:
            return True
        if not isinstance(other, Model):
            return NotImplemented
        if not (self._is_whole and other._is_whole):
            return False
        mine, yours = self._form, other._form
        if mine.stored_as != yours.stored_as or self.n_variables != other.n_variables or self.labels != other.labels:
            return False
        if self._state_names != other._state_names and dict(self.state_names) != dict(other.state_names):
            return False
        if mine is yours:
            return True
        one, two = mine.to_arrays(), yours.to_arrays()
        return one.keys() == two.keys() and all(np.array_equal(one[name], two[name]) for name in one)

    def __hash__(self) -> int:
        if not self._is_whole:
            return object.__hash__(self)
        return hash((self._form.stored_as, self.n_variables, *self._form.counts.values()))

    # -- states ----------------------------------------------------------------------------

    @public()
    def states(self, i: int) -> range:
        """Return the states of the variable at position `i`: ``range(-1, 2, 2)`` for spins, ``range(k)`` otherwise."""
        self._check_position(i)
        return self._states_at(i)

    def _states_at(self, i: int) -> range:
        return range(-1, 2, 2) if self._spins else range(int(self.cardinalities[i]))

    def _labels_at(self, positions: Array) -> list[Hashable]:
        return [self._labels[i] for i in positions.tolist()]

    def __repr__(self) -> str:
        counts = {"n_variables": self.n_variables, **self._form.counts}
        return f"{type(self).__name__}({', '.join(f'{name}={count}' for name, count in counts.items())})"

    def _describe_states(self) -> tuple[str, str]:
        """Describe the states' numbers and names in one line, for notebooks."""
        least, most = int(self.cardinalities.min()), int(self.cardinalities.max())
        called = ", ".join(map(str, self._called(0)[:8])) + (", ..." if len(self._called(0)) > 8 else "")
        count = f"{least}" if least == most else f"{least} to {most}"
        return "states", f"{count}; those of {self.labels[0]}: {called}"

    def _repr_html_(self) -> str:
        labels = ", ".join(str(label) for label, _ in zip(self.labels, range(5), strict=False))
        more = ", ..." if self.n_variables > 5 else ""
        facts = [("variables", f"{self.n_variables:,}: {labels}{more}"), self._describe_states()]
        if self._is_whole:
            facts += [(name, f"{count:,}") for name, count in self._form.counts.items() if name != "states"]
            facts.append(("fingerprint", self._fingerprint))
        return card(repr(self), facts)

    def _check_position(self, i: int) -> None:
        if not check.is_whole(i) or not 0 <= i < self.n_variables:
            raise ArgumentError("i", f"a position from 0 to {self.n_variables - 1}", i)

    def _check_states(self, states: ArrayLike) -> Ints:
        array = check.real_array(states, "states")
        if array.ndim == 0 or array.shape[-1] != self.n_variables:
            raise ArgumentError("states", f"of shape (..., {self.n_variables})", got=f"shape {array.shape}")
        if self._spins:
            check.all_entries((array == 1) | (array == -1), array, "states", "-1 or +1")
        else:
            ok = (array >= 0) & (array < self.cardinalities) & (array == np.floor(array))
            check.all_entries(ok, array, "states", "from 0 to the variable's cardinality less one")
        return array.astype(np.int64)


def _text(name: Hashable) -> str:
    """Return a label as text, so that equal labels have equal texts."""
    if isinstance(name, tuple):
        return f"({','.join(map(_text, name))})"
    if isinstance(name, Real):
        whole = int(name) if isinstance(name, Integral) or float(name).is_integer() else float(name)
        return repr(whole)
    return repr(name)
