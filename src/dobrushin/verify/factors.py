"""The part of a model that a proof is about; how much a neighbour can move a variable, up by more than the rounding."""

import math
from collections import defaultdict
from collections.abc import Iterable
from decimal import Decimal, localcontext
from functools import cache, cached_property, partial
from itertools import accumulate, combinations

import numpy as np

from dobrushin.verify.document import Array, Document, Factor, cut, require

UNIT, FLOOR = 2.0**-53, 2.0**-1000
LARGEST = 1e30  # log-potentials, but for those that forbid: their sums still have digits after the point
MOST_CONFIGURATIONS = 2**14  # neighbourhoods of so many joint states have their laws written down
# Enumerate a neighbourhood while states x configurations x neighbours' states, or binary neighbours, are not more.
MOST_WORK, MOST_BINARY = 1.2e5, 13
# Pairs of states of neighbours that are compared one by one; and numbers that leads of own states are looked for in.
MOST_PAIRS, MOST_LEADS = 2**22, 2**26
Bounds = dict[int, float]
Row = tuple[list[tuple[int, float]], float]  # the influence of each neighbour, and the most that all can do together


class Factors:
    """Variables 0..m-1 with numbers of states, and log-tables over some of them (-inf forbids)."""

    def __init__(self, states: list[int], pairs: Iterable[Factor]) -> None:
        self.states, self.pairs = states, list(pairs)
        self.touching: dict[int, list[int]] = defaultdict(list)
        for number, (scope, _) in enumerate(self.pairs):
            for variable in scope:
                self.touching[variable].append(number)
        self.around = cache(partial(Neighbourhood, self))  # what a variable sees

    def near(self, variables: Iterable[int]) -> "Factors":
        return Factors(self.states, (self.pairs[k] for k in sorted({k for v in variables for k in self.touching[v]})))

    def fix(self, values: dict[int, int]) -> "Factors":
        """The same factors with some variables in given states."""
        parts = []
        for scope, table in self.pairs:
            part = np.ascontiguousarray(table[tuple(values.get(v, slice(None)) for v in scope)])
            require(np.max(part, initial=-math.inf) > -math.inf, "A factor forbids the evidence, or everything.")
            parts.append((tuple(v for v in scope if v not in values), part))
        return Factors(self.states, ((scope, part) for scope, part in parts if scope))

    def drop(self, variables: list[int]) -> tuple["Factors", float]:
        """Leave out variables, in this order, that sum to a constant; and how far the log-density may then be off."""
        left, error = dict(enumerate(self.pairs)), 0.0
        for variable in variables:
            own = [left.pop(k) for k in self.touching[variable] if k in left]
            require(len(own) <= 1, f"Variable {variable} is left out, but several factors hold it.")
            for scope, table in own:
                sums = np.exp(table - table.max()).sum(axis=scope.index(variable))
                spread = float(sums.max() - sums.min()) / float(sums.min()) if sums.min() > 0 else math.inf
                require(spread <= 1e-11, f"Variable {variable} is left out, but what it sums to is not constant.")
                error += spread + (self.states[variable] + 16) * 2.0**-51
        return Factors(self.states, left.values()), error


