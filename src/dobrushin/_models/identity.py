"""Equality, fingerprints and descriptions of models."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from dobrushin._models.model import Model

# Hexadecimal digits: 2^-64 is the chance that two models share them.
_DIGITS = 16


def same_model(one: Model, other: Model) -> bool:
    """Whether two models have the same form, parameters to the last bit, labels and names of states."""
    forms = one._form, other._form
    if forms[0].stored_as != forms[1].stored_as or one.n_variables != other.n_variables or one.labels != other.labels:
        return False
    if one._state_names != other._state_names and dict(one.state_names) != dict(other.state_names):
        return False
    if forms[0] is forms[1]:
        return True
    arrays = forms[0].to_arrays(), forms[1].to_arrays()
    return arrays[0].keys() == arrays[1].keys() and all(np.array_equal(arrays[0][k], arrays[1][k]) for k in arrays[0])


def fingerprint_of(model: Model) -> str:
    """A short name for the parameters, labels and names of states: the same on every machine and in every release."""
    digest = hashlib.blake2b(digest_size=_DIGITS // 2)
    digest.update(model._form.stored_as.encode())
    for name, array in sorted(model._form.to_arrays().items()):
        plain = _plain_array(array)
        digest.update(f"\n{name} {plain.dtype.str} {len(plain)}\n".encode())
        digest.update(plain.data if plain.size else b"")
    if not isinstance(model.labels, range):
        digest.update(f"\nlabels {_text(tuple(model.labels))}".encode("utf-8", "surrogatepass"))
    for label in model.state_names:
        names = model.state_names[label]
        digest.update(f"\nstates {_text((label, *names))}".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def describe(model: Model) -> list[tuple[str, str]]:
    """List the variables, states, size and fingerprint of a model for its HTML representation."""
    labels = ", ".join(str(label) for label, _ in zip(model.labels, range(5), strict=False))
    facts = [
        ("variables", f"{model.n_variables:,}: {labels}" + (", ..." if model.n_variables > 5 else "")),
        model._describe_states(),
    ]
    if model._is_whole:
        facts += [(name, f"{count:,}") for name, count in model._form.counts.items() if name != "states"]
        facts.append(("fingerprint", str(model.fingerprint)))
    return facts


def _plain_array(array: NDArray[Any]) -> NDArray[Any]:
    """Convert an array to one type, without negative zeros, so that equal numbers have equal bytes."""
    if array.dtype.kind == "f":
        return np.ascontiguousarray(array.astype("<f8") + 0.0)
    return np.ascontiguousarray(array.astype("<i8"))


def _text(name: Hashable) -> str:
    """A label as text: the same for labels that are equal."""
    if isinstance(name, tuple):
        return f"({','.join(map(_text, name))})"
    if isinstance(name, Real):
        whole = int(name) if isinstance(name, Integral) or float(name).is_integer() else float(name)
        return repr(whole)
    return repr(name)
