"""Small fields with coefficients on fine grids: what is really outside of boxes, and how entropy really falls."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy import interpolate

import dobrushin as db
from dobrushin._fields.boxes import box_of, decay_of
from dobrushin.errors import CertificateError

# Nodes of each variable, by number of variables.
NODES = {1: 2000, 2: 320, 3: 90, 4: 36}
LIKELIHOODS = ("none", "poisson", "logit", "normal")


def random_regression(rng, areas, likelihood, most=4):
    """A precision that need not satisfy Dobrushin's condition, or a CAR with coefficients, with observations."""
    if rng.random() < 0.5:
        matrix = rng.normal(size=(areas, areas + 1))
        precision = matrix @ matrix.T * np.exp(rng.normal()) + np.eye(areas) * np.exp(rng.normal() - 1.0)
        field = db.GaussianField(precision, rng.normal(size=areas))
    else:
        weights = np.triu(rng.random((areas, areas)) + 0.1, 1)
        field = db.GaussianField.leroux(weights + weights.T, rng.random() * 0.99, np.exp(rng.normal()))
    room = most - areas
    if room and rng.random() < 0.7:
        values = {"one": 1.0, "slope": rng.normal(size=areas)}
        chosen = list(values)[: int(rng.integers(1, room + 1))]
        field = field.covariates({name: values[name] for name in chosen}, float(np.exp(rng.normal())))
    observed = range(areas)
    if likelihood == "poisson":
        counts = {i: int(rng.poisson(rng.choice([1.0, 6.0, 30.0]))) for i in observed}
        return field.poisson(counts, {i: float(np.exp(rng.normal())) for i in observed})
    if likelihood == "logit":
        return field.bernoulli({i: int(rng.integers(0, 4)) for i in observed}, dict.fromkeys(observed, 3))
    if likelihood == "normal":
        return field.normal({i: rng.normal() for i in observed}, float(np.exp(rng.normal())))
    return field


class FineGrid:
    """A field on a product of midpoints that holds nearly all of its mass, and its restriction to a box."""

    def __init__(self, form, low, high):
        self.form, self.n = form, form.n_variables
        nodes = NODES[self.n]
        self.points = [lo + (np.arange(nodes) + 0.5) * (hi - lo) / nodes for lo, hi in zip(low, high, strict=True)]
        mesh = np.meshgrid(*self.points, indexing="ij")
        self.states = np.stack([part.ravel() for part in mesh], axis=1)
        log = form.log_density(self.states)
        self.law = np.exp(log - log.max())
        self.law /= self.law.sum()
        self.log = (log - log.max()).reshape(mesh[0].shape)

    def inside(self, form):
        """Return which states are in the box of a form."""
        return ((self.states >= form.lower) & (self.states <= form.upper)).all(axis=1)


def boxed_cases(seed, count, outside=1e-2, most=4):
    """Random fields with a box chosen for them; those for which none is found are left out."""
    rng = np.random.default_rng(seed)
    for k in range(count):
        field = random_regression(rng, int(rng.integers(1, most)), LIKELIHOODS[k % len(LIKELIHOODS)], most)
        try:
            yield field, box_of(field._form, outside)
        except CertificateError:
            continue


def box_violations(field, boxed, shrink=1.0):
    """Count the bounds of a box that do not hold, of those checked; None where the means are off the centre."""
    form = field._form
    outer = boxed.stages[0].half
    grid = FineGrid(form, boxed.centre - 1.7 * outer, boxed.centre + 1.7 * outer)
    wide = grid.inside(_on(form, boxed.centre, outer))
    narrow = grid.inside(boxed.form)
    cell = np.array([points[1] - points[0] for points in grid.points])
    inner_law = grid.law * narrow / grid.law[narrow].sum()
    means = inner_law @ grid.states
    if (np.abs(means - boxed.centre) > boxed.stages[-1].offset).any():
        return None
    checks = [(1.0 - grid.law[narrow].sum(), boxed.outside * shrink)]
    checks.append((1.0 - grid.law[wide].sum(), boxed.stages[0].escape * shrink))
    whole = grid.law @ grid.states
    for i in range(grid.n):
        bound = boxed.moved(np.array([i]), np.ones(1))
        checks.append((abs(whole[i] - means[i]), bound * shrink + 0.01 * cell[i]))
        off = grid.states[:, i] - boxed.centre[i]
        checks.append((abs(grid.law @ off**2 - inner_law @ off**2), boxed.moved_square(i) * shrink + 0.02 * cell[i]))
        reach, mean, square = boxed.clip(i, 1.5)
        clipped = np.clip(off, -reach, reach)
        checks.append((abs(inner_law @ (off - clipped)), mean * shrink + 1e-6))
        checks.append((inner_law @ (off**2 - clipped**2), square * shrink + 1e-6))
        spread = inner_law @ (grid.states[:, i] - means[i]) ** 2
        checks.append((spread, boxed.variance[i] * shrink * (1 + 1e-3) + cell[i] ** 2))
        tail = inner_law[np.abs(grid.states[:, i] - means[i]) > 2 * np.sqrt(boxed.variance[i] * shrink)].sum()
        checks.append((tail, 2 * np.exp(-2.0)))
    for stage in boxed.stages:
        law = grid.law * grid.inside(_on(form, boxed.centre, stage.half))
        law = law / law.sum()
        checks += list(zip(np.abs(law @ grid.states - boxed.centre), stage.offset * shrink + 0.01 * cell, strict=True))
    return sum(true > bound + 1e-9 for true, bound in checks), len(checks)


