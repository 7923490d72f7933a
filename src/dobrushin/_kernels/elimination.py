"""Sums over the variables of a region, one variable after the other (theory page, "Sums inside a region").

An order is chosen by the edges that it adds; a program says which tables meet in which step and where their products
are written; the run goes through it. All numbers are non-negative, so the rounding error is known beforehand.
"""

import numpy as np

from dobrushin._shared.compile import kernel

DONE, EMPTY = 0, 1
# Cells that are gone through with offsets that were written down.
BLOCK = 512
# Bounds on the entries of a message are looked at afresh when they leave this range.
LARGE, SMALL = 2.0**200, 2.0**-200
TINY = 2.0**-1000


@kernel
def greedy_order(start, neighbor, log_states, kept, rule, limit):
    """Order that takes next the variable that adds the fewest edges; the logarithm of all cells, and of the most.

    rule 0 looks at the new edges first and at the size of the clique second, 1 at their sum, 2 at the size first.
    Stops at a clique of more than exp(limit) cells.
    """
    n = log_states.size
    words = (n + 63) // 64
    one = np.uint64(1)
    adjacent = np.zeros((n, words), dtype=np.uint64)
    for v in range(n):
        for e in range(start[v], start[v + 1]):
            u = neighbor[e]
            adjacent[v, u >> 6] |= one << np.uint64(u & 63)
    gone = kept.copy()
    score = np.empty(n)
    size = np.empty(n)
    for v in range(n):
        size[v] = log_states[v]
        for e in range(start[v], start[v + 1]):
            size[v] += log_states[neighbor[e]]
        score[v] = _score(v, adjacent, size, rule, words)
    steps = n - kept.sum()
    order = np.empty(steps, dtype=np.int64)
    ring = np.empty(n, dtype=np.int64)
    changed = np.zeros(words, dtype=np.uint64)
    cells = 0.0
    widest = 0.0
    for step in range(steps):
        v = -1
        for u in range(n):
            if not gone[u] and (v < 0 or score[u] < score[v]):
                v = u
        order[step] = v
        gone[v] = True
        cells += np.exp(size[v])
        widest = max(widest, size[v])
        if widest > limit:
            return order, np.inf, widest
        members = _members(adjacent, v, words, ring)
        for w in range(words):
            changed[w] = adjacent[v, w]
        for k in range(members):
            u = ring[k]
            for w in range(words):
                adjacent[u, w] |= adjacent[v, w]
            adjacent[u, u >> 6] &= ~(one << np.uint64(u & 63))
            adjacent[u, v >> 6] &= ~(one << np.uint64(v & 63))
            for w in range(words):
                changed[w] |= adjacent[u, w]
        for k in range(members):
            u = ring[k]
            size[u] = log_states[u]
            for w in range(words):
                bits = adjacent[u, w]
                while bits:
                    low = bits & (~bits + one)
                    size[u] += log_states[64 * w + _count(low - one)]
                    bits ^= low
        for w in range(words):
            bits = changed[w]
            while bits:
                low = bits & (~bits + one)
                u = 64 * w + _count(low - one)
                bits ^= low
                if not gone[u]:
                    score[u] = _score(u, adjacent, size, rule, words)
    return order, np.log(max(cells, 1.0)), widest


