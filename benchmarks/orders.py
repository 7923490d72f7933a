"""Orders of summing beside those of cotengra: `python benchmarks/orders.py [INSTANCE ...]`.

Needs cotengra (pip install cotengra) and the data folder that DOBRUSHIN_DATA names. Both are asked for the partition
function; the cost is the number of combinations of states that all steps run through.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

import dobrushin as db
from dobrushin._exact.engine import plan_sums

_INSTANCES = ["Grids_15", "DBN_13", "ObjectDetection_11", "Promedus_14", "Segmentation_12", "CSP_11"]
# Seconds that cotengra may search.
_PATIENCE = (0.5, 5.0)


def main() -> None:
    """Print a row for each instance."""
    import cotengra

    folder = Path(os.environ.get("DOBRUSHIN_DATA", ""))
    if not (folder / "uai").is_dir():
        sys.exit("DOBRUSHIN_DATA names no data folder.")
    table = Table(title="Combinations of states in all steps")
    for heading in ("instance", "ours", "s", *(f"cotengra, {seconds:g} s" for seconds in _PATIENCE), "ours / best"):
        table.add_column(heading, justify="right")
    for name in sys.argv[1:] or _INSTANCES:
        path = folder / "uai" / f"{name}.uai"
        model = db.read(path).condition(db.io.read_evidence(f"{path}.evid"))
        tables = model._form.tables()
        begin = time.perf_counter()
        ours = plan_sums(tables, [], 1e13).entries
        seconds = time.perf_counter() - begin
        scopes = [tuple(map(str, tables.factor(k)[0])) for k in range(tables.n_factors)]
        sizes = {str(v): int(size) for v, size in enumerate(tables.cardinalities)}
        costs = []
        for patience in _PATIENCE:
            search = cotengra.HyperOptimizer(
                methods=["greedy", "labels"], max_time=patience, max_repeats=10**4, minimize="flops", progbar=False,
                parallel=False,
            )  # fmt: skip
            tree = cotengra.array_contract_tree([s for s in scopes if s], (), sizes, optimize=search)
            costs.append(float(tree.contraction_cost()))
        table.add_row(name, f"{ours:.2g}", f"{seconds:.2f}", *(f"{c:.2g}" for c in costs), f"{ours / min(costs):.2g}")
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
