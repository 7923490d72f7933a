"""Conversions from networkx, pgmpy and pyAgrum, of answers back to them, and pgmpy's interface for queries."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._estimate import Estimate, estimate
from dobrushin._estimate.targets import Joint
from dobrushin._models import FactorGraph, Ising, Potts
from dobrushin._models.derived import sums_to_one
from dobrushin._shared import validate as check
from dobrushin._shared.call import public
from dobrushin._shared.environment import require
from dobrushin.errors import ArgumentError
from dobrushin.io.networks import graph_of_tables, normalise
from dobrushin.typing import EstimateMethod, Graph, Seed

# Each kind of network under its names in the versions of pgmpy.
_BAYESIAN = ("DiscreteBayesianNetwork", "BayesianNetwork")
_MARKOV = ("DiscreteMarkovNetwork", "MarkovNetwork")
_GRAPH = ("FactorGraph",)

# Variables with the names of their states in order, and tables: variables and weights.
_States = dict[Hashable, list[Any]]
_Tables = list[tuple[list[Hashable], NDArray[np.float64]]]


def from_networkx(graph: Graph) -> Ising | Potts:
    """Return the model of a graph: a `Potts` model if any node has the attribute ``unary``, else an `Ising` model.

    Parameters
    ----------
    graph : networkx.Graph
        Every edge has the attribute ``weight``, its coupling. A node may have ``field``, or ``unary``: a log-potential
        for each state.

    Returns
    -------
    Ising or Potts
        With the nodes as labels, in their order.

    Examples
    --------
    >>> import networkx as nx
    >>> import dobrushin as db
    >>> graph = nx.path_graph(["sun", "rain", "wet"])
    >>> nx.set_edge_attributes(graph, {("sun", "rain"): -0.4, ("rain", "wet"): 0.7}, "weight")
    >>> db.from_networkx(graph)
    Ising(n_variables=3, edges=2)
    >>> db.estimate(graph, "wet", evidence={"rain": 1}).headline  # wherever a model is asked for
    'P(wet = 1 | rain = 1) = 0.802183888559, exact to 1e-12'
    """
    unaries = [data["unary"] for _, data in graph.nodes(data=True) if "unary" in data]
    return Potts(graph, len(unaries[0])) if unaries else Ising(graph)


@public()
def from_pgmpy(network: object) -> FactorGraph:
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
    >>> import dobrushin as db
    >>> network = DiscreteBayesianNetwork([("rain", "wet")])  # doctest: +SKIP
    >>> rain = TabularCPD("rain", 2, [[0.2], [0.8]], state_names={"rain": ["yes", "no"]})  # doctest: +SKIP
    >>> wet = TabularCPD(
    ...     "wet", 2, [[0.9, 0.2], [0.1, 0.8]], ["rain"], [2], {"wet": ["yes", "no"], "rain": ["yes", "no"]}
    ... )  # doctest: +SKIP
    >>> network.add_cpds(rain, wet)  # doctest: +SKIP
    >>> model = db.from_pgmpy(network)  # doctest: +SKIP
    >>> model.labels, model.conditional(1, [0, 0])  # doctest: +SKIP
    (('rain', 'wet'), array([0.9, 0.1]))
    """
    return _graph(*_read_pgmpy(network))


