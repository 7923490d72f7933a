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
from dobrushin.experiments.drawing import legend_below, panels

RHO, PRECISION = 0.9, 2.0
RISK, CHANCE, LEVEL, CONFIDENCE = 0.1, 0.05, 0.02, 0.95
LEVELS = (0.05, 0.5, 0.95)
DIMENSIONS, PULL, LINEAR = 100, 0.6, 0.5
NUTS_CHAINS, NUTS_WARMUP = 4, 1000
_MISSING = (
    "This experiment needs the counties of North Carolina: give --data FOLDER, where FOLDER or FOLDER/spatial has "
    "nc_sids.csv and nc_adjacency.csv."
)


@dataclass(frozen=True)
class Counties:
    """Observed and expected counts of each county, and which counties share a border."""

    names: list[str]
    observed: NDArray[np.float64]
    expected: NDArray[np.float64]
    borders: Any

    def field(self) -> db.GaussianField:
        """Return the posterior of the log relative risks."""
        prior = db.GaussianField.car(self.borders, rho=RHO, precision=PRECISION, labels=self.names)
        return prior.poisson(self.observed, self.expected)

    def estimate(self, seed: Any) -> db.Estimate:
        """Bound all log relative risks; with `exceedances` and `quantiles` at the stated confidence together."""
        return self._ask(self.names, RISK, seed)

    def exceedances(self, seed: Any) -> db.Estimate:
        """Bound the probability of each county that its risk is above that of the state."""
        return self._ask([db.Exceeds(name, 0.0) for name in self.names], CHANCE, seed)

    def quantiles(self, seed: Any) -> db.Estimate:
        """Bound quantiles of the logarithm of each county's relative risk: level after level."""
        return self._ask([db.Quantile(name, level) for level in LEVELS for name in self.names], LEVEL, seed)

    def _ask(self, targets: list[Any], tolerance: float, seed: Any) -> db.Estimate:
        """Estimate a third of the targets; each third may be wrong with a third of the error probability."""
        return db.estimate(self.field(), targets, tolerance=tolerance, confidence=1 - (1 - CONFIDENCE) / 3, seed=seed)


