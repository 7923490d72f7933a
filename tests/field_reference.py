"""Small fields by quadrature: random cases, their laws on grids, and what a scan really does to them."""

from __future__ import annotations

from functools import cache

import numpy as np

import dobrushin as db

KINDS = ("gaussian", "one-sided", "two-sided", "poisson", "logit", "mixed")
NODES = {1: 300, 2: 120, 3: 56, 4: 30}
_nodes = cache(np.polynomial.legendre.leggauss)


def random_field(rng, kind, n):
    """A field of n variables that satisfies Dobrushin's condition where it must; some are close to failing it."""
    matrix = rng.normal(size=(n, n)) * (rng.random((n, n)) < 0.8)
    matrix = np.triu(matrix, 1)
    matrix = matrix + matrix.T
    share = rng.choice([0.3, 0.7, 0.95] if n < 4 else [0.3, 0.6])
    sums = np.abs(matrix).sum(axis=1)
    diagonal = np.where(sums > 0, sums / share, 1.0) * np.exp(rng.normal(size=n) * 0.3)
    diagonal = np.maximum(diagonal, sums / (0.97 if n < 4 else 0.7))
    scale = np.exp(rng.normal())
    precision = (matrix + np.diag(diagonal)) * scale
    linear = rng.normal(size=n) * rng.choice([0.0, 1.0, 4.0]) * np.sqrt(scale)
    options = {}
    sd = 1.0 / np.sqrt(np.diag(precision))
    if kind in ("one-sided", "two-sided"):
        centre = rng.normal(size=n) * 2 * sd
        options["lower"] = centre - sd * rng.exponential(size=n)
        if kind == "two-sided":
            options["upper"] = options["lower"] + sd * np.exp(rng.normal(size=n))
        elif rng.random() < 0.5:
            options = {"upper": -options["lower"]}
    if kind == "mixed":
        k = int(rng.integers(n))
        points = [[-1.0, 1.0], [0.0, 1.0, 2.0], [-1.0, 0.2, 3.0]][int(rng.integers(3))]
        options["levels"] = {k: points}
        if n > 1 and rng.random() < 0.5:
            j = (k + 1) % n
            options["lower"], options["upper"] = {j: -sd[j]}, {j: 2 * sd[j]}
    field = db.GaussianField(precision, linear, **options)
    if kind == "poisson":
        return field.poisson(rng.poisson(2.0, size=n), np.exp(rng.normal(size=n)))
    if kind == "logit":
        return field.bernoulli(rng.integers(0, 2, size=n))
    return field


class Grid:
    """A field on Gauss-Legendre nodes of each variable: a discrete model whose conditional laws are nearly exact."""

    def __init__(self, field, point):
        form = field._form
        self.n = form.n_variables
        self.points, weights = [], []
        spread = np.sqrt(np.diag(np.linalg.inv(field.precision.toarray())))
        for i in range(self.n):
            if form.is_finite[i]:
                self.points.append(form.values_of(i))
                weights.append(np.ones(len(form.values_of(i))))
                continue
            reach = 6.5 * spread[i]
            low, high = max(form.lower[i], point[i] - reach), min(form.upper[i], point[i] + reach)
            x, w = _nodes(NODES[self.n])
            self.points.append(0.5 * (high - low) * x + 0.5 * (high + low))
            weights.append(0.5 * (high - low) * w)
        mesh = np.meshgrid(*self.points, indexing="ij")
        states = np.stack([part.ravel() for part in mesh], axis=1)
        log = form.log_density(states).reshape(mesh[0].shape)
        mass = np.ones_like(log)
        for i, w in enumerate(weights):
            mass = mass * w.reshape([-1 if k == i else 1 for k in range(self.n)])
        law = np.exp(log - log.max()) * mass
        self.law = law / law.sum()
        self.log, self.mass = log, mass

    def conditional(self, i):
        """p(x_i | rest) on the nodes."""
        top = self.log.max(axis=i, keepdims=True)
        weights = np.exp(self.log - top) * self.mass
        return weights / weights.sum(axis=i, keepdims=True)

    def marginal(self, law, i):
        """The law of one variable."""
        return law.sum(axis=tuple(k for k in range(self.n) if k != i))

    def nearest(self, point):
        """The node next to a point: chains start there."""
        return [int(np.argmin(np.abs(self.points[i] - point[i]))) for i in range(self.n)]

    def run(self, order, start):
        """The law after the updates of an order, from a node."""
        law = np.zeros_like(self.law)
        law[tuple(start)] = 1.0
        for i in order:
            law = law.sum(axis=i, keepdims=True) * self.conditional(int(i))
        return law
