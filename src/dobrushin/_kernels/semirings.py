"""The steps of `contraction` with other numbers: with exponents of their own, and for maxima instead of sums. [trusted]

A number with an exponent of its own is a pair (m, e) for m 2**e with m in [1/2, 1), or m = 0: it never underflows.
"""

import math

import numpy as np

from dobrushin._shared.compile import kernel

_LENGTH, _MADE = 0, 1
# No exponent is lower: so many that sums of a few do not overflow.
LOWEST = -(2**57)


@kernel
def _begin(axes, begin, start, digit, base):
    """Digits and places of combination `begin` of all axes, in C order; base[-1] is that of the table that is made."""
    rest = begin
    for a in range(len(axes) - 1, -1, -1):
        digit[a] = rest % axes[a, _LENGTH]
        rest //= axes[a, _LENGTH]
    for k in range(len(start)):
        base[k] = start[k]
    base[-1] = 0
    for a in range(len(axes)):
        base[-1] += digit[a] * axes[a, _MADE]
        for k in range(len(start)):
            base[k] += digit[a] * axes[a, 2 + k]


@kernel
def _advance(axes, digit, base):
    """The next combination."""
    count = len(base) - 1
    for a in range(len(axes) - 1, -1, -1):
        digit[a] += 1
        if digit[a] < axes[a, _LENGTH]:
            base[-1] += axes[a, _MADE]
            for k in range(count):
                base[k] += axes[a, 2 + k]
            return
        digit[a] = 0
        back = axes[a, _LENGTH] - 1
        base[-1] -= back * axes[a, _MADE]
        for k in range(count):
            base[k] -= back * axes[a, 2 + k]


@kernel
def add_wide_products(axes, begin, end, store, powers, start, out, out_powers):
    """Add the products of combinations begin..end of all axes to a table of numbers with exponents."""
    digit = np.zeros(len(axes), dtype=np.int64)
    base = np.zeros(len(start) + 1, dtype=np.int64)
    _begin(axes, begin, start, digit, base)
    for _ in range(begin, end):
        number, power = 1.0, 0
        for k in range(len(start)):
            number *= store[base[k]]
            power += powers[base[k]]
        if number > 0.0:
            o = base[-1]
            ahead = power - out_powers[o]
            if out[o] == 0.0:
                out[o], out_powers[o] = number, power
            elif ahead > 0:
                out[o] = number + (math.ldexp(out[o], -ahead) if ahead < 2000 else 0.0)
                out_powers[o] = power
            elif ahead > -2000:
                out[o] += math.ldexp(number, ahead)
        _advance(axes, digit, base)


@kernel
def normalise(table, powers):
    """Bring all numbers into [1/2, 1), and the largest exponent to 0; returns that exponent, or None for zeros only."""
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
def take_maxima(axes, begin, end, store, start, out):
    """Raise the entries of `out` to the sums of logarithms of combinations begin..end of all axes."""
    digit = np.zeros(len(axes), dtype=np.int64)
    base = np.zeros(len(start) + 1, dtype=np.int64)
    _begin(axes, begin, start, digit, base)
    for _ in range(begin, end):
        total = 0.0
        for k in range(len(start)):
            total += store[base[k]]
        out[base[-1]] = max(out[base[-1]], total)
        _advance(axes, digit, base)
