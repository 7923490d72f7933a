"""Loops for mini-buckets (Dechter and Rish 2003; Liu and Ihler 2011): messages, importance samples, and intervals.

Theory page, "Bounded weights". Tables hold logarithms in C order; -inf stands for a forbidden state. The last axis of
all tables of a bucket is the variable that the bucket sums out.
"""

import numpy as np

from dobrushin._kernels.elementary import exponential, logarithm
from dobrushin._kernels.generator import mix
from dobrushin._shared.compile import kernel

UNIT = 2.0**-53
# Exponentials of smaller numbers are taken as 0.
LOWEST = -690.0


@kernel
def advance(digit, sizes, strides, at):
    """Advance `digit` to the next combination of all axes but the last, in C order; return its place in the table."""
    a = sizes.size - 2
    while a >= 0:
        digit[a] += 1
        at += strides[a]
        if digit[a] < sizes[a]:
            break
        at -= strides[a] * sizes[a]
        digit[a] = 0
        a -= 1
    return at


@kernel
def add_table(out, sizes, strides, table):
    """Add a table to `out`, repeated along the axes on which the table's stride is 0."""
    last, step, at = sizes[sizes.size - 1], strides[sizes.size - 1], 0
    digit = np.zeros(sizes.size, dtype=np.int64)
    for e in range(0, out.size, last):
        if step == 1:
            for k in range(last):
                out[e + k] += table[at + k]
        else:
            value = table[at]
            for k in range(last):
                out[e + k] += value if step == 0 else table[at + step * k]
        at = advance(digit, sizes, strides, at)


@kernel
def add_up(table, sizes, strides, out):
    """Add a table of numbers to `out`, summed over the axes on which the stride of `out` is 0."""
    last, step, at = sizes[sizes.size - 1], strides[sizes.size - 1], 0
    digit = np.zeros(sizes.size, dtype=np.int64)
    for e in range(0, table.size, last):
        if step == 0:
            total = 0.0
            for k in range(last):
                total += table[e + k]
            out[at] += total
        else:
            for k in range(last):
                out[at + step * k] += table[e + k]
        at = advance(digit, sizes, strides, at)


@kernel
def exponentials(table, top, scale):
    """Return exp((table - top) * scale) for each entry, and 0 for results below e^-690."""
    out = np.empty(table.size)
    for e in range(table.size):
        t = (table[e] - top) * scale
        out[e] = exponential(t) if t > LOWEST else 0.0
    return out


@kernel
def log_sums(table, states, weight, out):
    """Set out[s] to w log sum_x exp(table[s, x] / w), the message of a mini-bucket with Hölder weight w."""
    inverse = 1.0 / weight
    for s in range(out.size):
        top = table[s * states]
        for k in range(1, states):
            top = max(top, table[s * states + k])
        if top == -np.inf:
            out[s] = top
            continue
        total = 0.0
        for k in range(states):
            t = (table[s * states + k] - top) * inverse
            total += exponential(t) if t > LOWEST else 0.0
        out[s] = top + weight * logarithm(total)


@kernel
def shares(table, states, weight, belief, out):
    """Distribute the belief of a message over the states of the variable that was summed out.

    out[s, x] is belief[s] exp(table[s, x] / w) / sum_x exp(table[s, x] / w) for the Hölder weight w.
    """
    inverse = 1.0 / weight
    for s in range(belief.size):
        top = table[s * states]
        for k in range(1, states):
            top = max(top, table[s * states + k])
        total = 0.0
        for k in range(states):
            t = (table[s * states + k] - top) * inverse if top > -np.inf else LOWEST
            value = exponential(t) if t > LOWEST else 0.0
            out[s * states + k] = value
            total += value
        share = belief[s] / total if total > 0.0 else 0.0
        for k in range(states):
            out[s * states + k] *= share


@kernel
def tighten(sizes, states, strides, start, products, inverses, which, out):
    """Lower the message of mini-bucket r = `which` as far as the messages of the bucket's other mini-buckets allow.

    out[S_r] is the maximum over the rest of S of sum_x prod_s products_s[S_s, x] / prod over s != r of messages_s[S_s].
    The messages of mini-bucket s begin at start[s], its products at states * start[s]. `sizes` are the sizes of the
    axes S, and `strides` has a row for each mini-bucket. A message of 0 has the inverse 0.
    """
    groups, axes = strides.shape
    at = start.copy()
    digit = np.zeros(axes, dtype=np.int64)
    total = 1
    for a in range(axes):
        total *= sizes[a]
    for _ in range(total):
        value = 0.0
        for k in range(states):
            product = 1.0
            for s in range(groups):
                product *= products[at[s] * states + k]
            value += product
        for s in range(groups):
            if s != which:
                value *= inverses[at[s]]
        here = at[which] - start[which]
        out[here] = max(out[here], value)
        a = axes - 1
        while a >= 0:
            digit[a] += 1
            for s in range(groups):
                at[s] += strides[s, a]
            if digit[a] < sizes[a]:
                break
            for s in range(groups):
                at[s] -= strides[s, a] * sizes[a]
            digit[a] = 0
            a -= 1


