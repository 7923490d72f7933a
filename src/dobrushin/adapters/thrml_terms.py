"""thrml's energies and programs as sums of terms: products of spins times tables of categories. [trusted]"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._models import FactorGraph, Model, SpinMRF
from dobrushin._models.couplings import symmetric
from dobrushin._models.forms import rounding_of
from dobrushin._models.ising import SpinPairs
from dobrushin._shared.environment import require
from dobrushin.errors import ArgumentError

# Spins and categories of a term, by the numbers of their nodes.
Key = tuple[tuple[int, ...], tuple[int, ...]]
_FINITE = "one whose weights are finite numbers"


@dataclass
class EnergyTerms:
    """A log-density as a sum of terms, each a product of spins -1/+1 times a table of categories.

    Attributes
    ----------
    nodes : list
        By number.
    spins : list of bool
        Whether each node is a spin.
    sizes : list of int
        States of each node; 0 where it is not known yet.
    tables : dict from key to list of arrays
        What was added for the spins and categories of the key, in increasing order.
    """

    nodes: list[Any] = field(default_factory=list)
    spins: list[bool] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    tables: dict[Key, list[NDArray[np.float64]]] = field(default_factory=dict)
    _number: dict[Any, int] = field(default_factory=dict)

    def add_node(self, node: Any, is_spin: bool, size: int = 0) -> int:
        """Return the number of a node, adding the node if it is new."""
        if node not in self._number:
            self._number[node] = len(self.nodes)
            self.nodes.append(node)
            self.spins.append(is_spin)
            self.sizes.append(2 if is_spin else size)
        number = self._number[node]
        if self.spins[number] != is_spin:
            raise ArgumentError("source", "one whose nodes are spins or categories", got=f"both: {node}")
        return number

    def key(self, spins: Iterable[Any], categories: Iterable[Any], table: NDArray[Any]) -> tuple[Key, Any]:
        """Return the key of a term (numbers of its spins and categories), and its table with axes in that order."""
        own = [self.add_node(node, True) for node in spins]
        others = [self.add_node(node, False) for node in categories]
        if len({*own, *others}) < len(own) + len(others):
            got = "a term that has a node twice"
            raise ArgumentError("source", "one whose terms have each node once", got=got)
        for number, size in zip(others, table.shape, strict=True):
            if self.sizes[number] not in (0, size):
                got = f"{self.sizes[number]} and {size}"
                requirement = "one whose tables agree on the categories of each node"
                raise ArgumentError("source", requirement, got=got)
            self.sizes[number] = size
        if not np.isfinite(table).all():
            raise ArgumentError("source", _FINITE, table[~np.isfinite(table)].flat[0])
        order = np.argsort(others, kind="stable")
        return (tuple(sorted(own)), tuple(sorted(others))), np.transpose(table, order)

    def add(self, spins: Iterable[Any], categories: Iterable[Any], table: NDArray[Any]) -> None:
        key, table = self.key(spins, categories, table)
        self.tables.setdefault(key, []).append(table)

    def number_of(self, node: Any) -> int | None:
        """Return the number of a node; None if the node is unknown."""
        return self._number.get(node)

    def to_model(self) -> Model:
        """Return the model; its variables are numbered like the nodes.

        Nodes of one category must have been left out before: see `without_constants`.
        """
        terms = {key: total(tables) for key, tables in self.tables.items()}
        sums = (tables for tables in self.tables.values() if len(tables) > 1)
        error = sum(rounding_of(np.array([np.abs(table).max() for table in tables]), len(tables)) for tables in sums)
        if not self.nodes:
            raise ArgumentError("source", "one with a node of two or more states", got="none")
        if all(self.spins):
            return self._spin_model({key[0]: float(table) for key, table in terms.items()})._off_by(error)
        factors = []
        for (spins, categories), table in terms.items():
            product = np.ones([2] * len(spins))
            for axis in range(len(spins)):
                product = product * np.array([-1.0, 1.0]).reshape([2 if k == axis else 1 for k in range(len(spins))])
            if np.any(table):
                factors.append(((*spins, *categories), np.multiply.outer(product, table)))
        names = [(-1, 1) if is_spin else None for is_spin in self.spins]
        return FactorGraph(self.sizes, factors, state_names=names if any(self.spins) else None)._off_by(error)

    def _spin_model(self, strengths: dict[tuple[Any, ...], float]) -> Model:
        fields = np.zeros(len(self.nodes))
        for spins, strength in strengths.items():
            if len(spins) == 1:
                fields[spins[0]] = strength
        larger = {spins: strength for spins, strength in strengths.items() if len(spins) > 1 and strength}
        if any(len(spins) > 2 for spins in larger):
            return SpinMRF(larger, fields)
        i, j = np.array(list(larger), dtype=np.int64).reshape(-1, 2).T
        return SpinPairs(symmetric(i, j, np.array(list(larger.values())), len(fields)), fields).to_model(None)

    def without_constants(self) -> EnergyTerms:
        """Return the same terms without nodes of one category, which are constant."""
        smaller = EnergyTerms()
        kept = [number for number, size in enumerate(self.sizes) if size > 1]
        for number in kept:
            smaller.add_node(self.nodes[number], self.spins[number], self.sizes[number])
        for (spins, categories), tables in self.tables.items():
            alive = [number for number in categories if self.sizes[number] > 1]
            for table in tables:
                own = table.reshape([self.sizes[number] for number in alive])
                smaller.add([self.nodes[k] for k in spins], [self.nodes[k] for k in alive], own)
        smaller.tables = {key: tables for key, tables in smaller.tables.items() if key != ((), ())}
        return smaller


def total(tables: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Return the sum of tables, rounded the same way in whatever order they come."""
    return np.asarray(np.sort(np.stack(tables), axis=0).sum(axis=0))


