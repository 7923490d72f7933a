"""Upper bounds on the partition function by mini-buckets, with the messages behind them. [trusted]

Theory page, "Bounded weights". Variables are summed out one after the other, as in variable elimination. The bucket of
a variable contains the factors and messages whose scopes include it. If their joint scope is too large, the bucket is
split into mini-buckets of at most `bits` bits each, and the product of their messages is at least the exact message
(Hölder's inequality). Moving a table (a shift) from one mini-bucket of a bucket to another keeps the bound valid;
shifts are chosen to lower the bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from dobrushin._exact.order import graph_of, places_in_sweep
from dobrushin._kernels import weights as loops
from dobrushin._models.factors import FactorTables
from dobrushin._shared.arrays import UNIT, Floats, Ints, frozen, prefix_sums
from dobrushin._shared.call import LateError, checked, current_deadline

# Seconds of a round of matching for each entry of a mini-bucket and table in it (benchmarks/rates.py).
_SECONDS_PER_ENTRY = 4.4e-8
# Rounds of matching by beliefs; the first step and the smallest, by which factor steps grow, and by which they are cut
# where they raise the bound; and the least that a round has to gain.
_ROUNDS, _STEP, _LEAST_STEP, _GROWTH, _CUT, _LITTLE = 30, 0.5, 0.04, 1.1, 0.4, 0.05
# A bucket is tightened if its scope has at most this number of bits more than a mini-bucket.
_MORE_BITS = 4.0
# Products of exponentials in a bucket stay in range if logarithms span at most this.
_RANGE = 600.0
# Bounds are useless where even the first bucket is split more often.
_MAX_SPLITS = 7
# Beliefs below this share are matched as if they were this large.
_LEAST_BELIEF = 1e-12

Scope = tuple[int, ...]


@dataclass
class MiniBucket:
    """A group of a bucket's tables that are multiplied and summed into one message."""

    tables: list[int]
    scope: Scope  # of the message
    message: int
    weight: float = 1.0  # Hölder exponents: those of a bucket sum to 1


@dataclass
class Bucket:
    """All tables whose scope contains a variable at the time when it is summed out, grouped into mini-buckets."""

    variable: int
    groups: list[MiniBucket]
    links: list[tuple[int, int, Scope]] = field(default_factory=list)  # groups matched on what they share

    @property
    def is_split(self) -> bool:
        return len(self.groups) > 1

    def axes(self, r: int) -> Scope:
        """Return the variables of mini-bucket r: the scope of its message, then the variable that is summed out."""
        return (*self.groups[r].scope, self.variable)


class Layout(NamedTuple):
    """Buckets in elimination order, and the scope of every table: first of the factors, then of the messages.

    Each scope is in reverse elimination order, so that the next variable to be summed out is last.
    """

    buckets: list[Bucket]
    scopes: list[Scope]
    sizes: Ints

    def length(self, scope: Sequence[int]) -> int:
        return math.prod(int(self.sizes[v]) for v in scope)

    @property
    def pass_seconds(self) -> float:
        """Return the estimated seconds to send all messages and all beliefs once."""
        added = sum(len(g.tables) * self.length(b.axes(r)) for b in self.buckets for r, g in enumerate(b.groups))
        return _SECONDS_PER_ENTRY * added

    @property
    def bytes(self) -> float:
        """Return the memory of all messages in bytes."""
        return 8.0 * sum(self.length(g.scope) for b in self.buckets for g in b.groups)

    @property
    def is_exact(self) -> bool:
        return not any(bucket.is_split for bucket in self.buckets)


class TooDense(Exception):
    """Every variable's bucket would be split so often that the bound would be useless."""


# -- which variable is next, and how its bucket is split ---------------------------------------


