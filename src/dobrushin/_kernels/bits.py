"""Bit-parallel Gibbs updates: 64 chains, or sets of 64 runs, in words of 64 bits, for spins with few neighbours.

The new spin of a chain is [u < p], with u a random number that is revealed bit by bit, from the highest, one plane of
random bits for 64 chains. The threshold p depends on the chain's neighbours: each of its bits is a multiplexer of
theirs. A chain is decided at the first bit in which u and p differ; when all are, no more planes are looked at.

The sets of `set_bits` are those of `sets`: the lowest and the highest state of each variable.
"""

import numpy as np

from dobrushin._kernels.generator import START, mix
from dobrushin._shared.compile import inlined, kernel

ZERO, ONE, ALL = np.uint64(0), np.uint64(1), ~np.uint64(0)


@kernel
def start_bits(ids, keys, x):
    """Fair bits for every variable; ids are positions in the model, so that the region does not matter."""
    for v in range(ids.size):
        for w in range(keys.shape[1]):
            x[v, w] = mix(keys[0, w] + keys[1, w] * (START + np.uint64(ids[v])))


@inlined
def _select(b, low, high):
    """low where the bit of b is 0, high where it is 1."""
    return low ^ (b & (low ^ high))


@kernel
def update_bits(order, place, step, steps, neighbor, threshold, certain, wide, keys, x):
    """`steps` steps of the cycle `order`, from `place`; the first one is number `step` of the scan.

    neighbor[i, :] are the rows of x (the last row is a dummy) that threshold[i, configuration] is about: 4 neighbours
    and 16 configurations, or 6 and 64 where `wide`. certain[i, configuration]: probability exactly 1.
    """
    W = keys.shape[1]
    spin, open_lanes = np.empty(W, dtype=np.uint64), np.empty(W, dtype=np.uint64)
    mask = np.empty(threshold.shape[1], dtype=np.uint64)
    for t in range(steps):
        i = order[place]
        place += 1
        if place == order.size:
            place = 0
        _draw(x, neighbor[i], threshold[i], certain[i], wide, step + t, keys, mask, spin, open_lanes)
        for w in range(W):  # as an assignment of arrays it would take seconds to compile
            x[i, w] = spin[w]


@kernel
def update_counts(order, place, step, steps, start, neighbor, flip, first, threshold, certain, keys, x):
    """Steps as in `update_bits`, where 4 bits of a configuration count the neighbours of each group that are up.

    The neighbours of variable i are the triples start[i] to start[i + 1]. Those of a triple are rows of x (the dummy
    fills it), all bits of which are turned where `flip` has ones, and are counted in the rows of `counter` from
    first[triple] on. A count has up to four bits; where it has fewer the carry beyond them is 0, and changes nothing.
    """
    W = keys.shape[1]
    spin, open_lanes = np.empty(W, dtype=np.uint64), np.empty(W, dtype=np.uint64)
    mask = np.empty(threshold.shape[1], dtype=np.uint64)
    rows = np.arange(4)
    counter = np.empty((7, W), dtype=np.uint64)
    for t in range(steps):
        i = order[place]
        place += 1
        if place == order.size:
            place = 0
        counter[:] = ZERO
        for e in range(start[i], start[i + 1]):
            b = first[e]
            _count_three(
                x[neighbor[e, 0]], x[neighbor[e, 1]], x[neighbor[e, 2]], flip[e, 0], flip[e, 1], flip[e, 2],
                counter[b], counter[b + 1], counter[b + 2], counter[b + 3],
            )  # fmt: skip
        _draw(counter, rows, threshold[i], certain[i], False, step + t, keys, mask, spin, open_lanes)
        for w in range(W):  # as an assignment of arrays it would take seconds to compile
            x[i, w] = spin[w]


@inlined
def _count_three(x0, x1, x2, f0, f1, f2, c0, c1, c2, c3):
    """Add three words to the counter with the bits c3 c2 c1 c0, lane by lane."""
    for w in range(c0.size):
        a, b, c = x0[w] ^ f0, x1[w] ^ f1, x2[w] ^ f2
        ones = a ^ b ^ c
        twos = (a & b) | (c & (a | b))
        carry = c0[w] & ones
        c0[w] ^= ones
        old = c1[w]
        c1[w] = old ^ twos ^ carry
        carry = (old & twos) | (carry & (old | twos))
        old = c2[w]
        c2[w] = old ^ carry
        c3[w] ^= old & carry


