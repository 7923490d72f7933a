"""Bit-parallel Gibbs updates of binary variables: 64 chains, or bounding sets of 64 runs, in one 64-bit word.

The new spin of a chain is 1 if u < p. The random number u is drawn bit by bit from the highest bit on, in planes: one
word has a bit for each of 64 chains. The threshold p depends on the states of the chain's neighbours, and each bit of p
is a multiplexer of these states. A chain is decided at the first bit in which u and p differ, and no further plane is
drawn once all chains are decided.

The bounding sets of `set_bits` are the lowest and the highest state of each variable, as in `_kernels.sets`.
"""

import numpy as np

from dobrushin._kernels.generator import START, mix
from dobrushin._shared.compile import inlined, kernel

ZERO, ONE, ALL = np.uint64(0), np.uint64(1), ~np.uint64(0)


@kernel
def start_bits(ids, keys, x):
    """Set the state of every variable to independent fair random bits.

    `ids` are the positions of the variables in the model, so that a variable gets the same bits in every region.
    """
    for v in range(ids.size):
        for w in range(keys.shape[1]):
            x[v, w] = mix(keys[0, w] + keys[1, w] * (START + np.uint64(ids[v])))


@kernel
def update_bits(order, place, steps, number, wide, neighbor, threshold, certain, keys, x):
    """Run `steps` steps of the cycle `order` from `place` on; step t uses the random bits of number + t.

    neighbor[i] are the rows of x of the neighbours of variable i (the last row of x is a dummy), and threshold[i] has a
    threshold for each configuration: 4 neighbours and 16 configurations, or 6 and 64 where `wide` is True. For 4
    neighbours `wide` is None, by whose type the compiler leaves out the code for 6, which takes it long.
    certain[i, configuration] says whether the probability is exactly 1.
    """
    W = keys.shape[1]
    random, mask = np.empty(W, dtype=np.uint64), np.empty(threshold.shape[1], dtype=np.uint64)
    spin, open_lanes = np.empty((1, W), dtype=np.uint64), np.empty((1, W), dtype=np.uint64)
    for t in range(steps):
        i = order[place]
        place = place + 1 if place + 1 < order.size else 0
        _draw(x, neighbor[i], wide, threshold[i], certain[i], number + t, keys, random, mask, spin, open_lanes)
        for w in range(W):  # as an assignment of arrays it would take seconds to compile
            x[i, w] = spin[0, w]


@kernel
def set_bits(order, place, steps, number, stride, wide, neighbor, threshold, keys, x):
    """Update bounding sets of binary variables, 64 runs to a word.

    A set is held by its lowest state (row i of x) and its highest (row n + i); both compare the same random number with
    a threshold, which depends on the states of the neighbours. The probability of state 1 must rise or fall with each
    neighbour: neighbor[i] are the rows of x that make it smallest, then those that make it largest. Step t uses the
    random bits of number + stride * t. No probability may be exactly 1. `wide` is as in `update_bits`.
    """
    n, W = threshold.shape[0], keys.shape[1]
    random, mask = np.empty(W, dtype=np.uint64), np.empty(threshold.shape[1], dtype=np.uint64)
    spin, open_lanes = np.empty((2, W), dtype=np.uint64), np.empty((2, W), dtype=np.uint64)
    for t in range(steps):
        i = order[place]
        place = place + 1 if place + 1 < order.size else 0
        _draw(x, neighbor[i], wide, threshold[i], None, number + stride * t, keys, random, mask, spin, open_lanes)
        for w in range(W):
            x[i, w] = spin[0, w]
            x[n + i, w] = spin[1, w]


