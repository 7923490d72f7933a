"""Bounds on the distance between the distribution after a scan and that of the model.

The influence C_ij bounds the total variation by which the conditional law of variable i changes
when only neighbour j changes; the cap of i bounds it when all neighbours change at once (theory.md,
Influence). The disagreement b_i is the probability that chain and model differ at i, under the best
coupling. An update of i makes it at most min(cap_i, sum_j C_ij b_j) + error_i (theory.md,
Certificates).
"""

import math
from collections.abc import Iterable, Iterator
from itertools import combinations

import numpy as np

from dobrushin.verify.document import Array, require, require_reach
from dobrushin.verify.model import UNIT, Factors, Neighbourhood
from dobrushin.verify.proof import SOME_STATE, ProofPart, Row, Steps

FLOOR = 2.0**-1000  # smaller bounds are raised to this, so that none underflows to 0
# Joint states of the neighbours are enumerated up to this much work (states x joint states of the
# neighbours x their numbers of states), and for up to this many binary neighbours.
MAX_WORK, MAX_BINARY = 1.2e5, 13
MAX_LEADS = 2**24  # entries of a table of leads; quadratic in the number of own states
PER_ROW, PER_PAIR, PER_ENTRY = 1e-3, 4e-5, 2e-8  # seconds
GIVEN = (
    "entry (i, j) of the matrix in the file bounds the influence of j on i, and entry (i, i) that"
    " of all others together"
)
STARTED = "at the start, one coupling of chain and model has at most the disagreements in the file"
ERRS = "the error of each update of the chain is at most that in the file"
Bounds = dict[int, float]


def forward(
    rows: dict[int, Row], order: Steps, error: Bounds, initial: Bounds, most: float = 1.0
) -> Bounds:
    """Bound the disagreement of each variable after a scan; no bound is above `most`.

    `rows` has the influences on each updated variable and its cap, `error` the error of each
    update, and `initial` the disagreement at the start (1 for a variable that is missing there).
    """
    order.charge(rows)
    roundings = (2 * max(len(pairs) for pairs, _ in rows.values()) + 6) * len(order) * UNIT
    require_reach(roundings < 0.1, "The scan is too long for the checker's arithmetic.")
    b = dict(initial)
    for variable in order:
        pairs, cap = rows[variable]
        total = sum([value * b.get(other, 1.0) for other, value in pairs], 0.0)
        b[variable] = min(most, max(FLOOR, min(cap, total) + error.get(variable, 0.0)))
    # A sum of non-negative doubles is low by less than this (theory.md, Certificates: Rounding).
    return {variable: min(most, value * (1.0 + 2.0 * roundings)) for variable, value in b.items()}


def influence(factors: Factors, variables: Iterable[int]) -> dict[int, Row]:
    """Bound the influence of each neighbour on some variables, and the cap of each of them."""
    rows = {}
    for variable in set(variables):
        hood = factors.around(variable)
        factors.budget.charge("the influences on all variables", PER_ROW)
        work = hood.own * hood.cells * (1.0 + sum(hood.sizes))
        is_binary = {hood.own, *hood.sizes} == {2} and len(hood.others) <= MAX_BINARY
        is_small = work <= MAX_WORK or is_binary or not hood.others
        values, cap = _by_enumeration(hood) if is_small else _by_closed_forms(hood)
        rows[variable] = list(zip(hood.others, values, strict=True)), cap
    return rows


def gap(D: float, h: float) -> float:
    """Bound sigma(h + D/2) - sigma(h - D/2) from above, where sigma is the logistic function.

    See theory.md, Log-odds, and The gap.
    """
    x, top = 0.5 * D, max(0.5 * D, h)
    if D <= 0.0:
        return 0.0
    if not top < math.inf:
        return 1.0
    upper = math.exp(x - top) * -math.expm1(-D)
    lower = math.exp(h - top) + math.exp(-h - top) + math.exp(x - top) + math.exp(-x - top)
    return min(1.0, max(FLOOR, upper / lower * (1.0 + (64.0 + 8.0 * abs(x - h)) * UNIT)))


def _charge_pairs(hood: Neighbourhood, per_pair: float, size: float = 0.0) -> None:
    """Charge the budget for comparing all pairs of states of each neighbour."""
    pairs = zip(hood.sizes, hood.holding, strict=True)
    count = sum(size**2 * (len(numbers) + 1) for size, numbers in pairs)
    largest = max(hood.sizes, default=0)
    what = f"the influences on a variable of {hood.own} states with a neighbour of {largest}"
    hood.budget.charge(what, 0.5 * count * per_pair, briefly=size)