def read_counties(store: Store) -> Counties:
    """Read the counties; raise `MissingData` where they are not there."""
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
    """Compute intervals of all counties, a long run to compare them with, and the truncated normal law.

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
    first, second, third = seed.spawn(3)
    begin = time.perf_counter()
    parts = {"risk": counties.estimate(first), "chance": counties.exceedances(second)}
    seconds = time.perf_counter() - begin
    parts["quantile"] = counties.quantiles(third)
    arrays = {
        f"{name}, {end}": getattr(part, end) for name, part in parts.items() for end in ("mean", "lower", "upper")
    }
    work = np.array([float(part.steps) * part.chains for part in parts.values()])
    all_seconds = time.perf_counter() - begin
    return {**arrays, "seconds": np.array(seconds), "all seconds": np.array(all_seconds), "updates": work}


def _nuts(counties: Counties, draws: int, seed: np.random.SeedSequence) -> dict[str, Any]:
    precision = db.GaussianField.car(counties.borders, rho=RHO, precision=PRECISION).precision.toarray()
    number = int(seed.generate_state(1)[0] >> 1)
    begin = time.perf_counter()
    found = run_nuts(precision, counties.observed, counties.expected, draws, number)
    return {**found, "seconds": np.array(time.perf_counter() - begin)}


def run_nuts(
    precision: NDArray[np.float64], counts: NDArray[np.float64], exposure: NDArray[np.float64], draws: int, seed: int
) -> dict[str, Any]:
    """Estimate means and shares above 0 of x ~ N(0, precision^-1) given counts ~ Poisson(exposure e^x), by NUTS.

    Nothing bounds the error: the standard errors are estimates from effective sample sizes.
    """
    import jax
    import numpyro
    from numpyro import diagnostics, distributions, infer

    def model() -> None:
        x = numpyro.sample("x", distributions.MultivariateNormal(np.zeros(len(counts)), precision_matrix=precision))
        numpyro.sample("counts", distributions.Poisson(exposure * jax.numpy.exp(x)), obs=counts)

    chains = infer.MCMC(
        infer.NUTS(model), num_warmup=NUTS_WARMUP, num_samples=draws, num_chains=NUTS_CHAINS, chain_method="sequential",
        progress_bar=False,
    )  # fmt: skip
    chains.run(jax.random.PRNGKey(seed))
    x = np.asarray(chains.get_samples(group_by_chain=True)["x"], dtype=np.float64)
    found: dict[str, Any] = {}
    for name, error, values in (("mean", "error", x), ("above", "above, error", (x > 0).astype(np.float64))):
        size = np.maximum(diagnostics.effective_sample_size(values), 1.0)
        size = np.where(np.isfinite(size), size, NUTS_CHAINS * draws)  # all draws are the same
        whole = values.reshape(-1, values.shape[-1])
        found[name] = whole.mean(axis=0)
        found[error] = np.maximum(whole.std(axis=0), 1.0 / np.sqrt(size)) / np.sqrt(size)
    return found


def long_run(counties: Counties, sweeps: int, chains: int, seed: Any) -> dict[str, Any]:
    """Estimate means and shares above 0 from a long plain run, with standard errors: no guarantee."""
    n = len(counties.names)
    states = db.sample(counties.field(), db.Scan.systematic(n, n * sweeps), chains=chains, seed=seed).states
    assert states is not None
    above = states > 0
    spread = np.sqrt(np.maximum(above.mean(axis=0) * (1 - above.mean(axis=0)), 1.0 / chains) / chains)
    error = states.std(axis=0) / np.sqrt(chains)
    return {"mean": states.mean(axis=0), "error": error, "above": above.mean(axis=0), "above, error": spread}


def _orthant(seed: np.random.SeedSequence) -> dict[str, Any]:
    """Compute the means of a chain of positive variables, by certified sampling and by messages."""
    off = np.full(DIMENSIONS - 1, -PULL / 2)
    precision = np.eye(DIMENSIONS) + np.diag(off, 1) + np.diag(off, -1)
    field = db.GaussianField(precision, LINEAR, lower=0.0)
    answer = db.estimate(field, "all", tolerance=0.05, confidence=CONFIDENCE, seed=seed)
    return {"lower": answer.lower, "upper": answer.upper, "mean": answer.mean, "exact": chain_means(precision, LINEAR)}


def chain_means(precision: NDArray[np.float64], linear: float) -> NDArray[np.float64]:
    """Compute the means of a chain of positive variables by messages on Gauss-Legendre nodes."""
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
    """Compare what was asked for with what was reached."""
    parts, run, orthant = data["intervals"], data["long"], data["orthant"]
    risk = (parts["risk, upper"] - parts["risk, lower"]).max() / 2
    chance = (parts["chance, upper"] - parts["chance, lower"]).max() / 2
    inside = _agrees(run, parts)
    risks = np.exp(_by_level(parts, "lower")), np.exp(_by_level(parts, "upper"))
    ratio = float((risks[1] / risks[0]).max())
    surely = int((risks[0][0] > 1).sum())
    held = (orthant["lower"] <= orthant["exact"]) & (orthant["exact"] <= orthant["upper"])
    widest = (orthant["upper"] - orthant["lower"]).max() / 2
    seconds = float(parts["seconds"])
    high = [data["counties"].names[k] for k in np.flatnonzero(parts["chance, lower"] > 0.5)]
    return [
        Finding(
            f"{len(inside)} log risks within {RISK} and probabilities within {CHANCE}, at {CONFIDENCE} together",
            "-",
            f"within {risk:.3f} and {chance:.3f} in {seconds:.1f} s ({parts['updates'].sum():.2g} updates)",
            bool(risk <= RISK and chance <= CHANCE and seconds < 300),
        ),
        Finding(
            f"relative risks: quantiles at {', '.join(map(str, LEVELS))} of each county, levels within {LEVEL}",
            "-",
            f"each known up to a factor of {ratio:.2f} ({float(parts['all seconds']):.1f} s with the above); "
            f"{surely} counties have a risk above the state's with probability 0.95",
            bool(ratio < 2 and np.isfinite(ratio)),
        ),
        Finding(
            "a long Gibbs run, without a guarantee, agrees",
            "-",
            f"{inside.sum()} of {len(inside)} counties within four of its standard errors of their intervals",
            bool(inside.all()),
        ),
        _compare_with_nuts(data["nuts"], parts),
        Finding(
            "counties surely more likely above the state's risk than not",
            "-",
            f"{len(high)}: {', '.join(high[:6])}{', ...' if len(high) > 6 else ''}",
            len(high) > 0,
        ),
        Finding(
            f"a normal law in {DIMENSIONS} dimensions, truncated to positive values: intervals of all means",
            "-",
            f"{held.sum()} of {len(held)} hold the exact mean, widest {widest:.3f}",
            bool(held.all()),
        ),
    ]


def _compare_with_nuts(run: dict[str, Any] | None, parts: dict[str, Any]) -> Finding:
    what = "NUTS (NumPyro), without a guarantee, agrees"
    if run is None:
        return Finding(what, "-", "not run", False, "NumPyro is not installed: pip install 'dobrushin[nuts]'.")
    inside = _agrees(run, parts)
    seconds = f"NUTS took {float(run['seconds']):.1f} s"
    measured = (
        f"{inside.sum()} of {len(inside)} counties within four of its standard errors of their intervals; {seconds}"
    )
    return Finding(what, "-", measured, bool(inside.all()))


def _agrees(run: dict[str, Any], parts: dict[str, Any]) -> NDArray[np.bool_]:
    """Return which counties of a run are in their intervals, up to four standard errors."""
    inside = _inside(run["mean"], run["error"], parts, "risk")
    return inside & _inside(run["above"], run["above, error"], parts, "chance")


def _by_level(parts: dict[str, Any], end: str) -> NDArray[np.float64]:
    """Return quantiles of the logarithms, of shape (levels, counties)."""
    return np.asarray(parts[f"quantile, {end}"]).reshape(len(LEVELS), -1)


def _tabulate(data: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Make the table of all counties: counts, intervals, and means of long runs."""
    counties, parts = data["counties"], data["intervals"]
    columns: dict[str, Any] = {"county": counties.names, "observed": counties.observed, "expected": counties.expected}
    for name, title in (("risk", "log relative risk"), ("chance", "P(above the state's)")):
        columns |= {f"{title}, {end}": parts[f"{name}, {end}"] for end in ("mean", "lower", "upper")}
    for k, level in enumerate(LEVELS):
        columns |= {
            f"relative risk, {level} quantile, {end}": np.exp(_by_level(parts, end)[k]) for end in ("lower", "upper")
        }
    for title, run in (("long run", data["long"]), ("NUTS", data["nuts"])):
        if run is not None:
            columns |= {f"log relative risk, {title}": run["mean"], f"P(above the state's), {title}": run["above"]}
    shown = [[value if isinstance(value, str) else f"{value:.4g}" for value in column] for column in columns.values()]
    return [tuple(columns), *zip(*shown, strict=True)]


