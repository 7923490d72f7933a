"""Check exact draws of ferromagnets: random clusters, coupled from the past.

After relabelling states, each pair adds K >= 0 to the log-density where both states are equal, and
each field adds H >= 0 where the state is 0. Pairs are edges between variables; a field is an edge
between a variable and one additional node, the ghost. Edges are updated in turn: with u uniform and
p = 1 - exp(-K), an edge becomes open if u is below p / (p + q (1 - p)), or if u < p and its ends
are connected without it. Two chains use the same u; one starts with all edges open and one with
none, and every other chain stays between them. Where both give the targets the same clusters, these
are an exact draw from the model. A variable that is connected with the ghost is in state 0, and
every other cluster is in each of the q states with the same probability (theory.md, Random
clusters).
"""

import math
from collections import defaultdict, deque
from typing import Any

import numpy as np

from dobrushin.verify.claim import ProofQuestion
from dobrushin.verify.counts import Counts
from dobrushin.verify.document import Array, require, require_all
from dobrushin.verify.draws import Streams
from dobrushin.verify.model import UNIT, largest
from dobrushin.verify.proof import SOME_STATE, ProofPart
from dobrushin.verify.sums import connected

UPPER, LOWER, BOTH, ASK = 1, 2, 3, 4  # states of an edge: open in one chain, in both; not decided
THRESHOLD_ERROR = 2.0**-49  # of both thresholds of an edge
PER_FACTOR, PER_EDGE, PER_VISIT, PER_SWEEP = 5e-5, 2e-7, 1.5e-7, 4e-5  # seconds
PILOT = 8  # draws to predict the time of further draws
LUMP = 0.1  # seconds of work that are charged together


class Magnet:
    """A ferromagnet as a graph: an edge for each coupled pair, in the order of the file.

    Then comes an edge for each field, to an additional variable: the ghost.
    """

    def __init__(self, part: ProofPart, numbers: Array, colours: Array) -> None:
        """Read the edge of each pair factor from `numbers`, and relabelled states from `colours`.

        A number is -1 for a factor without an edge. Row v of `colours` begins with the state of
        variable v that becomes state 0.
        """
        self.factors, self.colours, self.q = part.proof.factors, colours, colours.shape[1]
        self.ghost, self.error = len(part.proof.states), 0.0
        is_relabelled = np.array_equal(np.sort(colours), np.indices(colours.shape)[1])
        require(is_relabelled, "The relabelling of a variable's states is not one to one.")
        pairs, fields = self._read(part, numbers.tolist())
        self.tied = sorted(v for v, field in fields.items() if field > 0.0)
        edges = sorted(pairs)
        require_all(
            {
                "The edges of clusters are not numbered 0, 1, 2, ...": edges
                == [*range(len(edges))],
                "A pair factor does not reward equal states.": all(
                    K >= 0.0 for K, _ in pairs.values()
                ),
                "Fields favour different states.": all(field >= 0.0 for field in fields.values()),
            }
        )
        self.ends = [pairs[e][1] for e in edges] + [(v, self.ghost) for v in self.tied]
        self.component = dict[int, int]()  # of a variable: one that is connected with it
        for v in {v for question in part.questions.values() for v in question.variables}:
            if v not in self.component:
                self.component |= dict.fromkeys(connected(self.factors, {v}), v)
        self.has_field = {self.component.get(v) for v in self.tied}
        self.near = defaultdict[int, list[tuple[int, int]]](list)  # of a variable: edge, other end
        for edge, (u, v) in enumerate(self.ends):
            self.near[u].append((edge, v))
            self.near[v].append((edge, u))
        strength = np.array([pairs[e][0] for e in edges] + [fields[v] for v in self.tied])
        open_chance = -np.expm1(-strength)
        with np.errstate(invalid="ignore"):
            alone = open_chance / (open_chance + self.q * np.exp(-strength))
        self.alone, self.joined = (
            (np.minimum(chance, 1.0) * 2.0**53).astype(np.uint64) for chance in (alone, open_chance)
        )

    def _read(
        self, part: ProofPart, numbers: list[int]
    ) -> tuple[dict[int, tuple[float, tuple[int, int]]], dict[int, float]]:
        """Add up the couplings on each edge, and the fields on each variable."""
        terms, fields = defaultdict[int, list[float]](list), defaultdict[int, list[float]](list)
        ends, left = dict[int, tuple[int, int]](), iter(numbers)
        for scope, table in self.factors.pairs:
            part.proof.budget.charge("the edges of clusters", PER_FACTOR, held=1500.0)
            is_right = len(scope) <= 2 and {*table.shape} == {self.q} and np.isfinite(table).all()
            require(
                is_right,
                "A factor forbids states, or is not over one or two variables of q states.",
            )
            strength, own = _strengths(table[np.ix_(*(self.colours[v] for v in scope))])
            for v, field in zip(scope, own, strict=True):
                fields[v].append(field)
            self.error += 16.0 * UNIT * largest(table)
            if len(scope) == 2:
                edge, pair = next(left, -1), (min(scope), max(scope))
                require(
                    edge >= 0 or strength == 0.0, "A pair factor that is not constant has no edge."
                )
                require(
                    ends.setdefault(edge, pair) == pair or edge < 0,
                    "An edge belongs to two pairs of variables.",
                )
                terms[edge].append(strength)
        require(next(left, None) is None, "The list of edges is longer than that of pair factors.")
        pairs = {edge: (math.fsum(own), ends[edge]) for edge, own in terms.items() if edge >= 0}
        return pairs, {v: math.fsum(own) for v, own in fields.items()}