def as_array(weights: Any) -> NDArray[np.float64]:
    """Return thrml's weights, which must be float32 or float64, as an array of float64."""
    array = np.asarray(weights)
    if array.dtype not in (np.float32, np.float64):
        raise ArgumentError("source", "one whose weights are float32 or float64", got=str(array.dtype))
    return array.astype(np.float64)


# -- energies ------------------------------------------------------------------------------------


def terms_of_ebm(ebm: Any) -> EnergyTerms:
    """Return the terms of an energy-based model: log pi = -energy."""
    models = require("thrml.models", "thrml")
    terms = EnergyTerms()
    if isinstance(ebm, models.IsingEBM):
        biases, weights = as_array(ebm.beta * ebm.biases), as_array(ebm.beta * ebm.weights)
        if biases.shape != (len(ebm.nodes),) or weights.shape != (len(ebm.edges),):
            got = f"shapes {biases.shape} and {weights.shape} for {len(ebm.nodes)} nodes and {len(ebm.edges)} edges"
            raise ArgumentError("source", "an IsingEBM with a bias for each node, a weight for each edge", got=got)
        for node, bias in zip(ebm.nodes, biases, strict=True):
            terms.add([node], [], bias)
        for edge, weight in zip(ebm.edges, weights, strict=True):
            terms.add(edge, [], weight)
        return terms
    for factor in ebm.factors:
        if not isinstance(factor, models.DiscreteEBMFactor):
            requirement = "one whose factors are discrete (DiscreteEBMFactor and its kinds)"
            raise ArgumentError("source", requirement, got=type(factor).__name__)
        weights = as_array(factor.weights)
        for k in range(len(weights)):
            spins = [group.nodes[k] for group in factor.spin_node_groups]
            terms.add(spins, [group.nodes[k] for group in factor.categorical_node_groups], weights[k])
    return terms


# -- programs ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GibbsProgram:
    """A thrml sampling program: its terms, its free and clamped nodes, and the order of its draws.

    Attributes
    ----------
    sweep : list of lists of int
        Numbers of the nodes that are drawn at the same time, in the order of the program.
    clamped : list of lists of int
        Numbers of the nodes of each clamped block; None for a node that no term contains.
    error : array
        For each node a bound on the total variation between the law of its draw and its conditional distribution.
    """

    terms: EnergyTerms
    sweep: list[list[int]]
    clamped: list[list[int | None]]
    error: NDArray[np.float64]


