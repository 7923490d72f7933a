"""Disease mapping: certified log relative risks of the counties of North Carolina (not in the paper: its next step).

Sudden infant deaths 1974-78 (Cressie, Statistics for Spatial Data, 1993, pp. 386-389): observed ~ Poisson(expected
e^x), x a proper conditional autoregression on the counties that share a border. Log relative risks x have certified
means; relative risks e^x, which are not Lipschitz, have certified quantiles. Beside it, a normal law in 100 dimensions
that is truncated to positive values, whose means are known.
"""

from __future__ import annotations

import csv
import time
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

import dobrushin as db
from dobrushin.experiments.catalog import Finding, MissingData, Store
from dobrushin.experiments.drawing import finish, panels

RHO, PRECISION = 0.9, 2.0
TOLERANCES, CONFIDENCE = {"risk": 0.1, "chance": 0.05, "quantile": 0.02}, 0.95
LEVELS = (0.05, 0.5, 0.95)
DIMENSIONS, PULL, LINEAR = 100, 0.6, 0.5
NUTS_CHAINS, NUTS_WARMUP = 4, 1000
_MISSING = (
    "This experiment needs the counties of North Carolina: give --data FOLDER, where FOLDER or FOLDER/spatial has "
    "nc_sids.csv and nc_adjacency.csv."
)


@dataclass(frozen=True)
class Counties:
    """Observed and expected counts of each county, and the pairs of counties that share a border."""

    names: list[str]
    observed: NDArray[np.float64]
    expected: NDArray[np.float64]
    borders: Any

    def field(self) -> db.GaussianField:
        """Return the posterior of the log relative risks."""
        prior = db.GaussianField.car(self.borders, rho=RHO, precision=PRECISION, labels=self.names)
        return prior.poisson(self.observed, self.expected)

    def estimate(self, what: str, seed: Any) -> db.Estimate:
        """Return certified intervals of one kind for all counties.

        `what` is "risk" for log relative risks, "chance" for the probabilities of a risk above the state's, or
        "quantile" for quantiles of the risks. Each of the three may be wrong with a third of the error probability.
        """
        targets: dict[str, list[Any]] = {
            "risk": self.names,
            "chance": [db.Exceeds(name, 0.0) for name in self.names],
            "quantile": [db.Quantile(name, level) for level in LEVELS for name in self.names],
        }
        confidence = 1 - (1 - CONFIDENCE) / 3
        return db.estimate(self.field(), targets[what], tolerance=TOLERANCES[what], confidence=confidence, seed=seed)


