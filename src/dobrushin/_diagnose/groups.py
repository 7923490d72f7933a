"""Which variables to update together."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from dobrushin._influence.known import known_influence
from dobrushin._models import Model
from dobrushin._models.sources import as_model
from dobrushin._shared import validate as check
from dobrushin._shared.call import public

# Neighbours that move each other by less than this do well on their own.
_STRONG = 0.25


@public()
def suggest_groups(model: Model, *, most_states: int = 16) -> list[list[Hashable]]:
    """Propose groups of strongly coupled variables to be made joint variables with ``model.merge``.

    Block updates of such groups forget their start where single updates do not: variables that determine each other
    cannot move alone at all.

    Parameters
    ----------
    model : Model
    most_states : int
        Most joint states of a group; an update of a group costs about as many times an update of a variable.

    Returns
    -------
    list of lists of labels
        Disjoint groups of two or more variables; empty where no coupling is strong.

    Notes
    -----
    Pairs of neighbours are gone through from the strongest influence to the weakest, and the groups of the two are
    joined as long as the joint states stay within the limit.

    Examples
    --------
    >>> import dobrushin as db
    >>> ladder = db.Ising({(0, 1): 2.0, (2, 3): 2.0, (1, 2): 0.1, (0, 3): 0.1})
    >>> groups = db.suggest_groups(ladder)
    >>> groups
    [[0, 1], [2, 3]]
    >>> blocks = ladder.merge(groups)
    >>> db.influence(ladder).satisfies_dobrushin, db.influence(blocks).satisfies_dobrushin
    (True, True)
    >>> round(db.influence(ladder).spectral_radius(), 2), round(db.influence(blocks).spectral_radius(), 2)
    (0.97, 0.19)
    """
    model = as_model(model)
    most_states = check.count(most_states, "most_states", 2)
    matrix = known_influence(model).whole.matrix.tocoo()
    first, second = np.minimum(*matrix.coords), np.maximum(*matrix.coords)
    strong = matrix.data >= _STRONG
    order = np.lexsort((second[strong], first[strong], -matrix.data[strong]))
    parent = list(range(model.n_variables))
    states = model.cardinalities.tolist()

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    for i, j in zip(first[strong][order].tolist(), second[strong][order].tolist(), strict=True):
        a, b = root(i), root(j)
        if a != b and states[a] * states[b] <= most_states:
            parent[max(a, b)] = min(a, b)
            states[min(a, b)] *= states[max(a, b)]
    groups: dict[int, list[Hashable]] = {}
    for i in np.unique(np.concatenate([first[strong], second[strong]])).tolist():
        groups.setdefault(root(i), []).append(model.labels[i])
    return [group for group in groups.values() if len(group) > 1]