def _moves(tables: list[Array], size: int) -> Iterator[tuple[int, int]]:
    """Yield the pairs of states of a neighbour in which its tables differ."""
    for x, y in combinations(range(size), 2):
        if not all(np.array_equal(table[x], table[y]) for table in tables):
            yield x, y


def _tables_of(
    parts: list[tuple[list[int], Array]], holding: list[int], neighbour: int
) -> list[Array]:
    """Return the tables that contain a neighbour, with the neighbour's states on the first axis."""
    found = [parts[number] for number in holding]
    return [np.moveaxis(table, places.index(neighbour), 0) for places, table in found]


def _by_enumeration(hood: Neighbourhood) -> tuple[list[float], float]:
    """Bound the influences by comparing the laws for all joint states of the neighbours.

    Joint states of probability 0 count as well. A law is undefined where every state of the
    variable is forbidden; it counts as at distance 1 from every defined law (theory.md, Enumeration
    and undefined conditionals).
    """
    _charge_pairs(hood, PER_PAIR)
    laws = np.diff(hood.all_laws, axis=1, prepend=0.0, append=1.0)
    laws = np.concatenate([np.nan_to_num(laws), np.isnan(laws[:, :1])], axis=1)
    lines, values = laws.reshape(*hood.sizes, hood.own + 1), []
    for axis, size in enumerate(hood.sizes):
        own, tables = np.moveaxis(lines, axis, 0), _tables_of(hood.parts, hood.holding[axis], axis)
        pairs = ((own[x], own[y]) for x, y in _moves(tables, size))
        far = [0.5 * float(np.abs(one - other).sum(axis=-1).max()) for one, other in pairs]
        values.append(min(1.0, max(far) + hood.margin) if far else 0.0)
    # Two laws share at least what every law gives to each state (theory.md, Caps).
    common = float(laws.min(axis=0).sum())
    return values, min(1.0, 1.0 - common + hood.margin) if any(values) else 0.0


def _by_closed_forms(hood: Neighbourhood) -> tuple[list[float], float]:
    """Bound the influences without running through the joint states of the neighbours.

    If one neighbour moves from state x to y, the law of the variable changes by at most gap(D, h)
    in total variation. D is the sum over factors of the range of the change in log-weight
    (theory.md, Range of the factors). h is the lead half-way between x and y: a lower bound on the
    log-odds of one own state against all others together (Theorem 4 with unaries). A lead is
    computed only without zeros, and if the factors are pairs or the variable is binary.
    """
    alive = sum((table for places, table in hood.parts if not places), np.zeros(hood.own))
    parts = [(places, table[..., alive > -math.inf]) for places, table in hood.parts]
    own = int((alive > -math.inf).sum())
    is_simple = own == 2 or all(len(places) < 2 for places, _ in parts)
    has_leads = own > 1 and is_simple and own**2 * len(parts) <= MAX_LEADS
    cells = max(table.size for _, table in parts)
    per_pair = PER_PAIR + PER_ENTRY * cells / min(hood.sizes) * (own if has_leads else 2)
    _charge_pairs(hood, per_pair, 40.0 * cells + 32.0 * has_leads * own**2 * len(parts))
    has_leads = has_leads and all(np.isfinite(table).all() for _, table in parts)
    slack = UNIT * (16.0 * (len(parts) + 2) * hood.magnitude + 64.0 * own)
    leads = [_leads(table) for _, table in parts] if has_leads else []
    total, values, ranges = sum(leads, np.zeros((own, own) if has_leads else (1, 1))), [], []
    for k, size in enumerate(hood.sizes):
        tables, found = _tables_of(parts, hood.holding[k], k), [(0.0, 0.0)]
        elsewhere = total - sum(leads[number] for number in hood.holding[k] if has_leads)
        for x, y in _moves(tables, size):
            D = slack + sum(_range(table[x], table[y]) for table in tables)
            h = _lead(tables, x, y, elsewhere) - slack if has_leads else 0.0
            found.append((D, gap(D, max(0.0, h)) if own > 1 else float(math.inf == D)))
        ranges.append(max(D for D, _ in found))
        values.append(max(value for _, value in found))
    # The effect of all neighbours together (theory.md, Caps).
    cap = gap(math.fsum(ranges) * (1.0 + 1e-12), 0.0) if own > 1 else max(values)
    if has_leads and own == 2:  # the two ends of the log-odds
        low, high = float(total[0, 1]), -float(total[1, 0])
        middle = max(0.0, 0.5 * abs(low + high) - slack)
        cap = min(cap, gap(high - low + slack, middle))
    return values, cap


