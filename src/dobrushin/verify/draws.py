"""Draw chains and bounding sets again, from the seed alone.

The seed, the step and the number of the chain determine each random word. A draw compares a uniform
number u with probabilities that follow from the factors, in floating point; a u that is too near to
one of them is compared again in 60 digits. So no draw depends on how a machine rounds exponentials
(docs/proofs.md has a table of the kernels).
"""

import math
from collections.abc import Callable, Sequence
from decimal import Decimal, localcontext

import numpy as np
from numpy.typing import NDArray

from dobrushin.verify.document import Array, require, require_all
from dobrushin.verify.model import Neighbourhood, decimal_sums
from dobrushin.verify.proof import Proof, ProofPart, Steps

PLANES = 24  # bits of a 64-bit uniform number that are compared first
AT_ONCE, IN_MEMORY = 2**16, 2**28  # chains that run together, and bytes that they take
SHARED, RISING = ("bits", "counts", "set bits"), ("potts", "conditional", "factors")
KERNELS = ("bits", "counts", "table", "field", "dense", *RISING)
RACES = ("set race", "set labels")
SETS = ("set bits", "set field", *RACES)
START = 2**63  # counters of the words that chains start with; those of draws are far below
# Seconds for a step of a group of chains and each call of NumPy in it, for a draw and each number
# that it looks at, and for each number in a draw that is decided with 60 digits.
PER_GROUP, PER_CALL, PER_DRAW, PER_NUMBER, PER_DECISION = 8e-5, 5e-6, 8e-8, 8e-9, 3e-5

Words = NDArray[np.uint64]
Digits = NDArray[np.int16]
# The uniform numbers of a step: a float for each chain, its error, and the exact fraction of one.
Uniform = tuple[Array, float, Callable[[int], tuple[int, int]]]


