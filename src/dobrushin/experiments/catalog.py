"""The list of experiments, their findings, and runs that store each finished part, so that they can resume."""

from __future__ import annotations

import csv
import json
import os
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, as_completed, wait
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

import dobrushin as db

Arrays = dict[str, NDArray[Any]]


class Experiment(NamedTuple):
    """The title of an experiment, and the section of the paper that it repeats."""

    title: str
    section: str


EXPERIMENTS = {
    "ising-tv": Experiment("bounds against steps, 10 × 10 Ising, all variables", "Sec. 5.1, App. B.1"),
    "wall-clock": Experiment("estimates against time, a million variables", "Sec. 5.2, App. B.2"),
    "mle": Experiment("maximum likelihood with Gibbs gradients", "Sec. 5.3"),
    "marginal": Experiment("one site of a 40 × 40 Ising model", "Sec. 5.4, App. B.3"),
    "loose-bounds": Experiment("influence bounds that are too large", "Sec. 5.6"),
    "segmentation": Experiment("the labels of a region of an image", "Sec. 5.5, App. B.4"),
    "beyond": Experiment("what this project adds", "not in the paper"),
    "disease-mapping": Experiment("log relative risks of counties", "not in the paper"),
    "named-entities": Experiment("names in short messages, by linear and skip chains", "not in the paper"),
}
# A measured number that is this many times larger or smaller than the paper's is pointed out.
_APART = 3.0
_SETTINGS = "settings"


