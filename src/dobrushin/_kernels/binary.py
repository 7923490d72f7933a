"""One chain of binary variables with few neighbours, by tables of thresholds.

Lists of steps are as in `spins`. They may be in any order that keeps the dependencies (theory page, "Levels"):
independent steps next to each other can be computed at once by the processor.
"""

import numpy as np

from dobrushin._kernels.generator import mix
from dobrushin._shared.compile import kernel


@kernel
def table_steps(order, number, repeats, base, period, neighbor, threshold, wide, key, gamma, x):
    """Steps of binary variables with few neighbours, states 0 and 1.

    Variable i has the neighbours neighbor[4 i : 4 i + 4] and the thresholds 2^63 P(1), by configuration, at
    threshold[16 i : 16 i + 16]; 6 and 64 of them where `wide`. Missing neighbours are a dummy that is always 0.
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
