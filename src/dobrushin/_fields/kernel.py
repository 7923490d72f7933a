"""The kernel of fields: chains from one point, and how far their draws are off."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dobrushin._fields.anchor import Anchor, find_start, read_start, space_of
from dobrushin._fields.model import GaussianField
from dobrushin._fields.terms import FieldTerms
from dobrushin._kernels.field_draws import field_steps
from dobrushin._models.forms import Form
from dobrushin._models.near import Region, region_of
from dobrushin._sampling.array_kernel import ArrayKernel, Orders
from dobrushin._sampling.kernel import IN_CACHE, Batches, FixedStart, Work
from dobrushin._sampling.sampler import make_runner
from dobrushin._scan import Scan
from dobrushin._shared.arrays import frozen
from dobrushin.errors import ArgumentError, CertificateError


@dataclass(frozen=True)
class FieldKernel(ArrayKernel):
    """Chains side by side: one update of all chains at a time, each with its own random words."""

    region: Region
    sites: tuple[NDArray[np.float64], ...]
    values: tuple[NDArray[Any], ...]
    couplings: NDArray[np.float64]
    point: NDArray[np.float64]  # where every chain starts, by own number
    error: NDArray[np.float64]
    work_of_sites: NDArray[np.float64]
    orders: Orders = field(default_factory=dict, compare=False)
    fixed_start: FixedStart | None = field(default=None, compare=False)
    name: ClassVar[str] = "density"
    measure: ClassVar[str] = "Wasserstein distance"
    counts_states: ClassVar[bool] = False
    rate: ClassVar[float] = 2.5e8
    by_levels: ClassVar[bool] = False
    batch: ClassVar[int] = 256

    @classmethod
    def fits(cls, form: Form, scan: Scan, region: Region) -> bool:
        del scan, region
        return isinstance(form, FieldTerms)

    @classmethod
    def make(cls, form: Any, region: Region) -> FieldKernel:
        return cls.start_at(form, region, FixedStart(find_start(form), ""), np.zeros(form.n_variables))

    @classmethod
    def start_at(cls, form: FieldTerms, region: Region, start: FixedStart, error: NDArray[np.float64]) -> FieldKernel:
        """Make the kernel of a region for chains with this start; `error` bounds the error of a draw of each site."""
        place, point = region.place, start.point
        names = ("diagonal", "linear", "lower", "upper", "exposure", "trials")
        sites = tuple(frozen(getattr(form, name)[place]) for name in names)
        sizes = np.diff(form.value_start)[place]
        value_start = np.concatenate([[0], np.cumsum(sizes)])
        sets = [form.values_of(int(i)) for i in place[sizes > 0]]
        values = (frozen(value_start.astype(np.int64)), frozen(np.concatenate([np.empty(0), *sets])))
        likelihood = (form.exposure[place] > 0) * 60.0 + (form.trials[place] > 0) * 65.0
        work = 1.0 + likelihood + 4.0 * sizes
        return cls(
            region, sites, values, frozen(form.couplings.data[region.entry]), frozen(point[place]),
            frozen(error[place]), frozen(work), fixed_start=start,
        )  # fmt: skip

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "fixed_start": None}  # only the process that asked has to know all of it

    def errors_in(self, scan: Scan) -> NDArray[np.float64]:
        del scan
        return self.error[self.region.updated]

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


@make_runner.register
def _(model: GaussianField, scan: Scan, chains: int, kernel: str | None, initial: Any) -> FieldKernel:
    del chains
    if kernel not in (None, FieldKernel.name):
        raise ArgumentError("kernel", f"None or {FieldKernel.name!r} for a field", kernel)
    space, point = space_of(model), read_start(model, initial)
    try:
        anchor = space.anchor_at(point)
    except CertificateError:  # chains can be run all the same
        start, n = find_start(model._form) if point is None else point, model.n_variables
        anchor = Anchor(space, frozen(start), np.full(n, np.inf), np.ones(n))
    return make_kernel(anchor, scan, "near the modes" if point is None else "given")


def make_kernel(anchor: Anchor, scan: Scan, start: str = "near the modes") -> FieldKernel:
    """Make the kernel of a scan, for chains that start at the anchor."""
    form = anchor.space.form
    is_certified = bool(np.isfinite(anchor.unit).all())
    error = anchor.errors.distance if is_certified else np.full(form.n_variables, np.inf)
    region = region_of(form, scan._updates(form.n_variables))
    return FieldKernel.start_at(form, region, FixedStart(anchor.point, start), error)
