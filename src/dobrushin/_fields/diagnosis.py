"""`diagnose` for fields: what can be certified, and what to try. Hints, no certificates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dobrushin._diagnose import Diagnosis, diagnose_model
from dobrushin._fields.anchor import FieldSpace, space_of
from dobrushin._fields.certificate import certify
from dobrushin._fields.model import GaussianField
from dobrushin._scan import Scan
from dobrushin._variation import Objective
from dobrushin.errors import CertificateError

_SWEEPS = (10, 100)
_CLOSE = 0.05


@dataclass(frozen=True, repr=False)
class FieldDiagnosis(Diagnosis):
    """What `diagnose` found about a field.

    Attributes
    ----------
    dobrushin : dict from sweeps to share
        After so many systematic sweeps, the share of the variables whose distance from the field is at most 0.05 of
        the standard deviation that they have given the others.
    unbounded : int
        Variables without limits on one side or both.
    """

    unbounded: int = 0

    def lines(self) -> list[tuple[str, str]]:
        holds = "holds" if self.satisfies_dobrushin else "fails"
        strongest = ", ".join(f"{label!r} ({value:.3g})" for label, value in self.strongest)
        shares = "; ".join(f"{sweeps} sweeps {share:.0%}" for sweeps, share in self.dobrushin.items())
        norms = f"rows {self.row_norm:.3g}, columns {self.column_norm:.3g}, spectral radius {self.spectral_radius:.3g}"
        free = f"{self.unbounded} of them unbounded"
        size = f"{self.n_variables} variables, {free}, up to {self.largest_degree} neighbours"
        return [
            ("size", size),
            ("influence", f"{norms}: Dobrushin's condition {holds} in Wasserstein distance"),
            ("strongest", strongest),
            ("dobrushin", f"variables within {_CLOSE:g} deviations of the field after {shares or 'no scan'}"),
            *(("try", advice) for advice in self.advice),
        ]


@diagnose_model.register
def _(model: GaussianField) -> FieldDiagnosis:
    space, form = space_of(model), model._form
    bound = space.known.whole
    sums = np.asarray(bound.matrix.sum(axis=1)).ravel()
    strongest = [(model.labels[i], float(sums[i])) for i in np.argsort(-sums, kind="stable")[:3].tolist()]
    advice = []
    if form.is_gaussian:
        advice.append('methods "exact" and "local": the field is Gaussian, nothing has to be sampled')
    try:
        shares = _shares(space)
        advice.append('method "dobrushin": the bias can be bounded before sampling')
    except CertificateError as error:
        shares = {}
        advice.append(next(iter(error.reasons.values())))
    return FieldDiagnosis(
        repr(model), model.n_variables, int(np.diff(form.adjacency[0]).max(initial=0)), 0, bound.norm(np.inf),
        bound.norm(1), bound.spectral_radius(), strongest, False, True, [], None, None, shares, {}, {}, advice,
        unbounded=int((~form.is_bounded).sum()),
    )  # fmt: skip


def _shares(space: FieldSpace) -> dict[int, float]:
    n = space.form.n_variables
    everything = Objective(np.arange(n), np.ones(n), False)
    near = _CLOSE / np.sqrt(space.form.diagonal)
    shares = {}
    for sweeps in _SWEEPS:
        bounds = certify(space, Scan.systematic(n, n * sweeps), everything, space.anchor).per_variable
        shares[sweeps] = float((bounds <= near).mean())
    return shares
