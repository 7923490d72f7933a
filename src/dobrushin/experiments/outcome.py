"""What came of an experiment: what the paper says beside what was measured, and the files that show it."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

_APART = 3.0


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
    >>> from dobrushin.experiments.outcome import Finding
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
        """In a word or two."""
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
    >>> from dobrushin.experiments.outcome import Finding, Outcome
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
        """Whether every finding is as it should be: it holds, or it differs for a reason that is given."""
        return all(finding.expected for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        rows = [{**asdict(finding), "verdict": finding.verdict} for finding in self.findings]
        return {
            "name": self.name,
            "holds": self.holds,
            "seconds": round(self.seconds, 2),
            "findings": rows,
            "files": [str(path) for path in self.files],
        }


def write_findings(path: Path, findings: Sequence[Finding]) -> None:
    """Write the table as CSV."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["what", "paper says", "we measured", "verdict", "why"])
        for finding in findings:
            writer.writerow([finding.what, finding.paper, finding.measured, finding.verdict, finding.why])


def write_tables(folder: Path, tables: Mapping[str, tuple[Sequence[str], Sequence[Sequence[Any]]]]) -> list[Path]:
    """Write columns and rows of each table as CSV."""
    paths = []
    for name, (columns, rows) in tables.items():
        paths.append(folder / f"{name}.csv")
        with open(paths[-1], "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([columns, *rows])
    return paths