@inlined
def _draw(x, rows, threshold, certain, wide, step, keys, mask, spin, open_lanes):
    """New spins of all chains from the thresholds of the configurations that the rows of x have."""
    key, gamma = keys[0], keys[1]
    a0, a1, a2, a3 = x[rows[0]], x[rows[1]], x[rows[2]], x[rows[3]]
    for w in range(spin.size):
        spin[w] = ZERO
        open_lanes[w] = ALL
    counter = np.uint64(step) * np.uint64(64)
    left = ALL
    for plane in range(64):
        for c in range(mask.size):
            mask[c] = ZERO - ((threshold[c] >> np.uint64(63 - plane)) & ONE)
        if wide:
            left = _plane6(a0, a1, a2, a3, x[rows[4]], x[rows[5]], mask, key, gamma, counter, spin, open_lanes)
        else:
            left = _plane4(a0, a1, a2, a3, mask, key, gamma, counter, spin, open_lanes)
        counter += ONE
        if left == ZERO:
            break
    if left != ZERO:
        _settle(rows, certain, x, spin, open_lanes)


@inlined
def _plane4(a0, a1, a2, a3, mask, key, gamma, counter, spin, open_lanes):
    m0, m1, m2, m3, m4, m5, m6, m7 = mask[0], mask[1], mask[2], mask[3], mask[4], mask[5], mask[6], mask[7]
    m8, m9, m10, m11, m12, m13, m14, m15 = mask[8], mask[9], mask[10], mask[11], mask[12], mask[13], mask[14], mask[15]
    left = ZERO
    for w in range(spin.size):
        b0, b1 = a0[w], a1[w]
        q0 = _select(b1, _select(b0, m0, m1), _select(b0, m2, m3))
        q1 = _select(b1, _select(b0, m4, m5), _select(b0, m6, m7))
        q2 = _select(b1, _select(b0, m8, m9), _select(b0, m10, m11))
        q3 = _select(b1, _select(b0, m12, m13), _select(b0, m14, m15))
        bit = _select(a3[w], _select(a2[w], q0, q1), _select(a2[w], q2, q3))
        differ = (mix(key[w] + gamma[w] * counter) ^ bit) & open_lanes[w]
        spin[w] |= differ & bit
        open_lanes[w] &= ~differ
        left |= open_lanes[w]
    return left


@kernel
def _plane6(a0, a1, a2, a3, a4, a5, mask, key, gamma, counter, spin, open_lanes):
    left = ZERO
    for w in range(spin.size):
        bit = ZERO
        for quarter in range(4):
            m = 16 * quarter
            b0, b1 = a0[w], a1[w]
            q0 = _select(b1, _select(b0, mask[m], mask[m + 1]), _select(b0, mask[m + 2], mask[m + 3]))
            q1 = _select(b1, _select(b0, mask[m + 4], mask[m + 5]), _select(b0, mask[m + 6], mask[m + 7]))
            q2 = _select(b1, _select(b0, mask[m + 8], mask[m + 9]), _select(b0, mask[m + 10], mask[m + 11]))
            q3 = _select(b1, _select(b0, mask[m + 12], mask[m + 13]), _select(b0, mask[m + 14], mask[m + 15]))
            part = _select(a3[w], _select(a2[w], q0, q1), _select(a2[w], q2, q3))
            here = (a4[w] if quarter & 1 else ~a4[w]) & (a5[w] if quarter & 2 else ~a5[w])
            bit |= part & here
        differ = (mix(key[w] + gamma[w] * counter) ^ bit) & open_lanes[w]
        spin[w] |= differ & bit
        open_lanes[w] &= ~differ
        left |= open_lanes[w]
    return left


@kernel
def _settle(neighbor, certain, x, spin, open_lanes):
    """Chains still open after 64 planes have u equal to the threshold: spin 0, unless the probability is exactly 1."""
    for w in range(spin.size):
        for lane in range(64):
            bit = ONE << np.uint64(lane)
            if open_lanes[w] & bit:
                c = 0
                for k in range(neighbor.size):
                    if x[neighbor[k], w] & bit:
                        c |= 1 << k
                if certain[c]:
                    spin[w] |= bit