@kernel
def update_counts(order, place, steps, number, start, neighbor, flip, first, threshold, certain, keys, x):
    """Run `steps` steps as `update_bits` does, with thresholds that depend on counts of neighbours in state 1.

    The configuration of a variable consists of 4 bits, which hold the counts of its groups of neighbours. The
    neighbours of variable i are the triples start[i] to start[i + 1] - 1. A triple names three rows of x (possibly the
    dummy), whose bits are inverted where `flip` has ones, and is counted in the rows of `counter` from first[triple]
    on. A count has up to four bits; a count of fewer bits never carries beyond its bits.
    """
    W = keys.shape[1]
    random, mask = np.empty(W, dtype=np.uint64), np.empty(threshold.shape[1], dtype=np.uint64)
    spin, open_lanes = np.empty((1, W), dtype=np.uint64), np.empty((1, W), dtype=np.uint64)
    rows = np.arange(4)
    counter = np.empty((7, W), dtype=np.uint64)
    for t in range(steps):
        i = order[place]
        place = place + 1 if place + 1 < order.size else 0
        counter[:] = ZERO
        for e in range(start[i], start[i + 1]):
            b = first[e]
            _count_three(
                x[neighbor[e, 0]], x[neighbor[e, 1]], x[neighbor[e, 2]], flip[e, 0], flip[e, 1], flip[e, 2],
                counter[b], counter[b + 1], counter[b + 2], counter[b + 3],
            )  # fmt: skip
        _draw(counter, rows, None, threshold[i], certain[i], number + t, keys, random, mask, spin, open_lanes)
        for w in range(W):
            x[i, w] = spin[0, w]


@inlined
def _count_three(x0, x1, x2, f0, f1, f2, c0, c1, c2, c3):
    """Add three bits for each of 64 positions to counters whose binary digits are the words c3 c2 c1 c0."""
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
def _draw(x, rows, wide, threshold, certain, number, keys, random, mask, spin, open_lanes):
    """Draw the new state of a variable in all chains, by comparing random bits with thresholds bit by bit.

    `rows` are the rows of x that hold its neighbours; for bounding sets they are given for each end of the set.
    """
    key, gamma, ends = keys[0], keys[1], spin.shape[0]
    width = rows.size // ends
    for end in range(ends):
        for w in range(random.size):
            spin[end, w] = ZERO
            open_lanes[end, w] = ALL
    counter = np.uint64(number) * np.uint64(64)
    left = ALL
    for plane in range(64):
        for c in range(mask.size):
            mask[c] = ZERO - ((threshold[c] >> np.uint64(63 - plane)) & ONE)
        # Separate simple loops, which the compiler turns into vector instructions.
        for w in range(random.size):
            random[w] = mix(key[w] + gamma[w] * counter)
        left = ZERO
        for end in range(ends):  # no variables for slices: counting their references takes longer than a plane
            r = width * end
            if wide is None:
                left |= _plane4(
                    x[rows[r]], x[rows[r + 1]], x[rows[r + 2]], x[rows[r + 3]],
                    mask, random, spin[end], open_lanes[end],
                )  # fmt: skip
            else:
                left |= _plane6(
                    x[rows[r]], x[rows[r + 1]], x[rows[r + 2]], x[rows[r + 3]], x[rows[r + 4]], x[rows[r + 5]],
                    mask, random, spin[end], open_lanes[end],
                )  # fmt: skip
        counter += ONE
        if left == ZERO:
            break
    if left != ZERO and certain is not None:
        for end in range(ends):
            _settle(rows[width * end : width * (end + 1)], certain, x, spin[end], open_lanes[end])


@inlined
def _plane4(a0, a1, a2, a3, mask, random, spin, open_lanes):
    """Compare one bit of the random number and of the threshold in each chain; return the chains not yet decided.

    The first bit that differs decides a chain.
    """
    m0, m1, m2, m3, m4, m5, m6, m7 = mask[0], mask[1], mask[2], mask[3], mask[4], mask[5], mask[6], mask[7]
    m8, m9, m10, m11, m12, m13, m14, m15 = mask[8], mask[9], mask[10], mask[11], mask[12], mask[13], mask[14], mask[15]
    left = ZERO
    for w in range(spin.size):
        bit = _select16(a0[w], a1[w], a2[w], a3[w], m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15)  # fmt: skip  # noqa: E501
        differ = (random[w] ^ bit) & open_lanes[w]
        spin[w] |= differ & bit
        open_lanes[w] &= ~differ
        left |= open_lanes[w]
    return left


