"""networkx: graphs whose edges carry couplings."""

from __future__ import annotations

from typing import Any

from dobrushin._models import Ising, Potts


def from_networkx(graph: Any) -> Ising | Potts:
    """The model of a graph: `Potts` where a node has the attribute ``unary``, else `Ising`.

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
    >>> db.adapters.from_networkx(graph)
    Ising(n_variables=3, edges=2)
    >>> db.estimate(graph, "wet", evidence={"rain": 1}).headline  # wherever a model is asked for
    'P(wet = 1) = 0.802183888559, exact to 1e-12'
    """
    unaries = [data["unary"] for _, data in graph.nodes(data=True) if "unary" in data]
    return Potts(graph, len(unaries[0])) if unaries else Ising(graph)
