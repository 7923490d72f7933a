"""Public functions of which some families of models have a version of their own.

A stage that is written for discrete variables says so by `by_family`; a room that brings another kind of variables
registers its versions under the names of the functions. Nobody asks what kind of model there is.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")
_Version = TypeVar("_Version", bound=Callable[..., Any])

# By the name of the function, then by family.
_VERSIONS: dict[str, dict[type, Callable[..., Any]]] = {}


# Readers of what can stand for a model, by the library that its class comes from in small letters; and of paths. The
# packages that read models put their readers here when `dobrushin` is imported.
READERS: dict[str, Callable[[Any], Any]] = {}
PATHS = "a path"

# What stands for a model is read before it is asked which family it has. Each returns what it does not read as it is.
_READERS: list[Callable[[Any], Any]] = []


def reads_sources(reader: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Make known a function that reads what stands for a model."""
    _READERS.append(reader)
    return reader


def by_family(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Let families answer for themselves: the first argument says which one."""
    versions = _VERSIONS.setdefault(function.__name__, {})
    first = next(iter(inspect.signature(function).parameters))

    @wraps(function)
    def answer(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        subject = args[0] if args else kwargs.get(first)
        for reader in _READERS:
            subject = reader(subject)
        given: Any = (subject, *args[1:]) if args else args
        named: Any = kwargs if args or first not in kwargs else {**kwargs, first: subject}
        for kind in type(subject).__mro__:
            if kind in versions:
                result: _Result = versions[kind](*given, **named)
                return result
        return function(*given, **named)

    return answer


def version_of(name: str, family: type) -> Callable[[_Version], _Version]:
    """Make the version of a public function for a family known."""

    def register(version: _Version) -> _Version:
        _VERSIONS.setdefault(name, {})[family] = version
        return version

    return register
