"""Files of energies: E(s) = sum J_ij s_i s_j + sum h_i s_i + offset over spins, and pi ∝ exp(-beta E)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dobrushin._models import Ising, Model
from dobrushin._models.couplings import symmetric
from dobrushin._models.ising import SpinPairs
from dobrushin._models.state_names import StateNames
from dobrushin._shared import validate as check
from dobrushin.errors import ArgumentError
from dobrushin.io.inverse import inverse
from dobrushin.io.source import Source

# What a variable takes in memory before it has a coupling: its label and a few numbers.
VARIABLE_BYTES = 128


@dataclass(frozen=True)
class Energy:
    """Energies of spins -1/+1; each unordered pair once."""

    i: NDArray[Any]
    j: NDArray[Any]
    J: NDArray[np.float64]
    h: NDArray[np.float64]
    offset: float
    labels: Sequence[Hashable] | None
    bits: bool = False  # whether people call the states 0 and 1

    @classmethod
    def of_bits(
        cls,
        i: NDArray[Any],
        j: NDArray[Any],
        Q: NDArray[np.float64],
        a: NDArray[np.float64],
        offset: float,
        labels: Sequence[Hashable] | None,
    ) -> Energy:
        """From E(x) = sum Q_ij x_i x_j + sum a_i x_i + offset over bits 0/1: x = (1 + s) / 2."""
        quarter, half, n = Q / 4, a / 2, len(a)
        with np.errstate(over="ignore", invalid="ignore"):
            h = half + np.bincount(i, quarter, minlength=n) + np.bincount(j, quarter, minlength=n)
            return cls(i, j, quarter, h, float(offset + half.sum() + quarter.sum()), labels, True)

    @classmethod
    def of_model(cls, model: Model, beta: float, offset: float, extension: str) -> Energy:
        """The energies of an Ising model at this inverse temperature."""
        ordinary = model._form.to_model(model.labels)
        if not isinstance(ordinary, Ising):
            raise ArgumentError("write", "model", f"an Ising model, for a {extension} file", got=type(model).__name__)
        upper = sparse.coo_array(sparse.triu(ordinary.couplings, k=1))
        J, h = (_per_beta(values, beta) for values in (upper.data, ordinary.fields))
        i, j = upper.coords
        return cls(i, j, J, h, offset, None if isinstance(model.labels, range) else model.labels)

    def model(self, source: Source, beta: float) -> Ising:
        """The Ising model at this inverse temperature."""
        with np.errstate(over="ignore", invalid="ignore"):
            # Adding 0 makes -0 a 0.
            couplings, fields = -beta * self.J + 0.0, -beta * self.h + 0.0
        for values in (couplings, fields, np.array([self.offset])):
            if (bad := ~(np.abs(values) <= check.LARGEST)).any():
                value = f"{values[int(np.argmax(bad))]:.6g}"
                raise source.error(f"energies that times beta are {check.FINITE}", value)
        form = SpinPairs(symmetric(self.i, self.j, couplings, len(self.h)), fields, "Ising")
        return form.to_model(self.labels)._name_states(self.state_names)

    @property
    def state_names(self) -> StateNames | None:
        """What the states are called: bits by their values."""
        return StateNames(common=(0, 1)) if self.bits else None


def _per_beta(theta: NDArray[np.float64], beta: float) -> NDArray[np.float64]:
    """What times -beta is theta."""
    return inverse(lambda energy: -beta * energy, theta, -theta / beta) + 0.0
