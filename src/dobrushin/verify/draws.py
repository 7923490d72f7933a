"""Chains and runs on sets, drawn again from the seed, the step and the number of the chain alone.

Random words come from SplitMix64 as a keyed generator, where every word belongs to a stream and a counter.

A draw compares a uniform number u with chances that follow from the factors. These are computed in floating point; a u
that is too near to one of them is decided with 60 digits. So what is drawn here is what exact arithmetic would draw:
nothing depends on the last digits of an exponential. The ways to draw, by the names of the finder's kernels:

bits, counts          64 chains share a stream; bit l of word 64 t + p is bit p of the u of chain l; 1 where u < P(1)
table, field, dense   a stream for each chain; word t is the u of step t; 1 where u < P(1)
potts, conditional,
factors               the same; the label is how many partial sums of the chances are at most u
set bits              both ends of a set of two states, each as in bits, with the same u
set field             both ends as in field, with u half a unit higher
set race, set labels  state a of step t has word t K + a; see `_race`
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import localcontext
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin.verify.document import require
from dobrushin.verify.factors import Factors, Neighbourhood, to_decimal

# Of the 64 bits of a number that has a bit in each of 64 words, so many are looked at first.
PLANES = 24
# Chains that are run together.
AT_ONCE, MOST_HELD = 2**16, 2**28
SHARED, FALLING, RISING = ("bits", "counts"), ("table", "field", "dense"), ("potts", "conditional", "factors")
KERNELS = (*SHARED, *FALLING, *RISING)
RACES = ("set race", "set labels")
SETS = ("set bits", "set field", *RACES)
# Counters of the words that chains start with; those of draws are far below.
START = 2**63

Words = NDArray[np.uint64]


def _mix(z: Words) -> Words:
    """The output function of SplitMix64."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


class Streams:
    """The streams with these numbers, of a seed: word c of a stream is mix(key + c gamma)."""

    def __init__(self, entropy: int, spawn_key: tuple[int, ...], numbers: NDArray[Any]) -> None:
        master = np.random.SeedSequence(entropy, spawn_key=spawn_key).generate_state(2, np.uint64)
        steps = np.uint64(0x9E3779B97F4A7C15) * numbers.astype(np.uint64)
        self.key = _mix(master[:1] + steps)
        gamma = _mix(master[1:] + steps) | np.uint64(1)
        # Increments whose bits change too rarely are turned into others.
        changes = np.unpackbits((gamma ^ (gamma >> np.uint64(1))).view(np.uint8)).reshape(-1, 64).sum(axis=1)
        self.gamma: Words = np.where(changes < 24, gamma ^ np.uint64(0xAAAAAAAAAAAAAAAA), gamma)

    def word(self, counter: int) -> Words:
        """The word with this counter, of every stream."""
        return _mix(self.gamma * np.uint64(counter) + self.key)


def below(words: Words, n: int) -> NDArray[np.int64]:
    """floor(word n / 2^64), for n below 2^32."""
    high, low = words >> np.uint64(32), words & np.uint64(0xFFFFFFFF)
    scaled = high * np.uint64(n) + ((low * np.uint64(n)) >> np.uint64(32))
    return (scaled >> np.uint64(32)).astype(np.int64)


