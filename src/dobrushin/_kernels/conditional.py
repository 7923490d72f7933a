"""Gibbs updates from tables: the factors of each variable are multiplied in groups before sampling.

Group g of a variable has the members member[m_start[g] : m_start[g + 1]], which are other variables, and a row for each
of their joint states: the row of joint state s begins at first[g] + the sum of stride * s. A variable with k states and
one group has rows of k - 1 partial sums of its conditional probabilities. A variable with several groups has rows of
weights, filled with zeros to a multiple of four, and the weights of a label in all groups are multiplied.
"""

import numpy as np

from dobrushin._kernels.generator import mix
from dobrushin._shared.compile import kernel

UNIT = 2.0**-53
ZERO, ONE, TWO, THREE = np.uint64(0), np.uint64(1), np.uint64(2), np.uint64(3)
MASK_BITS = 64  # neighbours that a mask can tell apart
NEVER = 2.0  # no random number is that large


@kernel
def _longest(start):
    """Return the length of the longest row of a CSR array (`np.diff` takes seconds to compile)."""
    longest = 0
    for r in range(start.size - 1):
        longest = max(longest, start[r + 1] - start[r])
    return longest


@kernel
def _largest(values):
    largest = values[0]
    for value in values:
        largest = max(largest, value)
    return largest


@kernel
def group_factors(k_own, start, k_other, f_start, m_start, m_of, whole, most, group, counts, masks):
    """Choose which factors of each variable are multiplied into one table (a group).

    Return the total numbers of members (other variables of the groups) and of table entries. A variable has one group
    for all factors if its table has at most `whole` entries. Otherwise tables of groups have at most `most` entries, or
    are tables of one factor, and a factor joins the group whose table grows least. counts[r] is set to the number of
    groups of variable r, and masks from place f_start[r] + r on to the neighbours in each group.
    """
    cells = np.empty(1 + _longest(f_start))
    all_members, all_numbers = 0, 0.0
    for r in range(k_own.size):
        k, lo, hi, at = k_own[r], start[r], start[r + 1], f_start[r] + r
        few = hi - lo <= MASK_BITS
        everything = np.float64(k)
        for e in range(lo, hi):
            everything *= k_other[e]
        counts[r], masks[at], cells[0] = 1, ZERO, k
        fresh = True  # whether no factor has brought members yet
        for f in range(f_start[r], f_start[r + 1]):
            group[f] = 0
            if m_start[f] == m_start[f + 1] or everything <= whole:
                continue
            own, own_cells = ZERO, np.float64(k)
            for q in range(m_start[f], m_start[f + 1]):
                own_cells *= k_other[lo + m_of[q]]
                if few:
                    own |= ONE << np.uint64(m_of[q])
            best, least, union, size = counts[r], np.inf, own, own_cells
            for g in range(counts[r] if few else 0):
                joint = masks[at + g] | own
                joint_cells = _joint_cells(joint, k, k_other, lo)
                allowed = joint_cells <= most or joint == own or joint == masks[at + g]
                if allowed and joint_cells - cells[g] < least:
                    best, least, union, size = g, joint_cells - cells[g], joint, joint_cells
            if fresh:
                best = 0
                fresh = False
            counts[r] = max(counts[r], best + 1)
            group[f], masks[at + best], cells[best] = best, union, size
            if not few:
                all_members += m_start[f + 1] - m_start[f]
        if everything <= whole:
            masks[at] = (ONE << np.uint64(hi - lo)) - ONE
            cells[0] = everything
        width = k - 1 if counts[r] == 1 else (k + 3) // 4 * 4
        for g in range(counts[r]):
            all_numbers += cells[g] / k * width
            mask = masks[at + g]
            while mask != ZERO:
                mask &= mask - ONE
                all_members += 1
    return all_members, all_numbers


@kernel
def _joint_cells(mask, k, k_other, lo):
    """Return the number of joint states of a variable with k states and the neighbours whose bits are set in `mask`."""
    cells = np.float64(k)
    place = lo
    while mask != ZERO:
        if mask & ONE:
            cells *= k_other[place]
        mask >>= ONE
        place += 1
    return cells


