"""What NUTS says about a disease map: NumPyro, if it is installed. Nothing bounds its error."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._shared.extras import require

CHAINS, WARMUP = 4, 1000


def is_installed() -> bool:
    """Whether NumPyro is there."""
    return find_spec("numpyro") is not None


def run_nuts(
    precision: NDArray[np.float64], counts: NDArray[np.float64], exposure: NDArray[np.float64], draws: int, seed: int
) -> dict[str, Any]:
    """Means and shares above 0 of x ~ N(0, precision^-1) given counts ~ Poisson(exposure e^x), with standard errors.

    The errors are from effective sample sizes: an estimate, as there is no other.
    """
    numpyro, infer = require("numpyro", "nuts"), require("numpyro.infer", "nuts")
    laws, diagnostics = require("numpyro.distributions", "nuts"), require("numpyro.diagnostics", "nuts")
    random = require("jax.random", "nuts")

    def model() -> None:
        x = numpyro.sample("x", laws.MultivariateNormal(np.zeros(len(counts)), precision_matrix=precision))
        numpyro.sample("counts", laws.Poisson(exposure * require("jax.numpy", "nuts").exp(x)), obs=counts)

    chains = infer.MCMC(
        infer.NUTS(model), num_warmup=WARMUP, num_samples=draws, num_chains=CHAINS, chain_method="sequential",
        progress_bar=False,
    )  # fmt: skip
    chains.run(random.PRNGKey(seed))
    x = np.asarray(chains.get_samples(group_by_chain=True)["x"], dtype=np.float64)
    found: dict[str, Any] = {}
    for name, error, values in (("mean", "error", x), ("above", "above, error", (x > 0).astype(np.float64))):
        size = np.maximum(diagnostics.effective_sample_size(values), 1.0)
        size = np.where(np.isfinite(size), size, CHAINS * draws)  # all draws are the same
        whole = values.reshape(-1, values.shape[-1])
        found[name] = whole.mean(axis=0)
        found[error] = np.maximum(whole.std(axis=0), 1.0 / np.sqrt(size)) / np.sqrt(size)
    return found
