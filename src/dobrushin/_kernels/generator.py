"""SplitMix64 (Steele, Lea and Flood, 2014) as a keyed generator: number c of a stream is mix(key + c * gamma).

Every stream has a key and an odd increment gamma of its own, as in the splittable generator of that paper. Its numbers
of 64 random bits can be computed in any order. So each random number belongs to a step of a chain, whoever computes it
and whenever (theory page, "Random bits belong to steps").
"""

import numpy as np

from dobrushin._shared.compile import kernel

GOLDEN = np.uint64(0x9E3779B97F4A7C15)

# Uses of the numbers of a stream. Number t is for the draw of step t (64 t to 64 t + 63, one for each plane,
# where the bits of many chains are drawn together); others are so far away that they never meet.
CHOICE = np.uint64(1) << np.uint64(62)  # the variable of a random step
START = np.uint64(1) << np.uint64(63)  # the initial state of a variable


@kernel
def mix(z):
    """Return the output of SplitMix64 for a counter."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@kernel
def streams(master_key, master_gamma, first, count):
    """Return the keys and increments of `count` streams of a seed, from stream number `first` on."""
    keys = np.empty((2, count), dtype=np.uint64)
    for s in range(count):
        keys[0, s] = mix(master_key + GOLDEN * np.uint64(first + s))
        z = mix(master_gamma + GOLDEN * np.uint64(first + s)) | np.uint64(1)
        # Increments whose bits change too rarely make weak sequences (section 5 of the paper).
        changes = z ^ (z >> np.uint64(1))
        count_bits = np.uint64(0)
        while changes > np.uint64(0):
            changes &= changes - np.uint64(1)
            count_bits += np.uint64(1)
        if count_bits < np.uint64(24):
            z ^= np.uint64(0xAAAAAAAAAAAAAAAA)
        keys[1, s] = z
    return keys


@kernel
def below(random, n):
    """Return floor(random * n / 2^64), a number from 0 to n - 1, for n < 2^32."""
    n = np.uint64(n)
    high, low = random >> np.uint64(32), random & np.uint64(0xFFFFFFFF)
    return np.int64((high * n + ((low * n) >> np.uint64(32))) >> np.uint64(32))