def _inside(values: Any, errors: Any, parts: dict[str, Any], name: str) -> NDArray[np.bool_]:
    inside: NDArray[np.bool_] = values + 4 * errors >= parts[f"{name}, lower"]
    return inside & (values - 4 * errors <= parts[f"{name}, upper"])


def draw(data: dict[str, Any]) -> dict[str, Any]:
    """Draw intervals of all counties, sorted, and a map-like picture of the graph of borders."""
    counties, parts = data["counties"], data["intervals"]
    figure, axes = panels(1, 3, width=5.6, height=5.0)
    order = np.argsort(parts["risk, mean"])
    left, middle, right = axes[0]
    places = np.arange(len(order))
    left.vlines(places, parts["risk, lower"][order], parts["risk, upper"][order], color="#0072B2", linewidth=1.2)
    left.plot(places, data["long"]["mean"][order], ".", color="#D55E00", markersize=3, label="long run, no guarantee")
    if data["nuts"] is not None:
        left.plot(places, data["nuts"]["mean"][order], "x", color="#009E73", markersize=3, label="NUTS, no guarantee")
    left.axhline(0.0, color="grey", linewidth=0.8)
    left.set_title("log relative risk of each county: certified intervals", fontsize=10)
    lower, upper = np.exp(_by_level(parts, "lower"))[:, order], np.exp(_by_level(parts, "upper"))[:, order]
    for k, color in enumerate(("#56B4E9", "#0072B2", "#56B4E9")):
        middle.vlines(places, lower[k], upper[k], color=color, linewidth=2.4, label=f"{LEVELS[k]} quantile")
    middle.axhline(1.0, color="grey", linewidth=0.8)
    middle.set_yscale("log", base=2)
    middle.yaxis.set_major_formatter("{x:g}")
    middle.set_title("relative risk: certified quantiles at " + ", ".join(map(str, LEVELS)), fontsize=10)
    for ax in (left, middle):
        ax.set_xlabel("counties, by their risk", fontsize=9)
        ax.spines[["top", "right"]].set_visible(False)
        legend_below(ax)
    where = layout(counties.borders)
    i, j = sparse.coo_array(sparse.triu(counties.borders, k=1)).coords
    for a, b in zip(i, j, strict=True):
        right.plot(where[[a, b], 0], where[[a, b], 1], color="lightgrey", linewidth=0.6, zorder=0)
    dots = right.scatter(where[:, 0], where[:, 1], c=parts["chance, mean"], cmap="RdBu_r", vmin=0, vmax=1, s=45)
    figure.colorbar(dots, ax=right, shrink=0.7, label="P(risk above the state's)")
    named = np.flatnonzero(parts["chance, lower"] > 0.9).tolist()
    for k, offset in zip(named, _free_sides(counties.names, named, where), strict=True):
        side = "left" if offset[0] > 0 else "right"
        right.annotate(counties.names[k], where[k], xytext=offset, textcoords="offset points", fontsize=7, ha=side)
    right.set_title("counties, laid out by their borders", fontsize=10)
    right.axis("off")
    return {"disease-mapping": figure, "counties": _tabulate(data)}