def _lead(tables: list[Array], x: int, y: int, elsewhere: Array) -> float:
    """Bound from below the log-odds of the likeliest own state against all others together.

    The log-tables are averaged over the two states x and y of the neighbour.
    """
    ahead = elsewhere + sum(_leads(0.5 * (table[x] + table[y])) for table in tables)
    np.fill_diagonal(ahead, math.inf)
    with np.errstate(over="ignore"):
        return float(np.max(-np.log(np.exp(-ahead).sum(axis=0))))


def _leads(table: Array) -> Array:
    """Return a matrix: entry [a, c] is the least excess of own state c over a in a log-table."""
    lines = table.reshape(-1, table.shape[-1])
    return np.array([(lines - lines[:, [a]]).min(axis=0) for a in range(lines.shape[1])])


def _range(x: Array, y: Array) -> float:
    """Return the largest range of the change in log-weight as a neighbour moves from x to y.

    A state that is forbidden before and after the move (NaN) does not count.
    """
    with np.errstate(invalid="ignore"):
        change = x - y
    if np.isinf(change).any():
        return math.inf
    is_known = ~np.isnan(change)
    most = np.max(change, axis=-1, where=is_known, initial=-math.inf)
    least = np.min(change, axis=-1, where=is_known, initial=math.inf)
    return max(0.0, float(np.max(most - least)))


def check_variation(part: ProofPart) -> float:
    """Check a bound on the distance after a scan.

    The influences are computed from the factors, unless the file lists them in a matrix.
    """
    proof, plan, order = part.proof, part.plan, part.scan()
    ((k, question),) = part.questions.items()
    count = len(proof.states)
    error, initial = (proof.array(plan[name], "f", count) for name in ("error", "initial"))
    is_bound = all(np.all((b >= 0.0) & (b <= 1.0)) for b in (error, initial))
    require(is_bound, "A bound on a start or an update is not between 0 and 1.")
    require(not proof.plan["dropped"], "A bound on a whole scan must not leave out variables.")
    proof.close(order.cycle)
    rows = influence(proof.factors, order.cycle)
    if plan["matrix"]:
        rows = _read_rows(proof.array(plan["matrix"], "f", -1, 3), set(rows), count)
    believed = {GIVEN: plan["matrix"], STARTED: (initial < 1.0).any(), ERRS: error.any()}
    proof.assumptions += [words for words, is_used in believed.items() if is_used]
    proof.believes |= any(believed.values())
    # If a model file is given, its update laws may differ slightly from those of the proof.
    errors = {v: error[v] + proof.close([v]) for v in set(order.cycle)}
    bounds = forward(rows, order, errors, dict(enumerate(initial.tolist())))
    proof.within(k, 0, False, proof.upper[k][0] >= question.bias(bounds))
    proof.checked.append(f"the bias of {len(order)} steps by Dobrushin's bound")
    proof.assumptions.append(SOME_STATE)
    return part.lost


def _read_rows(triples: Array, updated: set[int], count: int) -> dict[int, Row]:
    """Read influences (i, j, C_ij) that the file lists; an entry (i, i) is the cap of i."""
    i, j, value = triples.T
    is_right = np.isfinite(triples).all() and np.all(value >= 0.0)
    require(is_right, "An influence is below 0, infinite or not a number.")
    is_used = np.isin(i, list(updated)) & (j >= 0) & (j < count) & (j == np.floor(j))
    require(is_used.all(), "The matrix has entries for variables that the scan does not update.")
    pairs: dict[int, list[tuple[int, float]]] = {v: [] for v in updated}
    for own, other, size in zip(*triples.T.tolist(), strict=True):
        pairs[int(own)].append((int(other), size))
    rows = {v: [(other, size) for other, size in pairs[v] if other != v] for v in updated}
    caps = {v: dict(pairs[v]).get(v, 1.0) for v in updated}
    return {v: (rows[v], min(1.0, caps[v])) for v in updated}
