"""The library's own files: ``.npz``, for every form, exact, with labels and names of states."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._fields import FieldTerms
from dobrushin._models import Model
from dobrushin._models.checked_arrays import CheckedArrays
from dobrushin._models.factors import FactorTables
from dobrushin._models.forms import Form
from dobrushin._models.ising import SpinPairs
from dobrushin._models.pairwise import PairTables
from dobrushin._models.potts import LabelPairs
from dobrushin._models.spins import SpinTerms
from dobrushin._models.state_names import read_state_names
from dobrushin._shared import validate as check
from dobrushin.errors import ArgumentError
from dobrushin.io import labels as names
from dobrushin.io.archive import pack, unpack
from dobrushin.io.source import Source

_FORMAT = "dobrushin model 1"
_FORMS: dict[str, type[Form]] = {
    form.stored_as: form for form in (SpinPairs, LabelPairs, PairTables, SpinTerms, FactorTables, FieldTerms)
}


def write(model: Model) -> bytes:
    """The model as a file; one of another family is read again as the ordinary family of its form."""
    form = model._form
    arrays: dict[str, NDArray[Any]] = {"format": _bytes(f"{_FORMAT} {form.stored_as}".encode())}
    if not check.are_positions(model.labels):
        arrays["labels"] = _bytes(names.encode(model.labels))
    if model._state_names is not None:
        arrays["state_names"] = _bytes(names.encode_states(model._state_names))
    kinds = form.stored_arrays | form.optional_arrays
    return pack(arrays | {name: array.astype(kinds[name]) for name, array in form.to_arrays().items()})


def read(source: Source) -> Model:
    """The model of a file."""
    arrays = unpack(source)
    told = arrays.pop("format", np.empty(0, dtype=np.uint8)).tobytes().decode("utf-8", "replace")
    form = _FORMS.get(told.removeprefix(f"{_FORMAT} "))
    if form is None or not told.startswith(_FORMAT):
        raise source.error(f"the format '{_FORMAT}' and a family", names.shown(told))
    labels, state_names = arrays.pop("labels", None), arrays.pop("state_names", None)
    optional = {name: kind for name, kind in form.optional_arrays.items() if name in arrays}
    expected = form.stored_arrays | optional
    if {name: array.dtype for name, array in arrays.items()} != expected:
        raise source.error(f"the arrays {', '.join(sorted(expected))}", ", ".join(sorted(map(names.shown, arrays))[:8]))
    try:
        read_form = form.from_arrays(CheckedArrays(arrays, source.error, source.require_memory))
    except ArgumentError as error:
        raise source.error("a model", f"what is none ({str(error).rstrip('.')})") from None
    for array in (labels, state_names):
        if array is not None and array.dtype != np.uint8:
            raise source.error("labels as text", "numbers")
    own = None if labels is None else names.decode(source, labels.tobytes(), read_form.n_variables)
    model = read_form.to_model(own)
    if state_names is None:
        return model
    try:
        called = names.decode_states(source, state_names.tobytes(), model.n_variables)
        return model._name_states(read_state_names(called, model, "read"))
    except ArgumentError as error:
        raise source.error("names of the states of each variable", f"others ({str(error).rstrip('.')})") from None


def _bytes(text: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(text, dtype=np.uint8)
