"""Random words: SplitMix64 as a keyed generator, where every word belongs to a stream and a counter."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]

# Counters of the words that chains start with; those of draws are far below.
START = 2**63


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
        words: Words = self.gamma * np.uint64(counter) + self.key
        return _mix(words)


def below(words: Words, n: int) -> NDArray[np.int64]:
    """floor(word n / 2^64), for n below 2^32."""
    high, low = words >> np.uint64(32), words & np.uint64(0xFFFFFFFF)
    scaled = high * np.uint64(n) + ((low * np.uint64(n)) >> np.uint64(32))
    return (scaled >> np.uint64(32)).astype(np.int64)
