"""Chains of fields: the draws of `_kernels/field_draws`, run like those of any other model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dobrushin._fields.terms import FieldTerms
from dobrushin._kernels.field_draws import field_steps
from dobrushin._models.forms import Form
from dobrushin._models.near import Region
from dobrushin._sampling.array_kernel import ArrayKernel, Orders
from dobrushin._sampling.kernel import IN_CACHE, Batches, Work
from dobrushin._scan import Scan
from dobrushin._shared.arrays import frozen


@dataclass(frozen=True)
class FieldKernel(ArrayKernel):
    """Chains side by side: one update of all chains at a time, each with its own random words."""

    region: Region
    sites: tuple[NDArray[np.float64], ...]
    values: tuple[NDArray[Any], ...]
    couplings: NDArray[np.float64]
    point: NDArray[np.float64]  # where every chain starts
    error: NDArray[np.float64]
    work_of_sites: NDArray[np.float64]
    orders: Orders = field(default_factory=dict, compare=False)
    name: ClassVar[str] = "density"
    rate: ClassVar[float] = 2.5e8
    by_levels: ClassVar[bool] = False
    batch: ClassVar[int] = 256

    @classmethod
    def fits(cls, form: Form, scan: Scan, region: Region) -> bool:
        del scan, region
        return isinstance(form, FieldTerms)

    @classmethod
    def make(cls, form: Any, region: Region) -> FieldKernel:
        from dobrushin._fields.anchor import find_start

        return cls.start_at(form, region, find_start(form), np.zeros(form.n_variables))

    @classmethod
    def start_at(
        cls, form: FieldTerms, region: Region, point: NDArray[np.float64], error: NDArray[np.float64]
    ) -> FieldKernel:
        """The arrays of a region, for chains that start at a point; `error` bounds how far one draw is off."""
        place = region.place
        names = ("diagonal", "linear", "lower", "upper", "exposure", "trials")
        sites = tuple(frozen(getattr(form, name)[place]) for name in names)
        sizes = np.diff(form.value_start)[place]
        start = np.concatenate([[0], np.cumsum(sizes)])
        sets = [form.values_of(int(i)) for i in place[sizes > 0]]
        values = (frozen(start.astype(np.int64)), frozen(np.concatenate([np.empty(0), *sets])))
        likelihood = (form.exposure[place] > 0) * 60.0 + (form.trials[place] > 0) * 65.0
        work = 1.0 + likelihood + 4.0 * sizes
        return cls(
            region, sites, values, frozen(form.couplings.data[region.entry]), frozen(point[place]),
            frozen(error[place]), frozen(work),
        )  # fmt: skip

    @property
    def costs(self) -> NDArray[np.float64]:
        return self.work_of_sites

    @property
    def dtype(self) -> Any:
        return np.float64

    def batches(self, numbers: range, cores: int) -> Batches:
        most = max(64, IN_CACHE // (8 * self.region.size) // 64 * 64)
        return Batches(numbers, min(super().batches(numbers, cores).size, most))

    def start(self, master: NDArray[np.uint64], chains: range) -> NDArray[np.float64]:
        del master
        return np.repeat(self.point[:, None], len(chains), axis=1)

    def load(self, states: NDArray[Any]) -> NDArray[np.float64]:
        return np.array(states, dtype=np.float64, order="C")

    def run(self, x: NDArray[Any], work: Work) -> None:
        keys = work.keys(1)
        region = self.region
        shared = (region.start, region.neighbor, self.couplings, *self.sites, *self.values)
        if not work.segment.is_random:
            c = np.empty(x.shape[1])
            for steps in self.steps_of_cycle(work):
                field_steps(*steps, *shared, keys, c, x)
            return
        c = np.empty(1)
        for chain, lists in enumerate(self.steps_of_chains(work, keys)):
            column = np.ascontiguousarray(x[:, chain : chain + 1])
            key = np.ascontiguousarray(keys[:, chain : chain + 1])
            for steps in lists:
                field_steps(*steps, *shared, key, c, column)
            x[:, chain : chain + 1] = column

    def count(self, x: Any, rows: NDArray[np.int64], chains: int, counts: NDArray[np.int64]) -> None:
        raise NotImplementedError("states of fields are not counted")
