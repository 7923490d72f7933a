"""A session that uses everything, as a user writes it: it runs, and `mypy --strict` has no complaints."""

import tempfile
from collections.abc import Hashable
from pathlib import Path

import numpy as np

import dobrushin as db
from dobrushin.typing import Evidence, ModelLike, ScanLike, Targets

folder = Path(tempfile.mkdtemp())


def marginal(model: ModelLike, targets: Targets, evidence: Evidence | None = None) -> float:
    return float(db.estimate(model, targets, evidence=evidence, seed=np.random.default_rng(1)).value.max())


def bias(model: db.Model, scan: ScanLike, target: Hashable) -> float:
    return db.variation(model, scan, [target]).value


# Models: from numbers, dicts, tables and files; names of states, evidence, blocks and graphs.
grid = db.Ising.grid(6, 6, couplings=0.15, fields=0.1)
lazy = db.Ising.grid(1000, 1000, lambda edges: 0.1 + 0.0 * edges)
named = db.Ising({("sun", "rain"): -0.4, ("rain", "wet"): 0.7}, fields={"sun": 0.2}, state_names=("no", "yes"))
potts = db.Potts({("a", "b"): 0.3}, 3, unaries={"a": [0.0, 0.1, 0.2]})
pairs = db.PairwiseMRF([[0.0, 0.1], [0.0, 0.2]], [(0, 1)], [np.eye(2)], ["u", "v"])
graph = db.FactorGraph([2, 2], [((0, 1), np.eye(2))])
field = db.GaussianField.car(np.array([[0, 1], [1, 0]]), rho=0.5).poisson([2, 3], exposure=1.5)
observed: dict[str, str] = {"rain": "yes"}
db.write(named, folder / "named.npz")
model = db.read(folder / "named.npz")
print(grid.couplings.nnz, model.edges, model.labels, model.condition(observed), potts.cardinalities)

# Influence, scans, certificates.
influence = db.influence(grid)
sweeps = db.Scan.systematic(grid, sweeps=8)
found = db.shortest_scan(grid, targets=[0], tolerance=0.01)
print(influence.norm(np.inf), bias(grid, sweeps, 0), bias(grid, found, 0), bias(named, ["sun", "rain"] * 4, "sun"))
print(db.optimize_scan(grid, sweeps, [0]).variation.value, db.greedy_scan(grid, [0], steps=30).scan)
print(db.coalescence(grid, sweeps, [0], runs=1000, seed=1).value, db.diagnose(grid).advice, db.suggest_groups(named))

# Draws and answers.
drawn = db.sample(grid, found, chains=100, seed=2, record=[0], run=db.RunOptions(backend="cpu"))
exact = db.exact_sample(grid, targets="all", draws=10, seed=3)
answer = db.estimate(named, ["sun", db.Joint("sun", "wet")], evidence=observed, proof=folder / "answer.proof")
print(drawn.states is not None and drawn.states.shape, exact.states.mean(), answer["sun"].value, answer.headline)
answer.save(folder / "answer.json")
assert db.Estimate.load(folder / "answer.json") == answer
assert db.verify_proof(folder / "answer.proof", folder / "named.npz").verdict == "holds"
print(
    db.plan(lazy, [0]).method, marginal(lazy, 0), marginal(potts, "a"), marginal(pairs, "u"), marginal(graph, 0, {1: 0})
)
many = db.estimate_many(named, [("sun", None), (["wet"], observed)], tolerance=0.05)
print([one.headline for one in many], db.log_evidence(named, observed), db.exact.marginals(grid)[0])
above = db.estimate(field, [0, db.Exceeds(1, 0.5), db.Quantile(0, 0.9)], tolerance=0.2, seed=4)
print(above.value, above.half_width, db.estimate(grid, db.Statistic.magnetisation(grid), tolerance=0.2, seed=5).value)
fitted = db.fit(named, np.array([[1, 1, -1], [-1, -1, 1], [1, -1, 1]]), method="exact", iterations=3, ridge=0.1)
print(fitted.model, fitted.headline)
try:
    db.estimate(db.Ising.grid(30, 30, couplings=0.4), [0], tolerance=0.001, method="dobrushin")
except db.CertificateError as error:
    print(error.reasons, error.result)