@dataclass(frozen=True)
class Finding:
    """One statement of the paper (or of this project) and what a run measured.

    Attributes
    ----------
    what : str
    paper : str
        The paper's statement, with its section; "-" where the paper has none.
    measured : str
    holds : bool
    why : str
        The reason why the statement does not hold, where the reason is known.
    factor : float
        The measured number over the paper's, where both have one. The verdict names a factor of more than three,
        also where the statement holds.

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
        """The verdict in a few words: whether the statement holds."""
        if not self.holds:
            return "differs" if self.why else "FAILS"
        if 1 / _APART <= self.factor <= _APART:
            return "holds"
        apart, way = (self.factor, "larger") if self.factor > 1 else (1 / self.factor, "smaller")
        return f"holds, but {float(f'{apart:.2g}'):g}× {way}"


def span(values: Any, unit: str = "") -> str:
    """Write the median of some numbers, and their range, as findings show them.

    Examples
    --------
    >>> span([1.25, 2, 3], "×")
    '2× (1.2 to 3)'
    """
    return f"{np.median(values):.3g}{unit} ({np.min(values):.2g} to {np.max(values):.2g})"


@dataclass(frozen=True)
class ExperimentOutcome:
    """All findings of a run of an experiment, and where its data and figures are.

    Examples
    --------
    >>> from dobrushin.experiments.catalog import ExperimentOutcome, Finding
    >>> found = ExperimentOutcome("sums", 0.1, [Finding("1 + 1", "2 (Sec. 1)", "2", True)], [])
    >>> found.holds
    True
    """

    name: str
    seconds: float
    findings: Sequence[Finding]
    files: Sequence[Path]

    @property
    def holds(self) -> bool:
        """True if every finding holds, or differs for a known reason."""
        return all(finding.verdict != "FAILS" for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """Return the outcome as a dict that JSON can hold."""
        return {
            "name": self.name,
            "holds": self.holds,
            "seconds": round(self.seconds, 2),
            "findings": [{**asdict(finding), "verdict": finding.verdict} for finding in self.findings],
            "files": [str(path) for path in self.files],
        }


@dataclass(frozen=True)
class Part:
    """One part of an experiment: a function with its arguments, and a name; see `Store.part`."""

    name: str
    compute: Callable[..., Mapping[str, Any]]
    arguments: tuple[Any, ...] = ()
    about: Mapping[str, Any] = field(default_factory=dict)


class MissingData(ValueError):
    """An experiment needs data files that were not given."""


@dataclass(frozen=True)
class Store:
    """Settings of a run of an experiment, and storage of its finished parts.

    Attributes
    ----------
    quick : bool
        Use fewer replicates and chains, so that a run takes a minute or less.
    seed : int
        Runs with the same seed give the same numbers, but for times.
    data : Path or None
        Folder with the images or counties of the experiments that need data.
    folder : Path or None
        Folder for all files; None writes no files.
    say : function or None
        Called with the name of each part before the part is computed.
    executor : concurrent.futures.Executor or None
        Computes parts that do not depend on each other and do not measure time; None for one after the other.

    Examples
    --------
    >>> from dobrushin.experiments.catalog import Store
    >>> Store(quick=True).part("squares", lambda n: {"values": [k * k for k in range(n)]}, 3)
    {'values': array([0, 1, 4])}
    """

    quick: bool = False
    seed: int = 0
    data: Path | None = None
    folder: Path | None = None
    say: Callable[[str], None] | None = None
    executor: Executor | None = None

    def pick(self, quick: Any, full: Any) -> Any:
        """Return `quick` if the run is quick, else `full`."""
        return quick if self.quick else full

    def seed_of(self, *key: int) -> np.random.SeedSequence:
        """Return the seed of one part of an experiment."""
        return np.random.SeedSequence(self.seed, spawn_key=key)

    def find_data(self, subfolder: str, *names: str) -> Path | None:
        """Return `data` or its subfolder, whichever has files of all these names; None if neither does."""
        folders = [] if self.data is None else [self.data, self.data / subfolder]
        return next((here for here in folders if all((here / name).is_file() for name in names)), None)

    def part(self, name: str, compute: Callable[..., Mapping[str, Any]], *arguments: Any, **about: Any) -> Arrays:
        """Return the arrays of a part, from its file if a run with the same settings has finished it, else computed.

        Parameters
        ----------
        name : str
            Names the file.
        compute : function
            Returns a dict of arrays, given the arguments.
        **about
            Further values that the result depends on: after a change of one, the part is computed again.

        Returns
        -------
        dict of arrays
        """
        return replace(self, executor=None).parts([Part(name, compute, arguments, about)])[0]

    def parts(self, wanted: Sequence[Part]) -> list[Arrays]:
        """Return the arrays of independent parts, in order, computed on the executor if there is one.

        Examples
        --------
        >>> from dobrushin.experiments.catalog import Part, Store
        >>> Store().parts([Part(f"power-{k}", lambda k: {"value": 2**k}, (k,)) for k in range(2)])
        [{'value': array(1)}, {'value': array(2)}]
        """
        done = {k: stored for k, part in enumerate(wanted) if (stored := self._read(part)) is not None}
        pending: dict[Future[Any], int] = {}

        def keep(finished: Iterable[Future[Any]]) -> None:
            for future in finished:
                k = pending[future]
                done[k] = self._write(wanted[k], future.result())

        try:
            for k, part in enumerate(wanted):
                if k in done:
                    continue
                self.tell(part.name)
                if self.executor is None:
                    done[k] = self._write(part, part.compute(*part.arguments))
                else:
                    pending[self.executor.submit(part.compute, *part.arguments)] = k
            keep(as_completed(pending))
        except BaseException as error:
            # Parts that are being computed are finished, and kept too.
            for future in pending:
                future.cancel()
            ended = wait(pending).done
            keep(f for f in ended if pending[f] not in done and not f.cancelled() and f.exception() is None)
            if not isinstance(error, BrokenExecutor):
                raise
            remedy = "They are kept: repeat the call with a new executor to compute the others."
            raise db.WorkerError(str(error), len(done), len(wanted), "parts", remedy) from None
        return [done[k] for k in range(len(wanted))]

    def tell(self, text: str) -> None:
        """Pass a message to `say`, if there is one."""
        if self.say is not None:
            self.say(text)

    def _path(self, part: Part) -> Path | None:
        return None if self.folder is None else self.folder / "parts" / f"{part.name}.npz"

    def _settings(self, part: Part) -> str:
        """Return the settings that a stored part must have been computed with."""
        about = {"version": db.__version__, "quick": self.quick, "seed": self.seed, **part.about}
        return json.dumps(about, sort_keys=True)

    def _read(self, part: Part) -> Arrays | None:
        path = self._path(part)
        if path is None:
            return None
        try:
            # Opened here: of a damaged file NumPy leaves its own handle open.
            with open(path, "rb") as file, np.load(file, allow_pickle=False) as stored:
                arrays = dict(stored)
        except (OSError, ValueError, KeyError, EOFError, BadZipFile, zlib.error):
            return None  # not there, or not whole: computed again
        return arrays if str(arrays.pop(_SETTINGS, "")) == self._settings(part) else None

    def _write(self, part: Part, content: Mapping[str, Any]) -> Arrays:
        """Write the arrays of a part; a file with the final name is always complete."""
        arrays = {key: np.asarray(value) for key, value in content.items()}
        path = self._path(part)
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            partial = path.with_name(path.name + ".partial")
            with open(partial, "wb") as file:
                content = {**arrays, _SETTINGS: np.array(self._settings(part))}
                np.savez_compressed(file, **content)
            os.replace(partial, path)
        return arrays


def load(name: str) -> Any:
    """Import the module of an experiment, which has the functions `compute`, `findings` and `draw`."""
    return import_module(f"dobrushin.experiments.{name.replace('-', '_')}")


def run(name: str, store: Store) -> ExperimentOutcome:
    """Run the unfinished parts of an experiment, and write its data, tables and figures.

    Parameters
    ----------
    name : str
        One of `EXPERIMENTS`.
    store : Store
        How to run it. Files go to a folder of the experiment's name in its folder.

    Returns
    -------
    Outcome

    Examples
    --------
    >>> from dobrushin.experiments.catalog import Store, run
    >>> found = run("ising-tv", Store(quick=True))
    >>> found.holds, found.findings[0].verdict
    (True, 'holds')
    """
    try:
        from dobrushin.experiments.drawing import save
    except ImportError as error:  # before hours of work, not after
        message = f"The experiments need {error.name}, which is not installed: pip install 'dobrushin[experiments]'"
        raise ImportError(message) from error
    experiment = load(name)
    if store.folder is not None:
        store = replace(store, folder=store.folder / (f"{name}-quick" if store.quick else name))
    begin = time.perf_counter()
    data = experiment.compute(store)
    findings = experiment.findings(data)
    files: list[Path] = []
    if store.folder is not None:
        store.folder.mkdir(parents=True, exist_ok=True)
        store.tell("figures")
        rows = [[finding.what, finding.paper, finding.measured, finding.verdict, finding.why] for finding in findings]
        drawn = {"findings": [("what", "paper says", "we measured", "verdict", "why"), *rows], **experiment.draw(data)}
        files = sorted((store.folder / "parts").glob("*.npz"))
        for what, content in drawn.items():
            if isinstance(content, list):  # the rows of a table
                files.append(store.folder / f"{what}.csv")
                with open(files[-1], "w", newline="", encoding="utf-8") as file:
                    csv.writer(file).writerows(content)
            else:
                files += save(what, content, store.folder)
    return ExperimentOutcome(name, time.perf_counter() - begin, findings, files)