@kernel
def draw_tries(keys, threshold, steps, reads, pairs, constants, table, asked, x, out):
    """Draw tries (importance samples) from the proposal, last variable first.

    out[0] is the logarithm of each weight, and out[1 :] the states of the wanted variables `asked`. Step t is about
    variable steps[0, t] with steps[1, t] states. Its bucket is the sum of the reads steps[2, t] to steps[3, t] - 1. The
    reads steps[3, t] to steps[2, t + 1] - 1 are the messages of a split bucket, to which constants[t] is added. The
    variable is drawn if steps[4, t] is 1. Read r begins at reads[0, r], plus stride times state for the pairs from
    reads[1, r] on. A try whose log-weight falls below `threshold` continues with the probability that keeps the mean
    weight.
    """
    log = np.empty(64)
    for c in range(keys.shape[1]):
        key, gamma = keys[0, c], keys[1, c]
        weight = 0.0
        for t in range(steps.shape[1] - 1):
            states = steps[1, t]
            if states > log.size:
                log = np.empty(states)
            log[:states] = 0.0
            for r in range(steps[2, t], steps[3, t]):
                at = reads[0, r]
                for p in range(reads[1, r], reads[1, r + 1]):
                    at += x[pairs[0, p]] * pairs[1, p]
                for k in range(states):
                    log[k] += table[at + k]
            top = log[0]
            for k in range(1, states):
                top = max(top, log[k])
            if top == -np.inf:
                weight = -np.inf
                break
            total = 0.0
            for k in range(states):
                difference = log[k] - top
                log[k] = exponential(difference) if difference > LOWEST else 0.0
                total += log[k]
            if steps[3, t] < steps[2, t + 1]:
                ratio = top + logarithm(total) - constants[t]
                for r in range(steps[3, t], steps[2, t + 1]):
                    at = reads[0, r]
                    for p in range(reads[1, r], reads[1, r + 1]):
                        at += x[pairs[0, p]] * pairs[1, p]
                    ratio -= table[at]
                weight += min(ratio, 0.0)
                if weight < threshold:
                    u = np.float64(mix(key + gamma * np.uint64(2 * t + 1)) >> np.uint64(11)) * UNIT
                    short = weight - threshold
                    if short < LOWEST or u >= exponential(short):
                        weight = -np.inf
                        break
                    weight = threshold
            if steps[4, t]:
                u = np.float64(mix(key + gamma * np.uint64(2 * t)) >> np.uint64(11)) * UNIT * total
                label, partial = -1, 0.0
                for k in range(states):
                    if log[k] > 0.0 and (label < 0 or u >= partial):
                        label = k
                    partial += log[k]
                x[steps[0, t]] = label
        out[0, c] = weight
        for i in range(asked.size):
            out[i + 1, c] = np.float64(x[asked[i]]) if weight > -np.inf else 0.0


@kernel
def wealth(y, z, bets, share, p, sign):
    """Return the logarithm of the wealth from bets that the mean is not p: log prod_t (1 + sign b_t (y_t - p z_t)).

    Bets b_t are cut at share / p, or at share / (1 - p) for sign -1.
    """
    room = p if sign > 0.0 else 1.0 - p
    most = share / room if room > 1e-300 else np.inf
    total, product = 0.0, 1.0
    for t in range(y.size):
        product *= 1.0 + sign * min(bets[t], most) * (y[t] - p * z[t])
        if product > 1e200 or product < 1e-200:
            total += logarithm(product)
            product = 1.0
    return total + logarithm(product)


@kernel
def bet(y, z, aim, sums):
    """Return the sizes of bets against a mean, each from earlier values only.

    They are aim * sum z / sum (y - m z)^2 with m = sum y / sum z. `sums` are sum z, sum y and the sum of squares, which
    are updated.
    """
    bets = np.empty(y.size)
    for t in range(y.size):
        bets[t] = aim * sums[0] / sums[2]
        difference = y[t] - z[t] * sums[1] / sums[0]
        sums[0] += z[t]
        sums[1] += y[t]
        sums[2] += difference * difference
    return bets


@kernel
def limit(y, z, bets, share, needed, sign, inside):
    """Return an end of the confidence interval for a mean: of all p with log-wealth below `needed`.

    It is the lower end for sign 1 and the upper end for sign -1. The wealth falls with p for sign 1 and rises for sign
    -1. Bisection begins at `inside`; if this point is itself outside, the result is the end of a larger interval.
    """
    outside = 0.0 if sign > 0.0 else 1.0
    if wealth(y, z, bets, share, outside, sign) < needed:
        return outside
    for _ in range(24):
        middle = 0.5 * (inside + outside)
        if wealth(y, z, bets, share, middle, sign) < needed:
            inside = middle
        else:
            outside = middle
    return outside