@dataclass(frozen=True)
class Walk:
    """All that a chain depends on but its number."""

    factors: Factors
    order: list[int]
    kernel: str
    entropy: int
    spawn_key: tuple[int, ...]
    places: dict[int, int]  # number of each variable among the words that chains start with
    start: dict[int, int] | None  # where all chains start; None: uniformly
    words: int  # random words of a step in a race
    looked_at: list[int]  # variables whose final states are wanted

    @property
    def lanes(self) -> int:
        """Chains that share a stream."""
        return 64 if self.kernel in (*SHARED, "set bits") else 1

    def outcomes(self, chains: NDArray[np.int64]) -> NDArray[np.int16]:
        """Final digits (variables looked at, chains); of runs on sets -1 where more than one state is left.

        The chains are those of whole streams, by increasing number.
        """
        is_race, ends = self.kernel in RACES, self._run_ends if self.kernel in SETS else self._run
        walk = self._run_race if is_race else ends
        streams = chains[:: self.lanes] // self.lanes
        held = sum(self.factors.states[v] for v in self.places)
        held += 16 * max(table.size for table in self.factors.tables) if is_race else 0
        size = max(1, min(AT_ONCE, MOST_HELD // held) // self.lanes)
        groups = (streams[k : k + size] for k in range(0, len(streams), size))
        return np.concatenate([walk(Streams(self.entropy, self.spawn_key, group)) for group in groups], axis=1)

    def _run(self, streams: Streams) -> NDArray[np.int16]:
        x = {v: self._begin(streams, v) for v in self.places}
        rises = self.kernel in RISING
        for t, variable in enumerate(self.order):
            hood = self.factors.around(variable)
            x[variable] = _draw(hood, [x[v] for v in hood.others], _Uniform(self, streams, t), rises)
        return np.stack([x[v] for v in self.looked_at]).astype(np.int16)

    def _begin(self, streams: Streams, variable: int) -> NDArray[Any]:
        chains = self.lanes * len(streams.key)
        if self.start is not None:
            return np.full(chains, self.start[variable], dtype=np.int16)
        word = streams.word(START + self.places[variable])
        return _lanes(word[None])[0].astype(np.int16) if self.lanes > 1 else below(word, self.factors.states[variable])

    def _run_ends(self, streams: Streams) -> NDArray[np.int16]:
        """Sets of two states: the lower end sees what makes 1 least likely, the upper end what makes it most likely."""
        chains = self.lanes * len(streams.key)
        x = [{v: np.full(chains, end, dtype=np.int16) for v in self.places} for end in (0, 1)]
        directions = {v: _directions(self.factors.around(v)) for v in set(self.order)}
        for t, variable in enumerate(self.order):
            hood, uniform = self.factors.around(variable), _Uniform(self, streams, t)
            both = []
            for end in (0, 1):
                sides = [end if rises else 1 - end for rises in directions[variable]]
                seen = [x[side][v] for side, v in zip(sides, hood.others, strict=True)]
                both.append(_draw(hood, seen, uniform, False))
            x[0][variable], x[1][variable] = both
        low, high = (np.stack([x[end][v] for v in self.looked_at]) for end in (0, 1))
        return np.where(low == high, low, -1).astype(np.int16)

    def _run_race(self, streams: Streams) -> NDArray[np.int16]:
        sets = {v: np.ones((self.factors.states[v], len(streams.key)), dtype=bool) for v in self.places}
        for t, variable in enumerate(self.order):
            hood = self.factors.around(variable)
            require(hood.own <= self.words, "A race has fewer words than states.")
            words = np.stack([streams.word(t * self.words + a) >> np.uint64(11) for a in range(hood.own)])
            sets[variable] = _race(hood, [sets[v] for v in hood.others], words)
        first = np.stack([sets[v].argmax(axis=0) for v in self.looked_at])
        single = np.stack([sets[v].sum(axis=0) == 1 for v in self.looked_at])
        return np.where(single, first, -1).astype(np.int16)


class _Uniform:
    """The uniform numbers of one step: a float for each chain, how far it may be off, and the whole number."""

    def __init__(self, walk: Walk, streams: Streams, step: int) -> None:
        self.streams, self.step, self.is_shared = streams, step, walk.lanes > 1
        if self.is_shared:
            whole = np.zeros(64 * len(streams.key))
            for first in range(0, PLANES, 8):
                planes = _lanes(np.stack([streams.word(64 * step + first + p) for p in range(8)]))
                digits = planes[0]
                for plane in planes[1:]:
                    digits = digits << 1 | plane
                whole = 256.0 * whole + digits
            self.value, self.slack = (whole + 0.5) * 2.0**-PLANES, 2.0 ** -(PLANES + 1)
            return
        bits = 63 if walk.kernel == "table" else 53
        self.half, self.scale = int(walk.kernel == "set field"), 2 ** (bits + 1)
        self.word = streams.word(step) >> np.uint64(64 - bits)
        self.value, self.slack = (self.word.astype(np.float64) + 0.5 * self.half) * 2.0**-bits, 2.0**-53

    def exact(self, chain: int) -> Fraction:
        """The number of one chain."""
        if not self.is_shared:
            return Fraction(2 * int(self.word[chain]) + self.half, self.scale)
        stream, bit = divmod(chain, 64)
        digits = [int(self.streams.word(64 * self.step + p)[stream]) >> bit & 1 for p in range(64)]
        return Fraction(int("".join(map(str, digits)), 2), 2**64)


def _lanes(words: Words) -> NDArray[np.uint8]:
    """The 64 bits of each word of some rows, the lowest first."""
    return np.unpackbits(words.astype("<u8").view(np.uint8), axis=1, bitorder="little")


def _draw(hood: Neighbourhood, seen: list[NDArray[Any]], uniform: _Uniform, rises: bool) -> NDArray[Any]:
    """The states that uniform numbers draw beside neighbours in these states."""
    u, drawn = uniform.value, np.zeros(len(uniform.value), dtype=np.int16)
    require(rises or hood.own == 2, "A way to draw two states meets more.")
    cell = np.zeros(len(u), dtype=np.int64)
    for size, digits in zip(hood.sizes, seen, strict=True):
        cell = cell * size + digits if hood.is_small else cell
    columns = hood.laws()[cell].T if hood.is_small else hood.laws(np.array(seen)).T
    margin, near = hood.margin + uniform.slack + 2.0**-50, np.zeros(len(u), dtype=bool)
    for chance in columns:
        require(not np.isnan(chance.sum()), "A draw is undefined: every state of a variable is forbidden.")
        ahead = u - chance if rises else (1.0 - chance) - u
        drawn += ahead >= 0.0 if rises else ahead > 0.0
        near |= np.abs(ahead) <= margin
    for c in np.flatnonzero(near).tolist():
        drawn[c] = hood.decide([int(digits[c]) for digits in seen], uniform.exact(c), rises)
    return drawn


def _directions(hood: Neighbourhood) -> list[bool]:
    """For each neighbour of a variable of two states, whether the chance of 1 rises with it, or falls."""
    require(hood.own == 2 and all(size == 2 for size in hood.sizes), "Ends of sets are for variables of two states.")
    total = [Fraction(0)] * len(hood.others)
    for places, table in hood.parts:
        if places:
            require(len(places) == 1 and np.isfinite(table).all(), "Ends of sets are for pair factors without zeros.")
            a, b, c, d = map(Fraction, table.ravel().tolist())
            total[places[0]] += a + d - b - c
    return [sign >= 0 for sign in total]


def _race(hood: Neighbourhood, others: list[NDArray[np.bool_]], words: Words) -> NDArray[np.bool_]:
    """The states that can arrive first: ln E_a - hi_a <= ln E_b - lo_b for all other b.

    E_a = -ln u_a are the times of the race, lo_a and hi_a the ends of the log-weight of a over the neighbours' sets.
    """
    runs = words.shape[1]
    low, high = np.zeros((hood.own, runs)), np.zeros((hood.own, runs))
    for places, table in hood.parts:
        allowed = np.ones((1, runs), dtype=bool)
        for p in places:
            allowed = (allowed[:, None] & others[p][None]).reshape(-1, runs)
        for a in range(hood.own):
            cells = table[..., a].reshape(-1, 1)
            low[a] += np.where(allowed, cells, math.inf).min(axis=0)
            high[a] += np.where(allowed, cells, -math.inf).max(axis=0)
    times = np.log(-np.log((words.astype(np.float64) + 0.5) * 2.0**-53))
    earliest, latest = times - high, times - low
    ranked = np.sort(latest, axis=0)
    rival = np.where(np.arange(hood.own)[:, None] == latest.argmin(axis=0), ranked[1], ranked[0])
    possible = high > -math.inf
    fits = possible & (earliest <= rival)
    with np.errstate(invalid="ignore"):
        near = possible & (np.abs(earliest - rival) <= 8.0 * hood.margin + 1e-14 * (1.0 + np.abs(times).max(axis=0)))
    for c in np.flatnonzero(near.any(axis=0)).tolist():
        fits[:, c] = _decide_race(hood, [states[:, c] for states in others], words[:, c].tolist())
    fits[:, ~fits.any(axis=0)] = True  # no state is allowed beside these sets: nothing is known
    return fits


def _decide_race(hood: Neighbourhood, others: list[NDArray[np.bool_]], words: list[int]) -> list[bool]:
    """The same for one run, in 60 digits; None stands for a weight of 0."""
    ends: list[list[Fraction | None]] = [[Fraction(0)] * hood.own, [Fraction(0)] * hood.own]
    for places, table in hood.parts:
        cells = table[np.ix_(*(np.flatnonzero(others[p]) for p in places))].reshape(-1, hood.own)
        for end, extreme in zip(ends, (cells.min(axis=0), cells.max(axis=0)), strict=True):
            for a, value in enumerate(extreme.tolist()):
                before = end[a]
                end[a] = None if before is None or value == -math.inf else before + Fraction(value)
    with localcontext() as context:
        context.prec = 60
        times = [(-to_decimal(Fraction(2 * word + 1, 2**54)).ln()).ln() for word in words]
        low, high = ([None if end is None else to_decimal(end) for end in values] for values in ends)
        latest = [math.inf if end is None else time - end for time, end in zip(times, low, strict=True)]
        return [
            (top := high[a]) is not None and all(times[a] - top <= latest[b] for b in range(hood.own) if b != a)
            for a in range(hood.own)
        ]
