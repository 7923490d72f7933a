"""Programs of variable elimination: which tables to multiply and which variables to sum out, step by step.

An elimination order defines a tree whose leaves are the factors. Each inner node multiplies the tables of its children
and sums out the variables that occur in no other table; the result is a message to its parent. The table over all
variables of a node is never stored. After this upward pass, a downward pass sends messages back along the same tree, as
far as the wanted marginals need them (Shafer and Shenoy 1990).
"""

from __future__ import annotations

import gc
import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from dobrushin._shared.arrays import Array, Ints, frozen, prefix_sums
from dobrushin._shared.call import checked, current_deadline

# A node of a few small tables is one step; otherwise its small tables are multiplied first.
_FEW_TABLES, _SMALL_TABLE_ENTRIES = 6, 2**12
# Of more tables than this, neighbours by size are multiplied first: to look at all pairs would take too long.
_MANY_TABLES = 12
# Tables between looks at the limit on planning.
_TABLES_PER_LOOK = 1024
_STAGE = "the steps of an elimination"

Scope = tuple[int, ...]
_Read = tuple[int, Scope]  # a group that is read, and its number


@dataclass(frozen=True)
class SumProgram:
    """The steps of a variable elimination, with all tables in one array, in the layout that the kernels read.

    Attributes
    ----------
    sizes : array
        Number of states of each variable.
    scope_start, scope, offset : arrays
        The variables of each table (in CSR form), and where its entries begin. The first tables are the factors.
    made, operand_start, operand : arrays
        The table that each step computes, and the tables that it multiplies (in CSR form).
    entries : array
        Number of combinations of states that each step goes through.
    n_factors, n_up : int
        Number of factors, and number of steps of the upward pass.
    roots : list of int
        Tables without variables, whose product is the partition function.
    reads : list of int
        For each group of variables, the table that holds its unnormalised marginal.
    length : int
        Number of entries of all tables, which may share memory.
    width : int
        Number of variables of the largest clique, less one (the treewidth of the order).
    ones : list of int
        Tables filled with 1, for variables and groups that no factor contains.
    """

    sizes: Ints
    scope_start: Ints
    scope: Ints
    offset: Ints
    made: Ints
    operand_start: Ints
    operand: Ints
    entries: Ints
    n_factors: int
    n_up: int
    roots: list[int]
    reads: list[int]
    length: int
    width: int
    ones: list[int]

    @property
    def steps(self) -> tuple[Ints, Ints, Ints]:
        """Return the table that each step computes, and the tables that it multiplies (in CSR form), for kernels."""
        return self.made, self.operand_start, self.operand

    def table(self, store: Array, block: int) -> Array:
        """Return a table as a view of the array of all tables, with one axis for each of its variables."""
        shape = self.sizes[self.scope_of(block)]
        return store[self.offset[block] : self.offset[block] + math.prod(shape.tolist())].reshape(shape)

    def operands_of(self, t: int) -> Ints:
        """Return the tables that step t multiplies."""
        return self.operand[self.operand_start[t] : self.operand_start[t + 1]]

    def scope_of(self, block: int) -> Ints:
        return self.scope[self.scope_start[block] : self.scope_start[block + 1]]


class _Node(NamedTuple):
    """A step of the upward pass: the tables that it multiplies, and its number of combinations of states."""

    children: list[int]  # tables
    entries: int