def lay_out(form: FactorTables, bits: float) -> Layout:
    """Choose an elimination order greedily, and split each bucket into mini-buckets.

    The next variable is the one with the fewest mini-buckets; ties go to the smallest scope. Raises TooDense if even
    the first bucket has too many mini-buckets.
    """
    search = _Search(form, bits)
    if search.fewest_splits > _MAX_SPLITS:
        raise TooDense(int(search.fewest_splits))
    for _ in checked(range(form.n_variables), "an order for mini-buckets"):
        search.eliminate(search.best())
    rank = np.empty(form.n_variables, dtype=np.int64)
    rank[[bucket.variable for bucket in search.buckets]] = np.arange(form.n_variables)
    ranks = rank.tolist()

    def ordered(scope: set[int] | frozenset[int] | Scope) -> Scope:
        return tuple(sorted(scope, key=lambda v: -ranks[v]))

    for bucket in search.buckets:
        for group in bucket.groups:
            group.scope = ordered(group.scope)
        bucket.links = [(r, s, ordered(shared)) for r, s, shared in _tree(bucket)]
    return Layout(search.buckets, [ordered(scope) for scope in search.scopes], form.sizes)


class _Search:
    def __init__(self, form: FactorTables, bits: float) -> None:
        self.most, self.bits_of = bits + 1e-9, np.log2(form.sizes).tolist()
        start, scope = form.scope_start.tolist(), form.scope.tolist()
        self.scopes = [frozenset(scope[a:b]) for a, b in pairwise(start)]
        self.tables_of: list[set[int]] = [set() for _ in range(form.n_variables)]
        for number, members in enumerate(self.scopes):
            for v in members:
                self.tables_of[v].add(number)
        self.place: list[int] = places_in_sweep(graph_of(form.adjacency)).tolist()
        self.cost = {v: self._cost(v) for v in range(form.n_variables)}
        self.buckets: list[Bucket] = []
        self.fewest_splits = min(cost[0] for cost in self.cost.values())

    def _bits(self, scope: set[int] | frozenset[int]) -> float:
        return float(sum(self.bits_of[v] for v in scope))

    def best(self) -> int:
        """Return the variable to eliminate next; ties are broken by the order of a sweep through the model."""
        return min(self.cost, key=lambda v: (self.cost[v], self.place[v]))

    def _split(self, v: int) -> list[tuple[set[int], list[int]]]:
        """Group the tables of a variable into mini-buckets.

        The largest table comes first; each table joins the first group with room for it.
        """
        groups: list[tuple[set[int], list[int]]] = []
        sizes: list[float] = []  # bits of each group
        bits_of, most = self.bits_of, self.most
        for number in sorted(self.tables_of[v], key=lambda k: (-len(self.scopes[k]), k)):
            scope = self.scopes[number]
            for g, (union, members) in enumerate(groups):
                size = sizes[g] + sum([bits_of[u] for u in scope if u not in union])
                if size <= most:
                    union |= scope
                    members.append(number)
                    sizes[g] = size
                    break
            else:
                groups.append((set(scope), [number]))
                sizes.append(self._bits(scope))
        return groups or [({v}, [])]

    def _cost(self, v: int) -> tuple[float, float]:
        near = {v}.union(*(self.scopes[k] for k in self.tables_of[v]))
        size = self._bits(near)
        return (0.0 if size <= self.most else float(len(self._split(v)) - 1), size)

    def eliminate(self, v: int) -> None:
        groups, changed = [], set()
        for union, members in self._split(v):
            rest = union - {v}
            for number in members:
                for u in self.scopes[number]:
                    self.tables_of[u].discard(number)
            for u in rest:
                self.tables_of[u].add(len(self.scopes))
            groups.append(MiniBucket(members, tuple(rest), len(self.scopes)))
            self.scopes.append(frozenset(rest))
            changed |= rest
        for group in groups:
            group.weight = 1.0 / len(groups)
        self.buckets.append(Bucket(v, groups))
        del self.cost[v]
        for u in changed:
            self.cost[u] = self._cost(u)


def _tree(bucket: Bucket) -> list[tuple[int, int, frozenset[int]]]:
    """Return a spanning tree of a bucket's mini-buckets whose links share as many variables as possible.

    Each link is a pair of mini-buckets with the variables that they share.
    """
    scopes = [frozenset(bucket.axes(r)) for r in range(len(bucket.groups))]
    inside, links = {0}, []
    while len(inside) < len(scopes):
        pairs = [(r, s) for r in sorted(inside) for s in range(len(scopes)) if s not in inside]
        r, s = max(pairs, key=lambda pair: len(scopes[pair[0]] & scopes[pair[1]]))
        links.append((r, s, scopes[r] & scopes[s]))
        inside.add(s)
    return links


