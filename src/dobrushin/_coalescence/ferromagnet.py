"""Ferromagnets: models whose random clusters can be drawn, after relabelling their states. [trusted]

Each coupling multiplies the weight by exp(K), K > 0, if x_j = turn(x_i), where `turn` permutes the states. Relabelling
the states of each variable (for spins: flipping some) turns every such condition into x_j = x_i. Each field favours one
state, and after relabelling all fields of a connected component favour the same state. Relabelled states are called
colours. Fields are treated as couplings to an additional variable, the ghost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dobrushin._coalescence.set_kernels import has_spin_pairs, spin_pairs
from dobrushin._kernels.clusters import align_states
from dobrushin._models import Model
from dobrushin._models.factors import FactorTables
from dobrushin._models.forms import Form, widen
from dobrushin._models.ising import SpinPairs
from dobrushin._models.memory import Slot
from dobrushin._models.potts import LabelPairs
from dobrushin._shared.arrays import UNIT, frozen, prefix_sums
from dobrushin._shared.text import printable
from dobrushin.errors import CertificateError

# Bound on the error of both thresholds of an edge together.
_EDGE_ERROR = 2.0**-49
_REMEDY = "Pass method='auto' to let the library choose another method."


@dataclass(frozen=True)
class Ferromagnet:
    """The random-cluster form of a model: its edges, their thresholds, and the relabelling of its states.

    Attributes
    ----------
    q : int
        Number of states of each variable.
    start, neighbor, twin, first : arrays
        Half-edges (each edge listed from both ends), as in `_kernels.clusters`.
    tied : array
        Variables with a field, each with an edge to the ghost.
    low, high : arrays
        Thresholds of the edges, with the edges to the ghost at the end. A random word below `low` opens an edge, a word
        from `high` on closes it, and a word in between opens it if its ends are connected.
    gauge : array of shape (n, q)
        State of each variable for each colour (relabelled state).
    favourite : array
        Colour of the ghost in the connected component of each variable.
    component : array
        Number of the connected component of each variable.
    error : float
        Bound on the error of the log-density by rounding of potentials.
    """

    q: int
    start: NDArray[np.int32]
    neighbor: NDArray[np.int32]
    twin: NDArray[np.int32]
    first: NDArray[np.int32]
    tied: NDArray[np.int32]
    low: NDArray[np.uint64]
    high: NDArray[np.uint64]
    gauge: NDArray[np.int16]
    favourite: NDArray[np.int64]
    component: NDArray[np.int32]
    error: float

    @property
    def edges(self) -> int:
        """Return the number of edges, including those to the ghost, which stands for the fields."""
        return len(self.low)

    @property
    def sweep_error(self) -> float:
        """Return a bound on the probability that rounding of thresholds changes an edge in a sweep."""
        return self.edges * _EDGE_ERROR

    def has_field(self, positions: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return, for each of these variables, whether some variable of its connected component has a field."""
        tied = np.zeros(int(self.component.max()) + 1, dtype=np.bool_)
        tied[self.component[self.tied]] = True
        return np.asarray(tied[self.component[positions]])


class _Pairs(NamedTuple):
    """The couplings and fields of a model, before its states are relabelled."""

    i: NDArray[Any]
    j: NDArray[Any]
    K: NDArray[np.float64]  # strength; negative where a table favours no permutation of states
    turn: NDArray[np.int64]  # number of the permutation that the pair favours
    turns: NDArray[np.int16]  # (permutations, q)
    H: NDArray[np.float64]  # strength of the field of each variable
    favourite: NDArray[np.int64]  # state that the field favours
    error: float


def read_ferromagnet(model: Model) -> Ferromagnet:
    """Return the random-cluster form of a model, made once; raise `CertificateError` if it is no ferromagnet."""
    found = model._form.memory.get(_READ, lambda: _read(model._form))
    if isinstance(found, _Refusal):
        labels = [printable(label) for label in model._labels_at(np.array(found.positions, dtype=np.int64))]
        raise CertificateError({"clusters": found.words.format(*labels)}, _REMEDY)
    return found


def is_ferromagnet(model: Model) -> bool:
    """Return whether the model is a ferromagnet after relabelling of states, so that random clusters can be drawn."""
    try:
        read_ferromagnet(model)
    except CertificateError:
        return False
    return True


