"""Literal, dense and slow versions of every algorithm: what the fast code must agree with."""

from __future__ import annotations

import itertools

import numpy as np


def step_matrix(q, C_bar):
    """B(q) = I - diag(q)(I - C)."""
    eye = np.eye(len(q))
    return eye - np.diag(q) @ (eye - C_bar)


def disagreement(C_bar, vectors, cap=None, initial=None, error=None, clamp=True):
    """b_T of the recursion b_t = B(q_t) b_{t-1}, with the clamp of MATH section 3."""
    n = len(C_bar)
    cap = np.ones(n) if cap is None else cap
    error = np.zeros(n) if error is None else error
    b = np.ones(n) if initial is None else np.array(initial, dtype=float)
    for q in vectors:
        if clamp:
            b = (1 - q) * b + q * np.minimum(1, np.minimum(cap, C_bar @ b) + error)
        else:
            b = step_matrix(q, C_bar) @ b
    return b


def one_hot(order, n):
    """The vectors q_t of a fixed order."""
    return [np.eye(n)[i] for i in order]


def dogs(C_bar, vectors, d, tolerance=-np.inf):
    """Algorithm 2 with V <- V + (q*_t - q_t)' w; returns the new vectors q*."""
    n, T = len(C_bar), len(vectors)
    eye = np.eye(n)
    b = [np.ones(n)]
    for q in vectors:
        b.append(step_matrix(q, C_bar) @ b[-1])
    d = np.array(d, dtype=float)
    V = d @ b[T]
    chosen = list(vectors)
    for t in range(T, 0, -1):
        if tolerance >= V:
            break
        w = -d * ((eye - C_bar) @ b[t - 1])
        best = int(np.argmin(w))
        # On a tie a fixed step stays.
        tie = vectors[t - 1].max() == 1 and not w[best] < vectors[t - 1] @ w - 2.0**-44 * V
        new = vectors[t - 1] if tie else eye[best]
        V += (new - vectors[t - 1]) @ w
        chosen[t - 1] = new
        d = d @ step_matrix(new, C_bar)
    return chosen


def backward_greedy(C_bar, d, steps):
    """Prepend argmax d, pull back; the last step is chosen first."""
    d = np.array(d, dtype=float)
    order = []
    for _ in range(steps):
        i = int(np.argmax(d))
        order.insert(0, i)
        x, d[i] = d[i], 0.0
        d = d + x * C_bar[i]
    return order


def forward_greedy(C_bar, steps):
    """Append argmax of b - C b."""
    b = np.ones(len(C_bar))
    order = []
    for _ in range(steps):
        i = int(np.argmax(b - C_bar @ b))
        b[i] = C_bar[i] @ b
        order.append(i)
    return order


def best_order(C_bar, d, steps):
    """The optimum over all orders, by exhaustive search."""
    n = len(C_bar)
    return min(
        (float(d @ disagreement(C_bar, one_hot(order, n), clamp=False)), order)
        for order in itertools.product(range(n), repeat=steps)
    )


def levels(order, adjacency):
    """Longest chain of dependent steps before each step."""
    level = []
    for t, i in enumerate(order):
        before = [level[s] for s in range(t) if order[s] == i or adjacency[order[s], i]]
        level.append(1 + max(before) if before else 0)
    return level
