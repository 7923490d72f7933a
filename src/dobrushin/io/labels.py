"""Labels of variables as JSON: what a label may be, a file can hold, and no code can hide in."""

from __future__ import annotations

import json
import math
from collections.abc import Hashable, Sequence
from numbers import Integral, Real
from typing import Any, NoReturn

from dobrushin._models.state_names import Names, StateNames
from dobrushin.errors import ArgumentError
from dobrushin.io.source import Source, quote

KINDS = "strings, finite numbers, booleans, None, or tuples of these"


def encode(labels: Sequence[Hashable]) -> bytes:
    """Labels as a JSON list, tuples as lists."""
    return json.dumps([_plain(label, label) for label in labels]).encode()


def encode_states(names: StateNames) -> bytes:
    """Names of states: one list for all variables, or a list of lists by position."""
    if names.common is not None:
        return json.dumps({"all": [_plain(name, name) for name in names.common]}).encode()
    own = [None if known is None else [_plain(name, name) for name in known] for known in names.own]
    return json.dumps({"each": own}).encode()


def decode_states(source: Source, data: bytes, n: int) -> list[Any]:
    """Names of the states of n variables, by position."""
    content = parse(source, data)
    one = content.get("all") if isinstance(content, dict) else None
    each = content.get("each") if isinstance(content, dict) else None
    if isinstance(one, list) and one and len(content) == 1:
        return [tuple(_hashable(source, name) for name in one)] * n
    if isinstance(each, list) and len(content) == 1 and all(own is None or isinstance(own, list) for own in each):
        return [None if own is None else tuple(_hashable(source, name) for name in own) for own in each]
    raise source.error("names of states", shown(content))


def encode_kinds(kinds: Sequence[Sequence[Hashable]]) -> bytes:
    """Different lists of names of states, for variables that share them."""
    return json.dumps({"kinds": [[_plain(name, name) for name in names] for names in kinds]}).encode()


def decode_kinds(source: Source) -> tuple[Names | None, tuple[Names, ...]]:
    """The names that all variables have, or the lists of names that they share."""
    content = parse(source, source.data)
    one, several = (content.get(key) if isinstance(content, dict) else None for key in ("all", "kinds"))
    lists = [one] if one is not None else several
    if (
        not isinstance(lists, list)
        or len(content) != 1
        or not all(isinstance(names, list) and names for names in lists)
    ):
        raise source.error("names of states", shown(content))
    kinds = tuple(tuple(_hashable(source, name) for name in names) for names in lists)
    for names in kinds:
        if len(set(names)) < len(names):
            raise source.error("different names for different states", f"{names!r}"[:60])
    return (kinds[0], ()) if one is not None else (None, kinds)


def decode(source: Source, data: bytes, n: int) -> tuple[Hashable, ...]:
    """Labels of n variables from a JSON list."""
    names = parse(source, data)
    if not isinstance(names, list) or len(names) != n:
        got = f"{len(names)} of them" if isinstance(names, list) else shown(names)
        raise source.error(f"labels of {n} variables", got)
    return from_list(source, names)


def parse(source: Source, data: bytes) -> Any:
    """Read JSON, and refuse NaN and infinities."""

    def refuse(word: str) -> NoReturn:
        raise ValueError(word)

    try:
        return json.loads(data.decode("utf-8"), parse_constant=refuse)
    except (ValueError, RecursionError):  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise source.error("JSON", quote(data[:40])) from None


def from_list(source: Source, names: list[Any]) -> tuple[Hashable, ...]:
    """Labels from what JSON has, lists as tuples."""
    labels = tuple(_hashable(source, name) for name in names)
    seen: set[Hashable] = set()
    for label in labels:
        if label in seen:
            raise source.error("different labels", f"{quote(str(label))} twice")
        seen.add(label)
    return labels


def shown(value: Any) -> str:
    """A value of a JSON text in a message; lists may be nested too deep to print."""
    if value is None:
        return "none"
    return quote(str(value)) if isinstance(value, str | int | float) else f"a {type(value).__name__}"


def _plain(label: Any, whole: Hashable) -> Any:
    if label is None or isinstance(label, str | bool):
        return label
    if isinstance(label, Integral):
        return int(label)
    if isinstance(label, Real) and math.isfinite(label):
        return float(label)
    if isinstance(label, tuple):
        return [_plain(part, whole) for part in label]
    raise ArgumentError("model", f"labelled by {KINDS}", whole)


def _hashable(source: Source, name: Any, depth: int = 0) -> Hashable:
    if isinstance(name, list) and depth < 50:
        return tuple(_hashable(source, part, depth + 1) for part in name)
    if isinstance(name, list | dict) or (isinstance(name, float) and not math.isfinite(name)):
        raise source.error(f"labels that are {KINDS}", shown(name))
    return name