@inlined
def _plane6(a0, a1, a2, a3, a4, a5, mask, random, spin, open_lanes):
    left = ZERO
    for w in range(spin.size):
        bit = ZERO
        for quarter in range(4):
            m = 16 * quarter
            part = _select16(a0[w], a1[w], a2[w], a3[w], mask[m], mask[m + 1], mask[m + 2], mask[m + 3], mask[m + 4], mask[m + 5], mask[m + 6], mask[m + 7], mask[m + 8], mask[m + 9], mask[m + 10], mask[m + 11], mask[m + 12], mask[m + 13], mask[m + 14], mask[m + 15])  # fmt: skip  # noqa: E501
            here = (a4[w] if quarter & 1 else ~a4[w]) & (a5[w] if quarter & 2 else ~a5[w])
            bit |= part & here
        differ = (random[w] ^ bit) & open_lanes[w]
        spin[w] |= differ & bit
        open_lanes[w] &= ~differ
        left |= open_lanes[w]
    return left


@inlined
def _select16(b0, b1, b2, b3, m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15):
    """Look up one of 16 masks for each bit position; the index has the binary digits b3 b2 b1 b0 at that position."""
    q0 = _select(b1, _select(b0, m0, m1), _select(b0, m2, m3))
    q1 = _select(b1, _select(b0, m4, m5), _select(b0, m6, m7))
    q2 = _select(b1, _select(b0, m8, m9), _select(b0, m10, m11))
    q3 = _select(b1, _select(b0, m12, m13), _select(b0, m14, m15))
    return _select(b3, _select(b2, q0, q1), _select(b2, q2, q3))


@inlined
def _select(b, low, high):
    """Return bits of `low` where b is 0 and bits of `high` where b is 1."""
    return low ^ (b & (low ^ high))


@inlined
def _settle(neighbor, certain, x, spin, open_lanes):
    """Decide the chains whose random number equals the threshold in all 64 bits: state 1 only if P(1) is exactly 1."""
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
    """Add to counts[v, state] the number of chains in which the variable of rows[v] is in the state."""
    W = x.shape[1]
    last = ALL >> np.uint64((64 - chains % 64) % 64)
    for v in range(rows.size):
        total = ZERO
        for w in range(W):
            lanes = x[rows[v], w] & (last if w == W - 1 else ALL)
            # Count the bits that are set: in pairs, in groups of four, in bytes, in the word.
            lanes -= (lanes >> ONE) & np.uint64(0x5555555555555555)
            lanes = (lanes & np.uint64(0x3333333333333333)) + ((lanes >> np.uint64(2)) & np.uint64(0x3333333333333333))
            lanes = (lanes + (lanes >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
            total += (lanes * np.uint64(0x0101010101010101)) >> np.uint64(56)
        counts[v, 1] += np.int64(total)
        counts[v, 0] += chains - np.int64(total)


@kernel
def unpack(x, rows, out):
    """Set out[v, chain] to the state of the variable of rows[v]."""
    for v in range(rows.size):
        for w in range(x.shape[1]):
            lanes = x[rows[v], w]
            most = min(64, out.shape[1] - 64 * w)
            for lane in range(most):
                out[v, 64 * w + lane] = np.int8((lanes >> np.uint64(lane)) & ONE)


@kernel
def pack(states, x):
    """Set the bits of x[v] to states[v, chain], which are 0 or 1."""
    for v in range(states.shape[0]):
        for chain in range(states.shape[1]):
            if states[v, chain]:
                x[v, chain // 64] |= ONE << np.uint64(chain % 64)


@kernel
def settled_bits(x, n, rows, out):
    """Set out[v, run] to the state of a variable if it has coalesced in that run, else to -1."""
    for v in range(rows.size):
        for w in range(x.shape[1]):
            low, high = x[rows[v], w], x[n + rows[v], w]
            most = min(64, out.shape[1] - 64 * w)
            for lane in range(most):
                a, b = (low >> np.uint64(lane)) & ONE, (high >> np.uint64(lane)) & ONE
                out[v, 64 * w + lane] = np.int16(a) if a == b else np.int16(-1)


@kernel
def table_steps(order, number, repeats, base, period, neighbor, threshold, wide, key, gamma, x):
    """Run a list of steps (see `_kernels.spins`) in one chain of binary variables with states 0 and 1.

    Variable i has the neighbours neighbor[4 i : 4 i + 4], and threshold[16 i : 16 i + 16] holds 2^63 P(1) for each
    configuration of them; with `wide` there are 6 neighbours and 64 thresholds. Missing neighbours are a dummy that is
    always 0. Steps may be in any order that keeps dependencies (theory page, "Levels"): the processor computes
    consecutive independent steps at once.
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