# -- messages ----------------------------------------------------------------------------------


class NoState(Exception):
    """The model gives probability 0 to every joint state."""


class MiniBuckets:
    """The messages of a layout of mini-buckets, and the bound that they give.

    Attributes
    ----------
    tables : list of arrays
        Logarithms of factors and messages, from each of which its largest entry was subtracted.
    tops : list of floats
        These largest entries.
    log_bound : float
        log U; the logarithm of the partition function is at most this plus `distortion`.
    distortion : float
        Bound on the effect of rounding on the logarithm of any importance weight, and on `log_bound`.
    """

    def __init__(self, form: FactorTables, layout: Layout) -> None:
        self.layout, self.form = layout, form
        self._walks: dict[tuple[Scope, Scope], tuple[Ints, Ints]] = {}
        self.tables: list[Floats] = []
        self.log_bound = 0.0
        # By bucket and link: what is added to the first group's product and taken from the second's.
        self.shifts: dict[tuple[int, int], Floats] = {}
        self.tops: list[float] = []
        self.factors = [self._factor(k) for k in range(form.n_factors)]

    def _factor(self, k: int) -> Floats:
        scope, table = self.form.factor(k)
        axes = [scope.index(v) for v in self.layout.scopes[k]]
        flat = np.ascontiguousarray(table.transpose(axes)).ravel()
        top = float(flat.max())
        if top == -math.inf:
            raise NoState
        self.tops.append(top)
        return frozen(flat - top)

    @property
    def is_exact(self) -> bool:
        """Return whether no bucket is split."""
        return self.layout.is_exact

    # -- geometry --

    def _walk(self, scope: Scope, axes: Scope) -> tuple[Ints, Ints]:
        """Return the sizes and strides for a loop over `axes` that reads a table with the given scope.

        Consecutive axes of the same kind are joined, so that they take one loop only.
        """
        if (known := self._walks.get((scope, axes))) is not None:
            return known
        walk: list[list[int]] = []
        lengths, strides = self.layout.sizes[list(axes)].tolist(), self._strides(scope, axes)
        for size, stride in zip(reversed(lengths), reversed(strides), strict=True):
            if walk and stride == (walk[-1][1] * walk[-1][0] if walk[-1][1] else 0):
                walk[-1][0] *= size
            else:
                walk.append([size, stride])
        both = np.array(walk[::-1], dtype=np.int64).reshape(-1, 2)
        made = np.ascontiguousarray(both[:, 0]), np.ascontiguousarray(both[:, 1])
        self._walks[scope, axes] = made
        return made

    def _strides(self, scope: Scope, axes: Scope) -> list[int]:
        """Return the stride of each axis in a table with this scope; 0 for axes outside of it."""
        stride, strides = 1, {}
        for v in reversed(scope):
            strides[v] = stride
            stride *= int(self.layout.sizes[v])
        return [strides.get(v, 0) for v in axes]

    def _product(self, b: int, r: int) -> Floats:
        """Return the logarithm of the product of a mini-bucket's tables, with tables that were moved to it (shifts)."""
        bucket = self.layout.buckets[b]
        axes = bucket.axes(r)
        out = np.zeros(self.layout.length(axes))
        for number in bucket.groups[r].tables:
            loops.add_table(out, *self._walk(self.layout.scopes[number], axes), self.tables[number])
        for link, (first, second, shared) in enumerate(bucket.links):
            if r in (first, second) and (b, link) in self.shifts:
                shift = self.shifts[b, link]
                shift = shift if r == first else -shift
                loops.add_table(out, *self._walk(shared, axes), shift)
        return out

    # -- passes --

    def forward(self, match: bool = False, tight: bool = False) -> float:
        """Send all messages, and return the upper bound log U on the logarithm of the partition function.

        `match` chooses shifts (tables moved between mini-buckets) by matching moments on the way; `tight` lowers
        messages where this is cheap.
        """
        messages_in_all = len(self.layout.scopes) - len(self.factors)
        self.tables = self.factors + [np.empty(0)] * messages_in_all
        self.tops = self.tops[: len(self.factors)] + [0.0] * messages_in_all
        for b in checked(range(len(self.layout.buckets)), "the messages of mini-buckets"):
            bucket = self.layout.buckets[b]
            states = int(self.layout.sizes[bucket.variable])
            products = [self._product(b, r) for r in range(len(bucket.groups))]
            if match and bucket.is_split:
                self._match_moments(b, products)
            messages = []
            for group, product in zip(bucket.groups, products, strict=True):
                message = np.empty(len(product) // states)
                loops.log_sums(product, states, group.weight, message)
                messages.append(message)
            if tight and bucket.is_split:
                self._tighten(bucket, products, messages)
            for group, message in zip(bucket.groups, messages, strict=True):
                top = float(message.max())
                if top == -math.inf:
                    raise NoState
                self.tops[group.message] = top
                self.tables[group.message] = message - top
        self.log_bound = math.fsum(self.tops)
        return self.log_bound

    @cached_property
    def distortion(self) -> float:
        """Bound the effect of rounding on the logarithm of any importance weight and of the bound U."""
        sizes = [_size(table) for table in self.tables]
        each = sum(self._rounding(b, sizes) for b in range(len(self.layout.buckets)))
        return each + 8.0 * UNIT * sum(map(abs, self.tops))

    def _rounding(self, b: int, sizes: list[float]) -> float:
        """Bound the rounding errors of one bucket, its part of `distortion`.

        The same error may occur three times: in the bucket's messages, in the weights, and in the probabilities of a
        draw. A sum of logarithms has a rounding error of one unit of all their sizes for each term; the exponential has
        a relative error of 2^-50 and the logarithm of 2^-49.
        """
        bucket = self.layout.buckets[b]
        numbers = [number for group in bucket.groups for number in group.tables]
        size = sum(sizes[number] for number in numbers)
        size += sum(sizes[group.message] + abs(self.tops[group.message]) for group in bucket.groups)
        size += sum(2.0 * _size(self.shifts[b, link]) for link in range(len(bucket.links)) if (b, link) in self.shifts)
        states = int(self.layout.sizes[bucket.variable])
        terms = len(numbers) + 2 * len(bucket.groups) + 4
        return 3.0 * UNIT * (terms * size + 64.0 * len(bucket.groups) + 8.0 * states)

    def _match_moments(self, b: int, products: list[Floats]) -> None:
        """Shift the products of linked mini-buckets so that their power sums agree on the shared variables."""
        bucket = self.layout.buckets[b]
        for link, (r, s, shared) in enumerate(bucket.links):
            first, second = (self._log_marginal(products[k], bucket, k, shared) for k in (r, s))
            # Entries where either is infinite are forbidden, or too small to matter.
            is_finite = np.isfinite(first) & np.isfinite(second)
            w, u = bucket.groups[r].weight, bucket.groups[s].weight
            shift = w * u / (w + u) * np.subtract(second, first, where=is_finite, out=np.zeros(len(first)))
            self.shifts[b, link] = shift
            for k, own in ((r, shift), (s, -shift)):
                loops.add_table(products[k], *self._walk(shared, bucket.axes(k)), own)

    def _log_marginal(self, product: Floats, bucket: Bucket, k: int, shared: Scope) -> Floats:
        weight, top = bucket.groups[k].weight, float(product.max())
        if top == -math.inf:
            return np.full(self.layout.length(shared), top)
        powers = loops.exponentials(product, top, 1.0 / weight)
        with np.errstate(divide="ignore"):
            logs: Floats = np.log(self._marginal(powers, bucket.axes(k), shared)) + top / weight
        return logs

    def _tighten(self, bucket: Bucket, products: list[Floats], messages: list[Floats]) -> None:
        """Lower each message of a split bucket as far as the bound allows, if that is cheap and in range.

        The lowest valid message is the largest ratio of the exact sum to the product of the other messages.
        """
        union: Scope = tuple(dict.fromkeys(v for group in bucket.groups for v in group.scope))
        largest = max(self.layout.length(group.scope) for group in bucket.groups)
        if self.layout.length(union) > 2.0**_MORE_BITS * largest:
            return
        tops = [float(product.max()) for product in products]
        if -math.inf in tops:
            return
        least = [float(np.min(product, where=product > -np.inf, initial=math.inf)) for product in products]
        if max(top - low for top, low in zip(tops, least, strict=True)) > _RANGE / len(products):
            return
        lengths, states = self.layout.sizes[list(union)], int(self.layout.sizes[bucket.variable])
        start = prefix_sums(np.array([len(message) for message in messages]))[:-1]
        strides = np.array([self._strides(group.scope, union) for group in bucket.groups], dtype=np.int64)
        powers = np.concatenate([loops.exponentials(p, top, 1.0) for p, top in zip(products, tops, strict=True)])
        for r, message in enumerate(messages):
            with np.errstate(divide="ignore"):
                allowed = [np.exp(np.minimum(t - m, 700.0)) for m, t in zip(messages, tops, strict=True)]
                inverses = np.where(np.concatenate(messages) > -np.inf, np.concatenate(allowed), 0.0)
                out = np.zeros(len(message))
                loops.tighten(lengths, states, strides, start, powers, inverses, r, out)
                np.minimum(message, np.log(out) + tops[r], out=message)

    def begin(self) -> None:
        """Send all messages and choose shifts that match moments, then send them once more to lower the bound."""
        self.forward(match=True)
        if not self.layout.is_exact:
            self.forward(tight=True)

    def improve(self, rounds: int = _ROUNDS) -> None:
        """Improve the shifts (tables moved between mini-buckets) until this gains little or planning time is over."""
        step, slow, seconds = _STEP, 2 * self.layout.is_exact, self.layout.pass_seconds
        for _ in range(rounds):
            if slow == 2 or step < _LEAST_STEP or current_deadline().work_left < seconds:
                return
            best, known = self.log_bound, (self.tables, self.tops, self.shifts)
            try:
                current_deadline().charge(seconds, "matching mini-buckets")
                self.shifts = self.backward(step)
                self.forward(tight=True)
            except LateError:  # planning has no time for another round: the last one is whole
                self.log_bound, (self.tables, self.tops, self.shifts) = best, known
                return
            slow = slow + 1 if best - self.log_bound < _LITTLE else 0
            step *= _GROWTH
            if self.log_bound >= best:
                self.log_bound, (self.tables, self.tops, self.shifts), step = best, known, _CUT * step

    def backward(self, step: float) -> dict[tuple[int, int], Floats]:
        """Return shifts changed so that the beliefs of linked mini-buckets become more equal on their shared variables.

        The belief of a mini-bucket is the derivative of log U with respect to its log-product. The belief of a message
        is a marginal of the belief of the mini-bucket that received it.
        """
        beliefs: dict[int, Floats] = {}
        moved = dict(self.shifts)
        for b in checked(reversed(range(len(self.layout.buckets))), "the beliefs of mini-buckets"):
            bucket = self.layout.buckets[b]
            states = int(self.layout.sizes[bucket.variable])
            own = []
            for r, group in enumerate(bucket.groups):
                product = self._product(b, r)
                belief = np.empty(len(product))
                loops.shares(product, states, group.weight, beliefs.pop(group.message, np.ones(1)), belief)
                own.append(belief)
                for number in group.tables:
                    if number >= len(self.factors):
                        beliefs[number] = self._marginal(belief, bucket.axes(r), self.layout.scopes[number])
            for link, (r, s, shared) in enumerate(bucket.links):
                ends = (self._marginal(own[k], bucket.axes(k), shared) for k in (r, s))
                first, second = (np.log(np.maximum(end, _LEAST_BELIEF)) for end in ends)
                w, u = bucket.groups[r].weight, bucket.groups[s].weight
                change = step * w * u / (w + u) * (second - first)
                moved[b, link] = moved.get((b, link), 0.0) + change
        return moved

    def _marginal(self, belief: Floats, axes: Scope, scope: Scope) -> Floats:
        out = np.zeros(self.layout.length(scope))
        loops.add_up(belief, *self._walk(scope, axes), out)
        return out


def make_minibuckets(form: FactorTables, layout: Layout, rounds: int = _ROUNDS) -> MiniBuckets:
    """Send the messages of a layout, with shifts that lower the bound.

    Raises NoState if the model allows no joint state.
    """
    made = MiniBuckets(form, layout)
    made.begin()
    made.improve(rounds)
    return made


def _size(table: Floats) -> float:
    return float(np.max(np.abs(table), where=table > -np.inf, initial=0.0))
