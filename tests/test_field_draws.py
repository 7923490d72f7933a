"""Draws of sites with a likelihood: the halves of Gaussians lie above the density, and draws have its law."""

import math

import numpy as np
import pytest
from scipy import stats

from dobrushin._kernels import field_draws, field_laws
from dobrushin._kernels.generator import streams
from test_fields import site_law

CHAINS = 512


def random_site(seed):
    """Precision, linear term, both amounts, and ends of an interval."""
    rng = np.random.default_rng(seed)
    m = math.exp(rng.uniform(-4, 3))
    E = math.exp(rng.uniform(-3, 5)) if seed % 3 != 1 else 0.0
    N = float(rng.integers(1, 200)) if seed % 3 else 0.0
    c = m * rng.normal() + (rng.poisson(E) if E else 0.0) + (rng.integers(0, N + 1) if N else 0.0)
    low = rng.normal() - 1.0 if seed % 4 == 3 else -math.inf
    high = max(low, 0.0) + math.exp(rng.normal()) if seed % 5 == 4 else math.inf
    return m, float(c), E, N, low, high


def draws_of(site, seed, steps=60):
    """Draws of independent chains, one row a step; each search for the mode begins at the last draw."""
    m, c, E, N, low, high = site
    keys = streams(np.uint64(1000 + 7919 * seed), np.uint64(7 + 104729 * seed), 0, CHAINS)
    x, work = np.full(CHAINS, min(max(0.0, low), high)), np.empty((10, CHAINS))
    found = []
    for step in range(steps):
        field_draws.draw_likelihood_sites(m, E, N, low, high, keys, step, np.full(CHAINS, c), work, x)
        found.append(x.copy())
    return np.array(found[4:])


def test_draws_have_the_law_of_the_site():
    chances = []
    for seed in range(60):
        site = random_site(seed)
        x = draws_of(site, seed)
        assert x.min() >= site[4]
        assert x.max() <= site[5]
        chances.append(stats.kstest(x.ravel(), site_law(*site, x)).pvalue)
        centred = x - x.mean()
        score = (centred[1:] * centred[:-1]).mean() / x.var() * math.sqrt(centred[1:].size)
        assert abs(score) < 6.0  # a draw does not remember where the search began
    assert min(chances) > 1e-5
    # Negative control: a linear term that is off by a tenth of a deviation.
    site = random_site(3)
    off = (site[0], site[1] + 0.1 * math.sqrt(site[0] + site[2]), *site[2:])
    assert stats.kstest(draws_of(off, 3).ravel(), site_law(*site, draws_of(site, 3))).pvalue < 1e-5


def least_room(site, start, share=1.0):
    """By how much the least lost on a strip is above half the square of its edge; `share` scales both Gaussians."""
    m, c, E, N, low, high = site
    rows = np.zeros((10, 1))
    x, grown, s, g, left, right, slack, _, bend, _ = rows
    x[0] = start
    field_laws.find_points(m, E, N, low, high, np.array([c]), x, grown, s, g, bend)
    field_draws._find_halves(m, N, low, high, x, grown, s, g, left, right, slack)
    if not left[0]:
        return math.inf
    z, room = np.linspace(1e-3, 12.0, 1500), math.inf
    proposed = np.minimum(0.5 * z**2, 0.5 * field_draws._EDGE**2 + field_draws._STEEP * (z - field_draws._EDGE))
    proposed = np.where(z < field_draws._EDGE, 0.5 * z**2, proposed)
    for d in (-z * left[0] * share, z * right[0] * share):
        # psi(x + d) - psi(x), from its second derivative.
        t = 0.5 * (1.0 + np.polynomial.legendre.leggauss(80)[0])
        weights = 0.5 * np.polynomial.legendre.leggauss(80)[1]
        y = x[0] + np.outer(d, t)
        logistic = 1.0 / (1.0 + np.exp(-y))
        with np.errstate(over="ignore"):
            bends = m + E * np.exp(np.minimum(y, 700.0)) + N * logistic * (1.0 - logistic)
        lost = g[0] * d + d**2 * (bends @ (weights * (1.0 - t))) + slack[0]
        room = min(room, float((lost - proposed).min()))
    return room


def test_halves_of_gaussians_lie_above_the_density():
    cases = [(random_site(seed), start) for seed in range(150) for start in (-1.0, 0.5, 2.0)]
    rooms = np.array([least_room(*case) for case in cases])
    assert np.isfinite(rooms).mean() > 0.6
    assert rooms.min() >= -1e-9
    # Negative control: deviations that are a twentieth smaller.
    assert min(least_room(*case, share=0.95) for case in cases) < -0.01


@pytest.mark.parametrize("d", [-30.0, -3.0, -0.5, -0.4999, -1e-3, 1e-9, 0.2, 0.49999, 0.5, 4.0])
def test_what_an_exponential_rises_above_its_tangent(d):
    exact = math.fsum(math.exp(k * math.log(abs(d)) - math.lgamma(k + 1)) * math.copysign(1.0, d) ** k for k in range(2, 40))  # fmt: skip  # noqa: E501
    if abs(d) > 3.5:
        exact = math.expm1(d) - d
    assert abs(field_laws.rise(d) / exact - 1.0) < 2.0**-44
