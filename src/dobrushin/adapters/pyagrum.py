"""pyAgrum: Bayesian and Markov networks of pyAgrum as factor graphs, and answers as tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from dobrushin._models import FactorGraph
from dobrushin._shared.call import public
from dobrushin._shared.environment import require
from dobrushin.adapters.pgmpy import Tables, read_marginal, read_weights
from dobrushin.errors import ArgumentError


@public(name="adapters.from_pyagrum")
def from_pyagrum(network: Any) -> FactorGraph:
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
    'P(rain = yes) = 0.529411764706, exact to 1e-12'
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
    states = {variable.name(): list(variable.labels()) for variable in map(network.variable, nodes)}
    weights = []
    for table in tables:
        # The last axis is that of the first variable.
        scope = list(table.names)[::-1]
        child = len(scope) - 1 if isinstance(network, library.BayesNet) else None
        weights.append((scope, read_weights(table.toarray(), scope, child)))
    return Tables(states, weights).graph()


@public(name="adapters.to_pyagrum")
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
    >>> ours = db.adapters.to_pyagrum(answer, network)  # doctest: +SKIP
    >>> theirs = pyagrum.getPosterior(network, target="rain", evs={"wet": "yes"})  # doctest: +SKIP
    >>> bool(abs((ours - theirs).toarray()).max() < 1e-12)  # doctest: +SKIP
    True
    """
    library = require("pyagrum", "pyagrum")
    if not isinstance(network, library.BayesNet | library.MarkovRandomField):
        raise ArgumentError("network", "a BayesNet or a MarkovRandomField of pyAgrum", network)
    marginal = read_marginal(answer, target)
    tensor, names = library.Tensor(), set(network.names())
    table = marginal.table
    for axis, (name, states) in enumerate(zip(marginal.variables, marginal.states, strict=True)):
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
