"""The verb `dobrushin reproduce`: repeat the paper's experiments, and compare its statements with measurements."""

from __future__ import annotations

import sys
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.table import Table

from dobrushin._shared.text import hint
from dobrushin.cli import completion
from dobrushin.cli import options as opt
from dobrushin.cli.output import CERTIFIED, FAILED, Output, Usage, check_folder, table


@opt.verb("reproduce ising-tv --quick", shows_progress=False)
def reproduce(
    name: Annotated[
        str | None,
        typer.Argument(
            help="An experiment, or all. Without it: list them.",
            metavar="NAME",
            show_default=False,
            autocompletion=completion.complete_experiment,
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer replicates: a minute each at most.")] = False,
    data: Annotated[Path | None, opt.file("Folder with data, for the experiments that need them.")] = None,
    folder: Annotated[Path, typer.Option("--out", help="Folder for data, tables and figures.", metavar="PATH")] = Path(
        "reproduced"
    ),
    seed: Annotated[int, opt.whole("Seed, to repeat a run (all but its times).", 0)] = 0,
    workers: Annotated[int, opt.whole("Processes for replicates that do not measure time.")] = 1,
    *,
    out: Output,
) -> int:
    """Repeat the paper's experiments. An interrupted run resumes where it stopped.

    Exit codes: 0 every statement came out as expected, 1 one did not.
    """
    from dobrushin.experiments.catalog import EXPERIMENTS, ExperimentOutcome, MissingData, Store
    from dobrushin.experiments.catalog import run as run_experiment

    if name is None:
        known = [{"name": key, "title": one.title, "paper": one.section} for key, one in EXPERIMENTS.items()]
        rows = [list(row.values()) for row in known]
        columns = ("name", "what it shows", "paper")
        out.show(
            "experiments", {"experiments": known}, lambda: table("dobrushin reproduce NAME, or all", columns, rows)
        )
        return CERTIFIED
    if name != "all" and name not in EXPERIMENTS:
        near = hint(name, EXPERIMENTS)
        raise Usage(f"NAME must be all or one of {', '.join(EXPERIMENTS)}{near}. Got {name!r}.")
    if data is not None and not data.is_dir():
        raise Usage(f"--data must be the folder that holds the data. There is no folder {data}.")
    check_folder("--out", folder)
    outcomes: list[ExperimentOutcome] = []
    skipped: dict[str, str] = {}
    for wanted in EXPERIMENTS if name == "all" else [name]:
        say = partial(_say, wanted) if out.is_for_people and sys.stderr.isatty() else None
        try:
            with ProcessPoolExecutor(workers) if workers > 1 else nullcontext() as pool:
                outcome = run_experiment(wanted, Store(quick, seed, data, folder, say, pool))
        except (MissingData, ImportError) as missing:  # its images, or the libraries that read them
            if name != "all":
                raise
            skipped[wanted] = str(missing)
            out.note(f"{wanted}: skipped. {missing}")
            continue
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                f"Interrupted. Finished parts are in {folder}; repeat the command to resume."
            ) from None
        outcomes.append(outcome)
        if out.is_for_people:
            out.print(str, partial(_table, outcome, EXPERIMENTS[wanted]))
    holds = all(outcome.holds for outcome in outcomes)
    if out.as_json:
        about = {"holds": holds, "experiments": [outcome.to_dict() for outcome in outcomes], "skipped": skipped}
        out.show("reproduce", about, str)
    return CERTIFIED if holds else FAILED


def _table(outcome: Any, about: Any) -> Group:
    """Return a table of statements and measurements, with the reasons for differences."""
    grid = Table(show_lines=True)
    for column, ratio in (("", 3), ("paper says", 3), ("we measured", 5), ("", None)):
        grid.add_column(column, ratio=ratio, overflow="fold")
    for finding in outcome.findings:
        grid.add_row(finding.what, finding.paper, finding.measured, finding.verdict)
    notes = [f"{finding.what}: {finding.why}" for finding in outcome.findings if finding.verdict == "differs"]
    head = f"{outcome.name}: {about.title} ({about.section}), {outcome.seconds:.0f} s"
    folder = outcome.files[-1].parent if outcome.files else "nowhere"
    return Group(head, grid, *notes, f"Data and figures: {folder}", "")


def _say(name: str, part: str) -> None:
    print(f"{name}: {part}", file=sys.stderr)