def _strengths(table: Array) -> tuple[float, list[float]]:
    """Return a factor's coupling of equal states, and the field on state 0 of each variable."""
    if table.ndim == 1:
        require(
            np.all(table[1:] == table[1]),
            "A field distinguishes more than one state from the others.",
        )
        return 0.0, [float(table[0] - table[1])]
    if len(table) == 2:
        (a, b), (c, d) = table.tolist()
        return 0.5 * (a + d - b - c), [0.5 * ((a + b) - (c + d)), 0.5 * ((a + c) - (b + d))]
    equal, other = table.diagonal(), table[~np.eye(len(table), dtype=bool)]
    is_simple = np.all(equal == equal[0]) and np.all(other == other[0])
    require(is_simple, "A pair factor depends on more than whether its two states are equal.")
    return float(equal[0] - other[0]), [0.0, 0.0]


class ClusterReplay:
    """Exact draws of the targets' clusters, drawn again from the seed by coupling from the past."""

    lanes, is_sets = 1, True

    def __init__(self, part: ProofPart, magnet: Magnet) -> None:
        self.magnet, self.budget, plan = magnet, part.proof.budget, part.plan
        self.looked_at = sorted({v for q in part.questions.values() for v in q.variables})
        self.past, self.rounds = plan["past"], plan["rounds"]
        is_right = 1 <= self.past <= 2**30 and 1 <= self.rounds <= 30
        require(is_right, "The number or the length of the rounds is out of range.")
        self.entropy, self.spawn_key = part.proof.seed()
        self.work, self.paid = 0.0, math.inf if part.proof.replay else 0.0
        self.outcomes(np.arange(PILOT))
        self.per_draw = 1.25 * self.work / PILOT

    def seconds(self, chains: int) -> float:
        """Estimate the seconds that drawing clusters takes."""
        return self.per_draw * chains

    def outcomes(self, chains: Array) -> Array:
        """Return the cluster of each target in each draw.

        0 is the cluster of the ghost, which stands for the fields; 1 + k is that of the k-th
        target; -1 means that the two chains did not agree.
        """
        streams = Streams(self.entropy, tuple(self.spawn_key), chains)
        found = [self._draw(streams, c) for c in range(len(chains))]
        return np.array(found, dtype=np.int64).T

    def _draw(self, streams: Streams, c: int) -> list[int]:
        magnet, count = self.magnet, len(self.magnet.ends)
        for number in range(self.rounds):
            sweeps, state = self.past << number, [UPPER] * count
            for t in range(sweeps - 1, -1, -1):
                u = streams.words(c, t * count + np.arange(count)) >> np.uint64(11)
                drawn = np.where(u < magnet.alone, BOTH, np.where(u < magnet.joined, ASK, 0))
                for edge, new in enumerate(drawn.tolist()):
                    state[edge] = new if new != ASK else self._ask(state, edge)
                self._pay(PER_SWEEP + PER_EDGE * count)
            upper, lower = (self._clusters(state, chain) for chain in (UPPER, LOWER))
            if upper == lower:
                return upper
        return [-1] * len(self.looked_at)

    def _pay(self, seconds: float) -> None:
        """Charge the budget for work beyond the estimate that was charged before."""
        self.work += seconds
        if self.work > self.paid:
            self.budget.charge("draws of random clusters", self.work + LUMP - self.paid)
            self.paid = self.work + LUMP

    def _ask(self, state: list[int], edge: int) -> int:
        """Return in which chains (UPPER + LOWER) other edges connect the ends of an edge."""
        state[edge] = 0
        chains = (chain for chain in (UPPER, LOWER) if self._is_joined(state, edge, chain))
        return sum(chains)

    def _is_joined(self, state: list[int], edge: int, chain: int) -> bool:
        """Return whether open edges connect the ends of an edge, searching from both ends."""
        sides = [({v}, deque([v])) for v in self.magnet.ends[edge]]
        while sides[0][1]:
            (own, waiting), (others, _) = sides
            for other in self._beside(waiting.popleft(), state, chain):
                if other in others:
                    return True
                if other not in own:
                    own.add(other)
                    waiting.append(other)
            sides.reverse()
        return False

    def _beside(self, variable: int, state: list[int], chain: int) -> list[int]:
        """Return the other ends of the open edges at a variable, or at the ghost (the fields)."""
        near = self.magnet.near[variable]
        self._pay(PER_VISIT * (1 + len(near)))
        return [other for edge, other in near if state[edge] & chain]

    def _clusters(self, state: list[int], chain: int) -> list[int]:
        """Return the cluster of each target in one chain, numbered as in `outcomes`."""
        label = dict[int, int]()
        for k, v in enumerate(self.looked_at):
            own, waiting = {v}, [v] * (v not in label)
            while waiting:
                new = set(self._beside(waiting.pop(), state, chain)) - own
                own |= new
                waiting += new
            if v not in label:
                label |= dict.fromkeys(own, 0 if self.magnet.ghost in own else 1 + k)
        return [label[v] for v in self.looked_at]


