"""Random models of every family, small enough to enumerate; and one as people write it."""

from __future__ import annotations

import itertools

import numpy as np

import dobrushin as db

FAMILIES = ["ising", "potts", "pairwise", "spins", "factors"]
# Families in which a state or a combination of states can be forbidden.
FAMILIES_WITH_ZEROS = ["potts", "pairwise", "factors"]
# A Bayesian network as a BIF file.
SPRINKLER = """network wet { }
variable rain { type discrete [ 2 ] { yes, no }; }
variable sprinkler { type discrete [ 3 ] { off, low, high }; }
variable grass { type discrete [ 2 ] { wet, dry }; }
probability ( rain ) { table 0.2, 0.8; }
probability ( sprinkler | rain ) { (yes) 0.9, 0.05, 0.05; (no) 0.5, 0.3, 0.2; }
probability ( grass | rain, sprinkler ) {
  (yes, off) 0.8, 0.2; (yes, low) 0.9, 0.1; (yes, high) 0.99, 0.01;
  (no, off) 0.0, 1.0; (no, low) 0.6, 0.4; (no, high) 0.9, 0.1;
}
"""


def random_model(rng, family, n=None, zeros=False, strength=1.0, max_states=3, density=0.5, labels=False):
    """A random model.

    Parameters
    ----------
    rng : numpy.random.Generator
    family : one of FAMILIES
    n : int, optional
        Number of variables; default 1 to 6. Some may be isolated; in "pairwise" and "factors" the cardinalities differ.
    zeros : bool
        Forbid some states and combinations (-inf), but never all joint states. No effect on "ising" and "spins".
    strength : float
        Standard deviation of all log-potentials.
    max_states : int
        Largest cardinality, where the family has one.
    density : float
        Probability of each edge; for factors of higher order, how many there are of them.
    labels : bool
        Name the variables "v0", "v1", ... instead of by position (only "pairwise" and "factors").
    """
    n = int(rng.integers(1, 7)) if n is None else n
    names = [f"v{i}" for i in range(n)] if labels else None
    edges = [pair for pair in itertools.combinations(range(n), 2) if rng.random() < density]
    # Variables without fields and unaries occur too: those that are isolated as well have no term at all.
    biased = rng.random(n) < 0.7
    if family == "ising":
        return db.Ising(symmetric(rng, n, edges, strength), strength * rng.normal(size=n) * biased)
    if family == "spins":
        scopes = {tuple(edge) for edge in edges if rng.random() < 0.5}
        scopes |= set(random_scopes(rng, n, edges, least=2))
        scopes = {tuple(sorted(scope)): tuple(scope) for scope in scopes}.values()
        terms = {scope: strength * rng.normal() for scope in scopes}
        return db.SpinMRF(terms, strength * rng.normal(size=n) * biased)
    sizes = rng.integers(2, max_states + 1, size=n)
    if family == "potts":
        sizes[:] = sizes[0]
    allowed = rng.integers(sizes) if zeros else None
    unaries = [random_table(rng, (i,), sizes, allowed, strength * biased[i]) for i in range(n)]
    if family == "potts":
        couplings = symmetric(rng, n, edges, strength)
        return db.Potts(couplings, int(sizes[0]), None if not zeros and rng.random() < 0.2 else np.stack(unaries))
    if family == "pairwise":
        edges = [edge if rng.random() < 0.5 else edge[::-1] for edge in edges]
        return db.PairwiseMRF(
            unaries, edges, [random_table(rng, edge, sizes, allowed, strength) for edge in edges], names
        )
    if family == "factors":
        scopes = [(i,) for i in range(n) if biased[i]] + edges + random_scopes(rng, n, edges, least=0)
        # The same variables twice, in another order.
        scopes += [tuple(rng.permutation(scope).tolist()) for scope in scopes if rng.random() < 0.2]
        return db.FactorGraph(
            sizes, [(scope, random_table(rng, scope, sizes, allowed, strength)) for scope in scopes], names
        )
    raise ValueError(family)


def symmetric(rng, n, edges, strength):
    """Symmetric couplings on the given edges."""
    matrix = np.zeros((n, n))
    for i, j in edges:
        matrix[i, j] = matrix[j, i] = strength * rng.normal()
    return matrix


def random_scopes(rng, n, edges, least):
    """About half as many tuples of `least` to 4 distinct variables as there are edges."""
    orders = rng.integers(least, 5, size=len(edges) // 2)
    return [tuple(rng.choice(n, size=int(order), replace=False).tolist()) for order in orders if order <= n]


def random_table(rng, scope, sizes, allowed, strength):
    """A random log-table; if a state is given that must stay allowed, about a quarter of the others are forbidden."""
    shape = tuple(int(sizes[v]) for v in scope)
    table = strength * rng.normal(size=shape)
    if allowed is not None and scope:
        kept = tuple(allowed[v] for v in scope)
        value = table[kept]
        table = np.where(rng.random(shape) < 0.25, -np.inf, table)
        table[kept] = value
    return table


def all_states(model):
    """All joint states, shape (S, n), in the order of a raveled array of joint probabilities."""
    return np.array(list(itertools.product(*(model.states(i) for i in range(model.n_variables)))))
