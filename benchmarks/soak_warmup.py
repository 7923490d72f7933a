"""Loads what is compiled before the trials of the soak test begin: they are made from this process as it is then."""

from __future__ import annotations

import contextlib
import tempfile
import warnings
from pathlib import Path

import numpy as np

from dobrushin._shared.compile import compile_always
from soak_calls import MAKERS
from soak_cli import make_cli
from soak_models import random_case

_ROUNDS = 6
# For each of them; most take less.
_SECONDS = 1.0


def warm_up(rounds: int = _ROUNDS) -> None:
    """Make some small calls of each kind."""
    compile_always()
    rng = np.random.default_rng(12345)
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for maker in rounds * MAKERS:
            work = maker(rng, random_case(rng), False)
            with contextlib.suppress(Exception):
                work.run(**({"time_limit": _SECONDS} if "time_limit" in work.takes else {}))
        for _ in range(2 * rounds):
            with contextlib.suppress(Exception):
                make_cli(rng, False, Path(name), Path(name)).run()
