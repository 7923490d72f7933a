"""The result of `sample`: the kept states and counts, with the means to repeat the run."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dobrushin._influence import Influence
from dobrushin._models import Model
from dobrushin._models.state_names import StateNames, call_states
from dobrushin._scan import Scan
from dobrushin._shared import validate as check
from dobrushin._shared.call import public
from dobrushin._shared.environment import require
from dobrushin._shared.running import kept_seed, seed_sequence
from dobrushin._shared.state_file import UNREADABLE
from dobrushin._shared.text import card, counted, printable
from dobrushin._variation import Variation, variation
from dobrushin.errors import ArgumentError
from dobrushin.typing import Targets, Weights

if TYPE_CHECKING:
    import pandas

FORMAT = "dobrushin samples 2"
# Variables that a notebook shows.
_SHOWN = 10


@dataclass(frozen=True, eq=False, repr=False)
class Samples:
    """States and counts kept from a run, with its scan, seed and kernel.

    Attributes
    ----------
    states : array or None
        States of shape (chains, variables), or (chains, draws, variables) if states were kept every `every` steps.
    counts : array or None
        Of shape (variables, states): how often each variable was in each state, over chains and kept steps.
    variables : sequence
        Labels of the kept variables, in the order of the arrays.
    chains, steps : int
        Number of chains that finished, and number of steps of each chain.
    scan : Scan
    seed : int or SeedSequence
        Seed that repeats the run.
    kernel : str
        Name of the kernel, which repeats the run as the argument `kernel` of `sample`.
    update_error : array
        For each variable of the model, a bound on the total-variation error of an update by rounding (0 for variables
        that were not updated). A single number, the largest, for a lazy model.
    state_names : StateNames or None
        Names of the states, in the order of `variables`. The arrays have numbers.
    """

    states: NDArray[Any] | None
    counts: NDArray[np.int64] | None
    variables: Sequence[Hashable]
    chains: int
    scan: Scan
    seed: int | np.random.SeedSequence
    kernel: str
    update_error: NDArray[np.float64]
    state_names: StateNames | None
    _spins: bool
    _cardinality: int
    # "uniform"; "uniform where allowed" if chains with a forbidden state began in an allowed state; or "given".
    _start: str
    # Start of all chains of a field, whose states are real numbers and whose `update_error` is a distance; else None.
    _point: NDArray[np.float64] | None

    @property
    def steps(self) -> int:
        """Return the number of steps of each chain."""
        return len(self.scan)

    @public()
    def marginals(self) -> NDArray[np.float64]:
        """Return the share of each state of each kept variable, as an array of shape (variables, states).

        The shares come from the counts if there are any, else from the states.

        Examples
        --------
        >>> import dobrushin as db
        >>> model = db.Ising({(0, 1): 0.3}, fields=[1.0, 0.0])
        >>> run = db.sample(model, db.Scan.systematic(2, 40), chains=100_000, seed=3, record="counts")
        >>> run.marginals().round(2)
        array([[0.12, 0.88],
               [0.39, 0.61]])
        """
        if self._point is not None:
            raise ArgumentError("samples", "of discrete variables", got="states of a field")
        counts = self.counts
        if counts is None:
            states = self._need_states().reshape(-1, len(self.variables)).astype(np.int64)
            digits = (states + 1) // 2 if self._spins else states
            counts = np.stack([np.bincount(column, minlength=self._cardinality) for column in digits.T])
        return counts / counts.sum(axis=1, keepdims=True)

    @public()
    def mean(self, f: Callable[[NDArray[Any]], ArrayLike]) -> float:
        """Return the average of a function of the kept states.

        Parameters
        ----------
        f : function
            Maps an array of states of shape (..., variables) to an array of shape (...).

        Examples
        --------
        >>> import dobrushin as db
        >>> run = db.sample(db.Ising({(0, 1): 0.5}), db.Scan.systematic(2, 40), chains=1_000_000, seed=3)
        >>> round(run.mean(lambda x: x[..., 0] * x[..., 1]), 2)  # tanh(0.5)
        0.46
        """
        return float(np.mean(np.asarray(f(self._need_states()), dtype=np.float64)))

    def variation(
        self, model: Model | Influence, targets: Targets | None = None, weights: Weights | None = None
    ) -> Variation:
        """Return the certificate of the scan, including the rounding errors of the updates.

        Examples
        --------
        >>> import dobrushin as db
        >>> model = db.Ising.grid(5, 5, couplings=0.1)
        >>> run = db.sample(model, db.Scan.systematic(25, 250), seed=0)
        >>> run.variation(model, targets=[0]).value < 1e-6
        True
        """
        if self._point is not None:  # `variation` computes the errors of a field itself
            return variation(model, self.scan, targets, weights, initial=self._point)
        return variation(model, self.scan, targets, weights, update_error=self.update_error)

    def to_arviz(self, certificate: Variation | None = None) -> Any:
        """Return the samples as ArviZ data with dimensions (chain, draw, variable).

        The type is InferenceData, or DataTree from ArviZ 1 on.

        Parameters
        ----------
        certificate : Variation, optional
            Its text becomes an attribute of the data, beside the scan, the seed and the kernel.
        """
        attributes = {"scan": repr(self.scan), "seed": str(self.seed), "kernel": self.kernel,
                      "start": self._start, "update_error": float(self.update_error.max(initial=0.0)),
                      "library": "dobrushin"}  # fmt: skip
        if certificate is not None:
            attributes["certificate"] = repr(certificate)
        coords = {"variable": [printable(label) for label in self.variables]}
        data = arviz_data({"posterior": {"x": self._draws()}}, coords, {"x": ["variable"]})
        data["posterior"].attrs.update(attributes)
        return data

    def to_dataframe(self) -> pandas.DataFrame:
        """Return a pandas DataFrame: a row for each chain and draw, a column for each variable; states by name."""
        frames = require("pandas", "formats")
        draws = self._draws()
        chains, steps, size = draws.shape
        index = frames.MultiIndex.from_product([range(chains), range(steps)], names=["chain", "draw"])
        frame = frames.DataFrame(draws.reshape(-1, size), index=index, columns=list(self.variables))
        for k, label in enumerate(self.variables):
            if self.state_names is not None and self.state_names.at(k) is not None:
                frame[label] = self._called(k)
        return frame

    def _called(self, k: int) -> NDArray[Any]:
        """Return the states of the kept variable `k`, chain by chain, with their names if they have names."""
        names = None if self.state_names is None else self.state_names.at(k)
        return call_states(self._draws()[..., k].ravel(), names, self._spins)

    @public()
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the samples to an .npz file with exactly this name.

        Labels must be numbers, strings or tuples of these.
        """
        labels = self.variables
        sequence = seed_sequence(self.seed)
        about = {
            "labels": None if check.are_positions(labels) else list(labels),
            "range": len(labels),
            "chains": self.chains,
            "seed": [sequence.entropy, list(sequence.spawn_key)],
            "cardinality": self._cardinality,
            "kernel": self.kernel,
            "spins": self._spins,
            "start": self._start,
            "state_names": self.state_names,
        }
        text = json.dumps(about, default=_refuse_label)
        arrays: dict[str, Any] = {"format": np.array(FORMAT), "about": np.array(text)}
        kept = {"states": self.states, "counts": self.counts, "point": self._point}
        arrays |= {name: value for name, value in kept.items() if value is not None}
        arrays["update_error"] = self.update_error
        arrays |= {f"scan.{name}": value for name, value in self.scan._to_arrays().items()}
        with open(path, "wb") as file:
            np.savez_compressed(file, **arrays)

    @classmethod
    @public()
    def load(cls, path: str | os.PathLike[str]) -> Samples:
        """Read samples from a file that `save` wrote."""
        try:
            with open(path, "rb") as file, np.load(file, allow_pickle=False) as stored:
                arrays = dict(stored)
            if str(arrays["format"]) != FORMAT:
                raise ValueError
            about = json.loads(str(arrays["about"]))
            scan = Scan._from_arrays({k.removeprefix("scan."): v for k, v in arrays.items() if k.startswith("scan.")})
            labels = range(about["range"]) if about["labels"] is None else tuple(map(_read, about["labels"]))
            entropy, spawn_key = about["seed"]
            seed = kept_seed(np.random.SeedSequence(entropy, spawn_key=spawn_key))
            return cls(
                states=arrays.get("states"),
                counts=arrays.get("counts"),
                variables=labels,
                chains=about["chains"],
                scan=scan,
                seed=seed,
                kernel=about["kernel"],
                update_error=arrays["update_error"],
                _spins=about["spins"],
                _cardinality=about["cardinality"],
                _start=about["start"],
                state_names=None if (names := about["state_names"]) is None else StateNames(*map(_read, names)),
                _point=arrays.get("point"),
            )
        except UNREADABLE:
            raise ArgumentError("path", "a file that Samples.save wrote", os.fspath(path)) from None

    def _need_states(self) -> NDArray[Any]:
        if self.states is None:
            raise ArgumentError("record", "one that keeps states", got="counts only")
        if not self.chains:
            raise ArgumentError("samples", "of at least one chain", got="0 chains")
        return self.states

    def _draws(self) -> NDArray[Any]:
        """Return the states as an array of shape (chains, draws, variables)."""
        states = self._need_states()
        return states[:, None, :] if states.ndim == 2 else states

    def _repr_html_(self) -> str:
        facts = [("chains", f"{self.chains:,}"), ("steps", f"{self.steps:,}"), ("kernel", self.kernel)]
        facts += [("seed", str(self.seed)), ("start", self._start)]
        size, texts = min(_SHOWN, len(self.variables)), []
        if self._point is not None and self.chains:
            columns = self._draws()[..., :size].reshape(-1, size).T
            texts = [f"{column.mean():.4g} ({column.std():.3g})" for column in columns]
        elif self.chains:
            for k, row in enumerate(self.marginals()[:size]):
                names = None if self.state_names is None else self.state_names.at(k)
                shares = zip(names or ((-1, 1) if self._spins else range(len(row))), row, strict=False)
                texts.append(", ".join(f"{printable(name)}: {share:.4g}" for name, share in shares))
        rows = [(printable(label), text) for label, text in zip(self.variables, texts, strict=False)]
        what = "Shares of the states" if self._point is None else "Means and deviations"
        note = f"{what}, without any bound on their error: see estimate."
        note += f" {len(self.variables) - len(rows):,} more variables." if len(rows) < len(self.variables) else ""
        column = "shares" if self._point is None else "mean (deviation)"
        return card(f"Samples of {counted(len(self.variables), 'variable')}", facts, ("variable", column), rows, note)

    def __repr__(self) -> str:
        start = f", start={self._start!r}" if self._start == "uniform where allowed" else ""
        return (
            f"Samples(chains={self.chains}, variables={len(self.variables)}, steps={self.steps}, "
            f"kernel={self.kernel!r}, seed={self.seed}{start})"
        )


def arviz_data(groups: dict[str, dict[str, Any]], coords: dict[str, Any], dims: dict[str, list[str]]) -> Any:
    """Return arrays as ArviZ data, in the type of the installed version of ArviZ."""
    arviz = require("arviz", "formats")
    with warnings.catch_warnings():
        # ArviZ warns about more chains than draws, which are normal here.
        warnings.simplefilter("ignore", UserWarning)
        if hasattr(arviz, "InferenceData"):
            return arviz.from_dict(**groups, coords=coords, dims=dims)
        return arviz.from_dict(groups, coords=coords, dims=dims)


def _refuse_label(label: Any) -> Any:
    raise ArgumentError("variables", "numbers, strings or tuples of them, to be written", label)


def _read(label: Any) -> Any:
    return tuple(map(_read, label)) if isinstance(label, list) else label
