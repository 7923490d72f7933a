"""Tables by scope: sums of those of the same scope, and large ones as sums of smaller ones."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

Table = NDArray[np.float64]
Scope = tuple[int, ...]
# Interactions below this share of the largest entry are the rounding of sums, and are left out.
_ROUNDING = 1e-13


def add_table(tables: dict[Scope, Table], scope: Scope, table: Table) -> None:
    """Add a table to the one of the same scope."""
    tables[scope] = np.asarray(tables[scope] + table) if scope in tables else table


def as_small_tables(tables: Mapping[Scope, Table]) -> list[tuple[Scope, Table]]:
    """The same sum by tables that are as small as can be; constant ones are left out.

    A table without -inf is the sum of its interactions: for a set A of its variables, g_A(x) is the alternating sum of
    the table over the states that x and the state 0 of all variables make on A. Where the largest sets have none, it is
    a sum of tables of smaller scopes.
    """
    small: dict[Scope, Table] = {}
    for scope, table in tables.items():
        pieces = _pieces(table) if np.isfinite(table).all() else [(tuple(range(table.ndim)), table)]
        for axes, piece in pieces:
            add_table(small, tuple(scope[axis] for axis in axes), piece)
    return [(scope, table) for scope, table in small.items() if np.isneginf(table).any() or np.ptp(table) > 0]


def _pieces(table: Table) -> list[tuple[tuple[int, ...], Table]]:
    """Tables over some of the axes that sum to a table, up to a constant and rounding."""
    differences = table.copy()
    for axis in range(table.ndim):
        first = np.take(differences, [0], axis=axis)
        differences -= first
        np.moveaxis(differences, axis, 0)[0] = np.squeeze(first, axis=axis)
    allowed = _ROUNDING * 2.0**table.ndim * np.abs(table).max(initial=0.0)
    differences[np.abs(differences) <= allowed] = 0.0
    present = {tuple(np.flatnonzero(index).tolist()) for index in np.argwhere(differences)} - {()}
    largest = [own for own in present if not any(set(own) < set(other) for other in present)]
    if len(largest) == 1 and len(largest[0]) == table.ndim:
        return [(largest[0], table)]
    pieces = []
    for own in sorted(largest):
        others = tuple(axis for axis in range(table.ndim) if axis not in own)
        piece = differences[tuple(0 if axis in others else slice(None) for axis in range(table.ndim))].copy()
        # Each interaction goes to one of the tables that have its variables.
        differences[tuple(0 if axis in others else slice(None) for axis in range(table.ndim))] = 0.0
        for axis in range(piece.ndim):
            first = np.take(piece, [0], axis=axis)
            piece += first
            np.moveaxis(piece, axis, 0)[0] = np.squeeze(first, axis=axis)
        pieces.append((own, piece))
    # Many interactions that are small next to the largest entry can be more than rounding.
    rest = table.copy()
    for own, piece in pieces:
        rest -= piece.reshape([size if axis in own else 1 for axis, size in enumerate(table.shape)])
    if np.ptp(rest) > _ROUNDING * np.abs(table).max(initial=0.0):
        return [(tuple(range(table.ndim)), table)]
    return pieces
