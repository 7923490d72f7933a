"""What fields must reach: python benchmarks/fields.py [bounds] [coverage] [local] [updates] [rates] [carolina]
[orthant] [boxes] [areas] [priors].

Every figure is printed with what it is compared with, from the same run.
"""

from __future__ import annotations

import math
import os
import sys
import time
from pathlib import Path

import networkx as nx
import numpy as np
from scipy import special, stats

import dobrushin as db

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))


def bounds(count: int = 1000) -> None:
    """Influence, start, bias, total variation and tails against quadrature, with negative controls."""
    from field_reference import KINDS
    from test_fields import cases, check_case, check_influence

    violated, caught = 0, dict.fromkeys(("start", "bias", "tv", "joint", "tail", "influence"), 0)
    for rng, field in cases(count):
        violated += bool(check_case(rng, field))
    for _, field in cases(count // 4, sizes=(1, 2)):
        violated += check_influence(field)
    for rng, field in cases(count // 10, sizes=(1, 2, 3)):
        for what in ("start", "bias", "tv", "joint", "tail"):
            caught[what] += what in check_case(rng, field, {what: 0.3})
        caught["influence"] += field.n_variables < 3 and check_influence(field, 0.8)
    print(f"bounds: {violated} of {count} random cases of {len(KINDS)} kinds violate a bound")
    print(f"        with bounds that are too small, violations in {count // 10} cases: {caught}")


def coverage(runs: int = 500) -> None:
    """Ten fields at confidence 0.8, and the width of intervals against the normal one with the true deviation."""
    from dobrushin._fields.anchor import space_of
    from field_reference import KINDS, Grid, random_field

    for number in range(10):
        rng = np.random.default_rng(1000 + number)
        kind = KINDS[number % len(KINDS)]
        field = random_field(rng, kind, 2 + number % 2)
        grid = Grid(field, space_of(field).anchor.point)
        law = grid.marginal(grid.law, 0)
        mean = float(grid.points[0] @ law)
        sd = math.sqrt(float((grid.points[0] - mean) ** 2 @ law))
        held, ratios = 0, []
        for seed in range(runs):
            answer = db.estimate(field, [0], tolerance=0.06 * sd, confidence=0.8, method="dobrushin", seed=seed)
            held += bool(answer.lower[0] - 1e-6 * sd <= mean <= answer.upper[0] + 1e-6 * sd)
            ratios.append(answer.half_width[0] / (stats.norm.ppf(0.9) * sd / math.sqrt(answer.chains)))
        p = stats.binom.cdf(held, runs, 0.8)
        bounded = "bounded" if field._form.is_bounded[0] else "unbounded"
        print(f"coverage: {kind:10s} {bounded:9s} {held / runs:.3f} (binomial p {p:.2g}), "
              f"width {np.mean(ratios):.2f} x normal, {answer.chains} chains")  # fmt: skip


def local() -> None:
    """The mean of one site of large grids, within 0.01 of its standard deviation."""
    for side in (100, 1000, 10_000):
        rng = np.random.default_rng(0)
        if side < 10_000:
            field = db.GaussianField.grid(side, side, rho=0.9, linear=rng.normal(size=side * side))
        else:
            field = db.GaussianField.grid(side, side, rho=0.9, linear=lambda i: np.sin(i * 1.7), linear_bound=1.0)
        site = (side // 2) * (side + 1)
        sd = 1.2  # about that of an inner site at rho 0.9
        db.estimate(field, [site], tolerance=0.01 * sd, method="local")
        start = time.perf_counter()
        answer = db.estimate(field, [site], tolerance=0.01 * sd, method="local")
        seconds = time.perf_counter() - start
        within = f"{answer.value[0]:.4f} within {answer.half_width[0]:.2g}"
        print(f"local: n = {side * side:9d}: {within} in {seconds:.4f} s")


def updates(rounds: int = 5) -> None:
    """Updates per second of a truncated field, against a loop over sites with scipy.special over chains."""
    rows, chains, sweeps = 30, 1024, 200
    field = db.GaussianField.grid(rows, rows, rho=0.9, lower=0.0)
    scan = db.Scan.systematic(900, 900 * sweeps)
    db.sample(field, db.Scan.systematic(900, 900), chains=chains, seed=0)
    speeds, work = [], []
    for _ in range(rounds):
        start, begin = time.perf_counter(), time.process_time()
        states = db.sample(field, scan, chains=chains, seed=1).states
        ours = 900 * sweeps * chains / (time.perf_counter() - start)
        middle = time.process_time()
        plain_states, plain = _plain_loop(field, chains, 3)
        speeds.append((ours, plain))
        work.append((900 * sweeps * chains / (middle - begin), 900 * 3 * chains / (time.process_time() - middle)))
    ours, plain = np.max(speeds, axis=0)
    ratios = sorted(first / second for first, second in speeds)
    means = f"means {states.mean():.3f} and, after 3 sweeps, {plain_states.mean():.3f}"
    print(f"updates: {ours:.3g} per second against {plain:.3g} of the plain loop, both at best: {ours / plain:.1f} x")
    print(f"         ({os.cpu_count()} cores; from {ratios[0]:.1f} to {ratios[-1]:.1f} x in {rounds} rounds; {means})")
    # On a busy machine the clock says little: what the processors did, and both cores against the loop's one.
    ours, plain = np.max(work, axis=0)
    print(f"         {ours:.3g} and {plain:.3g} per second of one core: {2 * ours / plain:.1f} x on two free cores")


def rates() -> None:
    """Updates per second of one core by kind of site: the work of likelihoods is the ratio to Gaussian sites."""
    rows, chains, sweeps = 10, 1024, 60
    n, base = rows * rows, db.GaussianField.grid(rows, rows, rho=0.9)
    counts = np.random.default_rng(0).poisson(8, n)
    fields = {
        "Gaussian": base,
        "truncated": db.GaussianField.grid(rows, rows, rho=0.9, lower=0.0),
        "Poisson": base.poisson(counts, 8.0),
        "Bernoulli": base.bernoulli(counts % 2),
        "binomial": base.bernoulli(counts % 11, trials=10),
    }
    first = 0.0
    for name, field in fields.items():
        db.sample(field, db.Scan.systematic(n, n), chains=64, seed=0)
        best = math.inf
        for _ in range(3):
            start = time.process_time()
            db.sample(field, db.Scan.systematic(n, n * sweeps), chains=chains, seed=1)
            best = min(best, time.process_time() - start)
        rate = n * sweeps * chains / best
        first = first or rate
        print(f"rates: {name:10s} {rate:.3g} updates per second, {first / rate:.1f} x a Gaussian draw")


def _plain_loop(field: db.GaussianField, chains: int, sweeps: int) -> tuple[np.ndarray, float]:
    """Inverse distribution function from the better tail, vectorised over chains."""
    matrix, rng = field.precision, np.random.default_rng(0)
    rows = []
    for i in range(field.n_variables):
        span = slice(matrix.indptr[i], matrix.indptr[i + 1])
        off = matrix.indices[span] != i
        rows.append((matrix.indices[span][off], matrix.data[span][off], float(matrix[i, i]), field.linear[i]))
    x = np.full((field.n_variables, chains), 0.5)
    start = time.perf_counter()
    for _ in range(sweeps):
        for i, (near, weights, own, linear) in enumerate(rows):
            mean, sd = (linear - weights @ x[near]) / own, 1 / math.sqrt(own)
            # Upper tails: P(Z > a) is precise where a is large.
            least = special.ndtr(-(field.upper[i] - mean) / sd)
            most = special.ndtr(-(field.lower[i] - mean) / sd)
            x[i] = mean - sd * special.ndtri(least + rng.random(chains) * (most - least))
    return x, field.n_variables * sweeps * chains / (time.perf_counter() - start)


def carolina() -> None:
    """Log relative risks of the counties of North Carolina (DOBRUSHIN_DATA names the data folder)."""
    folder = os.environ.get("DOBRUSHIN_DATA")
    if folder is None:
        print("carolina: skipped, DOBRUSHIN_DATA is not set")
        return
    from dobrushin.experiments.catalog import Store
    from dobrushin.experiments.disease_mapping import long_run, read_counties

    start = time.perf_counter()
    counties = read_counties(Store(data=Path(folder)))
    answer, events = counties.estimate("risk", seed=1), counties.estimate("chance", seed=2)
    seconds = time.perf_counter() - start
    run = long_run(counties, sweeps=2000, chains=1024, seed=2)
    worst, slack = np.abs(run["mean"] - answer.value).max(), 4 * run["error"]
    outside = ((run["mean"] < answer.lower - slack) | (run["mean"] > answer.upper + slack)).sum()
    widest = f"widest {answer.half_width.max():.3f} and {events.half_width.max():.3f}"
    print(f"carolina: {len(answer)} means and {len(events)} probabilities in {seconds:.1f} s; {widest}; "
          f"against long Gibbs runs: {outside} outside, largest difference of means {worst:.3f}")  # fmt: skip


def orthant() -> None:
    """A normal law in 100 dimensions that is truncated to positive values, against exact values of rejection."""
    n, rho = 100, 0.6
    chain = np.eye(n) + np.diag(np.full(n - 1, -rho / 2), 1) + np.diag(np.full(n - 1, -rho / 2), -1)
    field = db.GaussianField(chain, linear=0.5, lower=0.0)
    start = time.perf_counter()
    answer = db.estimate(field, [0, n // 2, db.Exceeds(n // 2, 2.0)], tolerance=0.02, seed=1)
    seconds = time.perf_counter() - start
    mean, error = _chain_means(chain, 0.5)
    print(f"orthant: 3 targets of {n} truncated variables in {seconds:.2f} s: {answer.value.round(4)}; exact means "
          f"{mean[0]:.4f} and {mean[n // 2]:.4f} (transfer matrices, error {error:.1g})")  # fmt: skip


def boxes(count: int = 60) -> None:
    """Bounds of boxes and of entropies on grids, with negative controls, for fields with coefficients."""
    from field_boxes import box_violations, boxed_cases, entropy_violations

    failed, checked, caught = 0, 0, 0
    for field, boxed in boxed_cases(1, count, most=3):
        for found in (box_violations(field, boxed), entropy_violations(boxed)):
            failed, checked = failed + found[0], checked + found[1]
        caught += box_violations(field, boxed, shrink=0.05)[0] + entropy_violations(boxed, shrink=0.3)[0]
    print(
        f"boxes: {failed} of {checked} bounds of {count} random cases violated; {caught} of bounds that are too small"
    )


def areas(draws: int = 5000) -> None:
    """56 areas: means within 0.1 and exceedances within 0.05, at 0.95 together, beside NUTS (NumPyro).

    An intercept and a covariate at rho 0.95, and no covariates at rho 0.99. Times are those of a process whose kernels
    are compiled.
    """
    borders, farming, counts, expected = _counted_areas()
    covariates = {"intercept": 1.0, "farming": farming - farming.mean()}
    priors = {
        "an intercept and a covariate": db.GaussianField.car(borders, 0.95, 3.0).covariates(covariates, deviation=3.0),
        "rho 0.99, no covariates": db.GaussianField.car(borders, 0.99, 3.0),
    }
    events = [db.Exceeds(i, 0.0) for i in borders]
    for name, prior in priors.items():
        field = prior.poisson(dict(enumerate(counts)), dict(enumerate(expected)))
        db.sample(field, db.Scan.uniform(field, sweeps=1), chains=64, seed=0)  # compiles
        clocks = [(time.perf_counter(), time.process_time())]
        plans = [
            db.plan(field, tolerance=0.1, confidence=0.975),
            db.plan(field, events, tolerance=0.05, confidence=0.975),
        ]
        clocks.append((time.perf_counter(), time.process_time()))
        means = db.estimate(field, tolerance=0.1, confidence=0.975, seed=1)
        chances = db.estimate(field, events, tolerance=0.05, confidence=0.975, seed=2)
        clocks.append((time.perf_counter(), time.process_time()))
        planning, answering = np.diff(clocks, axis=0)
        updates = sum(answer.chains * answer.steps for answer in (means, chances))
        print(f"areas: {name}: {len(means)} means within {means.half_width.max():.3f} and {len(chances)} probabilities "
              f"within {chances.half_width.max():.3f}: {answering[0]:.1f} s, {answering[1]:.1f} s of processors "
              f"({planning[1]:.1f} s of them to plan; {updates:.3g} updates by {plans[0].method})")  # fmt: skip
        _compare_with_nuts(prior, counts, expected, draws, means, chances)


def _counted_areas() -> tuple[nx.Graph, np.ndarray, np.ndarray, np.ndarray]:
    """Return a made-up region of 56 areas: borders, a covariate, counts and expected counts."""
    rng, borders = np.random.default_rng(5), nx.convert_node_labels_to_integers(nx.grid_2d_graph(7, 8))
    farming, expected = rng.normal(size=56), np.exp(2.0 + 0.9 * rng.normal(size=56))
    counts = rng.poisson(expected * np.exp(0.1 + 0.3 * farming + 0.35 * rng.normal(size=56)))
    return borders, farming, counts, expected


def priors() -> None:
    """The means of 56 areas within 0.1, averaged over four priors whose weights are bounded by draws."""
    borders, farming, counts, expected = _counted_areas()
    covariates = {"intercept": 1.0, "farming": farming - farming.mean()}
    grid = {(rho, scale): db.GaussianField.car(borders, rho, scale) for rho in (0.8, 0.9) for scale in (3.0, 4.0)}
    regression = {name: prior.covariates(covariates, deviation=3.0) for name, prior in grid.items()}
    for name, settings in (("no covariates", grid), ("an intercept and a covariate", regression)):
        start = time.process_time()
        answer = db.average_over(
            settings, lambda prior: prior.poisson(dict(enumerate(counts)), dict(enumerate(expected))), list(borders),
            tolerance=0.1, confidence=0.95, weighting="certified", seed=1,
        )  # fmt: skip
        seconds, reach = time.process_time() - start, (answer.weight_upper - answer.weight_lower).max() / 2
        guess = db.average_over(
            settings, lambda prior: prior.poisson(dict(enumerate(counts)), dict(enumerate(expected))), [0],
            tolerance=0.1, confidence=0.95, weighting="laplace", seed=1,
        )  # fmt: skip
        outside = int(((guess.weights < answer.weight_lower) | (guess.weights > answer.weight_upper)).sum())
        print(f"priors: {name}: {seconds:.0f} s of processors; means within {answer.half_width.max():.3f}, weights "
              f"within {reach:.3f}; {outside} of 4 weights by Laplace's approximation outside")  # fmt: skip


def _compare_with_nuts(
    prior: db.GaussianField, counts: np.ndarray, expected: np.ndarray, draws: int, means: db.Estimate,
    chances: db.Estimate,
) -> None:  # fmt: skip
    """Print how far NUTS is from the values and from the intervals, with its Monte Carlo errors."""
    try:
        import jax
        import numpyro
        from numpyro import diagnostics, distributions, infer
    except ImportError:
        print("       no comparison with NUTS: NumPyro is not installed")
        return
    jax.config.update("jax_enable_x64", True)
    precision, start = prior.precision.toarray(), time.process_time()

    def model() -> None:
        law = distributions.MultivariateNormal(np.zeros(len(precision)), precision_matrix=precision)
        rates = expected * jax.numpy.exp(numpyro.sample("x", law)[: len(counts)])
        numpyro.sample("counts", distributions.Poisson(rates), obs=counts)

    nuts = infer.NUTS(model, dense_mass=True)
    chains = infer.MCMC(
        nuts, num_warmup=1000, num_samples=draws, num_chains=4, chain_method="sequential", progress_bar=False
    )
    chains.run(jax.random.PRNGKey(7))
    seconds = time.process_time() - start
    x = np.asarray(chains.get_samples(group_by_chain=True)["x"])
    for what, answer, values in (
        ("means", means, x), ("exceedances", chances, (x[..., : len(counts)] > 0).astype(np.float64)),
    ):  # fmt: skip
        flat = values.reshape(-1, values.shape[-1])
        with np.errstate(invalid="ignore"):  # events that happened in all draws have no effective size
            size = np.nan_to_num(diagnostics.effective_sample_size(values), nan=len(flat))
        error = flat.std(axis=0) / np.sqrt(np.maximum(size, 1.0))
        theirs = flat.mean(axis=0)
        beyond = np.maximum(answer.lower - theirs, theirs - answer.upper)
        apart, inside = np.abs(theirs - answer.value).max(), f"{int((beyond > 0).sum())} outside of its interval"
        print(f"       NUTS ({seconds:.0f} s of processors), {what}: differ by {apart:.4f} at most, {inside}, "
              f"{int((beyond > 4 * error).sum())} by more than 4 Monte Carlo errors ({error.max():.4f})")  # fmt: skip


def _chain_means(precision: np.ndarray, linear: float) -> tuple[np.ndarray, float]:
    """Means of a truncated chain, by messages on Gauss-Legendre nodes."""
    answers = []
    for nodes in (200, 300):
        x, w = np.polynomial.legendre.leggauss(nodes)
        x, w = 6.0 * (x + 1), 6.0 * w
        own = np.exp(-0.5 * x * x + linear * x) * w
        pair = np.exp(-precision[0, 1] * np.outer(x, x))
        n = len(precision)
        left, right = [np.ones(nodes)], [np.ones(nodes)]
        for _ in range(n - 1):
            for messages in (left, right):
                message = pair @ (own * messages[-1])
                messages.append(message / message.max())
        laws = [own * left[i] * right[n - 1 - i] for i in range(n)]
        answers.append(np.array([x @ law / law.sum() for law in laws]))
    return answers[1], float(np.abs(answers[1] - answers[0]).max())


PARTS = {
    part.__name__: part for part in (bounds, coverage, local, updates, rates, carolina, orthant, boxes, areas, priors)
}

if __name__ == "__main__":
    for name in sys.argv[1:] or PARTS:
        PARTS[name]()
