"""Compare the tables of a model file with those of a proof.

Programs round logarithms differently, so tables need not be equal. The checker bounds the
differences of log-densities up to a constant, and allows the claim an error that covers them.
"""

import math
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np

from dobrushin.verify.document import Array, NotComparable, TooLarge, require
from dobrushin.verify.model import UNIT
from dobrushin.verify.readers import read_model_file
from dobrushin.verify.readers.tables import Logs, Scope

LARGEST_DRIFT = 1e-9  # two tables that differ by more are called different


def _not_numbers(names: Any) -> list[str] | None:
    """Return the names of states; None if they have none, or if these are the states' numbers."""
    found = [] if names is None else [*names]
    return None if found == [*map(str, range(len(found)))] else found


class Reference:
    """A model file beside the proof: the tables of both, by the positions of their variables."""

    def __init__(self, proof: Any, path: str, beta: float) -> None:
        self.path, self.proof, self.budget = path, proof, proof.budget
        self.known: dict[Scope, float] = {}
        try:
            self.file = read_model_file(path, proof.positions, proof.budget, beta)
            self.there = self._by_scope(self.file.factors)
        except (NotComparable, TooLarge):
            raise
        except Exception as error:  # a damaged file can raise anything
            kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
            what = f"{path} cannot be read as a model file"
            raise NotComparable(f"{what} ({kind}{error}).") from None
        at, pairs = proof.positions.tolist(), proof.stated.pairs
        self.here = self._by_scope((tuple(at[v] for v in scope), log, 0.0) for scope, log in pairs)
        self.touching: dict[int, set[Scope]] = defaultdict(set)
        for scope in {*self.here, *self.there}:
            for position in scope:
                self.touching[position].add(scope)
        self._compare_variables()

    def _by_scope(self, factors: Iterable[Logs]) -> dict[Scope, list[tuple[Array, float]]]:
        """Collect log-tables by their variables, with axes in increasing order of the variables."""
        found = defaultdict[Scope, list[tuple[Array, float]]](list)
        inside = set(self.proof.positions.tolist())
        for scope, table, error in factors:
            self.budget.charge("the tables of the model file", 2e-5)
            if not inside.isdisjoint(scope):
                order = sorted(range(len(scope)), key=scope.__getitem__)
                found[tuple(scope[k] for k in order)].append((np.transpose(table, order), error))
        return dict(found)

    def _compare_variables(self) -> None:
        proof, file, path, positions = self.proof, self.file, self.path, self.proof.positions
        is_long = len(file.states) == proof.plan["variables"]
        require(is_long, f"{path} has another number of variables than the proof.")
        is_same = np.array_equal(np.asarray(file.states[positions]), proof.states)
        require(is_same, f"{path} has other numbers of states than the proof.")
        claimed = {v for question in proof.questions if question.is_law for v in question.variables}
        claimed.update(
            proof.evidence
        )  # without names, the claim is about the numbers of their states
        for v, position in enumerate(positions.tolist() if file.names else ()):
            label, here = file.names[position], proof.names.states.get(v)
            is_same = proof.names.plain[v] in (str(label), repr(label))
            require(is_same, f"{path} has another name for variable {position} than the proof.")
            there = file.state_names[position] if len(file.state_names) else None
            require(
                (here is None and v not in claimed) or _not_numbers(here) == _not_numbers(there),
                f"{path} has other names for the states of variable {position} than the proof.",
            )

    def drift(self, variables: Iterable[int]) -> float:
        """Bound how far log-densities of file and proof differ, by factors at some variables."""
        require(
            self.file.field is None,
            f"{self.path} holds a field, and the proof is about a model of discrete variables.",
        )
        return self._drift_at(variables, LARGEST_DRIFT)

    def compare_field(self, singles: dict[int, Array], low: Array, high: Array) -> None:
        """Require that file and proof agree on the factors of some variables, and on all boxes.

        The box of an observed variable is its value, which must lie in the box of the file.
        """
        require(self.file.field, f"{self.path} holds no field, and the proof is about one.")
        there, least, most = self.file.field or ({}, low, high)
        positions = self.proof.positions
        for v, numbers in singles.items():
            require(
                np.array_equal(there[int(positions[v])], numbers),
                f"{self.path} has another factor over variable {positions[v]} than the proof.",
            )
        self._drift_at(singles, 0.0)
        least, most = least[positions], most[positions]
        is_given = (least <= low) & (low == high) & (high <= most)
        require(
            ((least == low) & (most == high) | is_given).all(),
            f"{self.path} has other boxes of variables than the proof.",
        )

    def _drift_at(self, variables: Iterable[int], limit: float) -> float:
        positions = self.proof.positions.tolist()
        scopes = {scope for v in variables for scope in self.touching.get(positions[v], ())}
        for scope in scopes - self.known.keys():
            drift, names = self._drift_of(scope), f"variables {', '.join(map(str, scope))}"
            require(drift <= limit, f"{self.path} has another factor over {names} than the proof.")
            self.known[scope] = drift
        return math.fsum(self.known[scope] for scope in scopes)

    def _drift_of(self, scope: Scope) -> float:
        """Bound how far the log-tables of file and proof over a scope differ, up to a constant.

        The bound is infinite if they forbid different states. An additive constant does not change
        the distribution, so the first entry of each table is subtracted.
        """
        here, there = self.here.get(scope, []), self.there.get(scope, [])
        error = 2.0 * math.fsum(error for _, error in there)
        shape, forbidden = (*here, *there)[0][0].shape, []
        for side in (here, there):
            tables = [np.isneginf(table) for table, _ in side]
            forbidden.append(np.any([np.zeros(shape, dtype=bool), *tables], axis=0))
        if not np.array_equal(*forbidden):
            return math.inf
        plus, minus = ([table[~forbidden[0]] for table, _ in side] for side in (here, there))
        if forbidden[0].all() or (len(plus) == len(minus) == 1 and np.array_equal(*plus, *minus)):
            return error
        stack = [own - own[0] for own in plus] + [own[0] - own for own in minus]
        self.budget.charge("the comparison of tables", 4e-7 * len(stack) * stack[0].size)
        off = stack[0]
        if (
            len(stack) > 1
        ):  # each sum is rounded once, so that a large number cannot hide a small difference
            off = np.array([math.fsum(numbers) for numbers in zip(*stack, strict=True)])
        rounding = 4.0 * UNIT * sum(float(np.abs(own).max()) for own in (*stack, off))
        return float(off.max() - off.min()) + rounding + error