@kernel
def _count(bits):
    """How many bits of a word are set."""
    bits = bits - ((bits >> np.uint64(1)) & np.uint64(0x5555555555555555))
    bits = (bits & np.uint64(0x3333333333333333)) + ((bits >> np.uint64(2)) & np.uint64(0x3333333333333333))
    bits = (bits + (bits >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((bits * np.uint64(0x0101010101010101)) >> np.uint64(56))


@kernel
def _members(adjacent, v, words, ring):
    """Write the neighbours of v into `ring`; returns how many there are."""
    one = np.uint64(1)
    members = 0
    for w in range(words):
        bits = adjacent[v, w]
        while bits:
            low = bits & (~bits + one)
            ring[members] = 64 * w + _count(low - one)
            members += 1
            bits ^= low
    return members


@kernel
def _score(v, adjacent, size, rule, words):
    """The smaller the better: from the edges that v adds when it is eliminated, and the size of its clique."""
    one = np.uint64(1)
    missing = 0
    for w in range(words):
        bits = adjacent[v, w]
        while bits:
            low = bits & (~bits + one)
            u = 64 * w + _count(low - one)
            bits ^= low
            for x in range(words):
                missing += _count(adjacent[v, x] & ~adjacent[u, x])
            missing -= 1  # u itself
    missing //= 2
    if rule == 0:
        return missing + 1e-3 * size[v]
    if rule == 1:
        return missing + 1.4426950408889634 * size[v]
    return size[v] + 1e-6 * missing


@kernel
def write_program(rank, steps, states, scope_start, scope):
    """Which tables meet in which step of an order, and where the sums are written.

    rank: when a variable is eliminated; those that are kept come last. Tables 0, 1, ... are the factors, then come the
    messages of the steps; the last step only multiplies. The members of a clique are in the order of their ranks.
    Returns the cliques (CSR), the tables of each step (CSR), where each message begins, and all that the messages need.
    """
    factors = scope_start.size - 1
    first = np.full(steps + 1, -1, dtype=np.int64)  # a list of the tables of each step
    after = np.full(factors + steps + 1, -1, dtype=np.int64)
    for t in range(factors - 1, -1, -1):
        if scope_start[t] < scope_start[t + 1]:
            at = steps
            for e in range(scope_start[t], scope_start[t + 1]):
                at = min(at, rank[scope[e]])
            after[t] = first[at]
            first[at] = t
    by_rank = np.empty(rank.size, dtype=np.int64)
    for v in range(rank.size):
        by_rank[rank[v]] = v
    clique_start = np.zeros(steps + 2, dtype=np.int64)
    clique = np.empty(max(64, 8 * (steps + 1)), dtype=np.int64)
    table_start = np.zeros(steps + 2, dtype=np.int64)
    tables = np.empty(factors + steps + 1, dtype=np.int64)
    begin = np.zeros(steps + 1, dtype=np.int64)
    room = np.zeros(steps + 1, dtype=np.int64)
    live = np.empty(steps + 1, dtype=np.int64)  # messages that are still needed, by where they begin
    lives = 0
    needed = 0
    seen = np.full(rank.size, -1, dtype=np.int64)
    for s in range(steps + 1):
        at = table_start[s]
        t = first[s]
        while t >= 0:
            tables[at] = t
            at += 1
            t = after[t]
        table_start[s + 1] = at
        # Ranks of the members, sorted by insertion.
        a = clique_start[s]
        b = a
        if s < steps:
            clique[b] = s
            seen[by_rank[s]] = s
            b += 1
        else:
            for r in range(steps, rank.size):
                if b == clique.size:
                    clique = np.concatenate((clique, np.empty(clique.size, dtype=np.int64)))
                clique[b] = r
                b += 1
        for k in range(table_start[s], table_start[s + 1]):
            t = tables[k]
            if t < factors:
                lo, hi = scope_start[t], scope_start[t + 1]
            else:
                lo, hi = clique_start[t - factors] + 1, clique_start[t - factors + 1]
            for e in range(lo, hi):
                r = rank[scope[e]] if t < factors else clique[e]
                v = by_rank[r]
                if s == steps or seen[v] == s:
                    continue
                seen[v] = s
                if b == clique.size:
                    clique = np.concatenate((clique, np.empty(clique.size, dtype=np.int64)))
                p = b
                while p > a and clique[p - 1] > r:
                    clique[p] = clique[p - 1]
                    p -= 1
                clique[p] = r
                b += 1
        clique_start[s + 1] = b
        if b == clique.size:
            clique = np.concatenate((clique, np.empty(clique.size, dtype=np.int64)))
        cells = 1
        for e in range(a + 1 if s < steps else a, b):
            cells *= states[by_rank[clique[e]]]
        room[s] = cells
        # The first gap between messages that are still needed.
        place = 0
        p = 0
        while p < lives and begin[live[p]] - place < cells:
            place = begin[live[p]] + room[live[p]]
            p += 1
        begin[s] = place
        needed = max(needed, place + cells)
        for q in range(lives, p, -1):
            live[q] = live[q - 1]
        live[p] = s
        lives += 1
        kept = 0
        for q in range(lives):
            used = False
            for k in range(table_start[s], table_start[s + 1]):
                used |= tables[k] == factors + live[q]
            if not used:
                live[kept] = live[q]
                kept += 1
        lives = kept
        if s < steps and b > a + 1:
            to = min(clique[a + 1], steps)
            after[factors + s] = first[to]
            first[to] = factors + s
    return clique_start, clique[: clique_start[steps + 1]], table_start, tables[: table_start[steps + 1]], begin, needed


@kernel
def run(lo, hi, states, rank, scope_start, scope, weight_start, weights, small, loss, program, arena, known):
    """Go through steps lo to hi - 1 of a program.

    weights: the factors, each with largest entry 1; small, loss: bounds on their smallest entries that are not 0, and
    on what they lost by underflow. known: for each step, bounds on the entries of its message from below (those that
    are not 0) and above, and on its absolute error. Returns EMPTY if all is 0.
    """
    clique_start, clique, table_start, tables, begin = program
    factors = scope_start.size - 1
    steps = begin.size - 1
    by_rank = np.empty(rank.size, dtype=np.int64)
    for v in range(rank.size):
        by_rank[rank[v]] = v
    for s in range(lo, hi):
        a, b = clique_start[s], clique_start[s + 1]
        width = b - a
        size = np.ones(width + 1, dtype=np.int64)
        for e in range(width):
            size[e] = states[by_rank[clique[a + e]]]
        # The factors of the step are multiplied first: they are small, and the product is one table.
        own = 0
        messages = 0
        for k in range(table_start[s], table_start[s + 1]):
            if tables[k] < factors:
                own += 1
            else:
                messages += 1
        count = messages + (1 if own > 0 else 0)
        strides = np.zeros((max(count, 1), width + 1), dtype=np.int64)
        base = np.zeros(max(count, 1), dtype=np.int64)
        low, high, lost = 1.0, 1.0, 0.0
        k = 0
        for m in range(table_start[s], table_start[s + 1]):
            t = tables[m]
            if t < factors:
                continue
            t -= factors
            base[k] = begin[t]
            stride = 1
            e = clique_start[t + 1] - 1
            for axis in range(width - 1, -1, -1):
                if e > clique_start[t] and clique[e] == clique[a + axis]:
                    strides[k, axis] = stride
                    stride *= size[axis]
                    e -= 1
            lost = lost * (known[t, 1] + known[t, 2]) + high * known[t, 2]
            low *= min(1.0, known[t, 0])
            high *= known[t, 1]
            k += 1
        local = np.ones(1)
        if own > 0:
            inside = np.zeros(width, dtype=np.bool_)
            for m in range(table_start[s], table_start[s + 1]):
                t = tables[m]
                if t < factors:
                    for e in range(scope_start[t], scope_start[t + 1]):
                        for axis in range(width):
                            inside[axis] |= clique[a + axis] == rank[scope[e]]
                    lost = lost * (1.0 + 2.0 * loss[t]) + high * loss[t]
                    low *= small[t]
                    high *= 1.0 + loss[t]
            cells = 1
            for axis in range(width - 1, -1, -1):
                if inside[axis]:
                    strides[k, axis] = cells
                    cells *= size[axis]
            local = np.ones(cells)
            for m in range(table_start[s], table_start[s + 1]):
                t = tables[m]
                if t < factors:
                    _multiply(local, t, a, width, size, inside, clique, rank, scope_start, scope, weight_start, weights)
        total = 1
        for axis in range(1 if s < steps else 0, width):
            total *= size[axis]
        out = arena[begin[s] : begin[s] + total]
        if s < steps:
            _sum_out(out, arena, local, base, strides, size, width, messages, own > 0)
            high *= size[0]
            lost *= size[0]
        else:
            _product(out, arena, local, base, strides, size, width, messages, own > 0)
        if low < TINY:
            lost += 4.0 * (count + own + 1) * size[0] * 2.0**-1074 * high
        low *= 1.0 - 2.0**-40
        high *= 1.0 + 2.0**-40
        lost *= 1.0 + 2.0**-40
        is_empty = False
        if s == steps or total == 1 or low < SMALL or high > LARGE:
            low, high, lost = _rescale(out, lost)
            is_empty = high == 0.0
        known[s, 0] = low
        known[s, 1] = high + lost  # no entry is larger, computed or true
        known[s, 2] = lost
        if is_empty:
            return EMPTY
    return DONE


@kernel
def _multiply(local, t, a, width, size, inside, clique, rank, scope_start, scope, weight_start, weights):
    """Multiply a factor into the product of the factors of a step."""
    stride = np.zeros(width, dtype=np.int64)
    step = 1
    for e in range(scope_start[t + 1] - 1, scope_start[t] - 1, -1):
        for axis in range(width):
            if clique[a + axis] == rank[scope[e]]:
                stride[axis] = step
                step *= size[axis]
    digit = np.zeros(width, dtype=np.int64)
    at = weight_start[t]
    for cell in range(local.size):
        local[cell] *= weights[at]
        axis = width - 1
        while axis >= 0:
            if inside[axis]:
                digit[axis] += 1
                at += stride[axis]
                if digit[axis] < size[axis]:
                    break
                at -= stride[axis] * size[axis]
                digit[axis] = 0
            axis -= 1


@kernel
def _sum_out(out, arena, local, base, strides, size, width, messages, has_local):
    """The product of messages and a local table, summed over the first axis."""
    inner = 1
    split = width
    while split > 1 and inner < BLOCK:
        split -= 1
        inner *= size[split]
    count = messages + (1 if has_local else 0)
    offset = np.zeros((max(count, 1), inner), dtype=np.int64)
    for k in range(count):
        cells = 1
        for axis in range(width - 1, split - 1, -1):
            for digit in range(1, size[axis]):
                for c in range(cells):
                    offset[k, digit * cells + c] = offset[k, c] + digit * strides[k, axis]
            cells *= size[axis]
    place = base.copy()
    digits = np.zeros(width + 1, dtype=np.int64)
    states = size[0]
    for o in range(0, out.size, inner):
        if messages == 1 and has_local and states == 2:
            x, y = place[0], place[1]
            dx, dy = strides[0, 0], strides[1, 0]
            for c in range(inner):
                i, j = x + offset[0, c], y + offset[1, c]
                out[o + c] = arena[i] * local[j] + arena[i + dx] * local[j + dy]
        else:
            for c in range(inner):
                total = 0.0
                for state in range(states):
                    product = 1.0
                    for k in range(messages):
                        product *= arena[place[k] + offset[k, c] + state * strides[k, 0]]
                    if has_local:
                        product *= local[place[messages] + offset[messages, c] + state * strides[messages, 0]]
                    total += product
                out[o + c] = total
        axis = split - 1
        while axis >= 1:
            digits[axis] += 1
            for k in range(count):
                place[k] += strides[k, axis]
            if digits[axis] < size[axis]:
                break
            for k in range(count):
                place[k] -= strides[k, axis] * size[axis]
            digits[axis] = 0
            axis -= 1


@kernel
def _product(out, arena, local, base, strides, size, width, messages, has_local):
    """The product of messages and a local table."""
    place = base.copy()
    digits = np.zeros(width + 1, dtype=np.int64)
    count = messages + (1 if has_local else 0)
    for o in range(out.size):
        product = 1.0
        for k in range(messages):
            product *= arena[place[k]]
        if has_local:
            product *= local[place[messages]]
        out[o] = product
        axis = width - 1
        while axis >= 0:
            digits[axis] += 1
            for k in range(count):
                place[k] += strides[k, axis]
            if digits[axis] < size[axis]:
                break
            for k in range(count):
                place[k] -= strides[k, axis] * size[axis]
            digits[axis] = 0
            axis -= 1


@kernel
def _rescale(out, lost):
    """Divide by a power of 2 so that the largest entry is between 1 and 2; the new bounds."""
    top = 0.0
    bottom = np.inf
    for x in out:
        if x > top:
            top = x
        if x > 0.0 and x < bottom:
            bottom = x
    if top == 0.0:
        return 0.0, 0.0, lost
    factor = 2.0 ** min(1000.0, -np.floor(np.log2(top)))
    if bottom * factor < TINY:
        lost += 2.0**-1074 / factor
    for c in range(out.size):
        out[c] *= factor
    return max(bottom * factor, TINY * 2.0**-74), 2.0 * max(1.0, top * factor), lost * factor


@kernel
def two_colour(start, neighbor, sign):
    """States 1 and 0 that are equal along positive edges and differ along negative ones; -1 first if none are."""
    n = start.size - 1
    state = np.full(n, -1, dtype=np.int64)
    stack = np.empty(n, dtype=np.int64)
    for root in range(n):
        if state[root] >= 0:
            continue
        state[root] = 1
        stack[0] = root
        size = 1
        while size > 0:
            size -= 1
            v = stack[size]
            for e in range(start[v], start[v + 1]):
                u = neighbor[e]
                wanted = state[v] if sign[e] > 0 else 1 - state[v]
                if state[u] < 0:
                    state[u] = wanted
                    stack[size] = u
                    size += 1
                elif state[u] != wanted:
                    state[0] = -1
                    return state
    return state
