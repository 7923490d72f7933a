"""Tables of factors: their parts for given states, and scaling where numbers have separate exponents. [trusted]"""

import math

from dobrushin._shared.compile import kernel

# The lowest exponent, so that sums of a few exponents do not overflow.
LOWEST = -(2**57)


@kernel
def normalise(table, powers):
    """Scale a table of numbers with separate exponents so that the largest exponent is 0.

    Returns that largest exponent before, and whether any number is not 0.
    """
    most, some = 0, False
    for i in range(len(table)):
        if table[i] > 0.0:
            number, power = math.frexp(table[i])
            table[i] = number
            powers[i] += power
            if not some or powers[i] > most:
                most, some = powers[i], True
    for i in range(len(table)):
        powers[i] = max(powers[i] - most, LOWEST) if table[i] > 0.0 else 0
    return most, some


@kernel
def cut_tables(states, scope_start, scope, table_start, is_free, state, cut_start, entries):
    """Write the part of each table in which the fixed variables have these states.

    Tables are in C order over their scopes; the part of factor f begins at cut_start[f] and is in C order too.
    """
    for f in range(cut_start.size - 1):
        first = cut_start[f]
        entries[first] = table_start[f]
        size, stride = 1, 1
        for k in range(scope_start[f + 1] - 1, scope_start[f] - 1, -1):
            v = scope[k]
            if is_free[v]:
                for a in range(1, states[v]):
                    for e in range(first, first + size):
                        entries[e + a * size] = entries[e] + a * stride
                size *= states[v]
            else:
                for e in range(first, first + size):
                    entries[e] += state[v] * stride
            stride *= states[v]