def _mix(z: Words) -> Words:
    """Mix 64-bit words as the output function of SplitMix64 does."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


class Streams:
    """The random streams of a seed with these numbers: word c of a stream is mix(key + c gamma)."""

    def __init__(self, entropy: int, spawn_key: tuple[int, ...], numbers: Array) -> None:
        sequence = np.random.SeedSequence(entropy, spawn_key=spawn_key)
        master = sequence.generate_state(2, np.uint64)
        steps = np.uint64(0x9E3779B97F4A7C15) * numbers.astype(np.uint64)
        self.key = _mix(master[:1] + steps)
        gamma = _mix(master[1:] + steps) | np.uint64(1)
        # As in SplitMix64, replace increments whose neighbouring bits differ too rarely.
        changes = np.unpackbits((gamma ^ (gamma >> np.uint64(1))).view(np.uint8))
        is_rare = changes.reshape(-1, 64).sum(axis=1) < 24
        self.gamma: Words = np.where(is_rare, gamma ^ np.uint64(0xAAAAAAAAAAAAAAAA), gamma)

    def word(self, counter: int) -> Words:
        """Return one word of each stream."""
        return _mix(self.gamma * np.uint64(counter) + self.key)

    def words(self, stream: int, counters: Array) -> Words:
        """Return several words of one stream."""
        return _mix(self.gamma[stream] * counters.astype(np.uint64) + self.key[stream])

    def lanes(self, first: int, count: int) -> NDArray[np.uint8]:
        """Return the bits of `count` words of each stream, lowest first: (words, chains)."""
        counters = np.uint64(first) + np.arange(count, dtype=np.uint64)
        words = _mix(self.gamma * counters[:, None] + self.key)
        return np.unpackbits(words.astype("<u8").view(np.uint8), axis=1, bitorder="little")


class Walk:
    """Simulator of a part's chains or bounding sets, which share a scan, a start and a seed."""

    def __init__(self, part: ProofPart, order: Steps, mark: tuple[int, ...] = ()) -> None:
        """Read the kernel, the start and the seed of a part.

        The numbers in `mark` extend the seed, so that bounding sets have random words of their own.
        """
        proof, plan, run = part.proof, part.plan, part.plan["run"]
        self.factors, self.order, self.budget = proof.factors, order, proof.budget
        self.kernel, self.words = plan["kernel"], plan.get("words", 0)
        self.lanes = 64 if self.kernel in SHARED else 1  # chains that share a stream
        self.is_race, self.is_sets = self.kernel in RACES, self.kernel in SETS
        self.hoods = {v: self.factors.around(v) for v in set(order.cycle)}
        # Variables whose final states are needed, and those whose states an update needs.
        asked = {v for question in part.questions.values() for v in question.variables}
        self.looked_at = sorted(asked)
        seen = {v for i, hood in self.hoods.items() for v in (i, *hood.others)}
        self._read_places(proof, plan["places"], seen | asked)
        self._read_start(proof, plan["start"])
        self.at_once = self._fit()
        require(
            0 <= run < 2**32 and run not in proof.runs, "Two parts use the same random numbers."
        )
        proof.runs.add(run)
        self.entropy, key = proof.seed()
        self.work = self.paid = 0.0  # seconds that were spent, and charged for
        self.spawn_key = (*key, *((1990, 4, run) if run else ()), *mark)

    def _read_places(self, proof: Proof, name: str, needed: set[int]) -> None:
        """Read which random word each variable starts with; -1 for one that chains do not hold."""
        numbers = proof.array(name, "i", len(proof.states)).tolist()
        self.places = {v: p for v, p in enumerate(numbers) if p >= 0}
        differ = len(set(self.places.values())) == len(self.places) and max(numbers) < 2**62
        fit = all(proof.states[v] < 2**15 for v in self.places)
        is_whole = needed <= self.places.keys()
        require_all(
            {
                "Two variables start with the same random numbers.": differ,
                "Chains leave out a variable that the scan or a question needs.": is_whole,
                "A variable has too many states to be drawn.": fit,
            }
        )

    def _read_start(self, proof: Proof, name: str) -> None:
        """Read the starting states (-1: drawn uniformly), and check that no factor forbids them."""
        count = len(proof.states)
        digits = proof.array(name, "i", count) if name else np.full(count, -1)
        self.start = {v: int(digits[v]) for v in self.places}
        is_known = all(-1 <= d < proof.states[v] for v, d in self.start.items())
        require(is_known, "Chains start in an unknown state.")
        states = {v: d if d >= 0 else slice(None) for v, d in self.start.items()}
        for scope, table in self.factors.near([] if self.is_sets else self.order.cycle).pairs:
            is_possible = not np.isneginf(table[tuple(states[v] for v in scope)]).any()
            require(is_possible, "Chains may start in a forbidden state.")

    def seconds(self, chains: int) -> float:
        """Estimate the seconds that drawing chains takes."""
        groups, total = 1 + chains // self.at_once, 0.0
        for hood in self.hoods.values():
            tables = len(hood.parts) if self.is_race or not hood.are_laws_kept else 1
            numbers, calls = hood.own * tables, hood.own + tables
            if self.is_race:
                calls = 2 * hood.own * tables
                numbers = 2 * (hood.own + sum(table.size for _, table in hood.parts))
            near = min(1.0, 8.0 * hood.margin) * hood.own * (len(hood.parts) + 1)
            draw = PER_DRAW + PER_NUMBER * numbers + PER_DECISION * near
            total += groups * (PER_GROUP + PER_CALL * calls) + chains * draw
        ends = 2 if self.is_sets and not self.is_race else 1
        return ends * total * len(self.order) / len(self.hoods)

    def _fit(self) -> int:
        """Return how many chains, in whole streams, fit into memory together."""
        held = sum(self.factors.states[v] if self.is_race else 4 for v in self.places)
        widest = 0
        for hood in self.hoods.values():
            tables = max((table.size for _, table in hood.parts), default=0) * self.is_race
            widest = max(widest, 64 * (hood.own + len(hood.others)) + 40 * tables)
        size = max(1, min(AT_ONCE, IN_MEMORY // (held + widest)) // self.lanes) * self.lanes
        self.budget.charge("the chains that run together", briefly=1.0 * size * (held + widest))
        return size

    def outcomes(self, chains: NDArray[np.int64]) -> Digits:
        """Draw chains of whole streams; return targets' final states (-1: not coalesced)."""
        walk = self._run_race if self.is_race else self._run
        streams = chains[:: self.lanes] // self.lanes
        size = self.at_once // self.lanes
        groups = (streams[k : k + size] for k in range(0, len(streams), size))
        drawn = [walk(Streams(self.entropy, self.spawn_key, group)) for group in groups]
        return np.concatenate(drawn, axis=1)

    def _run(self, streams: Streams) -> Digits:
        """Run chains, or bounding sets of binary variables as pairs of a lower and an upper end.

        The lower end sees the states of neighbours that make 1 least likely, the upper end those
        that make it most likely (theory.md, Two states: the ends of the set).
        """
        ends = (0, 1) if self.is_sets else (0,)
        x = [{v: self._begin(streams, v, end) for v in self.places} for end in ends]
        rises = {v: _directions(hood) if self.is_sets else [] for v, hood in self.hoods.items()}
        for t, variable in enumerate(self.order):
            hood, uniform = self.hoods[variable], self._uniform(streams, t)
            seen = [[own[v] for v in hood.others] for own in x]
            if self.is_sets:
                low, high = seen
                sides = list(zip(rises[variable], low, high, strict=True))
                seen = [
                    [a if up else b for up, a, b in sides],
                    [b if up else a for up, a, b in sides],
                ]
            drawn = [_draw(hood, beside, uniform, self.kernel in RISING) for beside in seen]
            for own, digits in zip(x, drawn, strict=True):
                own[variable] = digits
        first, last = (np.stack([own[v] for v in self.looked_at]) for own in (x[0], x[-1]))
        return np.where(first == last, first, np.int16(-1))

    def _uniform(self, streams: Streams, step: int) -> Uniform:
        """Return the uniform numbers of a step, one for each chain.

        See theory.md, Random bits belong to steps.
        """
        if self.lanes > 1:

            def exact(c: int) -> tuple[int, int]:
                bits = np.packbits(streams.lanes(64 * step, 64)[:, c])
                return int.from_bytes(bits.tobytes()), 2**64

            planes = np.packbits(streams.lanes(64 * step, PLANES), axis=0)
            whole = np.array([65536.0, 256.0, 1.0]) @ planes
            return (whole + 0.5) * 2.0**-PLANES, 2.0 ** -(PLANES + 1), exact
        bits, half = 63 if self.kernel == "table" else 53, int(self.kernel == "set field")
        word = streams.word(step) >> np.uint64(64 - bits)
        value = (word.astype(np.float64) + 0.5 * half) * 2.0**-bits
        return value, 2.0**-53, lambda c: (2 * int(word[c]) + half, 2 ** (bits + 1))

    def _begin(self, streams: Streams, variable: int, end: int) -> Digits:
        """Return the states in which chains start at a variable.

        Bounding sets start with all states: for them it is the lowest or the highest state, `end`.
        """
        fixed = end if self.is_sets else self.start[variable]
        if fixed >= 0:
            return np.full(self.lanes * len(streams.key), fixed, dtype=np.int16)
        counter = START + self.places[variable]
        if self.lanes > 1:
            return streams.lanes(counter, 1)[0].astype(np.int16)
        word, n = streams.word(counter), np.uint64(self.factors.states[variable])
        low = ((word & np.uint64(2**32 - 1)) * n) >> np.uint64(32)
        high = (word >> np.uint64(32)) * n
        return ((high + low) >> np.uint64(32)).astype(np.int16)  # floor(word n / 2^64)

    def _run_race(self, streams: Streams) -> Digits:
        """Run bounding sets of any numbers of states (theory.md, More states: the race)."""
        shape, sizes = len(streams.key), self.factors.states
        sets = {v: np.ones((sizes[v], shape), dtype=bool) for v in self.places}
        for t, variable in enumerate(self.order):
            hood = self.hoods[variable]
            require(
                hood.own <= self.words,
                "The race has fewer random numbers than a variable has states.",
            )
            words = [streams.word(t * self.words + a) >> np.uint64(11) for a in range(hood.own)]
            sets[variable] = _race(hood, [sets[v] for v in hood.others], np.stack(words))
        left = [sets[v] for v in self.looked_at]
        only = [np.where(own.sum(axis=0) == 1, own.argmax(axis=0), -1) for own in left]
        return np.stack(only).astype(np.int16)


def _draw(hood: Neighbourhood, seen: list[Digits], uniform: Uniform, rises: bool) -> Digits:
    """Draw states by uniform numbers u, given the states of the neighbours.

    With `rises`, the state is the number of cumulative probabilities that are at most u; without,
    it is 1 if u is below the probability of 1.
    """
    u, slack, exact = uniform
    require(
        rises or hood.own == 2,
        "A kernel for binary variables updates a variable of more than two states.",
    )
    drawn, near = np.zeros(len(u), dtype=np.int16), np.zeros(len(u), dtype=bool)
    margin = hood.margin + slack + 2.0**-50
    for chance in hood.laws_beside(seen, len(u)).T:
        require(
            not np.isnan(chance.sum()),
            "A draw is undefined: its neighbours forbid every state of a variable.",
        )
        ahead = u - chance if rises else (1.0 - chance) - u
        drawn += ahead >= 0.0 if rises else ahead > 0.0
        near |= np.abs(ahead) <= margin
    for c in np.flatnonzero(near).tolist():
        drawn[c] = hood.decide([int(digits[c]) for digits in seen], exact(c), rises)
    return drawn


def _directions(hood: Neighbourhood) -> list[bool]:
    """Return, for each neighbour, whether its state 1 makes this variable's state 1 likelier."""
    require(
        {hood.own, *hood.sizes} == {2},
        "This kernel of bounding sets needs variables of two states.",
    )
    signs: list[list[float]] = [[] for _ in hood.others]
    for places, table in hood.parts:
        is_pair = len(places) == 1 and np.isfinite(table).all()
        require(
            is_pair or not places, "This kernel of bounding sets needs pair factors without zeros."
        )
        if is_pair:
            a, b, c, d = table.ravel().tolist()
            signs[places[0]] += [a, d, -b, -c]
    return [math.fsum(terms) >= 0.0 for terms in signs]


def _race(hood: Neighbourhood, others: list[NDArray[np.bool_]], words: Words) -> NDArray[np.bool_]:
    """Return the states that may win the race, given the sets of the neighbours.

    The race draws a state: state a has the time E_a = -ln u_a divided by its weight, and the
    smallest time wins. With lo_a and hi_a the least and largest log-weight of a over the sets, a
    may win if ln E_a - hi_a <= ln E_b - lo_b for all other b.
    """
    lows, highs = [], []  # of each factor, by own state and run
    for places, table in hood.parts:
        allowed = np.ones((1, words.shape[1]), dtype=bool)
        for p in places:
            allowed = (allowed[:, None] & others[p][None]).reshape(-1, words.shape[1])
        columns = [table[..., a].reshape(-1, 1) for a in range(hood.own)]
        lows.append(np.stack([np.where(allowed, c, math.inf).min(axis=0) for c in columns]))
        highs.append(np.stack([np.where(allowed, c, -math.inf).max(axis=0) for c in columns]))
    times = np.log(-np.log((words.astype(np.float64) + 0.5) * 2.0**-53))
    earliest, latest = times - sum(highs), times - sum(lows)
    ranked = np.sort(latest, axis=0)
    is_leader = np.arange(hood.own)[:, None] == latest.argmin(axis=0)
    rival = np.where(is_leader, ranked[1], ranked[0])
    possible = earliest < math.inf
    fits = possible & (earliest <= rival)
    margin = 8.0 * hood.margin + 1e-14 * (1.0 + np.abs(times).max(axis=0))
    with np.errstate(invalid="ignore"):
        near = possible & (np.abs(earliest - rival) <= margin)
    for c in np.flatnonzero(near.any(axis=0)).tolist():
        ends = ([part[:, c].tolist() for part in parts] for parts in (highs, lows))
        fits[:, c] = _decide_race(words[:, c].tolist(), *ends)
    fits[:, ~fits.any(axis=0)] = True  # no state is allowed beside these sets: all are possible
    return fits


def _decide_race(
    words: list[int], highs: Sequence[list[float]], lows: Sequence[list[float]]
) -> list[bool]:
    """Return the states that may win the race of one run, computed with 60 digits."""
    with localcontext(prec=60):
        times = [(-(Decimal(2 * word + 1) / Decimal(2**54)).ln()).ln() for word in words]
        ends = (zip(times, decimal_sums(own, len(words)), strict=True) for own in (highs, lows))
        earliest, latest = ([time - logs for time, logs in pairs] for pairs in ends)
        never = Decimal("Infinity")
        rivals = [min(latest[:a] + latest[a + 1 :], default=never) for a in range(len(words))]
        pairs = zip(earliest, rivals, strict=True)
        return [early.is_finite() and early <= rival for early, rival in pairs]