@kernel
def fill_groups(k_own, start, k_other, neighbor, f_start, f_m_start, m_of, m_stride, own_stride, base, logs, group, counts, masks, m_start, member, stride, first, table):  # fmt: skip  # noqa: E501
    """Fill the last five arguments with the members, strides and tables of the groups that `group_factors` chose."""
    members, numbers, here = 0, 0, 0
    degree = _longest(start)
    places, at = np.empty(degree, dtype=np.int64), np.zeros(degree, dtype=np.int64)
    row = np.empty(_largest(k_own))
    m_start[0] = 0
    for r in range(k_own.size):
        k, lo = k_own[r], start[r]
        single = counts[r] == 1
        width = k - 1 if single else (k + 3) // 4 * 4
        for g in range(counts[r]):
            size = 0
            if start[r + 1] - lo <= MASK_BITS:
                for place in range(start[r + 1] - lo):
                    if (masks[f_start[r] + r + g] >> np.uint64(place)) & ONE:
                        places[size] = place
                        size += 1
            else:
                for f in range(f_start[r], f_start[r + 1]):
                    if group[f] == g:
                        for q in range(f_m_start[f], f_m_start[f + 1]):
                            places[size] = m_of[q]
                            size += 1
            count = width
            for m in range(size - 1, -1, -1):
                member[members + m], stride[members + m] = neighbor[lo + places[m]], count
                count *= k_other[lo + places[m]]
            members += size
            first[here] = numbers
            here += 1
            m_start[here] = members
            # All joint states of the members, the last member changing fastest; `at` is the state of each neighbour.
            for cell_row in range(numbers, numbers + count, width):
                for a in range(k):
                    row[a] = 0.0
                for f in range(f_start[r], f_start[r + 1]):
                    if group[f] == g:
                        cell = base[f]
                        for q in range(f_m_start[f], f_m_start[f + 1]):
                            cell += at[m_of[q]] * m_stride[q]
                        for a in range(k):
                            row[a] += logs[cell + a * own_stride[f]]
                _write_row(row[:k], single, table[cell_row : cell_row + width])
                for m in range(size - 1, -1, -1):
                    at[places[m]] += 1
                    if at[places[m]] < k_other[lo + places[m]]:
                        break
                    at[places[m]] = 0
            numbers += count


@kernel
def _write_row(row, single, out):
    """Write a row of a table, from log-weights: partial sums of probabilities if `single`, else weights.

    The largest weight is 1, and the last partial sum is left out. If all states are forbidden, weights are 0, and
    partial sums always give state 0.
    """
    k = row.size
    top = row[0]
    for a in range(1, k):
        top = max(top, row[a])
    if top == -np.inf:
        for a in range(out.size):
            out[a] = NEVER if single else 0.0
        return
    total = 0.0
    for a in range(k):
        row[a] = np.exp(row[a] - top)
        if single:
            total += row[a]
            row[a] = total
    for a in range(out.size):
        out[a] = row[a] / total if single else (row[a] if a < k else 0.0)