@public()
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
    >>> db.to_pgmpy(answer).get_value(sun="no").round(3)  # doctest: +SKIP
    np.float64(0.69)
    """
    variables, states, table = _read_marginal(answer, target)
    return _factor(variables, dict(zip(variables, states, strict=True)), table, answer)


def _factor(variables: list[Hashable], states: _States, values: NDArray[np.float64], answer: Estimate | None) -> Any:
    """Return a pgmpy factor, with the estimate that it comes from as an attribute."""
    names = {variable: states[variable] for variable in variables}
    sizes = [len(names[variable]) for variable in variables]
    factor = require("pgmpy.factors.discrete", "pgmpy").DiscreteFactor(variables, sizes, values, state_names=names)
    factor.estimate = answer
    return factor


class CertifiedInference:
    """Marginals of a pgmpy network with guaranteed errors, through the interface of pgmpy's own inference.

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
        self._states, self._tables = _read_pgmpy(network)

    @cached_property
    def _model(self) -> FactorGraph:
        """The factor graph of the network, which caches results for later queries."""
        return _graph(self._states, self._tables)

    @property
    def state_names(self) -> dict[Hashable, list[Any]]:
        """Names of the states of each variable, in order."""
        return {variable: list(names) for variable, names in self._states.items()}

    @public(name="adapters.CertifiedInference.query")
    def query(
        self,
        variables: Iterable[Hashable],
        evidence: Mapping[Any, Any] | None = None,
        *,
        joint: bool = True,
        tolerance: float = 0.01,
        confidence: float = 0.99,
        seed: Seed = None,
        method: EstimateMethod = "auto",
        budget: float | None = None,
        show_progress: bool = False,
    ) -> Any:
        """Return marginals of some variables, given the states of others.

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
        if not check.is_several(variables) or not (asked := list(variables)):
            raise ArgumentError("variables", "a list of variables of the network", variables)
        check.instance(evidence, Mapping | None, "evidence", "a dict from variables to names of states")
        given, states = dict(evidence or {}), self._states
        for argument, named in (("variables", asked), ("evidence", list(given))):
            for variable in named:
                if not isinstance(variable, Hashable) or variable not in states:
                    known = ", ".join(map(repr, list(states)[:4])) + ", ..." * (len(states) > 4)
                    raise ArgumentError(argument, f"variables of the network ({known})", variable)
        for k, variable in enumerate(asked):
            if variable in asked[:k]:
                raise ArgumentError("variables", "distinct", variable, f"index {k}")
            if variable in given:
                raise ArgumentError("variables", "variables that are not in the evidence", variable)
        for variable, name in given.items():
            if name not in states[variable]:
                requirement = f"one of the states {', '.join(map(repr, states[variable]))} of {variable!r}"
                raise ArgumentError("evidence", requirement, name, f"variable {variable!r}")
        random = [variable for variable in asked if len(states[variable]) > 1]
        answer = None
        if random:
            answer = estimate(
                self._model,
                Joint(*random) if joint and len(random) > 1 else random,
                tolerance=tolerance,
                confidence=confidence,
                evidence={variable: state for variable, state in given.items() if len(states[variable]) > 1},
                seed=seed,
                method=method,
                budget=budget,
                progress=show_progress,
            )
        certain = np.ones(1)
        if joint:
            return _factor(asked, states, certain if answer is None else answer.value, answer)
        return {
            variable: _factor([variable], states, answer[variable].value, answer)
            if answer is not None and variable in random
            else _factor([variable], states, certain, answer)
            for variable in asked
        }


# -- tables and answers ---------------------------------------------------------------------------


def _graph(states: _States, tables: _Tables) -> FactorGraph:
    """Return a factor graph made of these tables, without the variables of one state."""
    graph = graph_of_tables(states, tables)
    if graph is None:
        raise ArgumentError("network", "a network with a variable of two or more states", list(states))
    return graph


def _read_weights(values: Any, scope: list[Hashable], child: int | None) -> NDArray[np.float64]:
    """Read a table of weights, or of probabilities of the variable at axis `child` given the others."""
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


def _read_marginal(answer: Any, target: Any) -> tuple[list[Hashable], list[list[Any]], NDArray[np.float64]]:
    """Return a target's marginal (or the only one): its variables, their states, and an array with an axis for each."""
    check.instance(answer, Estimate, "answer", "an Estimate")
    if target is None:
        # The rows of a target follow each other.
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
        return variables, axes, mean.reshape([len(axis) for axis in axes])
    return [target], [list(states)], mean


def _read_pgmpy(network: Any) -> tuple[_States, _Tables]:
    models = require("pgmpy.models", "pgmpy")
    discrete = require("pgmpy.factors.discrete", "pgmpy")

    def is_one_of(names: tuple[str, ...]) -> bool:
        return isinstance(network, tuple(getattr(models, name) for name in names if hasattr(models, name)))

    bayesian = is_one_of(_BAYESIAN)
    if not bayesian and not is_one_of(_MARKOV) and not is_one_of(_GRAPH):
        requirement = "a DiscreteBayesianNetwork, DiscreteMarkovNetwork or FactorGraph of pgmpy"
        raise ArgumentError("network", requirement, network)
    variables = [node for node in network.nodes() if not isinstance(node, discrete.DiscreteFactor)]
    factors = list(network.get_cpds() if bayesian else network.get_factors())
    if bayesian:  # the table of each variable, for its parents
        by_variable = {table.variable: table for table in factors}
        for variable in variables:
            if variable not in by_variable:
                raise ArgumentError("network", "one with a table for each variable", got=f"none for {variable!r}")
            parents = list(network.predecessors(variable))
            scope = list(getattr(by_variable[variable], "variables", [variable, *parents]))
            if scope[0] != variable or set(scope[1:]) != set(parents):
                requirement = f"one whose table of {variable!r} is for its parents {parents}"
                raise ArgumentError("network", requirement, scope[1:])
        factors = [by_variable[variable] for variable in variables]
    states: _States = {variable: [] for variable in variables}
    tables = []
    for table in factors:
        if not isinstance(table, discrete.DiscreteFactor):
            raise ArgumentError("network", "made of tables (TabularCPD, DiscreteFactor)", table)
        scope = list(table.variables)
        weights = _read_weights(table.values, scope, 0 if bayesian else None)
        for axis, variable in enumerate(scope):
            names = list(table.state_names[variable])[: weights.shape[axis]]
            states[variable] = _merge_names(states[variable], names, variable)
        tables.append((scope, weights))
    if missing := [variable for variable, names in states.items() if not names]:
        raise ArgumentError("network", "one with a table for each variable", got=f"none for {missing[0]!r}")
    return states, tables