class Neighbourhood:
    """One variable, its neighbours, and its law given their states."""

    def __init__(self, factors: Factors, variable: int) -> None:
        self.own = factors.states[variable]
        touching = factors.touching[variable]
        self.others = sorted({v for k in touching for v in factors.pairs[k][0]} - {variable})
        self.sizes = [factors.states[v] for v in self.others]
        place = {v: k for k, v in enumerate(self.others)}
        self.parts: list[tuple[list[int], Array]] = []  # neighbours and table, own states last
        self.magnitude = 0.0
        for k in touching:
            scope, table = factors.pairs[k]
            rest = [v for v in scope if v != variable]
            self.parts.append(([place[v] for v in rest], table.transpose([scope.index(v) for v in (*rest, variable)])))
            self.magnitude += float(np.max(np.abs(table), where=np.isfinite(table), initial=0.0))
        # Bounds the error of a probability: of the sums of logs, of exponentials, and of the partial sums.
        self.margin = UNIT * (16.0 * (len(touching) + 2) * self.magnitude + 64.0 * (self.own + 8))
        self.cells = min(math.prod(self.sizes), 2**62)

    @cached_property
    def all_laws(self) -> Array:
        """The laws for all configurations of the neighbours, the last one changing fastest."""
        return self.laws(np.indices(self.sizes).reshape(len(self.sizes), self.cells))

    def laws(self, seen: Array) -> Array:
        """The chances of state a or a lower one, for all a but the last, beside neighbours (neighbours, n); or NaN."""
        logs = np.zeros((seen.shape[1], self.own))
        for places, table in self.parts:
            logs += table[tuple(seen[p] for p in places)]
        with np.errstate(invalid="ignore"):
            sums = np.cumsum(np.exp(logs - logs.max(axis=1, keepdims=True)), axis=1)
            return sums[:, :-1] / sums[:, -1:]

    def laws_beside(self, seen: list[Array], count: int) -> Array:
        """The same beside neighbours in these states; written down once where there are few configurations."""
        if self.cells > MOST_CONFIGURATIONS:
            return self.laws(np.array(seen))
        return self.all_laws[np.ravel_multi_index(tuple(seen), self.sizes) if seen else np.zeros(count, dtype=np.int64)]

    def decide(self, digits: list[int], u: tuple[int, int], rises: bool) -> int:
        """The state that a uniform number, a fraction, draws in 60 digits where floats cannot decide; see `draws`."""
        with localcontext() as context:
            context.prec = 60
            cells = [table[tuple(digits[p] for p in places)].tolist() for places, table in self.parts]
            logs = [sum((Decimal(cell[a]) for cell in cells), Decimal(0)) for a in range(self.own)]
            sizes = [(log - max(logs)).exp() for log in logs]
            point = sum(sizes) * u[0] / u[1]
            return sum(total <= point for total in accumulate(sizes[:-1])) if rises else int(point < sizes[1])


def read_factors(document: Document) -> Factors:
    """The factors of a proof, checked to be ones, before any evidence."""
    states = document.array("states", "i", -1).tolist()
    require(all(2 <= k < 2**31 for k in states), "A variable has fewer than two states.")
    arity, scope, table = (document.array(name, k, -1) for name, k in (("arity", "i"), ("scope", "i"), ("tables", "f")))
    require(np.all(np.isneginf(table) | (np.abs(table) <= LARGEST)), "A log-potential is no number, or too large.")
    fits = np.all(arity >= 1) and arity.sum() == len(scope) and np.all((scope >= 0) & (scope < len(states)))
    require(fits, "The scopes do not fit together, or name no variable.")
    ends = np.cumsum(arity).tolist()
    scopes = [tuple(scope[a:b].tolist()) for a, b in zip([0, *ends], ends, strict=False)]
    require(all(len(set(members)) == len(members) for members in scopes), "A scope names a variable twice.")
    return Factors(states, zip(scopes, cut(table, scopes, states), strict=True))


def influence(factors: Factors, variables: Iterable[int]) -> dict[int, Row]:
    """The rows of some variables."""
    rows = {}
    for variable in set(variables):
        hood = factors.around(variable)
        work = hood.own * hood.cells * (1.0 + sum(hood.sizes))
        is_small = work <= MOST_WORK or ({hood.own, *hood.sizes} == {2} and len(hood.others) <= MOST_BINARY)
        values, cap = _by_enumeration(hood) if is_small or not hood.others else _by_closed_forms(hood)
        rows[variable] = list(zip(hood.others, values, strict=True)), cap
    return rows


def gap(D: float, h: float) -> float:
    """sigma(h + D/2) - sigma(h - D/2), from above."""
    x, top = 0.5 * D, max(0.5 * D, h)
    if D <= 0.0 or not top < math.inf:
        return float(not D <= 0.0)
    upper = math.exp(x - top) * -math.expm1(-D)
    lower = math.exp(h - top) + math.exp(-h - top) + math.exp(x - top) + math.exp(-x - top)
    return min(1.0, max(FLOOR, upper / lower * (1.0 + (64.0 + 8.0 * abs(x - h)) * UNIT)))


def _by_enumeration(hood: Neighbourhood) -> tuple[list[float], float]:
    """The largest distance of laws that differ in one neighbour, over all configurations, allowed or not."""
    below = hood.all_laws
    ends = np.zeros((len(below), 1))
    laws = np.diff(np.concatenate([ends, below, ends + 1.0], axis=1), axis=1)
    # Where every state is forbidden, a state of its own: far from all that is defined.
    laws = np.concatenate([np.nan_to_num(laws), np.isnan(laws[:, :1])], axis=1).reshape(*hood.sizes, -1)
    values = []
    for axis, size in enumerate(hood.sizes):
        lines = np.moveaxis(laws, axis, 0)
        shared = [np.moveaxis(table, places.index(axis), 0) for places, table in hood.parts if axis in places]
        steps = combinations(range(size), 2)
        moved = [(x, y) for x, y in steps if not all(np.array_equal(table[x], table[y]) for table in shared)]
        far = [0.5 * float(np.abs(lines[x] - lines[y]).sum(axis=-1).max()) + hood.margin for x, y in moved]
        values.append(min(1.0, max(far, default=0.0)))
    # Two laws share at least what every law gives to each state.
    common = float(laws.reshape(-1, hood.own + 1).min(axis=0).sum())
    return values, min(1.0, 1.0 - common + hood.margin) if any(values) else 0.0