@dataclass
class _Builder:
    sizes: list[int]
    rank: list[int]
    scopes: list[Scope] = field(default_factory=list)
    spans: list[int] = field(default_factory=list)  # sizes of the tables
    slots: list[int] = field(default_factory=list)  # -1: not placed yet
    live: list[set[int]] = field(default_factory=list)  # by variable: tables that are not used up
    nodes: dict[int, _Node] = field(default_factory=dict)  # by the table that they make
    homes: list[int] = field(default_factory=list)  # by variable: the node that sums it out
    steps: list[tuple[int, list[int], int]] = field(default_factory=list)
    length: int = 0
    width: int = 0

    def add_table(self, scope: Scope) -> int:
        """Add a table over these variables, without memory for its entries yet; return its number."""
        if len(self.scopes) % _TABLES_PER_LOOK == 0:
            current_deadline().check(_STAGE)
        self.scopes.append(scope)
        self.spans.append(math.prod([self.sizes[v] for v in scope]))
        self.slots.append(-1)
        return len(self.scopes) - 1

    def add_leaves(self, scopes: Sequence[Scope]) -> list[int]:
        """Add tables that are given in advance, such as the factors; return their numbers."""
        first, sizes = len(self.scopes), self.sizes
        spans = [math.prod([sizes[v] for v in scope]) for scope in checked(scopes, _STAGE)]
        for block, scope in enumerate(scopes, first):
            for v in scope:
                self.live[v].add(block)
        *slots, self.length = itertools.accumulate(spans, initial=self.length)
        self.scopes += scopes
        self.spans += spans
        self.slots += slots
        return list(range(first, len(self.scopes)))

    def place(self, block: int) -> None:
        """Reserve memory for the entries of a table."""
        self.slots[block] = self.length
        self.length += self.spans[block]

    # -- the way up ------------------------------------------------------------------------

    def eliminate(self, order: Sequence[int]) -> list[int]:
        """Add the steps of the upward pass; return the tables without variables, one per connected component."""
        roots = [block for block, scope in enumerate(self.scopes) if not scope]
        for v in order:
            if self.homes[v] < 0:
                made = self._multiply(list(self.live[v]))
                if not self.scopes[made]:
                    roots.append(made)
        return roots

    def _multiply(self, blocks: list[int]) -> int:
        """Add steps that multiply tables, smallest first where that saves work; return the table of the product."""
        blocks.sort(key=self._by_size)
        while len(blocks) > _MANY_TABLES:
            pairs = [blocks[k : k + 2] for k in range(0, len(blocks), 2)]
            blocks = [self._add_node(pair) if len(pair) == 2 else pair[0] for pair in pairs]
            blocks.sort(key=self._by_size)
        while len(blocks) > 2:
            variables = {v for b in blocks for v in self.scopes[b]}
            whole = self._span(variables)
            if len(blocks) <= _FEW_TABLES and whole <= _SMALL_TABLE_ENTRIES:
                return self._add_node(blocks, variables, whole)
            size, first, second = min(
                (self._span({*self.scopes[a], *self.scopes[b]}), i, j)
                for i, a in enumerate(blocks)
                for j, b in enumerate(blocks[:i])
            )
            if len(blocks) <= _FEW_TABLES and (4 if len(blocks) == 3 else 2) * size > whole:
                break
            pair = [blocks[second], blocks[first]]
            blocks = [b for b in blocks if b not in pair]
            blocks.append(self._add_node(pair))
        return self._add_node(blocks)

    def _by_size(self, block: int) -> tuple[int, Scope, int]:
        return self.spans[block], self.scopes[block], block

    def _add_node(self, children: list[int], variables: set[int] | None = None, entries: int = 0) -> int:
        """Add a step that multiplies tables and sums out all variables found in no other table; return its table."""
        whole = {v for b in children for v in self.scopes[b]} if variables is None else variables
        live, made, kept = self.live, len(self.scopes), []
        for v in whole:
            left = live[v]
            left.difference_update(children)
            if left:
                left.add(made)
                kept.append(v)
            else:
                self.homes[v] = made
        kept.sort(key=self.rank.__getitem__)
        self.place(self.add_table(tuple(kept)))
        entries = entries or self._span(whole)
        self.nodes[made] = _Node(children, entries)
        self.width = max(self.width, len(whole) - 1)
        self.steps.append((made, children, entries))
        return made

    def _span(self, variables: set[int]) -> int:
        return math.prod([self.sizes[v] for v in variables])

    # -- the way down ----------------------------------------------------------------------

    def read(self, groups: Sequence[Scope], roots: list[int]) -> list[int]:
        """Add the steps of the downward pass that the groups need; return the table of each group's marginal."""
        parent = {child: made for made, node in self.nodes.items() for child in node.children}
        # Where the first of a group is summed out, all of it is still there: nodes are numbered as they are made.
        homes = [min(self.homes[v] for v in group) for group in groups]
        needed: set[int] = set()
        for home in checked(homes, _STAGE):
            while home not in needed and home in self.nodes:
                needed.add(home)
                home = parent.get(home, -1)
        # By variable: the messages that are answered on the way down, smallest first.
        messages_at: defaultdict[int, list[int]] = defaultdict(list)
        for made in sorted((made for made in needed if made in parent), key=self.spans.__getitem__):
            for v in self.scopes[made]:
                messages_at[v].append(made)
        at_node: defaultdict[int, list[_Read]] = defaultdict(list)
        at_message: defaultdict[int, list[_Read]] = defaultdict(list)
        for g, (group, home) in enumerate(checked(zip(groups, homes, strict=True), _STAGE)):
            holding = min((messages_at[v] for v in group), key=len)
            block = next((b for b in holding if set(group) <= set(self.scopes[b])), None)
            (at_node[home] if block is None else at_message[block]).append((g, group))
        reads = [-1] * len(groups)
        base = self.length  # messages on their way, until they take the place of those that came up
        peak = base
        above: dict[int, list[int]] = {root: [] for root in roots}  # the message from the parent, if there is one
        for made in reversed(self.nodes):
            if made not in needed:
                continue
            node = self.nodes[made]
            self._read_from(node.children + above[made], node.entries, at_node[made], reads)
            below = [child for child in node.children if child in needed]
            moves = []
            self.length = base
            for child in below:
                message = self.add_table(self.scopes[child])
                if len(below) == 1 and child not in at_message:
                    self.slots[message] = self.slots[child]
                else:
                    self.place(message)
                    moves.append((message, child))
                others = [b for b in node.children if b != child] + above[made]
                self.steps.append((message, others, node.entries))
                above[child] = [message]
                self._read_from([message, child], self.spans[child], at_message.get(child, []), reads)
            peak = max(peak, self.length)
            for message, child in moves:
                moved = self.add_table(self.scopes[child])
                self.slots[moved] = self.slots[child]
                self.steps.append((moved, [message], self.spans[child]))
                above[child] = [moved]
        self.length = peak
        return reads

    def _read_from(self, blocks: list[int], entries: int, wanted: list[_Read], reads: list[int]) -> None:
        """Add the steps that compute the marginals of groups of variables from the product of some tables."""
        while wanted:
            # Together first, as long as that is much smaller than the product.
            union: set[int] = set(wanted[0][1])
            taken = 1
            while taken < len(wanted) and 8 * self._span(union | set(wanted[taken][1])) <= entries:
                union |= set(wanted[taken][1])
                taken += 1
            now, wanted = wanted[:taken], wanted[taken:]
            source, terms = blocks, entries
            if taken > 1:
                together = self.add_table(tuple(sorted(union, key=self.rank.__getitem__)))
                self.steps.append((together, blocks, entries))
                source, terms = [together], self.spans[together]
            for g, group in now:
                reads[g] = self.add_table(group)
                self.steps.append((reads[g], source, terms))