class _Refusal(Exception):
    """Says why a model is no ferromagnet: a text with gaps for the labels of the variables at `positions`."""

    def __init__(self, words: str, *positions: int) -> None:
        super().__init__(words)
        self.words, self.positions = words, positions


def _read(form: Form) -> Ferromagnet | _Refusal:
    try:
        if form.has_zeros:
            raise _Refusal("the model forbids some states, and random clusters need a model that forbids none.")
        if (form.cardinalities != form.cardinalities[0]).any():
            k = int(np.argmax(form.cardinalities != form.cardinalities[0]))
            raise _Refusal("the variables {} and {} have different numbers of states.", 0, k)
        wider, read = widen(form, _READERS)
        return _assemble(form, read(wider))
    except _Refusal as refusal:
        return refusal


_READ: Slot[Ferromagnet | _Refusal] = Slot("ferromagnet")


def _of_spins(form: SpinPairs) -> _Pairs:
    i, j, theta = form.pairs()
    H, favourite = 2.0 * np.abs(form.fields), (form.fields > 0).astype(np.int64)
    turn = (theta < 0).astype(np.int64)
    return _Pairs(i, j, 2.0 * np.abs(theta), turn, _FLIPS, H, favourite, 0.0)


def _of_labels(form: LabelPairs) -> _Pairs:
    i, j, strength = form.pairs()
    turn, turns = np.zeros(len(strength), dtype=np.int64), np.arange(form.states, dtype=np.int16)[None]
    if form.states == 2:
        strength, turn, turns = np.abs(strength), (strength < 0).astype(np.int64), _FLIPS
    if form.given_unaries is None:
        zero = np.zeros(form.n_variables)
        return _Pairs(i, j, strength, turn, turns, zero, zero.astype(np.int64), 0.0)
    H, favourite = _one_favourite(form.given_unaries)
    return _Pairs(i, j, strength, turn, turns, H, favourite, 4.0 * UNIT * float(np.abs(form.given_unaries).sum()))


def _of_tables(form: FactorTables) -> _Pairs:
    arity = np.diff(form.scope_start)
    if (arity > 2).any():
        scope = form.scope[form.scope_start[np.argmax(arity > 2)] :].tolist()
        raise _Refusal(
            "the variables {}, {} and {} share a factor, and random clusters are drawn only for pairwise models.",
            *scope[:3],
        )
    n, q = form.n_variables, int(form.sizes[0])
    error = float(UNIT * np.abs(form.table).sum() * (2.0 * np.bincount(form.scope, minlength=n).max(initial=1) + 16.0))
    if has_spin_pairs(form):
        return _of_spins(spin_pairs(form))._replace(error=error)
    unaries = np.zeros((n, q))
    single, own = form.of_arity(1)
    np.add.at(unaries, single[:, 0], own)
    H, favourite = _one_favourite(unaries)
    double, tables = form.of_arity(2)
    (i, j), tables = double.T, tables.reshape(-1, q, q)
    top, least = tables.max(axis=(1, 2)), tables.min(axis=(1, 2))
    is_top = tables == top[:, None, None]
    is_turn = (is_top.sum(axis=1) == 1).all(axis=1) & (is_top.sum(axis=2) == 1).all(axis=1)
    is_turn &= (is_top | (tables == least[:, None, None])).all(axis=(1, 2))
    turns, turn = np.unique(is_top.argmax(axis=2).astype(np.int16), axis=0, return_inverse=True)
    turns = np.where((np.sort(turns, axis=1) == np.arange(q)).all(axis=1)[:, None], turns, np.arange(q))
    K = np.where(is_turn, top - least, np.where(top > least, -1.0, 0.0))
    return _Pairs(i, j, K, turn.ravel(), turns.astype(np.int16), H, favourite, error)


_FLIPS = np.array([[0, 1], [1, 0]], dtype=np.int16)
_READERS: dict[type[Form], Callable[[Any], _Pairs]] = {
    SpinPairs: _of_spins,
    LabelPairs: _of_labels,
    FactorTables: _of_tables,
}


