"""The experiments by name, what they find, and how to run one."""

from __future__ import annotations

import csv
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from dobrushin.experiments.store import Setting, Store

# A measured number that is this many times larger or smaller than the paper's is pointed out.
_APART = 3.0
Table = tuple[Sequence[str], Sequence[Sequence[Any]]]


@dataclass(frozen=True)
class Finding:
    """One statement of the paper, or of this project, and what a run says about it.

    Attributes
    ----------
    what : str
    paper : str
        What the paper says, with its section; "-" for what the paper does not have.
    measured : str
    holds : bool
    why : str
        Where it does not hold and that is understood: the reason.
    factor : float
        What was measured over the paper's number, where both have one. If they are more than three times apart, the
        verdict says so, whatever else holds.

    Examples
    --------
    >>> from dobrushin.experiments.catalog import Finding
    >>> Finding("seconds", "less than a minute: 30", "20", True, factor=20 / 30).verdict
    'holds'
    >>> Finding("seconds", "less than a minute: 30", "2", True, factor=2 / 30).verdict
    'holds, but 15× smaller'
    """

    what: str
    paper: str
    measured: str
    holds: bool
    why: str = ""
    factor: float = 1.0

    @property
    def verdict(self) -> str:
        """Whether the statement holds, in a word or two."""
        if not self.holds:
            return "differs" if self.why else "FAILS"
        if 1 / _APART <= self.factor <= _APART:
            return "holds"
        apart, way = (self.factor, "larger") if self.factor > 1 else (1 / self.factor, "smaller")
        return f"holds, but {float(f'{apart:.2g}'):g}× {way}"

    @property
    def expected(self) -> bool:
        """Whether it holds, or does not for a known reason."""
        return self.holds or bool(self.why)


@dataclass(frozen=True)
class Outcome:
    """All findings of an experiment, and where its data and pictures are.

    Examples
    --------
    >>> from dobrushin.experiments.catalog import Finding, Outcome
    >>> found = Outcome("sums", 0.1, [Finding("1 + 1", "2 (Sec. 1)", "2", True)], [])
    >>> found.holds
    True
    """

    name: str
    seconds: float
    findings: Sequence[Finding]
    files: Sequence[Path]

    @property
    def holds(self) -> bool:
        """Whether every finding holds, or differs for a reason that is given."""
        return all(finding.expected for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """Return the outcome as a dict for JSON."""
        return {
            "name": self.name,
            "holds": self.holds,
            "seconds": round(self.seconds, 2),
            "findings": [{**asdict(finding), "verdict": finding.verdict} for finding in self.findings],
            "files": [str(path) for path in self.files],
        }


@dataclass(frozen=True)
class Experiment:
    """The name of an experiment, what it shows, where the paper has it, and whether it writes tables of its own."""

    name: str
    title: str
    section: str
    has_tables: bool = False


EXPERIMENTS = {
    entry.name: entry
    for entry in (
        Experiment("ising-tv", "bounds against steps, 10 × 10 Ising, all variables", "Sec. 5.1, App. B.1"),
        Experiment("wall-clock", "estimates against time, a million variables", "Sec. 5.2, App. B.2"),
        Experiment("mle", "maximum likelihood with Gibbs gradients", "Sec. 5.3"),
        Experiment("marginal", "one site of a 40 × 40 Ising model", "Sec. 5.4, App. B.3"),
        Experiment("loose-bounds", "influence bounds that are too large", "Sec. 5.6"),
        Experiment("segmentation", "the labels of a region of an image", "Sec. 5.5, App. B.4"),
        Experiment("beyond", "what this project adds", "not in the paper"),
        Experiment("disease-mapping", "log relative risks of counties", "not in the paper", has_tables=True),
    )
}


def load(name: str) -> ModuleType:
    """Import the module of an experiment: its functions are `compute`, `findings`, `draw` and, for some, `tables`."""
    from dobrushin.experiments import (
        beyond,
        disease_mapping,
        ising_tv,
        loose_bounds,
        marginal,
        mle,
        segmentation,
        wall_clock,
    )

    return {
        "ising-tv": ising_tv,
        "wall-clock": wall_clock,
        "mle": mle,
        "marginal": marginal,
        "loose-bounds": loose_bounds,
        "segmentation": segmentation,
        "beyond": beyond,
        "disease-mapping": disease_mapping,
    }[name]


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
    try:
        from dobrushin.experiments.drawing import save
    except ImportError as error:  # before hours of work, not after
        message = f"The experiments need {error.name}, which is not installed: pip install 'dobrushin[experiments]'"
        raise ImportError(message) from error
    experiment = load(name)
    setting = setting or Setting()
    if folder is not None:
        folder = folder / (f"{name}-quick" if setting.quick else name)
        folder.mkdir(parents=True, exist_ok=True)
    begin = time.perf_counter()
    data = experiment.compute(Store(setting, folder, say, executor))
    findings = experiment.findings(data)
    files: list[Path] = []
    if folder is not None:
        if say is not None:
            say("figures")
        rows = [[finding.what, finding.paper, finding.measured, finding.verdict, finding.why] for finding in findings]
        tables: dict[str, Table] = {"findings": (("what", "paper says", "we measured", "verdict", "why"), rows)}
        if EXPERIMENTS[name].has_tables:
            tables |= experiment.tables(data)
        parts = sorted((folder / "parts").glob("*.npz"))
        files = [*parts, *(_write_table(folder / f"{name}.csv", table) for name, table in tables.items())]
        files += save(experiment.draw(data), folder)
    return Outcome(name, time.perf_counter() - begin, findings, files)


def _write_table(path: Path, table: Table) -> Path:
    columns, rows = table
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([columns, *rows])
    return path
