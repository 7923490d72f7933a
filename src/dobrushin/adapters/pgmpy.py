"""pgmpy: networks of pgmpy as factor graphs, and queries whose answers have guaranteed errors."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dobrushin._estimate import Estimate, estimate
from dobrushin._estimate.targets import Joint
from dobrushin._models import FactorGraph
from dobrushin._shared import validate as check
from dobrushin._shared.call import public
from dobrushin._shared.environment import require
from dobrushin.errors import ArgumentError
from dobrushin.io.networks import graph_of_tables, normalise, sums_to_one
from dobrushin.typing import EstimateMethod

# Each kind of network under its names in the versions of pgmpy.
_BAYESIAN = ("DiscreteBayesianNetwork", "BayesianNetwork")
_MARKOV = ("DiscreteMarkovNetwork", "MarkovNetwork")
_GRAPH = ("FactorGraph",)


@public(name="adapters.from_pgmpy")
def from_pgmpy(network: Any) -> FactorGraph:
    """Return the factor graph of a pgmpy network.

    Parameters
    ----------
    network : pgmpy DiscreteBayesianNetwork, DiscreteMarkovNetwork or FactorGraph
        Every variable must have a table. Those of a Bayesian network must sum to 1, but for 0.01, or 0.005 times the
        number of states if that is more. Probabilities that miss it by at most 1e-5 are divided by their sum; all other
        tables are taken as they are.

    Returns
    -------
    FactorGraph
        Its labels are the variables, in the order of the network's nodes, and its states have the network's names.
        Variables with one state are not random and are left out.

    Notes
    -----
    pi(x) ∝ the product of the tables; a weight of 0 forbids.

    Examples
    --------
    >>> from pgmpy.factors.discrete import TabularCPD  # doctest: +SKIP
    >>> from pgmpy.models import DiscreteBayesianNetwork  # doctest: +SKIP
    >>> from dobrushin.adapters import from_pgmpy
    >>> network = DiscreteBayesianNetwork([("rain", "wet")])  # doctest: +SKIP
    >>> rain = TabularCPD("rain", 2, [[0.2], [0.8]], state_names={"rain": ["yes", "no"]})  # doctest: +SKIP
    >>> wet = TabularCPD(
    ...     "wet", 2, [[0.9, 0.2], [0.1, 0.8]], ["rain"], [2], {"wet": ["yes", "no"], "rain": ["yes", "no"]}
    ... )  # doctest: +SKIP
    >>> network.add_cpds(rain, wet)  # doctest: +SKIP
    >>> model = from_pgmpy(network)  # doctest: +SKIP
    >>> model.labels, model.conditional(1, [0, 0])  # doctest: +SKIP
    (('rain', 'wet'), array([0.9, 0.1]))
    """
    return _read(network).graph()


@public(name="adapters.to_pgmpy")
def to_pgmpy(answer: Any, target: Any = None) -> Any:
    """Return a marginal of an estimate as a pgmpy factor.

    Parameters
    ----------
    answer : Estimate
    target : label, tuple of labels or Joint, optional
        Which marginal; not needed where there is one only.

    Returns
    -------
    pgmpy DiscreteFactor
        The estimated probabilities, with the names of the states; its attribute `estimate` is the answer.

    Examples
    --------
    >>> import dobrushin as db
    >>> pair = db.Ising({("sun", "rain"): -0.4}, state_names=("no", "yes"))
    >>> answer = db.estimate(pair, "sun", evidence={"rain": "yes"})
    >>> db.adapters.to_pgmpy(answer).get_value(sun="no").round(3)  # doctest: +SKIP
    np.float64(0.69)
    """
    discrete = require("pgmpy.factors.discrete", "pgmpy")
    variables, states, table = read_marginal(answer, target)
    names = dict(zip(variables, states, strict=True))
    factor = discrete.DiscreteFactor(variables, list(table.shape), table, state_names=names)
    factor.estimate = answer
    return factor


class CertifiedInference:
    """Marginals of a pgmpy network, asked as pgmpy's own inference is, with guaranteed errors.

    Parameters
    ----------
    network : pgmpy DiscreteBayesianNetwork, DiscreteMarkovNetwork or FactorGraph
        As for `from_pgmpy`. It is read once: later changes of it are not seen.

    Attributes
    ----------
    state_names : dict from variable to list
        Names of the states, in order.

    Examples
    --------
    >>> from pgmpy.factors.discrete import DiscreteFactor  # doctest: +SKIP
    >>> from pgmpy.models import DiscreteMarkovNetwork  # doctest: +SKIP
    >>> from dobrushin.adapters import CertifiedInference
    >>> network = DiscreteMarkovNetwork([("sun", "rain")])  # doctest: +SKIP
    >>> names = {"sun": ["no", "yes"], "rain": ["no", "yes"]}  # doctest: +SKIP
    >>> network.add_factors(DiscreteFactor(["sun", "rain"], [2, 2], [1, 5, 8, 2], names))  # doctest: +SKIP
    >>> answer = CertifiedInference(network).query(["rain"], evidence={"sun": "yes"})  # doctest: +SKIP
    >>> print(answer)  # doctest: +SKIP
    +-----------+-------------+
    | rain      |   phi(rain) |
    +===========+=============+
    | rain(no)  |      0.8000 |
    +-----------+-------------+
    | rain(yes) |      0.2000 |
    +-----------+-------------+
    >>> answer.estimate.plan.method, answer.estimate["rain"].upper.round(4)  # doctest: +SKIP
    ('exact', array([0.8, 0.2]))
    """

    @public(name="adapters.CertifiedInference")
    def __init__(self, network: Any) -> None:
        self._network = _read(network)

    @cached_property
    def _graph(self) -> FactorGraph:
        """The factor graph, with all that is known of it."""
        return self._network.graph()

    @property
    def state_names(self) -> dict[Hashable, list[Any]]:
        """Names of the states of each variable, in order."""
        return {variable: list(names) for variable, names in self._network.states.items()}

    @public(name="adapters.CertifiedInference.query")
    def query(
        self,
        variables: Iterable[Hashable],
        evidence: Mapping[Any, Any] | None = None,
        *,
        joint: bool = True,
        tolerance: float = 0.01,
        confidence: float = 0.99,
        seed: int | np.random.SeedSequence | None = None,
        method: EstimateMethod = "auto",
        budget: float | None = None,
        show_progress: bool = False,
    ) -> Any:
        """Marginals of some variables, given the states of others.

        Parameters
        ----------
        variables : list
        evidence : dict from variable to the name of its state, optional
            Where the network names no states, they are 0, 1, ...
        joint : bool
            Whether to ask for the joint marginal of the variables, or for that of each.
        tolerance, confidence, seed, method, budget
            As for `dobrushin.estimate`.
        show_progress : bool
            Show a bar.

        Returns
        -------
        pgmpy DiscreteFactor, or dict from variable to DiscreteFactor if not `joint`
            The estimated probabilities, with the names of the states. Its attribute `estimate` is the `Estimate` with
            the intervals. (None if all the variables have one state.) Factors that pgmpy computes from it do not have
            the attribute.

        Raises
        ------
        CertificateError, BudgetError
            As `dobrushin.estimate` does.

        Notes
        -----
        Variables of a Bayesian network that are d-separated from the targets, or barren, are left out, as in
        `dobrushin.estimate`.
        """
        discrete = require("pgmpy.factors.discrete", "pgmpy")
        asked = self._read_variables(variables)
        given = self._read_evidence(evidence)
        if both := [variable for variable in asked if variable in given]:
            raise ArgumentError("variables", "without those of the evidence", both[0])
        states = self._network.states
        random = [variable for variable in asked if len(states[variable]) > 1]
        answer = None
        if random:
            answer = estimate(
                self._graph,
                Joint(*random) if joint and len(random) > 1 else random,
                tolerance=tolerance,
                confidence=confidence,
                evidence={variable: state for variable, state in given.items() if len(states[variable]) > 1},
                seed=seed,
                method=method,
                budget=budget,
                progress=show_progress,
            )

        def factor(scope: list[Hashable], values: NDArray[np.float64]) -> Any:
            names = {variable: list(states[variable]) for variable in scope}
            table = discrete.DiscreteFactor(scope, [len(names[v]) for v in scope], values, state_names=names)
            table.estimate = answer
            return table

        certain = np.ones(1)
        if joint:
            return factor(asked, certain if answer is None else answer.mean)
        return {v: factor([v], certain if answer is None or v not in random else answer[v].mean) for v in asked}

    def _read_variables(self, variables: Any) -> list[Hashable]:
        if not check.is_several(variables) or not (asked := list(variables)):
            raise ArgumentError("variables", "a list of variables of the network", variables)
        for k, variable in enumerate(asked):
            self._check_variable(variable, "variables")
            if variable in asked[:k]:
                raise ArgumentError("variables", "distinct", variable, f"index {k}")
        return asked

    def _read_evidence(self, evidence: Any) -> dict[Hashable, Any]:
        check.instance(evidence, Mapping | None, "evidence", "a dict from variables to names of states")
        given = {}
        for variable, name in (evidence or {}).items():
            self._check_variable(variable, "evidence")
            names = self._network.states[variable]
            if name not in names:
                requirement = f"one of the states {', '.join(map(repr, names))} of {variable!r}"
                raise ArgumentError("evidence", requirement, name, f"variable {variable!r}")
            given[variable] = name
        return given

    def _check_variable(self, variable: Any, argument: str) -> None:
        if not isinstance(variable, Hashable) or variable not in self._network.states:
            names = list(self._network.states)
            known = ", ".join(map(repr, names[:4])) + ", ..." * (len(names) > 4)
            raise ArgumentError(argument, f"variables of the network ({known})", variable)


# -- networks of other libraries -----------------------------------------------------------------


class Tables(NamedTuple):
    """The tables of a network of another library."""

    states: dict[Hashable, list[Any]]  # names, by variable in order
    tables: list[tuple[list[Hashable], NDArray[np.float64]]]  # variables and weights

    def graph(self) -> FactorGraph:
        """Return the factor graph, without the variables of one state."""
        graph = graph_of_tables(self.states, self.tables)
        if graph is None:
            requirement = "a network with a variable of two or more states"
            raise ArgumentError("network", requirement, list(self.states))
        return graph


def read_weights(values: Any, scope: list[Hashable], child: int | None) -> NDArray[np.float64]:
    """Read a table of weights; `child` is the axis whose probabilities they are, None where they are plain weights."""
    weights = np.asarray(values, dtype=np.float64)
    if (bad := ~((weights >= 0) & (weights < np.inf))).any():
        value = weights[bad][0]
        raise ArgumentError("network", "of finite, non-negative weights", value, f"the table of {scope}")
    if child is None:
        return weights
    rows = np.moveaxis(weights, child, -1)
    sums, size = rows.sum(axis=-1), rows.shape[-1]
    if not (fine := sums_to_one(sums, size)).all():
        requirement = "of conditional probabilities, which sum to 1"
        raise ArgumentError("network", requirement, sums[~fine].flat[0], f"the table of {scope[child]!r}")
    return np.moveaxis(normalise(rows.ravel(), sums.ravel(), size).reshape(rows.shape), -1, child)


class Marginal(NamedTuple):
    """A table with an axis for each variable."""

    variables: list[Hashable]
    states: list[list[Any]]
    table: NDArray[np.float64]


def read_marginal(answer: Any, target: Any) -> Marginal:
    """Return the marginal of a target, or of the only one."""
    check.instance(answer, Estimate, "answer", "an Estimate")
    if target is None:
        # One row after the other is about the same target.
        found = [one for k, one in enumerate(answer.targets) if not k or one is not answer.targets[k - 1]]
        if len({id(one) if isinstance(one, Joint) else one for one in found}) != 1:
            requirement = "given, where there are several"
            raise ArgumentError("target", requirement, got=f"none of {len(found)} targets")
        target = found[0]
    states, mean, *_ = answer[target]
    if any(state is None for state in states):
        raise ArgumentError("target", "a variable or a Joint", target)
    if isinstance(target, Joint) or (isinstance(target, tuple) and target not in answer.targets):
        variables = list(target.labels if isinstance(target, Joint) else target)
        axes = [list(dict.fromkeys(state[k] for state in states)) for k in range(len(variables))]
        return Marginal(variables, axes, mean.reshape([len(axis) for axis in axes]))
    return Marginal([target], [list(states)], mean)


# -- networks of pgmpy ---------------------------------------------------------------------------


def _read(network: Any) -> Tables:
    """Read a network of any kind of pgmpy."""
    models = require("pgmpy.models", "pgmpy")
    discrete = require("pgmpy.factors.discrete", "pgmpy")

    def is_one_of(names: tuple[str, ...]) -> bool:
        return isinstance(network, tuple(getattr(models, name) for name in names if hasattr(models, name)))

    bayesian = is_one_of(_BAYESIAN)
    if not bayesian and not is_one_of(_MARKOV) and not is_one_of(_GRAPH):
        requirement = "a DiscreteBayesianNetwork, DiscreteMarkovNetwork or FactorGraph of pgmpy"
        raise ArgumentError("network", requirement, network)
    variables = [node for node in network.nodes() if not isinstance(node, discrete.DiscreteFactor)]
    factors = _cpds(network, variables) if bayesian else list(network.get_factors())
    states: dict[Hashable, list[Any]] = {variable: [] for variable in variables}
    tables = []
    for table in factors:
        if not isinstance(table, discrete.DiscreteFactor):
            raise ArgumentError("network", "made of tables (TabularCPD, DiscreteFactor)", table)
        scope = list(table.variables)
        weights = read_weights(table.values, scope, 0 if bayesian else None)
        for axis, variable in enumerate(scope):
            names = list(table.state_names[variable])[: weights.shape[axis]]
            states[variable] = _merge_names(states[variable], names, variable)
        tables.append((scope, weights))
    if missing := [variable for variable, names in states.items() if not names]:
        raise ArgumentError("network", "one with a table for each variable", got=f"none for {missing[0]!r}")
    return Tables(states, tables)


def _cpds(network: Any, variables: list[Hashable]) -> list[Any]:
    """The table of each variable of a Bayesian network, for its parents."""
    tables = {table.variable: table for table in network.get_cpds()}
    for variable in variables:
        if variable not in tables:
            raise ArgumentError("network", "one with a table for each variable", got=f"none for {variable!r}")
        scope = list(getattr(tables[variable], "variables", [variable, *network.predecessors(variable)]))
        if scope[0] != variable or set(scope[1:]) != set(network.predecessors(variable)):
            requirement = f"one whose table of {variable!r} is for its parents {list(network.predecessors(variable))}"
            raise ArgumentError("network", requirement, scope[1:])
    return [tables[variable] for variable in variables]


def _merge_names(known: list[Any], names: list[Any], variable: Hashable) -> list[Any]:
    """Return the names that all tables have for the states of a variable; tables may also only count states."""
    if not known or known == names:
        return names
    numbers = list(range(len(known)))
    if len(known) == len(names):
        for one, other in ((known, names), (names, known)):
            if one == numbers and not set(other) & set(numbers):
                return other
    requirement = f"one whose tables agree on the states of {variable!r}"
    raise ArgumentError("network", requirement, got=f"{known} and {names}")