def _merge_names(known: list[Any], names: list[Any], variable: Hashable) -> list[Any]:
    """Return a variable's names of states if two tables agree on them; a table may also give only their number."""
    if not known or known == names:
        return names
    numbers = list(range(len(known)))
    if len(known) == len(names):
        for one, other in ((known, names), (names, known)):
            if one == numbers and not set(other) & set(numbers):
                return other
    requirement = f"one whose tables agree on the states of {variable!r}"
    raise ArgumentError("network", requirement, got=f"{known} and {names}")


# -- pyAgrum -------------------------------------------------------------------------------------


@public()
def from_pyagrum(network: object) -> FactorGraph:
    """Return the factor graph of a pyAgrum network.

    Parameters
    ----------
    network : pyagrum.BayesNet or pyagrum.MarkovRandomField
        Tables of a Bayesian network must sum to 1, as for `from_pgmpy`.

    Returns
    -------
    FactorGraph
        Its labels are the names of the variables, in the order of the network's nodes, and its states have the labels
        of pyAgrum. Variables with one state are not random and are left out.

    Examples
    --------
    >>> import pyagrum  # doctest: +SKIP
    >>> import dobrushin as db
    >>> network = pyagrum.fastBN("rain{yes|no}->wet{yes|no}")  # doctest: +SKIP
    >>> _ = network.cpt("rain").fillWith([0.2, 0.8])  # doctest: +SKIP
    >>> _ = network.cpt("wet").fillWith([0.9, 0.1, 0.2, 0.8])  # doctest: +SKIP
    >>> db.estimate(network, "rain", evidence={"wet": "yes"}).headline  # doctest: +SKIP
    'P(rain = yes | wet = yes) = 0.529411764706, exact to 1e-12'
    """
    library = require("pyagrum", "pyagrum")
    if isinstance(network, library.BayesNet):
        nodes = sorted(network.nodes())
        tables = [network.cpt(node) for node in nodes]
    elif isinstance(network, library.MarkovRandomField):
        nodes = sorted(network.nodes())
        tables = [network.factor(scope) for scope in network.factors()]
    else:
        raise ArgumentError("network", "a BayesNet or a MarkovRandomField of pyAgrum", network)
    states: _States = {variable.name(): list(variable.labels()) for variable in map(network.variable, nodes)}
    weights: _Tables = []
    for table in tables:
        # The last axis is that of the first variable.
        scope = list(table.names)[::-1]
        child = len(scope) - 1 if isinstance(network, library.BayesNet) else None
        weights.append((scope, _read_weights(table.toarray(), scope, child)))
    return _graph(states, weights)


@public()
def to_pyagrum(answer: Any, network: Any, target: Any = None) -> Any:
    """Return a marginal of an estimate as a pyAgrum tensor.

    Parameters
    ----------
    answer : Estimate
        About the network.
    network : pyagrum.BayesNet or pyagrum.MarkovRandomField
        The tensor is over its variables, so that it can be compared and combined with pyAgrum's own posteriors.
    target : label, tuple of labels or Joint, optional
        Which marginal; not needed where there is one only.

    Returns
    -------
    pyagrum.Tensor
        The estimated probabilities. Intervals stay with the estimate.

    Examples
    --------
    >>> import pyagrum  # doctest: +SKIP
    >>> import dobrushin as db
    >>> network = pyagrum.fastBN("rain{yes|no}->wet{yes|no}")  # doctest: +SKIP
    >>> answer = db.estimate(network, "rain", evidence={"wet": "yes"})  # doctest: +SKIP
    >>> ours = db.to_pyagrum(answer, network)  # doctest: +SKIP
    >>> theirs = pyagrum.getPosterior(network, target="rain", evs={"wet": "yes"})  # doctest: +SKIP
    >>> bool(abs((ours - theirs).toarray()).max() < 1e-12)  # doctest: +SKIP
    True
    """
    library = require("pyagrum", "pyagrum")
    if not isinstance(network, library.BayesNet | library.MarkovRandomField):
        raise ArgumentError("network", "a BayesNet or a MarkovRandomField of pyAgrum", network)
    variables, axes, table = _read_marginal(answer, target)
    tensor, names = library.Tensor(), set(network.names())
    for axis, (name, states) in enumerate(zip(variables, axes, strict=True)):
        if name not in names:
            raise ArgumentError("network", f"the one that was asked about, with the variable {name!r}", network)
        variable = network.variable(name)
        labels = list(variable.labels())
        if sorted(labels) != sorted(map(str, states)):
            requirement = f"the one that was asked about, with the states {states} of {name!r}"
            raise ArgumentError("network", requirement, labels)
        tensor.add(variable)
        table = np.take(table, [list(map(str, states)).index(label) for label in labels], axis=axis)
    # The first variable runs fastest.
    return tensor.fillWith(table.ravel(order="F").tolist())
