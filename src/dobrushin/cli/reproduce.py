"""The verb `reproduce`: the paper's experiments, each with a table of what it says and what was measured."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from rich.console import Group
from rich.markup import escape
from rich.table import Table

from dobrushin.cli.common import CERTIFIED, FAILED, Usage, show, table
from dobrushin.experiments.catalog import EXPERIMENTS, Experiment
from dobrushin.experiments.catalog import run as run_experiment
from dobrushin.experiments.outcome import Outcome
from dobrushin.experiments.store import MissingData, Setting


def run(
    name: str | None, quick: bool, data: Path | None, out: Path, seed: int, workers: int, as_json: bool, quiet: bool
) -> int:
    """Run one experiment or all; without a name say which there are."""
    if name is None:
        about = [{"name": e.name, "title": e.title, "paper": e.section} for e in EXPERIMENTS.values()]
        show(about, as_json, quiet, lambda: _list(list(EXPERIMENTS.values())))
        return CERTIFIED
    if name != "all" and name not in EXPERIMENTS:
        raise Usage(f"NAME must be all or one of {', '.join(EXPERIMENTS)}. Got {name!r}.")
    if data is not None and not data.is_dir():
        raise Usage(f"--data must be the folder that holds the images. There is no folder {data}.")
    setting = Setting(quick, seed, data)
    say = _say if not quiet and not as_json and sys.stderr.isatty() else None
    outcomes: list[Outcome] = []
    skipped: dict[str, str] = {}
    for wanted in EXPERIMENTS if name == "all" else [name]:
        try:
            with ProcessPoolExecutor(workers) if workers > 1 else nullcontext() as pool:
                outcome = run_experiment(wanted, setting, out, say and _named(wanted, say), pool)
        except (MissingData, ImportError) as missing:  # its images, or the libraries that read them
            if name != "all":
                raise
            skipped[wanted] = str(missing)
            show({}, False, quiet or as_json, lambda wanted=wanted: f"{wanted}: skipped. {skipped[wanted]}")  # type: ignore[misc]
            continue
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                f"Interrupted. What was finished is in {out}; the same command goes on from there."
            ) from None
        outcomes.append(outcome)
        show({}, False, quiet or as_json, lambda outcome=outcome: _table(outcome))  # type: ignore[misc]
    holds = all(outcome.holds for outcome in outcomes)
    if as_json:
        found = {"holds": holds, "experiments": [outcome.to_dict() for outcome in outcomes], "skipped": skipped}
        show(found, True, quiet, str)
    return CERTIFIED if holds else FAILED


def _list(entries: list[Experiment]) -> Any:
    rows = [[entry.name, entry.title, entry.section] for entry in entries]
    return table("dobrushin reproduce NAME, or all", ("name", "what it shows", "paper"), rows)


def _table(outcome: Outcome) -> Any:
    """What the paper says beside what was measured; under it the reasons where they differ."""
    made = Table(show_lines=True)
    for column, ratio in (("", 3), ("paper says", 3), ("we measured", 5), ("", None)):
        made.add_column(column, ratio=ratio, overflow="fold")
    for finding in outcome.findings:
        made.add_row(*(escape(cell) for cell in (finding.what, finding.paper, finding.measured, finding.verdict)))
    entry = EXPERIMENTS[outcome.name]
    notes = [f"{f.what}: {f.why}" for f in outcome.findings if f.verdict == "differs"]
    folder = outcome.files[-1].parent if outcome.files else "nowhere"
    return Group(
        escape(f"{outcome.name}: {entry.title} ({entry.section}), {outcome.seconds:.0f} s"),
        made,
        *(escape(note) for note in notes),
        escape(f"Data and figures: {folder}"),
        "",
    )


def _say(words: str) -> None:
    print(words, file=sys.stderr)


def _named(name: str, say: Callable[[str], None]) -> Callable[[str], None]:
    return lambda part: say(f"{name}: {part}")
