"""The experiments by name, and how to run one."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

from dobrushin._shared.extras import require
from dobrushin.experiments.outcome import Outcome, write_findings, write_tables
from dobrushin.experiments.store import Setting, Store


@dataclass(frozen=True)
class Experiment:
    """One entry.

    Attributes
    ----------
    name, title, section : str
        What it is called here, what it shows, and where the paper has it.
    module : str
        In this package; has the functions `compute`, `findings` and `draw`, and perhaps `tables`.
    """

    name: str
    title: str
    section: str
    module: str


EXPERIMENTS = {
    entry.name: entry
    for entry in (
        Experiment("ising-tv", "bounds against steps, 10 × 10 Ising, all variables", "Sec. 5.1, App. B.1", "ising_tv"),
        Experiment("wall-clock", "estimates against time, a million variables", "Sec. 5.2, App. B.2", "wall_clock"),
        Experiment("mle", "maximum likelihood with Gibbs gradients", "Sec. 5.3", "mle"),
        Experiment("marginal", "one site of a 40 × 40 Ising model", "Sec. 5.4, App. B.3", "marginal"),
        Experiment("loose-bounds", "influence bounds that are too large", "Sec. 5.6", "loose_bounds"),
        Experiment("segmentation", "the labels of a region of an image", "Sec. 5.5, App. B.4", "segmentation"),
        Experiment("beyond", "what this project adds", "not in the paper", "beyond"),
        Experiment("disease-mapping", "log relative risks of counties", "not in the paper", "disease_mapping"),
    )
}


def run(
    name: str,
    setting: Setting | None = None,
    folder: Path | None = None,
    say: Callable[[str], None] | None = None,
    executor: Executor | None = None,
) -> Outcome:
    """Run an experiment, or what is left of it, and write its data, table and figures.

    Parameters
    ----------
    name : str
        One of `EXPERIMENTS`.
    setting : Setting, optional
    folder : Path, optional
        Files go to a folder of the experiment's name in it; default: nothing is written.
    say : function, optional
        Told what is being done.
    executor : concurrent.futures.Executor, optional
        Computes replicates that do not measure time; default: one after the other, each on all cores.

    Returns
    -------
    Outcome

    Examples
    --------
    >>> from dobrushin.experiments.catalog import run
    >>> from dobrushin.experiments.store import Setting
    >>> found = run("ising-tv", Setting(quick=True))
    >>> found.holds, found.findings[0].verdict
    (True, 'holds')
    """
    setting = setting or Setting()
    if folder is not None:
        require("matplotlib.figure", "experiments")  # before hours of work, not after
        folder = folder / (f"{name}-quick" if setting.quick else name)
        folder.mkdir(parents=True, exist_ok=True)
    module = importlib.import_module(f"dobrushin.experiments.{EXPERIMENTS[name].module}")
    begin = time.perf_counter()
    data = module.compute(Store(setting, folder, say, executor))
    findings = module.findings(data)
    files: list[Path] = []
    if folder is not None:
        from dobrushin.experiments.drawing import save

        if say is not None:
            say("figures")
        write_findings(folder / "findings.csv", findings)
        made = write_tables(folder, module.tables(data)) if hasattr(module, "tables") else []
        parts = sorted((folder / "parts").glob("*.npz"))
        files = [*parts, folder / "findings.csv", *made, *save(module.draw(data), folder)]
    return Outcome(name, time.perf_counter() - begin, findings, files)