def _on(form, centre, half):
    return replace(form, lower=centre - half, upper=centre + half)


def entropy_violations(boxed, sweeps=6, shrink=1.0):
    """Count the steps of a random order whose mean entropy over the next variable is larger than is stated."""
    form, decay = boxed.form, decay_of(boxed)
    if (form.width / NODES[form.n_variables] > 0.5 / np.sqrt(form.diagonal)).any():
        return 0, 0  # the grid is too coarse for the conditional laws
    grid = FineGrid(form, form.lower, form.upper)
    shape = grid.log.shape
    target, log_target = grid.law.reshape(shape), grid.log - np.log(np.exp(grid.log).sum())
    start = np.ones(shape)
    for i, points in enumerate(grid.points):
        cell = points[1] - points[0]
        low, high = decay.point[i] - decay.spread[i], decay.point[i] + decay.spread[i]
        part = np.clip(np.minimum(points + cell / 2, high) - np.maximum(points - cell / 2, low), 0, None)
        start = start * (part / part.sum()).reshape([-1 if k == i else 1 for k in range(grid.n)])

    def entropy_of(law):
        positive = law > 1e-300
        return float((law[positive] * (np.log(law[positive]) - log_target[positive])).sum())

    law, entropy = start, entropy_of(start)
    failed, checked = int(entropy > decay.entropy * shrink * 1.001), 1
    rng, factor = np.random.default_rng(0), 1.0 - min(1.0, decay.rate / shrink) / grid.n
    for _ in range(sweeps * grid.n):
        moved = [_update(law, target, i) for i in range(grid.n)]
        after = [entropy_of(part) for part in moved]
        failed, checked = failed + (np.mean(after) > factor * entropy + 1e-9), checked + 1
        chosen = rng.integers(grid.n)
        law, entropy = moved[chosen], after[chosen]
    return int(failed), checked


def _update(law, target, i):
    conditional = target / np.maximum(target.sum(axis=i, keepdims=True), 1e-300)
    return law.sum(axis=i, keepdims=True) * conditional


class Marginals:
    """Means and distribution functions of a field, by quadrature in coordinates in which it is nearly round."""

    def __init__(self, form, centre, bend):
        self.form, self.centre, self.n = form, centre, form.n_variables
        precision = form.couplings.toarray() + np.diag(form.diagonal + bend)
        self.covariance = np.linalg.inv(precision)
        nodes = {1: 4000, 2: 400, 3: 121, 4: 44}[self.n]
        self.z = np.linspace(-8.0, 8.0, nodes)
        mesh = np.meshgrid(*[self.z] * self.n, indexing="ij")
        self.mesh = np.stack([part.ravel() for part in mesh])

    def of(self, i):
        """Return the mean and the standard deviation of a variable, and its distribution function."""
        order = [i, *(k for k in range(self.n) if k != i)]
        root = np.zeros((self.n, self.n))
        root[order] = np.linalg.cholesky(self.covariance[np.ix_(order, order)])
        log = self.form.log_density((self.centre[:, None] + root @ self.mesh).T).reshape([len(self.z)] * self.n)
        density = np.exp(log - log.max()).sum(axis=tuple(range(1, self.n)))
        spline = interpolate.CubicSpline(self.z, np.log(np.maximum(density, 1e-290)))
        fine = np.linspace(self.z[0], self.z[-1], 20001)
        weight = np.exp(spline(fine))
        weight /= weight.sum()
        x = self.centre[i] + root[i, 0] * fine
        mean = float(weight @ x)
        deviation = float(np.sqrt(weight @ (x - mean) ** 2))
        return mean, deviation, lambda at: float(np.interp(at, x, np.cumsum(weight)))
