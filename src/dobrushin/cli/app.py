"""The verbs and their options; what they do is imported when they run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    help="Gibbs sampling with error bars that can be trusted.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)


@app.callback()
def top() -> None:
    """Gibbs sampling with error bars that can be trusted."""


@app.command(epilog="Example: dobrushin optimize --steps 2000 --plot bound.png")
def optimize(
    steps: Annotated[int, typer.Option(help="Length of the scans.", min=1)] = 2000,
    target: Annotated[str, typer.Option(help="Variables of interest, as in 0,1,2. Default: all.")] = "",
    seed: Annotated[int, typer.Option(help="Which draw of the model.", min=0)] = 0,
    plot: Annotated[
        Path | None, typer.Option(help="Where to write the picture of the bounds (PNG, SVG or PDF).")
    ] = Path("bound.png"),
) -> None:
    """Certify and optimise scans for the paper's 10x10 Ising model: print the bounds, draw them."""
    from dobrushin.cli.optimize import run

    raise typer.Exit(run(steps, target, seed, plot))