def read_program(program: Any) -> GibbsProgram:
    """Read a sampling program; raise `ArgumentError` unless its samplers are the conditionals of one distribution."""
    models = require("thrml.models", "thrml")
    spec = program.gibbs_spec
    terms = EnergyTerms()
    node_at = {place: node for node, place in spec.node_global_location_map.items()}
    for block, sampler in zip(spec.free_blocks, program.samplers, strict=True):
        # A subclass may draw from another distribution.
        if type(sampler) not in (models.SpinGibbsConditional, models.CategoricalGibbsConditional):
            requirement = "a program with the samplers SpinGibbsConditional and CategoricalGibbsConditional"
            raise ArgumentError("program", requirement, got=type(sampler).__name__)
        is_spin = type(sampler) is models.SpinGibbsConditional
        for node in block.nodes:
            terms.add_node(node, is_spin, 2 if is_spin else int(sampler.n_categories))
    seen: dict[int, dict[Key, list[NDArray[np.float64]]]] = {}
    error = np.zeros(len(terms.nodes))
    for b, block in enumerate(spec.free_blocks):
        # JAX's arrays are slow to look at one by one.
        activity = [np.asarray(active) for active in program.per_block_interaction_active[b]]
        slices = [[np.asarray(slots) for slots in group] for group in program.per_block_interaction_global_slices[b]]
        arrays = [np.asarray(getattr(one, "weights", 0.0)) for one in program.per_block_interactions[b]]
        for row, head in enumerate(block.nodes):
            number = terms.number_of(head)
            assert number is not None
            seen[number] = {}
            dtypes: list[np.dtype[Any]] = []
            size, count = 0.0, 0
            for group, interaction in enumerate(program.per_block_interactions[b]):
                if type(interaction) is not models.discrete_ebm.DiscreteEBMInteraction:
                    requirement = "a program of discrete interactions (DiscreteEBMInteraction)"
                    raise ArgumentError("program", requirement, got=type(interaction).__name__)
                weights = as_array(arrays[group][row])
                dtypes.append(arrays[group].dtype)
                tails = [
                    (place, slots[row])
                    for place, slots in zip(
                        program.per_block_interaction_global_inds[b][group],
                        slices[group],
                        strict=True,
                    )
                ]
                for slot in np.flatnonzero(activity[group][row]):
                    others = [node_at[place, int(slots[slot])] for place, slots in tails]
                    spins, categories = others[: interaction.n_spin], others[interaction.n_spin :]
                    if terms.spins[number]:
                        spins = [head, *spins]
                    else:
                        categories = [head, *categories]
                    key, table = terms.key(spins, categories, weights[slot])
                    seen[number].setdefault(key, []).append(table)
                    size, count = size + float(np.abs(weights[slot]).max(initial=0.0)), count + 1
                # The sums of thrml go over all slots.
                count += weights.shape[0]
            states = 2 if terms.spins[number] else terms.sizes[number]
            error[number] = draw_error(dtypes, size, count, states, terms.spins[number])
    _join(terms, seen)
    free = len(error)
    clamped = [[terms.number_of(node) for node in block.nodes] for block in spec.clamped_blocks]
    places = [[terms.number_of(node) for node in block.nodes] for block in spec.free_blocks]
    sweep = [[k for b in group for k in places[b] if k is not None] for group in spec.sampling_order]
    _refuse_neighbours(terms, sweep)
    return GibbsProgram(terms, sweep, clamped, np.concatenate([error, np.zeros(len(terms.nodes) - free)]))


def _join(terms: EnergyTerms, seen: dict[int, dict[Key, list[NDArray[np.float64]]]]) -> None:
    """Merge the terms of each interaction, which the program lists at each of the interaction's nodes.

    Raise `ArgumentError` if two nodes have different terms: such conditionals belong to no joint distribution.
    """
    keys = {key for own in seen.values() for key in own}
    for key in sorted(keys):
        found = [
            total(own[key]) if key in own else None for k in (*key[0], *key[1]) if (own := seen.get(k)) is not None
        ]
        table = next(one for one in found if one is not None)
        if any((one if one is not None else 0.0 * table).tolist() != table.tolist() for one in found):
            got = f"a term of {len(key[0]) + len(key[1])} nodes with different weights"
            raise ArgumentError("program", "one in which all nodes of a term have the same weights for it", got=got)
        if table.any():
            terms.tables[key] = [table]


def _refuse_neighbours(terms: EnergyTerms, sweep: list[list[int]]) -> None:
    """Refuse interactions between nodes that are drawn simultaneously: such updates do not leave pi invariant."""
    group_of = {number: group for group, numbers in enumerate(sweep) for number in numbers}
    for spins, categories in terms.tables:
        groups = [group_of[number] for number in (*spins, *categories) if number in group_of]
        if len(set(groups)) < len(groups):
            group = next(group for k, group in enumerate(groups) if group in groups[:k])
            requirement = "one that draws at the same time only nodes that do not interact"
            got = f"an interaction inside of the free superblock {group}"
            raise ArgumentError("program", requirement, got=got)


def draw_error(dtypes: list[np.dtype[Any]], size: float, count: int, states: int, is_spin: bool) -> float:
    """Bound the total variation between the law of one draw of thrml and the conditional distribution.

    `size` is the sum of the largest absolute values of `count` weights that are added up. The proof is on the theory
    page, "Draws of other engines". It assumes relative errors of at most 16 units of roundoff for the logistic
    function, and 8 for the logarithm.
    """
    unit = max(float(np.finfo(dtype).eps) for dtype in dtypes or [np.dtype(np.float32)]) / 2
    grid = 2 * unit  # of JAX's uniform numbers
    of_sum = (count + 2) * unit * size / (1 - (count + 2) * unit)
    if is_spin:
        return min(1.0, of_sum / 2 + 16 * unit + grid)
    largest = 17.0 if unit > 1e-10 else 38.0  # of a Gumbel variable as it is drawn
    shift = of_sum + 8 * unit * (1 + largest) + 2 * unit * (size + of_sum + largest + 1)
    return min(1.0, float(np.expm1(2 * shift) + 3 * states * grid * np.exp(2 * shift)))