@kernel
def count_bits(x, rows, chains, counts):
    """Add to counts[v, state] the number of chains in that state."""
    W = x.shape[1]
    last = ALL >> np.uint64((64 - chains % 64) % 64)
    for v in range(rows.size):
        total = ZERO
        for w in range(W):
            lanes = x[rows[v], w] & (last if w == W - 1 else ALL)
            # How many bits are set: sums of pairs, of fours, of bytes, of all.
            lanes -= (lanes >> ONE) & np.uint64(0x5555555555555555)
            lanes = (lanes & np.uint64(0x3333333333333333)) + ((lanes >> np.uint64(2)) & np.uint64(0x3333333333333333))
            lanes = (lanes + (lanes >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
            total += (lanes * np.uint64(0x0101010101010101)) >> np.uint64(56)
        counts[v, 1] += np.int64(total)
        counts[v, 0] += chains - np.int64(total)


@kernel
def unpack(x, rows, out):
    """Set out[v, chain] to the states of the chains."""
    for v in range(rows.size):
        for w in range(x.shape[1]):
            lanes = x[rows[v], w]
            most = min(64, out.shape[1] - 64 * w)
            for lane in range(most):
                out[v, 64 * w + lane] = np.int8((lanes >> np.uint64(lane)) & ONE)


@kernel
def pack(states, x):
    """Set x[v] from states[v, chain] that are 0 or 1."""
    for v in range(states.shape[0]):
        for chain in range(states.shape[1]):
            if states[v, chain]:
                x[v, chain // 64] |= ONE << np.uint64(chain % 64)


@kernel
def set_bits(order, place, steps, number, stride, neighbor, threshold, wide, keys, x):
    """Binary variables whose chance of state 1 rises or falls with each neighbour: 64 runs side by side.

    Row i of x holds the lowest state of variable i, row n + i the highest. neighbor[i] are the rows whose configuration
    gives the smallest chance: 4 of them, or 6 where `wide`, then as many for the largest. Both ends compare the same
    random number with their own threshold, as in `update_bits`.
    """
    W = keys.shape[1]
    n, width = threshold.shape[0], neighbor.shape[1] // 2
    key, gamma = keys[0], keys[1]
    random, low, high = np.empty(W, dtype=np.uint64), np.empty(W, dtype=np.uint64), np.empty(W, dtype=np.uint64)
    open_low, open_high = np.empty(W, dtype=np.uint64), np.empty(W, dtype=np.uint64)
    mask = np.empty(threshold.shape[1], dtype=np.uint64)
    for t in range(steps):
        i = order[place]
        place += 1
        if place == order.size:
            place = 0
        for w in range(W):
            low[w] = ZERO
            open_low[w] = ALL
        for w in range(W):
            high[w] = ZERO
            open_high[w] = ALL
        counter = np.uint64(number + stride * t) * np.uint64(64)
        near, far = neighbor[i, :width], neighbor[i, width:]
        for plane in range(64):
            for c in range(mask.size):
                mask[c] = ZERO - ((threshold[i, c] >> np.uint64(63 - plane)) & ONE)
            # Loops of their own, each simple enough to be run on many blocks at once.
            for w in range(W):
                random[w] = mix(key[w] + gamma[w] * counter)
            if wide:
                left = _set_plane6(x, near, mask, random, low, open_low) | _set_plane6(
                    x, far, mask, random, high, open_high
                )
            else:
                left = _set_plane4(x[near[0]], x[near[1]], x[near[2]], x[near[3]], mask, random, low, open_low)
                left |= _set_plane4(x[far[0]], x[far[1]], x[far[2]], x[far[3]], mask, random, high, open_high)
            counter += ONE
            if left == ZERO:
                break
        for w in range(W):  # as an assignment of arrays it would take seconds to compile
            x[i, w] = low[w]
            x[n + i, w] = high[w]


@kernel
def _set_plane4(a0, a1, a2, a3, mask, random, spin, open_lanes):
    m0, m1, m2, m3, m4, m5, m6, m7 = mask[0], mask[1], mask[2], mask[3], mask[4], mask[5], mask[6], mask[7]
    m8, m9, m10, m11, m12, m13, m14, m15 = mask[8], mask[9], mask[10], mask[11], mask[12], mask[13], mask[14], mask[15]
    left = ZERO
    for w in range(spin.size):
        b0, b1 = a0[w], a1[w]
        q0 = _select(b1, _select(b0, m0, m1), _select(b0, m2, m3))
        q1 = _select(b1, _select(b0, m4, m5), _select(b0, m6, m7))
        q2 = _select(b1, _select(b0, m8, m9), _select(b0, m10, m11))
        q3 = _select(b1, _select(b0, m12, m13), _select(b0, m14, m15))
        bit = _select(a3[w], _select(a2[w], q0, q1), _select(a2[w], q2, q3))
        differ = (random[w] ^ bit) & open_lanes[w]
        spin[w] |= differ & bit
        open_lanes[w] &= ~differ
        left |= open_lanes[w]
    return left


@kernel
def _set_plane6(x, rows, mask, random, spin, open_lanes):
    a0, a1, a2, a3, a4, a5 = x[rows[0]], x[rows[1]], x[rows[2]], x[rows[3]], x[rows[4]], x[rows[5]]
    left = ZERO
    for w in range(spin.size):
        bit = _config6(mask, a0[w], a1[w], a2[w], a3[w], a4[w], a5[w])
        differ = (random[w] ^ bit) & open_lanes[w]
        spin[w] |= differ & bit
        open_lanes[w] &= ~differ
        left |= open_lanes[w]
    return left


@kernel
def _config6(mask, c0, c1, c2, c3, c4, c5):
    """The bit of the threshold that the configuration of six neighbours selects."""
    bit = ZERO
    for quarter in range(4):
        m = 16 * quarter
        q0 = _select(c1, _select(c0, mask[m], mask[m + 1]), _select(c0, mask[m + 2], mask[m + 3]))
        q1 = _select(c1, _select(c0, mask[m + 4], mask[m + 5]), _select(c0, mask[m + 6], mask[m + 7]))
        q2 = _select(c1, _select(c0, mask[m + 8], mask[m + 9]), _select(c0, mask[m + 10], mask[m + 11]))
        q3 = _select(c1, _select(c0, mask[m + 12], mask[m + 13]), _select(c0, mask[m + 14], mask[m + 15]))
        part = _select(c3, _select(c2, q0, q1), _select(c2, q2, q3))
        here = (c4 if quarter & 1 else ~c4) & (c5 if quarter & 2 else ~c5)
        bit |= part & here
    return bit


@kernel
def settled_bits(x, n, rows, out):
    """Set out[v, run] to the state of a variable that has coalesced, else -1."""
    for v in range(rows.size):
        for w in range(x.shape[1]):
            low, high = x[rows[v], w], x[n + rows[v], w]
            most = min(64, out.shape[1] - 64 * w)
            for lane in range(most):
                a, b = (low >> np.uint64(lane)) & ONE, (high >> np.uint64(lane)) & ONE
                out[v, 64 * w + lane] = np.int16(a) if a == b else np.int16(-1)


@kernel
def table_steps(order, number, repeats, base, period, neighbor, threshold, wide, key, gamma, x):
    """Steps of one chain of binary variables with few neighbours, states 0 and 1; lists of steps are as in `spins`.

    Variable i has the neighbours neighbor[4 i : 4 i + 4] and the thresholds 2^63 P(1), by configuration, at
    threshold[16 i : 16 i + 16]; 6 and 64 of them where `wide`. Missing neighbours are a dummy that is always 0.
    Steps may be in any order that keeps the dependencies (theory page, "Levels"): independent steps next to each other
    can be computed at once by the processor.
    """
    for _ in range(repeats):
        first = key + gamma * np.uint64(base)
        for k in range(order.size):
            i = order[k]
            if wide:
                j = 6 * i
                c = x[neighbor[j]] + 2 * x[neighbor[j + 1]] + 4 * x[neighbor[j + 2]] + 8 * x[neighbor[j + 3]]
                c += 16 * x[neighbor[j + 4]] + 32 * x[neighbor[j + 5]]
                p = threshold[64 * i + np.int64(c)]
            else:
                j = 4 * i
                c = x[neighbor[j]] + 2 * x[neighbor[j + 1]] + 4 * x[neighbor[j + 2]] + 8 * x[neighbor[j + 3]]
                p = threshold[16 * i + np.int64(c)]
            x[i] = (mix(first + gamma * np.uint64(number[k])) >> np.uint64(1)) < p
        base += period
