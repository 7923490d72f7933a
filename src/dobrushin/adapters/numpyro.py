"""Gibbs updates of discrete sites of a NumPyro model along a scan, for `numpyro.infer.HMCGibbs`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._scan import as_scan
from dobrushin._shared.call import public
from dobrushin._shared.environment import require
from dobrushin.errors import ArgumentError

__all__ = ["gibbs_fn"]


@public(name="adapters.numpyro.gibbs_fn")
def gibbs_fn(
    model: Callable[..., Any],
    sites: Sequence[str],
    scan: Any = None,
    *,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
) -> Callable[..., dict[str, Any]]:
    """Return a function that updates discrete sites by Gibbs sampling, for `numpyro.infer.HMCGibbs`.

    Each update draws one entry of a site from its conditional distribution given everything else: NumPyro's own
    log-density at each value of the entry.

    Parameters
    ----------
    model : callable
        A NumPyro model.
    sites : list of str
        Names of latent sites whose values can be enumerated, such as Bernoulli and Categorical ones. They are the
        `gibbs_sites` of `HMCGibbs`.
    scan : Scan or ScanResult, optional
        Positions of the entries of the sites, one site after the other, in the order of updates. Entries that the scan
        never updates are updated once before it, or they would keep their first values. Default: each entry once.
    args, kwargs : optional
        Arguments of the model, as `MCMC.run` is given.

    Returns
    -------
    callable
        For the argument `gibbs_fn` of `HMCGibbs`.

    Notes
    -----
    A certificate of the scan bounds the bias of the discrete sites while the other sites keep their values. It does not
    cover the chain of the whole model.

    Examples
    --------
    >>> import numpyro, numpyro.distributions as dist  # doctest: +SKIP
    >>> import dobrushin as db
    >>> def model():  # doctest: +SKIP
    ...     rate = numpyro.sample("rate", dist.Normal())
    ...     x = numpyro.sample("x", dist.Bernoulli(logits=rate).expand([3]))
    ...     numpyro.factor("link", 0.4 * (x[1:] * x[:-1]).sum())
    >>> update = db.adapters.numpyro.gibbs_fn(model, ["x"], scan=db.Scan([2, 1, 0]))  # doctest: +SKIP
    >>> kernel = numpyro.infer.HMCGibbs(numpyro.infer.NUTS(model), update, gibbs_sites=["x"])  # doctest: +SKIP
    """
    jax, numpyro = require("jax", "numpyro"), require("numpyro", "numpyro")
    jnp, log_density = jax.numpy, require("numpyro.infer.util", "numpyro").log_density
    if isinstance(sites, str) or not len(sites):
        raise ArgumentError("sites", "a list of at least one name", sites)
    given = dict(kwargs or {})
    seeded = numpyro.handlers.seed(model, 0)
    trace = numpyro.handlers.trace(seeded).get_trace(*args, **given)
    shapes, values = {}, []
    for k, name in enumerate(sites):
        own = _support_of(trace.get(name))
        if own is None or name in shapes:
            known = [other for other, each in trace.items() if _support_of(each) is not None]
            requirement = (
                f"distinct names of latent sites that can be enumerated ({', '.join(map(repr, known)) or 'none'})"
            )
            raise ArgumentError("sites", requirement, name, f"index {k}")
        shapes[name] = trace[name]["value"].shape
        values += [own] * math.prod(shapes[name])
    order = order_of_updates(scan, len(values))
    # The values of each entry; where an entry has fewer than another, its first value fills the row and is masked.
    width = max(map(len, values), default=1)
    table = jnp.array([np.concatenate([row, np.full(width - len(row), row[0])]) for row in values])
    possible = jnp.array([np.arange(width) < len(row) for row in values])
    ends = np.cumsum([math.prod(shape) for shape in shapes.values()])

    def unpacked(flat: Any, like: Mapping[str, Any]) -> dict[str, Any]:
        parts = jnp.split(flat, ends[:-1])
        return {
            name: part.reshape(shape).astype(like[name].dtype)
            for (name, shape), part in zip(shapes.items(), parts, strict=True)
        }

    def update(rng_key: Any, gibbs_sites: Mapping[str, Any], hmc_sites: Mapping[str, Any]) -> dict[str, Any]:
        def log_weight(flat: Any) -> Any:
            return log_density(model, args, given, {**hmc_sites, **unpacked(flat, gibbs_sites)})[0]

        def draw(flat: Any, step: tuple[Any, Any]) -> tuple[Any, None]:
            i, key = step
            weights = jax.vmap(lambda value: log_weight(flat.at[i].set(value)))(table[i])
            state = jax.random.categorical(key, jnp.where(possible[i], weights, -jnp.inf))
            return flat.at[i].set(table[i, state]), None

        start = jnp.concatenate([jnp.ravel(gibbs_sites[name]).astype(table.dtype) for name in shapes])
        steps = jnp.array(order), jax.random.split(rng_key, len(order))
        return unpacked(jax.lax.scan(draw, start, steps)[0], gibbs_sites)

    return update


def order_of_updates(scan: Any, n: int) -> NDArray[np.int64]:
    """Return the order of updates: first the entries that the scan misses, then the scan. Default: each entry once."""
    if scan is None:
        return np.arange(n)
    scan = as_scan(scan)
    scan._check_fits(n)
    return np.concatenate([np.setdiff1d(np.arange(n), scan.order), scan.order])


def _support_of(site: Mapping[str, Any] | None) -> NDArray[Any] | None:
    """Return the possible values of each entry of a site; None if they cannot be enumerated."""
    if site is None or site["type"] != "sample" or site["is_observed"] or not site["fn"].has_enumerate_support:
        return None
    try:
        return np.asarray(site["fn"].enumerate_support(expand=False)).ravel()
    except NotImplementedError:  # sites with `to_event`, and sites whose entries have different ranges
        return None