class LinkCounts(Counts):
    """Counts of draws in which two targets are connected, or one target and the ghost.

    The ghost is an additional variable that stands for the fields.
    """

    def width(self, question: ProofQuestion) -> int:
        """Return 2, since two numbers are counted: of connected and of undecided draws."""
        return 2

    def cells(self, question: ProofQuestion, own: Array) -> Array:
        """Return what each draw counts as: 0 connected, 1 undecided, 2 neither (not counted)."""
        linked = own[0] == own[1] if len(own) == 2 else own[0] == 0
        return np.where((own < 0).any(axis=0), 1, np.where(linked, 0, 2))


def check_clusters(part: ProofPart) -> float:
    """Check probabilities of states, which follow from the probability of being connected."""
    proof, plan = part.proof, part.plan
    numbers = proof.array(plan["edges"], "i", -1)
    colours = proof.array(plan["colours"], "i", len(proof.states), -1)
    magnet = Magnet(part, numbers, colours)
    draws = ClusterReplay(part, magnet)
    inside = {v for scope, _ in proof.factors.pairs for v in scope}.union(draws.looked_at)
    is_same = all(proof.states[v] == magnet.q for v in inside)
    require(
        is_same and plan["kernel"] == "clusters",
        "The variables of clusters have different numbers of states.",
    )
    apart = proof.close(inside)
    sweeps = draws.past << (draws.rounds - 1)
    wrong = sweeps * len(magnet.ends) * THRESHOLD_ERROR + math.expm1(2.0 * magnet.error)
    counts = LinkCounts(part, draws)
    for k, question in part.questions.items():
        _check_links(counts, magnet, k, wrong + apart + proof.off + 2.0**-49)
        require(
            len(question.variables) <= 2,
            "A question about clusters does not name one or two variables.",
        )
    proof.checked.append(f"{len(magnet.ends)} edges of random clusters, coupled from the past")
    proof.assumptions.append(SOME_STATE)
    return part.lost


def _check_links(counts: LinkCounts, magnet: Magnet, k: int, wrong: float) -> None:
    """Check the intervals of a question: each probability is linear in P(connected)."""
    part, question, q = counts.part, counts.part.questions[k], magnet.q
    hits, unknown = counts.totals[k]
    level = 0.5 * part.level * question.intervals
    components = {magnet.component[v] for v in question.variables}
    has_field, is_pair = not components.isdisjoint(magnet.has_field), len(question.variables) == 2
    is_linked = not is_pair or (len(components) == 1 and not has_field)
    require(is_linked, "Connections do not decide a joint law with fields, or of two components.")

    def is_above(x: float) -> bool:
        return counts.is_above(x, hits, level)

    def is_below(x: float) -> bool:
        return counts.is_above(1.0 - x, counts.trials - hits - unknown, level)

    rows: Any = zip(part.proof.lower[k], part.proof.upper[k], strict=True)
    for row, (low, high) in enumerate(rows):
        digits = np.unravel_index(row, question.sizes)
        pairs = zip(question.variables, digits, strict=True)
        own = [magnet.colours[v].tolist().index(digit) for v, digit in pairs]
        is_equal = len({*own}) == 1 if is_pair else own[0] == 0
        base = q ** -len(own)
        slope = (is_equal / q - base if is_pair else is_equal - base) * (is_pair or has_field)
        low, high = low + wrong - base, high - wrong - base
        if slope > 0.0:
            is_low, is_high = is_above(low / slope), is_below(high / slope)
        elif slope < 0.0:
            is_low, is_high = is_below(low / slope), is_above(high / slope)
        else:
            is_low, is_high = low <= 0.0, high >= 0.0
        part.proof.within(k, row, is_low, is_high)