def _by_closed_forms(hood: Neighbourhood) -> tuple[list[float], float]:
    """What the range D of log-odds, and the least lead h of one own state over the others, say without enumeration.

    Beside any other neighbours, a step of one from x to y moves the law by gap(D, h) at most: D is the sum over factors
    of the largest double difference in this step and own states, h is what is half-way between x and y.
    """
    require(sum(size**2 for size in hood.sizes) <= MOST_PAIRS, "Neighbours have too many states for the checker.")
    alive = sum((table for places, table in hood.parts if not places), np.zeros(hood.own)) > -math.inf
    parts, own = [(places, table[..., alive]) for places, table in hood.parts], int(alive.sum())
    slack = UNIT * (16.0 * (len(parts) + 2) * hood.magnitude + 64.0 * hood.own)
    has_leads = (own == 2 or all(len(places) < 2 for places, _ in parts)) and own**2 * len(parts) <= MOST_LEADS
    has_leads = has_leads and all(np.isfinite(table).all() for _, table in parts)
    leads = [_leads(table) if has_leads else np.zeros((own, own)) for _, table in parts]
    total = sum(leads, np.zeros((own, own)))
    values, ranges = [], []
    for k, size in enumerate(hood.sizes):
        holding = [n for n, (places, _) in enumerate(parts) if k in places]
        tables = [np.moveaxis(table, places.index(k), 0) for places, table in (parts[n] for n in holding)]
        elsewhere, value, widest = total - sum(leads[n] for n in holding), 0.0, 0.0
        for x, y in combinations(range(size), 2):
            if all(np.array_equal(table[x], table[y]) for table in tables):
                continue
            with np.errstate(invalid="ignore"):
                D = slack + sum(_range(table[x] - table[y]) for table in tables)
            h = 0.0
            if has_leads and own > 1:
                ahead = elsewhere + sum(_leads(0.5 * (table[x] + table[y])) for table in tables)
                np.fill_diagonal(ahead, math.inf)
                with np.errstate(over="ignore"):
                    h = max(0.0, float(np.max(-np.log(np.exp(-ahead).sum(axis=0)))) - slack)
            widest, value = max(widest, D), max(value, gap(D, h) if own > 1 else float(math.inf == D))
        values.append(value)
        ranges.append(widest)
    cap = gap(math.fsum(ranges) * (1.0 + 1e-12), 0.0) if own > 1 else max(values)
    if has_leads and own == 2:  # the ends of the log-odds, over all neighbours
        low, high = float(total[0, 1]), -float(total[1, 0])
        cap = min(cap, gap(high - low + slack, max(0.0, 0.5 * abs(low + high) - slack)))
    return values, cap


def _leads(table: Array) -> Array:
    """[a, c]: the least by which a table favours own state c over a."""
    lines = table.reshape(-1, table.shape[-1])
    return np.array([(lines - lines[:, [a]]).min(axis=0) for a in range(lines.shape[1])])


def _range(change: Array) -> float:
    """The largest range, over own states, of a change of log-weights; NaN, where both forbid, is no state at all."""
    if np.isinf(change).any():
        return math.inf
    most = np.max(change, axis=-1, where=~np.isnan(change), initial=-math.inf)
    return max(0.0, float(np.max(most - np.min(change, axis=-1, where=~np.isnan(change), initial=math.inf))))


def forward(rows: dict[int, Row], order: list[int], error: Bounds, initial: Bounds, most: float = 1.0) -> Bounds:
    """Bounds on the disagreement after a scan, whose steps take b_i = min(cap_i, sum_j C_ij b_j) + error_i, or most."""
    b = dict(initial)
    for variable in order:
        pairs, cap = rows[variable]
        total = sum([value * b.get(other, 1.0) for other, value in pairs], 0.0)
        b[variable] = min(most, max(FLOOR, min(cap, total) + error.get(variable, 0.0)))
    roundings = (2 * max(len(pairs) for pairs, _ in rows.values()) + 6) * len(order) * UNIT
    require(roundings < 0.1, "The scan is too long for the checker's arithmetic.")
    return {variable: min(most, value * (1.0 + 2.0 * roundings)) for variable, value in b.items()}
