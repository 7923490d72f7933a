"""`dobrushin fit`: parameters from data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import dobrushin as db
from dobrushin._shared.extras import require
from dobrushin.cli.common import CERTIFIED, NO_CERTIFICATE, Usage, read_model, show, wants_progress


def run(path: Path, data: Path, output: Path | None, as_json: bool, quiet: bool, **options: Any) -> int:
    """Fit, print, and write the fitted model."""
    model = read_model(path)
    found = db.fit(model, read_data(data), progress=wants_progress(quiet, as_json), **options)
    if output is not None:
        db.write(found.model, output)
    certified = found.bias_bound is not None and bool(np.isfinite(found.bias_bound))
    about = {
        "parameters": found.parameters.tolist(),
        "bias_bound": float(found.bias_bound) if certified else None,
        "converged": bool(found.converged),
        "seed": str(found.seed),
    }
    show(about, as_json, quiet, lambda: str(found))
    if output is not None and not quiet and not as_json:
        print(f"Wrote {output}.")
    return CERTIFIED if certified else NO_CERTIFICATE


def read_data(path: Path) -> Any:
    """Observations: a .csv file whose first line names the variables, or a .npy array."""
    suffix = path.suffix.lower()
    if suffix == ".npy":
        with path.open("rb") as file:
            return np.load(file, allow_pickle=False)
    if suffix != ".csv":
        raise Usage(f"The data must be a .csv or .npy file. Got {str(path)!r}.")
    frame = require("pandas", "formats").read_csv(path)
    names = [int(name) if str(name).isdecimal() else name for name in frame.columns]
    return frame.set_axis(names, axis=1)
