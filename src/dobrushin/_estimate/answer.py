"""The result of `estimate`: values, intervals, bias bounds and assumptions."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dobrushin._estimate import record
from dobrushin._estimate.headline import (
    MAX_SHOWN_ROWS,
    column_names,
    estimate_card,
    headline,
    noun,
    row_texts,
    value_name,
    visible_numbers,
)
from dobrushin._estimate.targets import Target, name_of, shown
from dobrushin._exact.sums import LogPartition
from dobrushin._models import Model
from dobrushin._models.near import Numbering
from dobrushin._sampling import Samples
from dobrushin._shared.call import public
from dobrushin._shared.environment import replace_file, require
from dobrushin._shared.text import hint, percent, printable, rounded_up, visible
from dobrushin._variation import Variation
from dobrushin.errors import ArgumentError
from dobrushin.typing import ModelLike

if TYPE_CHECKING:
    import pandas

    from dobrushin._estimate.method import Method, Plan
    from dobrushin._estimate.query import Settings
    from dobrushin.report import Page


@dataclass(frozen=True, eq=False)
class Transcript:
    """Method and draws of an answer, kept if a proof is wanted.

    Attributes
    ----------
    method : Method
    run : Run or None
        The draws.
    parts : list of (Transcript or None), or None
        For the method "parts", the transcript of each subproblem (None for one without an answer). None for other
        methods, and until all subproblems are answered.
    """

    method: Method
    run: Any = None
    parts: list[Transcript | None] | None = None


@dataclass(frozen=True, eq=False)
class Asked:
    """The question behind an estimate: the model, the evidence and the arguments of the call.

    Attributes
    ----------
    model : Model or None
        The model; None after pickling, and so in other processes.
    evidence : dict
        Observed states by label, with the names of states if they have any; likelihoods for soft evidence.
    weighed : Model or None
        The model multiplied by the likelihoods of the soft evidence; the given model if no evidence is soft.
    observed : dict
        The evidence that is not soft, by label, with states as the model numbers them.
    call : tuple or None
        The arguments `targets` and `evidence`, and the settings of the call; None if they were not kept.
    transcript : Transcript or None
        Method and draws, if a proof is wanted. Pickling drops the transcript.
    """

    model: Model | None = None
    evidence: dict[Hashable, Any] = field(default_factory=dict)
    weighed: Model | None = None
    observed: dict[Hashable, Any] = field(default_factory=dict)
    call: tuple[Any, Any, Settings] | None = None
    transcript: Transcript | None = None
    _fingerprint: str | None = None

    @property
    def fingerprint(self) -> str | None:
        """Return the hash that identifies the model, also where the model itself was dropped by pickling."""
        return self._fingerprint if self.model is None else self.model.fingerprint

    def __reduce__(self) -> tuple[Any, ...]:
        return Asked, (None, self.evidence, None, self.observed, None, None, self.fingerprint)


class Answer(NamedTuple):
    """Values, interval limits and bias bounds for the states of one target."""

    states: list[Any]
    value: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    bias_bound: NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class Estimate:
    """Estimates with intervals that are valid, all at once, with the stated confidence.

    All arrays have one entry for each target and state, in the order in which the targets were given.

    Attributes
    ----------
    targets, states : list
        Target and state of each row; the state is None for a statistic.
    value : array
        Estimated probabilities of the states, means of statistics and of fields, or quantiles.
    lower, upper : array
        Limits of the intervals; the bias of the sampler is included.
    bias_bound : array
        Bound on the bias alone; NaN if the bias is unknown.
    confidence : float
        Probability with which all the intervals are valid at once; 1 for exact answers, whose intervals include
        rounding errors.
    is_certified : bool
        False only for ``method="uncertified"``, where the bias is unknown and not included.
    assumptions : tuple of str
        Assumptions under which the intervals are valid.
    plan : Plan
        The plan, fixed before sampling.
    samples : Samples or None
        The draws; None for exact answers.
    certificate : Variation or None
        The bound on the bias of the scan.
    seed : int, SeedSequence or None
        Seed that repeats the run.
    stopped_by : str or None
        Why some interval is wider than the tolerance: "the time limit", "the budget", "Ctrl-C", "rounding", ... The
        intervals are valid all the same.
    proof : str or None
        Status of the proof that the call has written, with the command that checks the proof.
    log_evidence : LogPartition or None
        Natural logarithm of the probability of the evidence, with its `error`, beside exact answers; None where there
        is no evidence, where the answer is not exact, or where it would take longer than the answer.
    asked : Asked or None
        The question: the model, its fingerprint, and the evidence.
    found_by : tuple of str
        The methods behind each row's interval, if they differ from the plan's; see `methods`.

    Examples
    --------
    >>> import dobrushin as db
    >>> answer = db.estimate(db.Ising.grid(1000, 1000, couplings=0.2), targets=[0, 1], method="dobrushin", seed=1)
    >>> answer.confidence, bool((answer.upper - answer.lower).max() / 2 <= 0.01)
    (0.99, True)
    >>> answer[0].states
    [-1, 1]
    """

    targets: list[Any]
    states: list[Any]
    value: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    bias_bound: NDArray[np.float64]
    confidence: float
    assumptions: tuple[str, ...]
    plan: Plan
    samples: Samples | None = None
    certificate: Variation | None = None
    seed: Any = None
    stopped_by: str | None = None
    log_evidence: LogPartition | None = None
    asked: Asked | None = None
    proof: str | None = None
    found_by: tuple[str, ...] = ()
    _steps: int = 0  # length of the scan of an estimate read from JSON, which has no scan

    def _lift(self, part: Numbering) -> Estimate:
        """Return the estimate with the scans of plan and certificate renumbered from a submodel to the whole model."""
        certificate = None if self.certificate is None else self.certificate._lift(part)
        return replace(self, plan=self.plan._lift(part), certificate=certificate)

    @property
    def is_certified(self) -> bool:
        """Return whether the intervals are guaranteed; False only for ``method="uncertified"`` (unknown bias)."""
        return self.plan.is_certified

    @property
    def _is_vacuous(self) -> bool:
        """Return whether the call ended before any method had a result, so that the intervals say nothing."""
        return self.plan.method == "none"

    @property
    def methods(self) -> tuple[str, ...]:
        """Return the method that found the interval of each row; "a and b" for the intersection of two intervals."""
        return self.found_by or (self.plan.method,) * len(self)

    @property
    def steps(self) -> int:
        """Return the number of steps of the scan; 0 if nothing was sampled."""
        return self._steps if self.plan.scan is None else len(self.plan.scan)

    @property
    def chains(self) -> int:
        """Return the number of chains, runs or exact draws; 0 if nothing was sampled."""
        return self.plan.chains if self.samples is None else self.samples.chains

    @property
    def _bias_text(self) -> str:
        """Return the largest bias bound of all rows as text, rounded upwards."""
        largest = float(np.max(self.bias_bound))
        return "unknown" if math.isnan(largest) else rounded_up(largest)

    @property
    def confidence_text(self) -> str:
        """Return the confidence as text, such as 99.95%."""
        return percent(self.confidence)

    @property
    def half_width(self) -> NDArray[np.float64]:
        """Return half the width of each interval: at most the tolerance, unless the result is a partial one."""
        return (self.upper - self.lower) / 2

    @property
    def _reached(self) -> str:
        """Return a sentence about the half-widths of this partial result, to be appended to the message of an error."""
        least, most = rounded_up(float(self.half_width.min())), rounded_up(float(self.half_width.max()))
        between = f"of {most}" if least == most else f"from {least} to {most}"
        names = ", ".join(dict.fromkeys(self.methods))
        return f"The attribute 'result' of this error has the best intervals, with half-widths {between} ({names})."

    @property
    def widest(self) -> float:
        """Return the largest half-width, leaving out quantiles: their tolerance is a probability, not a width."""
        rows = np.array([noun(self, row) != "quantile" for row in range(len(self))])
        return float(self.half_width.max(where=rows, initial=0.0))

    def __getitem__(self, target: Hashable) -> Answer:
        """Return the rows of one target: a label, the labels of a `Joint` as a tuple, or the name of a `Statistic`."""
        try:
            rows = None if type(target) is bool else self._rows.get(target)
        except TypeError:  # unhashable
            rows = None
        if rows is None or isinstance(self.targets[rows[0]], Target):
            rows = self._rows_of_target(target, rows or [])
        some: Any = slice(rows[0], rows[-1] + 1) if rows[-1] - rows[0] == len(rows) - 1 else rows
        states = [self.states[k] for k in rows]
        return Answer(states, self.value[some], self.lower[some], self.upper[some], self.bias_bound[some])

    @public(name="Estimate")
    def _rows_of_target(self, target: Any, found: list[int]) -> list[int]:
        """Return the numbers of a target's rows, given the rows `found` under its name.

        Raise `ArgumentError` if there are none, or if several targets have this name.
        """
        rows = [k for k in found if self.targets[k] is target] or found
        if not rows:
            near = hint(target, (shown(other) for other in self.targets))
            raise ArgumentError("target", f"one of the targets that were estimated{near}", target)
        if len({id(self.targets[k]) for k in rows}) > 1:
            raise ArgumentError("target", "the target itself, because several targets have this name", target)
        return rows

    @cached_property
    def _rows(self) -> dict[Hashable, list[int]]:
        """Return the numbers of the rows of each target, by target and by the name of a `Joint` or `Statistic`."""
        rows: dict[Hashable, list[int]] = {}
        by_name: dict[Hashable, list[int]] = {}
        for k, target in enumerate(self.targets):
            rows.setdefault(target, []).append(k)
            if isinstance(target, Target):
                by_name.setdefault(target._name, []).append(k)
        return by_name | rows

    def __len__(self) -> int:
        return len(self.value)

    def __iter__(self) -> Iterator[Any]:
        raise TypeError("an Estimate is not iterable: use to_dataframe(), or estimate[target]")

    def to_dataframe(self) -> pandas.DataFrame:
        """Return a pandas DataFrame with columns target, state, the value, lower, upper, bias_bound.

        The column of the values is "probability", "mean" or "quantile" where all rows are of this kind, else "value".

        Examples
        --------
        >>> import dobrushin as db
        >>> db.estimate(db.Ising({(0, 1): 0.5}, fields=[1, 0]), [0]).to_dataframe().round(3)
           target  state  probability  lower  upper  bias_bound
        0       0     -1        0.119  0.119  0.119         0.0
        1       0      1        0.881  0.881  0.881         0.0
        """
        frames = require("pandas", "formats")
        states = [visible(state) for state in self.states]
        columns: dict[str, Any] = {"target": [visible(shown(t)) for t in self.targets], "state": states}
        if any(state is None for state in states):  # an object array: pandas would make integers beside None floats
            columns["state"] = np.array([*states, None], dtype=object)[:-1]
        numbers = {value_name(self) if name == "value" else name: x for name, x in self._numbers.items()}
        return frames.DataFrame(columns | numbers)

    @property
    def _numbers(self) -> dict[str, NDArray[np.float64]]:
        return {name: getattr(self, name) for name in record.NUMBERS}

    def to_arviz(self) -> Any:
        """Return ArviZ data: the sampled states as posterior (if they were kept), the estimates as constant data."""
        from dobrushin._sampling.samples import arviz_data

        names = zip(map(name_of, self.targets), self.states, strict=True)
        rows = [name if state is None else f"{name}={printable(state)}" for name, state in names]
        coords, dims = {"row": rows}, {name: ["row"] for name in self._numbers}
        groups: dict[str, dict[str, Any]] = {"constant_data": self._numbers}
        if self.samples is not None and self.samples.states is not None:
            groups["posterior"] = {"x": self.samples._draws()}
            coords["variable"] = [printable(label) for label in self.samples.variables]
            dims["x"] = ["variable"]
        data = arviz_data(groups, coords, dims)
        texts: dict[str, Any] = {}
        for name, value in record.about(self).items():  # attributes must be numbers or text
            is_plain = isinstance(value, float | int | str) and not isinstance(value, bool)
            texts[name] = value if is_plain else json.dumps(value)
        texts["certified"] = "yes" if self.is_certified else "NO: the bias is unknown"
        data["constant_data"].attrs.update(texts)
        return data

    def to_json(self, indent: int | None = None) -> str:
        """Return everything except samples and scan as JSON text, with named states; the guide lists the fields.

        Examples
        --------
        >>> import dobrushin as db, json
        >>> answer = json.loads(db.estimate(db.Ising({(0, 1): 0.5}), [0]).to_json())
        >>> answer["method"], answer["rows"][1]["state"], answer["rows"][1]["value"]
        ('exact', 1, 0.5)
        """
        return record.to_json(self, indent)

    @classmethod
    @public()
    def from_json(cls, text: str) -> Estimate:
        """Return the estimate that `to_json` wrote as `text`.

        Samples, certificate, scan and proof are not in the text. Labels and states that are neither numbers nor text
        come back as text, and a statistic without its function.

        Examples
        --------
        >>> import dobrushin as db
        >>> answer = db.estimate(db.Ising({(0, 1): 0.5}), [0])
        >>> db.Estimate.from_json(answer.to_json()) == answer
        True
        """
        return record.from_json(text)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write `to_json` to a file, which `load` reads; an existing file is replaced.

        Examples
        --------
        >>> import dobrushin as db, pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "answer.json"
        >>> answer = db.estimate(db.Ising({(0, 1): 0.5}), [0])
        >>> answer.save(path)
        >>> db.Estimate.load(path) == answer
        True
        """
        replace_file(os.fspath(path), f"{self.to_json(indent=1)}\n".encode())

    @classmethod
    @public()
    def load(cls, path: str | os.PathLike[str]) -> Estimate:
        """Read an estimate from a file that `save` wrote."""
        return record.from_json(Path(path).read_text(encoding="utf-8"))

    def __eq__(self, other: object) -> bool:
        """Return whether model, evidence, targets, numbers, method and seed are the same."""
        return record.are_equal(self, other) if isinstance(other, Estimate) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def report(
        self, path: str | os.PathLike[str] | None = None, model: ModelLike | None = None, **about: Any
    ) -> Page | None:
        """Write the report, one interactive HTML page that needs no network, or return it for a notebook.

        Parameters
        ----------
        path : str or path, optional
            File to write; an existing file is replaced. Without a path the page is returned, and a notebook shows it.
        model : Model, path, or a model of another library, optional
            The model of the estimate, for names, distances and the diagnosis.
        **about
            ``evidence``, ``shape``, ``title``, ``command`` and ``diagnosis``: see `dobrushin.report.write`.

        Returns
        -------
        Page or None

        Examples
        --------
        >>> import dobrushin as db, pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "page.html"
        >>> db.estimate(db.Ising({(0, 1): 0.5}), [0]).report(path)
        >>> path.read_text()[:15]
        '<!doctype html>'
        """
        from dobrushin.report import render, write

        if path is None:
            return render(self, **about if model is None else {"model": model, **about})
        write(self, path, model=model, **about)
        return None

    @public()
    def write_proof(self, path: str | os.PathLike[str]) -> None:
        """Write a proof that can be checked independently of the sampler: ``python -m dobrushin.verify``.

        The intervals in the file are rounded outwards, by about a millionth of their width. If the caller
        chose the seed, rather than the plan (``estimate(..., proof=path)`` without a seed), the file says so.

        Parameters
        ----------
        path : str or path
            File to write; an existing file is replaced.

        Raises
        ------
        ArgumentError
            When there is no proof: for uncertified answers, statistics that are Python functions, answers that came
            from another process, and answers about fields that were asked for without ``proof=`` or ``verify=``.

        Examples
        --------
        >>> import dobrushin as db, pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "answer.proof"
        >>> db.estimate(db.Ising({(0, 1): 0.5}, fields=[1, 0]), [0]).write_proof(path)
        >>> db.verify_proof(path).verdict
        'holds'
        """
        from dobrushin._proof import write_answer

        write_answer(self, path)

    @property
    def headline(self) -> str:
        """Return the result and its certainty in one line."""
        return headline(self)

    @property
    def footer(self) -> str:
        """Return the method, its work, the seed and the status of the proof in one line."""
        proof = "" if self.proof is None else f"proof: {self.proof}"
        if not self.chains:
            return "; ".join(filter(None, (f"{self.plan.method}: {self.plan.reason}", self.evidence_text, proof)))
        steps = f"{self.steps} steps x " if self.steps else ""
        kernel = f", kernel {self.plan.kernel}" if self.plan.kernel else ""
        work = f"{self.plan.method}: {steps}{self.chains} {self.plan.made_by.outcomes}{kernel}, seed {self.seed}"
        is_beyond = not self.plan.made_by.bias_is_proven and bool(self.bias_bound.max() > self.half_width.max())
        bias = "the intervals include the bias, which the share of runs that did not coalesce bounds"
        return "; ".join(filter(None, (work, bias if is_beyond else "", proof)))

    @property
    def evidence_text(self) -> str:
        """Return the probability of the evidence as text; empty if it is unknown."""
        if self.log_evidence is None:
            return ""
        if self.log_evidence > math.log(1e-300):
            return f"P(evidence) = {math.exp(self.log_evidence):.6g}"
        return f"log P(evidence) = {self.log_evidence:.6g}"

    def _repr_html_(self) -> str:
        from dobrushin.report.network import network_picture

        return estimate_card(self, network_picture(self))

    def __str__(self) -> str:
        visible = visible_numbers(len(self))
        cells = [column_names(self), *(row_texts(self, k) for k in visible)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        table = ["  " + "  ".join(text.rjust(w) for text, w in zip(row, widths, strict=True)) for row in cells]
        if len(visible) < len(self):
            table.insert(1 + MAX_SHOWN_ROWS // 2, f"  ... {len(self) - len(visible)} more rows ...")
        return "\n".join([self.headline, *table, f"  {self.footer}"])

    __repr__ = __str__