def _free_sides(names: list[str], which: list[int], where: NDArray[np.float64]) -> list[tuple[float, float]]:
    """Choose the side of some dots where their names are farthest from other dots and names: offsets in points."""
    points = np.array([320.0, 245.0]) / np.ptp(where, axis=0)  # of one unit of the layout, about
    taken, offsets = where * points, []
    for k in which:
        best, most, letters = (4.0, 4.0), -1.0, np.empty((0, 2))
        for x in (4.0, -4.0):
            along = np.linspace(x, x + np.sign(x) * 4.0 * len(names[k]), 12)
            for y in (4.0, -9.0):
                own = taken[k] + np.stack([along, np.full(12, y + 2.5)], axis=1)
                nearest = float(
                    np.abs(own[:, None] - taken).max(axis=2).min(where=np.arange(len(taken)) != k, initial=99)
                )
                if nearest > most:
                    best, most, letters = (x, y), nearest, own
        offsets.append(best)
        taken = np.concatenate([taken, letters])
    return offsets


def layout(borders: Any) -> NDArray[np.float64]:
    """Place the nodes of a graph by classical scaling of the numbers of borders between them.

    Turned so that the first node is at the upper left, as the first county is on maps.
    """
    squares = csgraph.shortest_path(borders, unweighted=True, directed=False) ** 2
    centred = squares - squares.mean(axis=0) - squares.mean(axis=1)[:, None] + squares.mean()
    values, vectors = np.linalg.eigh(-0.5 * centred)
    places = np.asarray(vectors[:, -2:] * np.sqrt(np.maximum(values[-2:], 0.0)))[:, ::-1]
    return places * np.where(places[0] > 0, 1.0, -1.0) * np.array([-1.0, 1.0])
