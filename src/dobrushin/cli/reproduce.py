"""The verb `reproduce`: the paper's experiments, each with a table of its statements and of measurements."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.markup import escape
from rich.table import Table

from dobrushin._shared.text import hint
from dobrushin.cli.guard import CERTIFIED, FAILED, Usage
from dobrushin.cli.output import Output, check_folder, table
from dobrushin.experiments.catalog import EXPERIMENTS, Experiment, Outcome
from dobrushin.experiments.catalog import run as run_experiment
from dobrushin.experiments.store import MissingData, Setting


def run(name: str | None, setting: Setting, folder: Path, workers: int, out: Output) -> int:
    """Run one experiment or all; without a name say which there are."""
    if name is None:
        known = [{"name": e.name, "title": e.title, "paper": e.section} for e in EXPERIMENTS.values()]
        out.show("experiments", {"experiments": known}, lambda: _list(list(EXPERIMENTS.values())))
        return CERTIFIED
    if name != "all" and name not in EXPERIMENTS:
        near = hint(name, EXPERIMENTS)
        raise Usage(f"NAME must be all or one of {', '.join(EXPERIMENTS)}{near}. Got {name!r}.")
    if setting.data is not None and not setting.data.is_dir():
        raise Usage(f"--data must be the folder that holds the data. There is no folder {setting.data}.")
    check_folder("--out", folder)
    say = _say if out.is_for_people and sys.stderr.isatty() else None
    people = Output(as_json=False, quiet=not out.is_for_people)
    outcomes: list[Outcome] = []
    skipped: dict[str, str] = {}
    for wanted in EXPERIMENTS if name == "all" else [name]:
        try:
            with ProcessPoolExecutor(workers) if workers > 1 else nullcontext() as pool:
                outcome = run_experiment(wanted, setting, folder, say and _with_name(wanted, say), pool)
        except (MissingData, ImportError) as missing:  # its images, or the libraries that read them
            if name != "all":
                raise
            skipped[wanted] = str(missing)
            out.note(f"{wanted}: skipped. {skipped[wanted]}")
            continue
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                f"Interrupted. What was finished is in {folder}; the same command goes on from there."
            ) from None
        outcomes.append(outcome)
        people.print(str, partial(_table, outcome))
    holds = all(outcome.holds for outcome in outcomes)
    if out.as_json:
        about = {"holds": holds, "experiments": [outcome.to_dict() for outcome in outcomes], "skipped": skipped}
        out.show("reproduce", about, str)
    return CERTIFIED if holds else FAILED


def _list(entries: list[Experiment]) -> Any:
    rows = [[entry.name, entry.title, entry.section] for entry in entries]
    return table("dobrushin reproduce NAME, or all", ("name", "what it shows", "paper"), rows)


def _table(outcome: Outcome) -> Any:
    """Make the table of statements and measurements, with the reasons where they differ."""
    grid = Table(show_lines=True)
    for column, ratio in (("", 3), ("paper says", 3), ("we measured", 5), ("", None)):
        grid.add_column(column, ratio=ratio, overflow="fold")
    for finding in outcome.findings:
        grid.add_row(*(escape(cell) for cell in (finding.what, finding.paper, finding.measured, finding.verdict)))
    entry = EXPERIMENTS[outcome.name]
    notes = [f"{f.what}: {f.why}" for f in outcome.findings if f.verdict == "differs"]
    folder = outcome.files[-1].parent if outcome.files else "nowhere"
    return Group(
        escape(f"{outcome.name}: {entry.title} ({entry.section}), {outcome.seconds:.0f} s"),
        grid,
        *(escape(note) for note in notes),
        escape(f"Data and figures: {folder}"),
        "",
    )


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def _with_name(name: str, say: Callable[[str], None]) -> Callable[[str], None]:
    return lambda part: say(f"{name}: {part}")
