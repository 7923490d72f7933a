"""The graph of a model: its edges, the parents in a Bayesian network, and the graph for networkx."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

import numpy as np

from dobrushin._models.derived import find_parents
from dobrushin._shared.arrays import Ints
from dobrushin._shared.call import public
from dobrushin._shared.environment import require
from dobrushin.errors import ArgumentError

if TYPE_CHECKING:
    from dobrushin._models.model import Model


class WithGraph:
    """Mixin class with the methods of a model about its graph."""

    @property
    @public(name="edges")
    def edges(self: Model) -> list[tuple[Hashable, Hashable]]:  # type: ignore[misc]
        """Return the pairs of labels of variables that share a term; in a Bayesian network from parent to child.

        Examples
        --------
        >>> import dobrushin as db
        >>> db.Ising({("sun", "rain"): -0.4, ("rain", "wet"): 0.7}).edges
        [('sun', 'rain'), ('rain', 'wet')]
        """
        return [(self.labels[i], self.labels[j]) for i, j in links(self)[0].tolist()]

    @property
    @public(name="parents")
    def parents(self: Model) -> dict[Hashable, tuple[Hashable, ...]]:  # type: ignore[misc]
        """Return the parents of each variable of a Bayesian network, by label; raise ArgumentError for other models.

        Examples
        --------
        >>> import dobrushin as db
        >>> db.read("docs/gallery/asia.bif").parents["dysp"]
        ('bronc', 'either')
        """
        pairs, is_directed = links(self)
        if not is_directed:
            requirement = "a Bayesian network: one table for each variable, of its probabilities given its parents"
            raise ArgumentError("model", requirement, self)
        found: dict[Hashable, tuple[Hashable, ...]] = dict.fromkeys(self.labels, ())
        for parent, child in pairs.tolist():
            found[self.labels[child]] += (self.labels[parent],)
        return found

    @public()
    def to_networkx(self: Model) -> Any:  # type: ignore[misc]
        """Return the model's graph as a networkx graph; for a Bayesian network directed from parents to children.

        Graphs of `Ising` and `Potts` models have the attributes that `from_networkx` reads.

        Examples
        --------
        >>> import dobrushin as db
        >>> model = db.Ising({("sun", "rain"): -0.4, ("rain", "wet"): 0.7})
        >>> graph = model.to_networkx()
        >>> list(graph.neighbors("rain"))
        ['sun', 'wet']
        >>> db.from_networkx(graph) == model
        True
        """
        from dobrushin._models.ising import SpinPairs
        from dobrushin._models.potts import LabelPairs

        networkx = require("networkx", "formats")
        pairs, is_directed = links(self)
        graph = networkx.DiGraph() if is_directed else networkx.Graph()
        graph.add_nodes_from(self.labels)
        graph.add_edges_from((self.labels[i], self.labels[j]) for i, j in pairs.tolist())
        form = self._form
        if isinstance(form, SpinPairs | LabelPairs):
            attribute, potentials = ("field", form.fields) if isinstance(form, SpinPairs) else ("unary", form.unaries)
            for label, potential in zip(self.labels, potentials.tolist(), strict=True):
                graph.nodes[label][attribute] = potential
            for i, j in pairs.tolist():
                graph.edges[self.labels[i], self.labels[j]]["weight"] = float(form.couplings[i, j])
        return graph


def links(model: Model) -> tuple[Ints, bool]:
    """Return the edges as pairs of positions, and whether they are directed from parents to children."""
    if not model._is_whole:
        raise ArgumentError("model", "one in memory: the graph of a lazy model is never made", model)
    if model._is_discrete:
        graph = model.to_factor_graph()
        found = find_parents(graph)
        if found is not None:
            pairs = [(j, i) for i, k in sorted(found) for j in graph.factor(k)[0] if j != i]
            return np.array(pairs, dtype=np.int64).reshape(-1, 2), True
    start, neighbor = model._form.adjacency
    own = np.repeat(np.arange(model.n_variables), np.diff(start))
    kept = own < neighbor
    return np.stack([own[kept], neighbor[kept].astype(np.int64)], axis=1), False