def read_counties(store: Store) -> Counties:
    """Read the counties; raise `MissingData` if their files are missing."""
    folder = store.find_data("spatial", "nc_sids.csv", "nc_adjacency.csv")
    if folder is None:
        raise MissingData(_MISSING)
    with open(folder / "nc_sids.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    names = [row["county"] for row in rows]
    births, observed = (np.array([float(row[key]) for row in rows]) for key in ("births_1974", "sids_1974"))
    place = {name: i for i, name in enumerate(names)}
    with open(folder / "nc_adjacency.csv", newline="", encoding="utf-8") as file:
        pairs = np.array([[place[row["county"]], place[row["neighbour"]]] for row in csv.DictReader(file)])
    ends = np.concatenate([pairs, pairs[:, ::-1]])
    borders = sparse.coo_array((np.ones(len(ends)), tuple(ends.T)), shape=(len(names), len(names))).tocsr()
    borders.data[:] = 1.0
    return Counties(names, observed, births * observed.sum() / births.sum(), borders)


def compute(store: Store) -> dict[str, Any]:
    """Compute intervals for all counties, a long run to compare with, and the means of the truncated normal law.

    Parameters
    ----------
    store : Store
        300 sweeps of 4096 chains for the long run, 2000 draws of NUTS; 100 of 2048, and 500, if quick.
    """
    counties = read_counties(store)
    sweeps, chains = store.pick(100, 300), store.pick(2048, 4096)
    data: dict[str, Any] = {"counties": counties}
    data["intervals"] = store.part("intervals", _intervals, counties, store.seed_of(0))
    data["long"] = store.part("long", long_run, counties, sweeps, chains, store.seed_of(1), sweeps=sweeps)
    data["nuts"] = None
    if find_spec("numpyro") is not None:
        draws = store.pick(500, 2000)
        data["nuts"] = store.part("nuts", _nuts, counties, draws, store.seed_of(3), draws=draws)
    data["orthant"] = store.part("orthant", _orthant, store.seed_of(2))
    return data


def _intervals(counties: Counties, seed: np.random.SeedSequence) -> dict[str, Any]:
    """Estimate intervals of all kinds; "seconds" has the times since the beginning."""
    arrays: dict[str, Any] = {"seconds": [], "updates": []}
    begin = time.perf_counter()
    for what, own in zip(TOLERANCES, seed.spawn(len(TOLERANCES)), strict=True):
        answer = counties.estimate(what, own)
        arrays |= {f"{what}, {end}": getattr(answer, end) for end in ("value", "lower", "upper")}
        arrays["seconds"].append(time.perf_counter() - begin)
        arrays["updates"].append(float(answer.steps) * answer.chains)
    return arrays


def _nuts(counties: Counties, draws: int, seed: np.random.SeedSequence) -> dict[str, Any]:
    """Estimate means of log risks, and the probabilities that they are positive, by NUTS.

    Nothing bounds the error: the standard errors are estimates from effective sample sizes.
    """
    import jax
    import numpyro
    from numpyro import diagnostics, distributions, infer

    precision = db.GaussianField.car(counties.borders, rho=RHO, precision=PRECISION).precision.toarray()

    def model() -> None:
        prior = distributions.MultivariateNormal(np.zeros(len(precision)), precision_matrix=precision)
        mean = counties.expected * jax.numpy.exp(numpyro.sample("x", prior))
        numpyro.sample("counts", distributions.Poisson(mean), obs=counties.observed)

    begin = time.perf_counter()
    chains = infer.MCMC(
        infer.NUTS(model), num_warmup=NUTS_WARMUP, num_samples=draws, num_chains=NUTS_CHAINS, chain_method="sequential",
        progress_bar=False,
    )  # fmt: skip
    chains.run(jax.random.PRNGKey(int(seed.generate_state(1)[0] >> 1)))
    x = np.asarray(chains.get_samples(group_by_chain=True)["x"], dtype=np.float64)
    found: dict[str, Any] = {"seconds": time.perf_counter() - begin}
    for name, error, values in (("mean", "error", x), ("above", "above, error", (x > 0).astype(np.float64))):
        size = np.maximum(diagnostics.effective_sample_size(values), 1.0)
        size = np.where(np.isfinite(size), size, NUTS_CHAINS * draws)  # all draws are the same
        whole = values.reshape(-1, values.shape[-1])
        found[name] = whole.mean(axis=0)
        found[error] = np.maximum(whole.std(axis=0), 1.0 / np.sqrt(size)) / np.sqrt(size)
    return found


def long_run(counties: Counties, sweeps: int, chains: int, seed: Any) -> dict[str, Any]:
    """Estimate means and probabilities of being positive from a long run, with standard errors but no guarantee."""
    n = len(counties.names)
    states = db.sample(counties.field(), db.Scan.systematic(n, n * sweeps), chains=chains, seed=seed).states
    assert states is not None
    above = states > 0
    spread = np.sqrt(np.maximum(above.mean(axis=0) * (1 - above.mean(axis=0)), 1.0 / chains) / chains)
    error = states.std(axis=0) / np.sqrt(chains)
    return {"mean": states.mean(axis=0), "error": error, "above": above.mean(axis=0), "above, error": spread}


def _orthant(seed: np.random.SeedSequence) -> dict[str, Any]:
    """Compute the means of a chain of positive variables, by certified sampling and by numerical integration."""
    off = np.full(DIMENSIONS - 1, -PULL / 2)
    precision = np.eye(DIMENSIONS) + np.diag(off, 1) + np.diag(off, -1)
    field = db.GaussianField(precision, LINEAR, lower=0.0)
    answer = db.estimate(field, "all", tolerance=0.05, confidence=CONFIDENCE, seed=seed)
    return {"lower": answer.lower, "upper": answer.upper, "mean": answer.value, "exact": chain_means(precision, LINEAR)}


def chain_means(precision: NDArray[np.float64], linear: float) -> NDArray[np.float64]:
    """Compute the means of a chain of positive variables by message passing on Gauss-Legendre nodes."""
    x, w = np.polynomial.legendre.leggauss(300)
    x, w = 6.0 * (x + 1), 6.0 * w
    own = np.exp(-0.5 * x * x + linear * x) * w
    pair = np.exp(-precision[0, 1] * np.outer(x, x))
    messages = [np.ones(len(x))]
    for _ in range(len(precision) - 1):
        message = pair @ (own * messages[-1])
        messages.append(message / message.max())
    laws = [own * messages[i] * messages[len(precision) - 1 - i] for i in range(len(precision))]
    return np.array([float(x @ law / law.sum()) for law in laws])


def findings(data: dict[str, Any]) -> list[Finding]:
    """Compare the requested tolerances with the widths of the intervals, and the intervals with long runs."""
    parts, orthant = data["intervals"], data["orthant"]
    risk, chance = ((parts[f"{what}, upper"] - parts[f"{what}, lower"]).max() / 2 for what in ("risk", "chance"))
    low, high = np.exp(_by_level(parts, "lower")), np.exp(_by_level(parts, "upper"))
    ratio, surely = float((high / low).max()), int((low[0] > 1).sum())
    held = (orthant["lower"] <= orthant["exact"]) & (orthant["exact"] <= orthant["upper"])
    widest = (orthant["upper"] - orthant["lower"]).max() / 2
    _, seconds, all_seconds = parts["seconds"]
    likely = [data["counties"].names[k] for k in np.flatnonzero(parts["chance, lower"] > 0.5)]
    count, limits = len(parts["risk, value"]), (TOLERANCES["risk"], TOLERANCES["chance"])
    return [
        Finding(
            f"{count} log risks within {limits[0]} and probabilities within {limits[1]}, at {CONFIDENCE} together",
            "-",
            f"within {risk:.3f} and {chance:.3f} in {seconds:.1f} s ({parts['updates'].sum():.2g} updates)",
            bool(risk <= limits[0] and chance <= limits[1] and seconds < 300),
        ),
        Finding(
            f"relative risks: quantiles at {', '.join(map(str, LEVELS))} of each county, levels within "
            f"{TOLERANCES['quantile']}",
            "-",
            f"each known up to a factor of {ratio:.2f} ({all_seconds:.1f} s with the above); "
            f"{surely} counties have a risk above the state's with probability 0.95",
            bool(ratio < 2 and np.isfinite(ratio)),
        ),
        _agrees("a long Gibbs run, without a guarantee, agrees", data["long"], parts),
        _agrees("NUTS (NumPyro), without a guarantee, agrees", data["nuts"], parts),
        Finding(
            "counties surely more likely above the state's risk than not",
            "-",
            f"{len(likely)}: {', '.join(likely[:6])}{', ...' if len(likely) > 6 else ''}",
            len(likely) > 0,
        ),
        Finding(
            f"a normal law in {DIMENSIONS} dimensions, truncated to positive values: intervals of all means",
            "-",
            f"{held.sum()} of {len(held)} hold the exact mean, widest {widest:.3f}",
            bool(held.all()),
        ),
    ]


def _agrees(what: str, run: dict[str, Any] | None, parts: dict[str, Any]) -> Finding:
    """Count the counties whose value in a long run is in the interval, up to four standard errors."""
    if run is None:
        return Finding(what, "-", "not run", False, "NumPyro is not installed: pip install 'dobrushin[numpyro]'.")
    inside = np.ones(len(run["mean"]), dtype=bool)
    for name, error, kind in (("mean", "error", "risk"), ("above", "above, error", "chance")):
        slack = 4 * run[error]
        inside &= (run[name] + slack >= parts[f"{kind}, lower"]) & (run[name] - slack <= parts[f"{kind}, upper"])
    time_taken = f"; it took {float(run['seconds']):.1f} s" if "seconds" in run else ""
    measured = f"{inside.sum()} of {len(inside)} counties within four of its standard errors of their intervals"
    return Finding(what, "-", measured + time_taken, bool(inside.all()))


def _by_level(parts: dict[str, Any], end: str) -> NDArray[np.float64]:
    """Return limits of the quantiles of log risks, with shape (levels, counties)."""
    return np.asarray(parts[f"quantile, {end}"]).reshape(len(LEVELS), -1)


def _tabulate(data: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Return a table of all counties: counts, intervals, and means of long runs."""
    counties, parts = data["counties"], data["intervals"]
    columns: dict[str, Any] = {"county": counties.names, "observed": counties.observed, "expected": counties.expected}
    for name, title in (("risk", "log relative risk"), ("chance", "P(above the state's)")):
        columns |= {f"{title}, {end}": parts[f"{name}, {end}"] for end in ("value", "lower", "upper")}
    for k, level in enumerate(LEVELS):
        columns |= {
            f"relative risk, {level} quantile, {end}": np.exp(_by_level(parts, end)[k]) for end in ("lower", "upper")
        }
    for title, run in (("long run", data["long"]), ("NUTS", data["nuts"])):
        if run is not None:
            columns |= {f"log relative risk, {title}": run["mean"], f"P(above the state's), {title}": run["above"]}
    shown = [[value if isinstance(value, str) else f"{value:.4g}" for value in column] for column in columns.values()]
    return [tuple(columns), *zip(*shown, strict=True)]


def draw(data: dict[str, Any]) -> dict[str, Any]:
    """Draw the intervals of all counties, sorted, and the graph of borders."""
    counties, parts = data["counties"], data["intervals"]
    figure, axes = panels(1, 3, width=5.6, height=5.0)
    order = np.argsort(parts["risk, value"])
    left, middle, right = axes[0]
    places = np.arange(len(order))
    left.vlines(places, parts["risk, lower"][order], parts["risk, upper"][order], color="#0072B2", linewidth=1.2)
    left.plot(places, data["long"]["mean"][order], ".", color="#D55E00", markersize=3, label="long run, no guarantee")
    if data["nuts"] is not None:
        left.plot(places, data["nuts"]["mean"][order], "x", color="#009E73", markersize=3, label="NUTS, no guarantee")
    left.axhline(0.0, color="grey", linewidth=0.8)
    lower, upper = np.exp(_by_level(parts, "lower"))[:, order], np.exp(_by_level(parts, "upper"))[:, order]
    for k, color in enumerate(("#56B4E9", "#0072B2", "#56B4E9")):
        middle.vlines(places, lower[k], upper[k], color=color, linewidth=2.4, label=f"{LEVELS[k]} quantile")
    middle.axhline(1.0, color="grey", linewidth=0.8)
    middle.set_yscale("log", base=2)
    middle.yaxis.set_major_formatter("{x:g}")
    finish(left, "log relative risk of each county: certified intervals", "counties, by their risk", "", log="")
    levels = ", ".join(map(str, LEVELS))
    finish(middle, f"relative risk: certified quantiles at {levels}", "counties, by their risk", "", log="")
    edges = np.stack(sparse.coo_array(sparse.triu(counties.borders, k=1)).coords, axis=1)
    where = layout(counties.borders)
    for a, b in edges:
        right.plot(where[[a, b], 0], where[[a, b], 1], color="lightgrey", linewidth=0.6, zorder=0)
    dots = right.scatter(where[:, 0], where[:, 1], c=parts["chance, value"], cmap="RdBu_r", vmin=0, vmax=1, s=45)
    figure.colorbar(dots, ax=right, shrink=0.7, label="P(risk above the state's)")
    taken = where * np.array([320.0, 245.0]) / np.ptp(where, axis=0)  # in points, about: dots, and middles of names
    corners = np.array([(x, y) for x in (4.0, -4.0) for y in (4.0, -9.0)])
    for k in np.flatnonzero(parts["chance, lower"] > 0.9).tolist():  # its name at the corner farthest from all others
        middles = taken[k] + corners + np.sign(corners) * (2.0 * len(counties.names[k]), 0.0) + (0.0, 2.5)
        apart = np.abs(middles[:, None] - np.delete(taken, k, axis=0)) / (2.0, 1.0)
        best = int(apart.max(axis=2).min(axis=1).argmax())
        side = "left" if corners[best, 0] > 0 else "right"
        right.annotate(
            counties.names[k], where[k], xytext=corners[best], textcoords="offset points", fontsize=7, ha=side
        )
        taken = np.concatenate([taken, middles[[best]]])
    right.set_title("counties, laid out by their borders", fontsize=10)
    right.axis("off")
    return {"disease-mapping": figure, "counties": _tabulate(data)}


def layout(borders: Any) -> NDArray[np.float64]:
    """Return coordinates of a graph's nodes, by classical scaling of path lengths.

    The picture is turned so that the first node is at the upper left, where the first county is on maps.
    """
    squares = csgraph.shortest_path(borders, unweighted=True, directed=False) ** 2
    centred = squares - squares.mean(axis=0) - squares.mean(axis=1)[:, None] + squares.mean()
    values, vectors = np.linalg.eigh(-0.5 * centred)
    places = np.asarray(vectors[:, -2:] * np.sqrt(np.maximum(values[-2:], 0.0)))[:, ::-1]
    return places * np.where(places[0] > 0, 1.0, -1.0) * np.array([-1.0, 1.0])
