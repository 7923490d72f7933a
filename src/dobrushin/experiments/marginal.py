"""Experiment: one site of a 40 x 40 Ising model, with bounds, updated sites and measured bias (paper, Section 5.4)."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import dobrushin as db
from dobrushin.experiments.catalog import Finding, Store
from dobrushin.experiments.drawing import draw_bias, draw_guarantees, finish, look, panels
from dobrushin.experiments.scans import all_biases, guarantees

SIDE, STEPS = 40, 16_000
BUDGETS = (50, 100, 250, 500, 1000, 2000, 4000, 8000, STEPS)
MODELS = {"open": "40 × 40, θ = 1/3.915", "torus": "40 × 40 torus, θ = 0.25"}
BOUNDS: dict[Literal["paper", "exact"], str] = {"paper": "Theorem 5", "exact": "exact influence"}
# Which influence chooses the scans whose bias is measured: the paper's, and the exact one.
MEASURED: dict[str, Literal["paper", "exact"]] = {"systematic": "paper", "DoGS": "paper", "greedy + 1 round": "exact"}
QUARTERS = 4
_BINS = 80


def distances(name: str) -> NDArray[np.int64]:
    """Return the Manhattan distance of each variable from the first one, around the torus if the grid is one.

    Examples
    --------
    >>> from dobrushin.experiments.marginal import distances
    >>> int(distances("open").max()), int(distances("torus").max())
    (78, 40)
    """
    line = np.arange(SIDE)
    if name == "torus":
        line = np.minimum(line, SIDE - line)
    return (line[:, None] + line[None, :]).ravel()


def compute(store: Store) -> dict[str, dict[str, Any]]:
    """Bound the bias in both models with both influence bounds, and measure it with many chains and with few.

    Parameters
    ----------
    store : Store
        A million chains and four repetitions with 300; 20 000 and two if quick.

    Returns
    -------
    dict from models to dicts
        "paper", "exact": guarantees; for each scan the biases, as from `all_biases`.
    """
    chains, repetitions = store.pick(20_000, 10**6), store.pick(2, 4)
    results: dict[str, dict[str, Any]] = {}
    for number, name in enumerate(MODELS):
        # The models of Section 5.4 and of its appendix.
        model = db.Ising.grid(SIDE, SIDE, couplings=1 / 3.915 if name == "open" else 0.25, periodic=name == "torus")
        bounds = {method: db.influence(model, method=method) for method in BOUNDS}
        data: dict[Any, Any] = {
            method: store.part(f"guarantees-{name}-{method}", guarantees, bound, BUDGETS, [0], budgets=BUDGETS)
            for method, bound in bounds.items()
        }
        for place, (scan, method) in enumerate(MEASURED.items()):
            what = (model, bounds[method], scan, BUDGETS)
            data[scan] = all_biases(store, f"bias-{name}-{scan}", what, chains, repetitions, (number, place))
        results[name] = data
    return results


def mean_distances(name: str, scan: NDArray[Any]) -> NDArray[np.float64]:
    """Return the mean distance from the target in each quarter of a scan."""
    return np.array([part.mean() for part in np.array_split(distances(name)[scan], QUARTERS)])


def findings(data: dict[str, dict[str, Any]]) -> list[Finding]:
    """Compare the statements of Section 5.4 of the paper, and of its appendix, with the measurements."""
    rows = []
    for name, title in MODELS.items():
        paper, exact = data[name]["paper"], data[name]["exact"]
        last = {method: float(paper[method][-1]) for method in ("uniform", "systematic", "DoGS", "iterated DoGS")}
        greedy = float(exact["greedy + 1 round"][-1])
        where = "Sec. 5.4" if name == "open" else "App. B.3"
        rows += [
            Finding(
                f"{title}: guarantees",
                f"DoGS below systematic below uniform ({where})",
                f"{last['DoGS']:.2g} / {last['systematic']:.2g} / {last['uniform']:.2g} at T = {STEPS}",
                last["DoGS"] < last["systematic"] < last["uniform"],
            ),
            Finding(
                f"{title}: iterating",
                f"only small further benefits ({where})",
                f"{last['DoGS'] / last['iterated DoGS']:.2f}× (one run gave {last['systematic'] / last['DoGS']:.1f}×)",
                1 - 1e-9 <= last["DoGS"] / last["iterated DoGS"] < 1.5,
            ),
            Finding(
                f"{title}: exact influence",
                "-",
                f"DoGS {exact['DoGS'][-1]:.2g}, greedy + 1 round {greedy:.2g}: {last['DoGS'] / greedy:.0f}× "
                "below the paper's",
                bool(greedy < exact["DoGS"][-1] < 0.1 * last["DoGS"]),
            ),
            _zeroing_in(name, title, where, paper["DoGS, scan"]),
            _bias(name, title, data[name]),
            _gain(title, data[name]),
        ]
    return rows


def _zeroing_in(name: str, title: str, where: str, scan: NDArray[Any]) -> Finding:
    near = distances(name) <= 5
    share = float(near[scan].mean())
    mean = mean_distances(name, scan)
    return Finding(
        f"{title}: where DoGS goes",
        f"near the target, and ever nearer ({where})",
        f"{share:.0%} of its steps within distance 5, where {near.mean():.1%} of the variables are; mean distance by "
        f"quarter {', '.join(f'{value:.1f}' for value in mean)}",
        bool(share > 3 * near.mean() and mean[-1] < mean[0] and mean[-1] == mean.min()),
    )


def _bias(name: str, title: str, data: dict[str, Any]) -> Finding:
    """Return findings on bias: that of the DoGS scan vanishes in the noise long before that of the systematic scan.

    No bias exceeds its bound.
    """
    k = BUDGETS.index(2000)
    greedy, dogs, systematic = (data[scan]["many"] for scan in ("greedy + 1 round", "DoGS", "systematic"))
    within = all(
        (np.abs(data[scan]["many"]["bias"]) - 5 * data[scan]["many"]["error"] <= 2 * data[method][scan]).all()
        for scan, method in MEASURED.items()
    )
    return Finding(
        f"{title}: measured bias",
        f"falls much faster with DoGS than with systematic (Sec. 5.4{', of the torus' if name == 'open' else ''})",
        f"at T = 2000: {dogs['bias'][k]:.2g} against {systematic['bias'][k]:.2g} "
        f"(greedy + 1 round {greedy['bias'][k]:.2g}), standard error {dogs['error'][k]:.1g}; "
        f"at T = {STEPS} systematic {systematic['bias'][-1]:.2g}",
        bool(within and dogs["bias"][k] < 0.1 * systematic["bias"][k]),
    )


def _gain(title: str, data: dict[str, Any]) -> Finding:
    """Return a finding: the measured gain of DoGS beside the gain of its bound, where noise allows a comparison."""
    dogs, systematic = data["DoGS"]["many"], data["systematic"]["many"]
    promised = data["paper"]["systematic"] / data["paper"]["DoGS"]
    seen = systematic["bias"] / np.maximum(np.abs(dogs["bias"]), 2 * dogs["error"])
    clear = systematic["bias"] > 20 * systematic["error"]
    larger = seen[clear] > promised[clear]
    return Finding(
        f"{title}: gains",
        "larger in bias than in the bound, typically (Sec. 5.1)",
        f"at {larger.sum()} of {clear.sum()} lengths; at T = 2000 bias {seen[BUDGETS.index(2000)]:.0f}× or more, bound "
        f"{promised[BUDGETS.index(2000)]:.1f}×",
        bool(larger.mean() > 0.5),
    )


def draw(data: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Draw the bounds, which sites the scans update (by distance and over time), and the measured biases."""
    return {
        "marginal-guarantees": _draw_guarantees(data),
        "marginal-distances": _draw_distances(data),
        "marginal-heatmaps": _draw_heatmaps(data),
        "marginal-bias": _draw_biases(data),
    }


