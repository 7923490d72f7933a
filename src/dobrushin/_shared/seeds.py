"""Seeds: an int, a SeedSequence or None; never global state."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dobrushin._shared import validate as check
from dobrushin.errors import ArgumentError

# Of a SeedSequence that is made from a number alone.
_POOL = np.random.SeedSequence(0).pool_size


def seed_sequence(seed: object, function: str) -> np.random.SeedSequence:
    """The seed as a SeedSequence; with None, fresh entropy, which the result keeps."""
    if isinstance(seed, np.random.SeedSequence):
        return seed
    if seed is None or (check.is_whole(seed) and int(seed) >= 0):
        return np.random.SeedSequence(None if seed is None else int(seed))
    raise ArgumentError(function, "seed", "a non-negative whole number, a SeedSequence or None", seed)


def master_key(seed: np.random.SeedSequence) -> NDArray[np.uint64]:
    """Two numbers that all streams of a run are made from."""
    return seed.generate_state(2, np.uint64).astype(np.uint64)


def kept_seed(seed: np.random.SeedSequence) -> int | np.random.SeedSequence:
    """What a result keeps of its seed: a number where that is all there is to it."""
    plain = not seed.spawn_key and seed.pool_size == _POOL and check.is_whole(seed.entropy)
    return int(seed.entropy) if plain else seed  # type: ignore[arg-type]
