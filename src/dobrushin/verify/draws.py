"""Chains and runs on sets, drawn again from the seed, the step and the number of the chain alone: see `docs/proofs.md`.

A draw compares a uniform number u with chances that follow from the factors, in floating point; a u that is too near to
one of them is decided with 60 digits. So nothing depends on the last digits of an exponential.
"""

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin.verify.document import Array, require
from dobrushin.verify.factors import Neighbourhood

PLANES = 24  # of the 64 bits of a number that has a bit in each of 64 words, so many are looked at first
AT_ONCE, MOST_HELD = 2**16, 2**28  # chains that are run together, and numbers that they hold
SHARED, RISING = ("bits", "counts", "set bits"), ("potts", "conditional", "factors")
KERNELS = ("bits", "counts", "table", "field", "dense", *RISING)
RACES = ("set race", "set labels")
SETS = ("set bits", "set field", *RACES)
START = 2**63  # counters of the words that chains start with; those of draws are far below

Words = NDArray[np.uint64]
Digits = NDArray[np.int16]
# The uniform numbers of a step: a float for each chain, how far it may be off, and the exact fraction of one chain.
Uniform = tuple[Array, float, Callable[[int], tuple[int, int]]]


def _mix(z: Words) -> Words:
    """The output function of SplitMix64."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


class Streams:
    """The streams with these numbers, of a seed: word c of a stream is mix(key + c gamma)."""

    def __init__(self, entropy: int, spawn_key: tuple[int, ...], numbers: Array) -> None:
        master = np.random.SeedSequence(entropy, spawn_key=spawn_key).generate_state(2, np.uint64)
        steps = np.uint64(0x9E3779B97F4A7C15) * numbers.astype(np.uint64)
        self.key = _mix(master[:1] + steps)
        gamma = _mix(master[1:] + steps) | np.uint64(1)
        # Increments whose bits change too rarely are turned into others.
        changes = np.unpackbits((gamma ^ (gamma >> np.uint64(1))).view(np.uint8)).reshape(-1, 64).sum(axis=1)
        self.gamma: Words = np.where(changes < 24, gamma ^ np.uint64(0xAAAAAAAAAAAAAAAA), gamma)

    def word(self, counter: int) -> Words:
        return _mix(self.gamma * np.uint64(counter) + self.key)

    def lanes(self, first: int, count: int) -> NDArray[np.uint8]:
        """The 64 bits of so many words of each stream, the lowest first: (words, chains)."""
        words = np.stack([self.word(first + p) for p in range(count)])
        return np.unpackbits(words.astype("<u8").view(np.uint8), axis=1, bitorder="little")


class Walk:
    """All that a chain depends on but its number."""

    def __init__(self, part: Any, order: list[int], mark: tuple[int, ...] = ()) -> None:  # mark: of runs on sets
        proof, plan, run = part.proof, part.plan, part.plan["run"]
        self.factors, self.order, self.kernel, self.words = proof.factors, order, plan["kernel"], plan.get("words", 0)
        self.lanes = 64 if self.kernel in SHARED else 1  # chains that share a stream
        numbers = proof.array(plan["places"], "i", len(proof.states)).tolist()
        self.places = {v: p for v, p in enumerate(numbers) if p >= 0}  # of variables among the words to start with
        fits = len(set(self.places.values())) == len(self.places) and max(numbers) < 2**62
        require(fits, "Two variables start with the same words.")
        # Variables whose final states are wanted, and those that are seen on the way.
        self.looked_at = sorted({v for question in part.questions.values() for v in question.variables})
        seen = {v for i in set(order) for v in (i, *self.factors.around(i).others)}
        require(seen.union(self.looked_at) <= set(self.places), "Chains do not hold what the scan needs.")
        require(all(proof.states[v] < 2**15 for v in self.places), "A variable has too many states to be drawn.")
        digits = proof.array(plan["start"], "i", len(proof.states)) if plan["start"] else np.full(len(proof.states), -1)
        self.start = {v: int(digits[v]) for v in self.places}  # -1: uniformly
        require(all(-1 <= d < proof.states[v] for v, d in self.start.items()), "Chains start nowhere.")
        near = self.factors.near(order if self.kernel not in SETS else ())
        for scope, table in near.pairs:
            cells = table[tuple(self.start[v] if self.start[v] >= 0 else slice(None) for v in scope)]
            require(not np.isneginf(cells).any(), "Chains may start in a forbidden state.")
        require(run not in proof.runs and 0 <= run < 2**32, "Two parts share their random words.")
        proof.runs.add(run)
        self.entropy, key = proof.seed()
        self.spawn_key = (*key, *((1990, 4, run) if run else ()), *mark)

    def outcomes(self, chains: NDArray[np.int64]) -> Digits:
        """Final digits (variables looked at, chains of whole streams); -1 where a set has more than one state left."""
        walk = self._run_race if self.kernel in RACES else self._run
        streams = chains[:: self.lanes] // self.lanes
        held = sum(self.factors.states[v] for v in self.places)
        held += 16 * max((table.size for _, table in self.factors.pairs), default=0) if self.kernel in RACES else 0
        size = max(1, min(AT_ONCE, MOST_HELD // held) // self.lanes)
        groups = (streams[k : k + size] for k in range(0, len(streams), size))
        return np.concatenate([walk(Streams(self.entropy, self.spawn_key, group)) for group in groups], axis=1)

    def _run(self, streams: Streams) -> Digits:
        """Chains; or sets of two states, whose lower end sees what makes 1 least likely, and the upper end the most."""
        ends = (0, 1) if self.kernel in SETS else (0,)
        x = [{v: self._begin(streams, v, end) for v in self.places} for end in ends]
        hoods = {v: self.factors.around(v) for v in set(self.order)}
        rises = {v: _directions(hood) if len(ends) > 1 else [True] * len(hood.others) for v, hood in hoods.items()}
        for t, variable in enumerate(self.order):
            hood, uniform = hoods[variable], self._uniform(streams, t)
            sides = list(zip(rises[variable], hood.others, strict=True))
            seen = ([x[end if like else 1 - end][v] for like, v in sides] for end in ends)
            drawn = [_draw(hood, beside, uniform, self.kernel in RISING) for beside in seen]
            for own, digits in zip(x, drawn, strict=True):
                own[variable] = digits
        low, high = (np.stack([own[v] for v in self.looked_at]) for own in (x[0], x[-1]))
        return np.where(low == high, low, np.int16(-1))

    def _uniform(self, streams: Streams, step: int) -> Uniform:
        if self.lanes > 1:
            whole = np.array([65536.0, 256.0, 1.0]) @ np.packbits(streams.lanes(64 * step, PLANES), axis=0)
            value, slack = (whole + 0.5) * 2.0**-PLANES, 2.0 ** -(PLANES + 1)
            return value, slack, lambda c: (int.from_bytes(np.packbits(streams.lanes(64 * step, 64)[:, c])), 2**64)
        bits, half = 63 if self.kernel == "table" else 53, int(self.kernel == "set field")
        word = streams.word(step) >> np.uint64(64 - bits)
        value = (word.astype(np.float64) + 0.5 * half) * 2.0**-bits
        return value, 2.0**-53, lambda c: (2 * int(word[c]) + half, 2 ** (bits + 1))

    def _begin(self, streams: Streams, variable: int, end: int) -> Digits:
        if self.kernel in SETS or self.start[variable] >= 0:
            digit = end if self.kernel in SETS else self.start[variable]
            return np.full(self.lanes * len(streams.key), digit, dtype=np.int16)
        if self.lanes > 1:
            return streams.lanes(START + self.places[variable], 1)[0].astype(np.int16)
        word, n = streams.word(START + self.places[variable]), np.uint64(self.factors.states[variable])
        low = ((word & np.uint64(2**32 - 1)) * n) >> np.uint64(32)
        return (((word >> np.uint64(32)) * n + low) >> np.uint64(32)).astype(np.int16)  # floor(word n / 2^64)

    def _run_race(self, streams: Streams) -> Digits:
        sets = {v: np.ones((self.factors.states[v], len(streams.key)), dtype=bool) for v in self.places}
        for t, variable in enumerate(self.order):
            hood = self.factors.around(variable)
            require(hood.own <= self.words, "A race has fewer words than states.")
            words = np.stack([streams.word(t * self.words + a) >> np.uint64(11) for a in range(hood.own)])
            sets[variable] = _race(hood, [sets[v] for v in hood.others], words)
        left = [sets[v] for v in self.looked_at]
        return np.stack([np.where(own.sum(axis=0) == 1, own.argmax(axis=0), -1) for own in left]).astype(np.int16)


def _draw(hood: Neighbourhood, seen: list[Digits], uniform: Uniform, rises: bool) -> Digits:
    """The states that uniform numbers draw beside neighbours in these states."""
    u, slack, exact = uniform
    require(rises or hood.own == 2, "A way to draw two states meets more.")
    drawn, near, margin = np.zeros(len(u), dtype=np.int16), np.zeros(len(u), dtype=bool), hood.margin + slack + 2.0**-50
    for chance in hood.laws_beside(seen, len(u)).T:
        require(not np.isnan(chance.sum()), "A draw is undefined: every state of a variable is forbidden.")
        ahead = u - chance if rises else (1.0 - chance) - u
        drawn += ahead >= 0.0 if rises else ahead > 0.0
        near |= np.abs(ahead) <= margin
    for c in np.flatnonzero(near).tolist():
        drawn[c] = hood.decide([int(digits[c]) for digits in seen], exact(c), rises)
    return drawn


def _directions(hood: Neighbourhood) -> list[bool]:
    """For each neighbour of a variable of two states, whether the chance of 1 rises with it, or falls."""
    require(hood.own == 2 and all(size == 2 for size in hood.sizes), "Ends of sets are for variables of two states.")
    likes: list[list[float]] = [[] for _ in hood.others]
    for places, table in hood.parts:
        if places:
            require(len(places) == 1 and np.isfinite(table).all(), "Ends of sets are for pair factors without zeros.")
            a, b, c, d = table.ravel().tolist()
            likes[places[0]] += [a, d, -b, -c]
    return [math.fsum(terms) >= 0.0 for terms in likes]


def _race(hood: Neighbourhood, others: list[NDArray[np.bool_]], words: Words) -> NDArray[np.bool_]:
    """The states that can arrive first: ln E_a - hi_a <= ln E_b - lo_b for all other b.

    E_a = -ln u_a are the times of the race, lo_a and hi_a the ends of the log-weight of a over the neighbours' sets.
    """
    lows, highs = [], []  # for each factor the ends of its log-weight, by own state and run
    for places, table in hood.parts:
        allowed = np.ones((1, words.shape[1]), dtype=bool)
        for p in places:
            allowed = (allowed[:, None] & others[p][None]).reshape(-1, words.shape[1])
        columns = [table[..., a].reshape(-1, 1) for a in range(hood.own)]
        lows.append(np.stack([np.where(allowed, column, math.inf).min(axis=0) for column in columns]))
        highs.append(np.stack([np.where(allowed, column, -math.inf).max(axis=0) for column in columns]))
    times = np.log(-np.log((words.astype(np.float64) + 0.5) * 2.0**-53))
    earliest, latest = times - sum(highs), times - sum(lows)
    ranked = np.sort(latest, axis=0)
    rival = np.where(np.arange(hood.own)[:, None] == latest.argmin(axis=0), ranked[1], ranked[0])
    fits = (possible := earliest < math.inf) & (earliest <= rival)
    with np.errstate(invalid="ignore"):
        near = possible & (np.abs(earliest - rival) <= 8.0 * hood.margin + 1e-14 * (1.0 + np.abs(times).max(axis=0)))
    for c in np.flatnonzero(near.any(axis=0)).tolist():
        ends = ([part[:, c].tolist() for part in parts] for parts in (highs, lows))
        fits[:, c] = _decide_race(words[:, c].tolist(), *ends)
    fits[:, ~fits.any(axis=0)] = True  # no state is allowed beside these sets: nothing is known
    return fits


def _decide_race(words: list[int], highs: list[list[float]], lows: list[list[float]]) -> list[bool]:
    """The same for one run, in 60 digits."""
    with localcontext() as context:
        context.prec = 60
        times = [(-(Decimal(2 * word + 1) / Decimal(2**54)).ln()).ln() for word in words]
        earliest, latest = (
            [time - sum((Decimal(part[a]) for part in parts), Decimal(0)) for a, time in enumerate(times)]
            for parts in (highs, lows)
        )
        rivals = [min(latest[:a] + latest[a + 1 :], default=Decimal("Infinity")) for a in range(len(words))]
        return [early.is_finite() and early <= rival for early, rival in zip(earliest, rivals, strict=True)]