def _draw_guarantees(data: dict[str, dict[str, Any]]) -> Any:
    figure, axes = panels(2, 2, sharex=True)
    for row, (name, title) in zip(axes, MODELS.items(), strict=True):
        for ax, (method, bound) in zip(row, BOUNDS.items(), strict=True):
            draw_guarantees(ax, data[name][method], f"{title}, {bound}")
    return figure


def _draw_distances(data: dict[str, dict[str, Any]]) -> Any:
    """Draw updates per variable by distance from the target, and on the torus also over time."""
    figure, axes = panels(1, 3, width=3.9)
    for ax, (name, title) in zip(axes[0], MODELS.items(), strict=False):
        away = distances(name)
        there = np.bincount(away)
        for scan, method in list(MEASURED.items())[1:]:
            counts = np.bincount(away[data[name][method][f"{scan}, scan"]], minlength=len(there))
            ax.step(np.arange(len(there)), counts / there, where="mid", label=f"{scan}, {BOUNDS[method]}", **look(scan))
        ax.axhline(STEPS / SIDE**2, label="systematic", **look("systematic"))
        finish(ax, title, "Manhattan distance from the target", "updates of one variable", legend=1)
        ax.set_ylim(0.05, None)
    ax = axes[0][2]
    away = distances("torus")[data["torus"]["paper"]["DoGS, scan"]]
    times = np.linspace(0, STEPS, _BINS + 1)
    counts = np.histogram2d(np.arange(STEPS), away, [times, np.arange(away.max() + 2)])[0]
    mesh = ax.pcolormesh(times, np.arange(away.max() + 2), counts.T, cmap="magma_r", vmin=0, rasterized=True)
    figure.colorbar(mesh, ax=ax).set_label(f"updates in {STEPS // _BINS} steps", fontsize=8)
    finish(ax, "torus, DoGS: distance and time", "step", "distance from the target", log="", legend=0)
    ax.set_xticks(range(0, STEPS + 1, STEPS // 4))
    return figure


def _draw_heatmaps(data: dict[str, dict[str, Any]]) -> Any:
    figure, axes = panels(2, QUARTERS, width=2.5, height=2.5, sharex=True, sharey=True)
    for row, (name, title) in zip(axes, MODELS.items(), strict=True):
        scan = db.Scan(data[name]["paper"]["DoGS, scan"])
        db.plots.scan_map(scan, shape=(SIDE, SIDE), segments=QUARTERS, targets=[0], ax=row)
        figure.axes[-1].set_ylabel("updates (blank: none)", fontsize=8)
        for k, ax in enumerate(row):
            ax.set(title=f"quarter {k + 1}" if k else f"{title}\nquarter 1", xlabel="", ylabel="")
    return figure


def _draw_biases(data: dict[str, dict[str, Any]]) -> Any:
    """Draw twice the bounds beside the means of X_1, from 300 chains as in the paper and from many."""
    figure, axes = panels(2, 2, sharex=True)
    for (left, right), (name, title) in zip(axes, MODELS.items(), strict=True):
        for scan, method in MEASURED.items():
            bound = 2 * data[name][method][scan]
            left.plot(BUDGETS, bound, label=f"{scan}, {BOUNDS[method]}: {bound[-1]:.2g}", **look(scan, marker=True))
            draw_bias(right, BUDGETS, data[name][scan], scan)
        what = "bound on the bias of X₁", "twice the bound on the variation"
        finish(left, f"{title}: {what[0]}", "Gibbs steps T", what[1], log="xy", legend=1)
        finish(right, f"{title}: measured bias of X₁", "Gibbs steps T", "mean of X₁ from +1", log="x", legend=1)
        right.set_ylim(-0.2, 1.2)
    return figure
