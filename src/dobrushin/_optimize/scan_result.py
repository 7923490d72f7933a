"""A scan with its certificate."""

from __future__ import annotations

import os
from dataclasses import dataclass

from dobrushin._influence import Influence, influence
from dobrushin._models import Model
from dobrushin._models.near import Numbering
from dobrushin._models.sources import as_model
from dobrushin._scan import Scan
from dobrushin._variation import Variation
from dobrushin.errors import ArgumentError


@dataclass(frozen=True)
class ScanResult:
    """A scan and its certificate.

    Attributes
    ----------
    scan : Scan
    variation : Variation
        Freshly computed for the scan.
    """

    scan: Scan
    variation: Variation

    def _repr_html_(self) -> str:
        """Return the representation for notebooks."""
        return self.scan._repr_html_() + self.variation._repr_html_()

    def _lift(self, part: Numbering | None) -> ScanResult:
        """Renumber the positions for the model that `part` is a part of; None leaves them as they are."""
        return ScanResult(self.scan._lift(part), self.variation._lift(part))

    def write_proof(self, path: str | os.PathLike[str]) -> None:
        """Write a proof of the certificate: see `Variation.write_proof`."""
        self.variation.write_proof(path)


def whole(value: Influence | Model) -> Influence:
    """The influence on every variable."""
    if not isinstance(value, Influence):
        return influence(as_model(value, "model", "a model or an Influence"))
    if value.computed_rows is not None:
        raise ArgumentError("model", "a model or an Influence with all rows", value)
    return value