def _one_favourite(unaries: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return for each variable how strongly its unaries favour one state, and which one.

    Raise `_Refusal` unless the unaries of all its other states are equal.
    """
    favourite = unaries.argmax(axis=1)
    others = unaries.copy()
    others[np.arange(len(unaries)), favourite] = -np.inf
    second = others.max(axis=1)
    others[np.arange(len(unaries)), favourite] = second
    if (others != second[:, None]).any():
        k = int(np.argmax((others != second[:, None]).any(axis=1)))
        raise _Refusal("the field of {} distinguishes more than one state from the others.", k)
    return unaries.max(axis=1) - second, favourite


def _assemble(form: Form, pairs: _Pairs) -> Ferromagnet:
    """Relabel states, and list each edge at both of its ends.

    Raise `_Refusal` if couplings are frustrated, or if fields favour different states after relabelling.
    """
    n, q = form.n_variables, pairs.turns.shape[1]
    if (pairs.K < 0).any():
        k = int(np.argmax(pairs.K < 0))
        raise _Refusal(
            "the coupling of {} and {} does not favour equal states after any relabelling.", pairs.i[k], pairs.j[k]
        )
    kept = pairs.K > 0
    i, j, K = pairs.i[kept], pairs.j[kept], pairs.K[kept]
    E = len(K)
    owner, other = np.concatenate([i, j]), np.concatenate([j, i])
    order = np.argsort(owner, kind="stable")
    place = np.empty(2 * E, dtype=np.int64)
    place[order] = np.arange(2 * E)
    twin = np.concatenate([place[E:], place[:E]])[order]
    start = prefix_sums(np.bincount(owner, minlength=n)).astype(np.int32)
    neighbor = other[order].astype(np.int32)
    turns = np.concatenate([pairs.turns, np.argsort(pairs.turns, axis=1).astype(np.int16)])  # the inverse permutations
    turn = np.concatenate([pairs.turn[kept], pairs.turn[kept] + len(pairs.turns)])[order]
    gauge, component, bad = align_states(start, neighbor, turn, turns)
    if bad >= 0:
        ends = int(owner[order[bad]]), int(neighbor[bad])
        raise _Refusal(
            "the coupling of {} and {} closes a frustrated cycle: no relabelling of states (flipping of spins) makes "
            "all couplings ferromagnetic.", *ends,
        )  # fmt: skip
    tied = np.flatnonzero(pairs.H > 0)
    colour = np.argsort(gauge, axis=1)[np.arange(n), pairs.favourite]
    ghost = _colour_of_ghost(component, tied, colour)
    H = pairs.H[tied]
    low, high = _thresholds(np.concatenate([K, H]), q)
    # Edges in the order of their first ends, so that a sweep passes through memory once.
    along = np.argsort(np.minimum(i, j), kind="stable")
    low, high = (np.concatenate([part[:E][along], part[E:]]) for part in (low, high))
    twins, firsts, ties = (frozen(part.astype(np.int32)) for part in (twin, place[:E][along], tied))
    return Ferromagnet(
        q, frozen(start), frozen(neighbor), twins, firsts, ties, frozen(low), frozen(high),
        frozen(gauge), frozen(ghost[component]), frozen(component), form.error + pairs.error,
    )  # fmt: skip


def _colour_of_ghost(
    component: NDArray[np.int32], tied: NDArray[np.int64], colour: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the colour (relabelled state) that the fields of each component favour, 0 for a component without fields.

    Raise `_Refusal` if two fields of a component favour different colours.
    """
    some = np.full(int(component.max()) + 1, -1, dtype=np.int64)
    some[component[tied[::-1]]] = tied[::-1]  # first variable with a field in each component
    against = tied[colour[tied] != colour[some[component[tied]]]]
    if len(against):
        first = int(some[component[against[0]]])
        raise _Refusal(
            "the fields of {} and {} favour different states, after the relabelling that their couplings need.",
            first, int(against[0]),
        )  # fmt: skip
    return np.where(some >= 0, colour[some], 0)


def _thresholds(K: NDArray[np.float64], q: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return the probabilities that an edge opens if its ends are not connected, and if they are, in units of 2^-53.

    With u = 2^-53, the relative error of exp and expm1 is at most 2 u, that of p / (p + q exp(-K)) at most 8 u, and
    rounding down to a unit adds another u.
    """
    p, rest = -np.expm1(-K), q * np.exp(-K)
    with np.errstate(divide="ignore"):
        alone = p / (p + rest)
    return (np.minimum(alone, 1.0) * 2.0**53).astype(np.uint64), (p * 2.0**53).astype(np.uint64)