@contextmanager
def _no_collection() -> Iterator[None]:
    """Switch off garbage collection during the block, because it is slow among millions of small live objects."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@_no_collection()
def build(sizes: Sequence[int], factors: Sequence[Scope], order: Sequence[int], groups: Sequence[Scope]) -> SumProgram:
    """Make the program of an elimination order, with an upward pass and the downward steps that the groups need."""
    rank = [0] * len(sizes)
    for k, v in enumerate(order):
        rank[v] = k
    builder = _Builder(list(sizes), rank)
    builder.live = [set() for _ in sizes]
    builder.homes = [-1] * len(sizes)
    builder.add_leaves(factors)
    # Constant factors for variables and groups that no factor contains.
    live = builder.live
    lonely = [(v,) for v, blocks in enumerate(live) if not blocks]
    spread = [group for group in groups if len(group) > 1 and not set.intersection(*(live[v] for v in group))]
    ones = builder.add_leaves(lonely + spread)
    roots = builder.eliminate(order)
    n_up = len(builder.steps)
    reads = builder.read(groups, roots)
    for block, slot in enumerate(builder.slots):
        if slot < 0:
            builder.place(block)
    made, operands, entries = zip(*builder.steps, strict=True) if builder.steps else ((), (), ())
    return SumProgram(
        frozen(np.array(sizes, dtype=np.int64)),
        *_join(builder.scopes),
        frozen(np.array(builder.slots, dtype=np.int64)),
        frozen(np.array(made, dtype=np.int64)),
        *_join(operands),
        frozen(np.array(entries, dtype=np.int64)),
        len(factors), n_up, roots, reads, builder.length, builder.width, ones,
    )  # fmt: skip


def _join(lists: Sequence[Sequence[int]]) -> tuple[Ints, Ints]:
    """Return the starts and the entries of lists that are concatenated."""
    current_deadline().check(_STAGE)
    start = prefix_sums(np.fromiter(map(len, lists), np.int64, len(lists)))
    return frozen(start), frozen(np.fromiter(itertools.chain.from_iterable(lists), np.int64, int(start[-1])))
