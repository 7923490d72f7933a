"""`dobrushin fit`: parameters from data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from rich.text import Text

import dobrushin as db
from dobrushin._shared.extras import require
from dobrushin.cli.guard import CERTIFIED, NO_CERTIFICATE, Usage
from dobrushin.cli.output import Output
from dobrushin.cli.source import Source
from dobrushin.cli.writing import check_model, rehearse_model


def run(source: Source, data: Path, output: Path | None, out: Output, **options: Any) -> int:
    """Fit, print, and write the fitted model."""
    check_model("--output", output)
    model = source.read()
    rehearse_model(output, model)
    failure: BaseException | None = None
    try:
        fit = db.fit(model, read_data(data), **options)
    except db.FitInterrupted as interruption:
        fit, failure = interruption.fit, interruption
    certified = fit.bias_bound is not None and bool(np.isfinite(fit.bias_bound))
    about = {
        "parameters": fit.parameters,
        "certified": certified,
        "bias_bound": fit.bias_bound,
        "converged": bool(fit.converged),
        "seed": fit.seed,
    }
    out.show("fit", about, lambda: Text(str(fit)))
    if output is not None:
        db.write(fit.model, output)
        out.note(f"Wrote {output}.")
    if failure is not None:
        raise failure
    return CERTIFIED if certified else NO_CERTIFICATE


def read_data(path: Path) -> Any:
    """Observations: a .csv file whose first line names the variables, or a .npy array."""
    suffix = path.suffix.lower()
    if suffix == ".npy":
        with path.open("rb") as file:
            return np.load(file, allow_pickle=False)
    if suffix != ".csv":
        raise Usage(f"DATA must be a .csv or .npy file. Got {str(path)!r}.")
    frame = require("pandas", "formats").read_csv(path)
    names = [int(name) if str(name).isdecimal() else name for name in frame.columns]
    return frame.set_axis(names, axis=1)