@kernel
def conditional_steps(order, number, repeats, base, period, states, g_start, m_start, member, stride, first, table, keys, x):  # fmt: skip  # noqa: E501
    """Run a list of steps (see `_kernels.spins`) in chains side by side, with tables of conditional probabilities.

    The new state is the number of partial sums of its variable's probabilities that are at most a uniform number u.
    """
    chains = keys.shape[1]
    key, gamma = keys[0], keys[1]
    u, label = np.empty(chains), np.empty(chains, dtype=np.int64)
    cell = np.empty((_longest(g_start), chains), dtype=np.int64)
    # With some spare columns: rows that are a power of two apart would share a few lines of the cache.
    weight = np.empty(((_largest(states) + 3) // 4 * 4, chains + 8))
    for _ in range(repeats):
        for step in range(order.size):
            i = order[step]
            k = states[i]
            counter = np.uint64(base + number[step])
            for c in range(chains):
                u[c] = np.float64(np.int64(mix(key[c] + gamma[c] * counter) >> np.uint64(11))) * UNIT
            lo, hi = g_start[i], g_start[i + 1]
            for g in range(lo, hi):
                _find_rows(m_start[g], m_start[g + 1], member, stride, first[g], x, cell[g - lo])
            own = x[i]
            if hi - lo == 1:
                _count_below(k - 1, table, cell[0], u, own)
                continue
            _multiply(hi - lo, (k + 3) // 4, table, cell, weight)
            # Simple loops, which the compiler turns into vector instructions.
            for a in range(1, k):
                row, before = weight[a], weight[a - 1]
                for c in range(chains):
                    row[c] += before[c]
            total = weight[k - 1]
            for c in range(chains):
                u[c] *= total[c]
                label[c] = 0
            for a in range(k - 1):
                row = weight[a]
                for c in range(chains):
                    label[c] += row[c] <= u[c]
            for c in range(chains):
                own[c] = label[c]
        base += period


@kernel
def _find_rows(m_lo, m_hi, member, stride, first, x, cell):
    """Find, for every chain, the row of a group's table that belongs to the joint state of the group's members."""
    for c in range(cell.size):
        cell[c] = first
    for m in range(m_lo, m_hi):
        other, s = x[member[m]], stride[m]
        for c in range(cell.size):
            cell[c] += other[c] * s


@kernel
def _count_below(width, table, cell, u, own):
    """Draw the new state of every chain: the number of partial sums in its row that are at most u."""
    if width == 1:
        for c in range(cell.size):
            own[c] = table[np.uint64(cell[c])] <= u[c]
    else:
        for c in range(cell.size):
            label = 0
            for a in range(width):
                label += table[np.uint64(cell[c] + a)] <= u[c]
            own[c] = label


@kernel
def _multiply(groups, blocks, table, cell, weight):
    """Set weight[state, chain] to the product of the groups' weights, four states at a time."""
    for c in range(cell.shape[1]):
        for b in range(blocks):
            # Unsigned, since Numba checks signed indices for negative values.
            at = np.uint64(cell[0, c] + 4 * b)
            w0, w1, w2, w3 = table[at], table[at + ONE], table[at + TWO], table[at + THREE]
            for g in range(1, groups):
                at = np.uint64(cell[g, c] + 4 * b)
                w0 *= table[at]
                w1 *= table[at + ONE]
                w2 *= table[at + TWO]
                w3 *= table[at + THREE]
            weight[4 * b, c], weight[4 * b + 1, c] = w0, w1
            weight[4 * b + 2, c], weight[4 * b + 3, c] = w2, w3


@kernel
def binary_tables(out_start, f_start, m_start, m_of, m_stride, own_stride, base, table, probability, error):
    """Set probability[r, c] to P(1) of row r when neighbour k has state (c >> k) & 1, for all states c.

    error[r] is set to a bound on the error of these probabilities. Rows have the factors of `Packed`. The probability
    is 0 where both states are forbidden.
    """
    configurations = probability.shape[1]
    for r in range(probability.shape[0]):
        neighbors = out_start[r + 1] - out_start[r]
        size = 0.0
        for c in range(configurations):
            weight0, weight1 = 0.0, 0.0
            magnitude = 0.0
            for f in range(f_start[r], f_start[r + 1]):
                cell = base[f]
                for q in range(m_start[f], m_start[f + 1]):
                    cell += ((c >> m_of[q]) & 1) * m_stride[q]
                weight0 += table[cell]
                weight1 += table[cell + own_stride[f]]
                for value in (table[cell], table[cell + own_stride[f]]):
                    if value > -np.inf:
                        magnitude += abs(value)
            if c < 1 << neighbors:
                size = max(size, magnitude)
            if weight1 == -np.inf:
                probability[r, c] = 0.0
            else:
                probability[r, c] = 1.0 / (1.0 + np.exp(weight0 - weight1))
        error[r] = ((f_start[r + 1] - f_start[r] + 2) * size + 8.0) * 2.0**-52


@kernel
def first_forbidden(f_start, m_start, member, m_stride, own_stride, base, table, states):
    """Return a variable, factor and chain where the factor forbids the chain's states; -1, -1, -1 if none."""
    for i in range(f_start.size - 1):
        for f in range(f_start[i], f_start[i + 1]):
            for c in range(states.shape[1]):
                cell = base[f] + states[i, c] * own_stride[f]
                for q in range(m_start[f], m_start[f + 1]):
                    cell += states[member[q], c] * m_stride[q]
                if table[cell] == -np.inf:
                    return i, f, c
    return -1, -1, -1
