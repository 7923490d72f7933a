"""Tables of probabilities for all configurations of neighbours, and states that tables forbid."""

import numpy as np

from dobrushin._shared.compile import kernel


@kernel
def binary_tables(out_start, f_start, m_start, m_of, m_stride, own_stride, base, table, probability, error):
    """probability[r, c] of state 1 of row r when neighbour k is in state (c >> k) & 1, with a bound on its error.

    Rows and their factors are as in `influence.enumerated_rows`. Where both states are forbidden: 0.
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
    """The first variable, factor and chain whose states the factor forbids; -1 for none."""
    for i in range(f_start.size - 1):
        for f in range(f_start[i], f_start[i + 1]):
            for c in range(states.shape[1]):
                cell = base[f] + states[i, c] * own_stride[f]
                for q in range(m_start[f], m_start[f + 1]):
                    cell += states[member[q], c] * m_stride[q]
                if table[cell] == -np.inf:
                    return i, f, c
    return -1, -1, -1
