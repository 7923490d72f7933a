"""Diagnosis of a model: what can be certified, at what cost, and what to try."""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._coalescence.ferromagnet import is_ferromagnet
from dobrushin._coalescence.sets import choose_sets, tally_sets
from dobrushin._estimate.estimator import quick_plan
from dobrushin._estimate.exact import known_plan
from dobrushin._estimate.query import workspace
from dobrushin._influence import Influence, influence
from dobrushin._influence.matrix import known_influence
from dobrushin._models import FactorGraph, Model
from dobrushin._models.sources import as_model, read_source
from dobrushin._scan import Scan
from dobrushin._shared import validate as check
from dobrushin._shared.call import public, stage
from dobrushin._shared.memory import bytes_text, memory_limit
from dobrushin._shared.text import card, counted, rounded_up
from dobrushin._variation import Objective, evaluate
from dobrushin.errors import BudgetError

# Largest number of variables for which a clique tree is searched for; largest number of joint states to enumerate.
_MAX_VARIABLES_FOR_TREE, _MAX_STATES = 20_000, 2**16
# Largest number of table entries of joint variables whose influence is computed.
_MAX_BLOCK_ENTRIES = 10**5
_CERTIFIED_SWEEPS = (10, 100, 1000)
_PILOT_RUNS = 64
# Seconds that all pilot runs may take, and seconds for planning each of two estimates.
_SECONDS_OF_PILOTS, _SECONDS_OF_PLANNING = 2.0, 2.0
# A variable counts as bounded if its bias bound is at most this, and as coalesced if at most this share of the pilot
# runs end before it has coalesced.
_CLOSE_VARIATION = 0.05
_SEED = np.random.SeedSequence(0, spawn_key=(1988,))
# Neighbours with less influence than this on each other gain nothing from a common update.
_STRONG = 0.25


@dataclass(frozen=True, repr=False)
class Diagnosis:
    """Findings of `diagnose` about a model.

    Attributes
    ----------
    model : str
        The model as printed text.
    n_variables, largest_degree, largest_cardinality : int
    row_norm, column_norm, spectral_radius : float
        Norms of the influence matrix; if one of them is below 1, Dobrushin's condition holds.
    strongest : list of (label, float)
        The variables that the others influence most, each with its row sum of the influence matrix.
    hard_zeros : bool
        Whether some states are forbidden.
    irreducible : bool or None
        Whether updates of single variables lead from every allowed joint state to every other one; None if unknown.
    determined : list of labels
        Variables that cannot change alone: some factor allows them one state, given its other variables.
    width : int or None
        Width of the clique tree; None where the tree does not fit in memory.
    exact_memory : int or None
        Bytes that the tables of the clique tree take.
    dobrushin : dict from sweeps to share
        Share of the variables with a bound of at most 0.05 after this number of systematic sweeps.
    coalescence : dict from sweeps to share
        Share of the variables that coalesce within this number of sweeps in at least 95% of a few pilot runs.
    seconds : dict from sweeps to float
        Estimated time of 10 000 runs of coalescence.
    advice : list of str
        Arguments to set, each with its benefit.
    plans : list of (targets, method, seconds)
        Plans of `estimate` at a tolerance of 0.01: for all variables, and for the most influenced variable. A plan is
        left out if a few seconds of planning found no guarantee.
    """

    model: str
    n_variables: int
    largest_degree: int
    largest_cardinality: int
    row_norm: float
    column_norm: float
    spectral_radius: float
    strongest: list[tuple[Hashable, float]]
    hard_zeros: bool
    irreducible: bool | None
    determined: list[Hashable]
    width: int | None
    exact_memory: int | None
    dobrushin: dict[int, float]
    coalescence: dict[int, float]
    seconds: dict[int, float]
    advice: list[str]
    plans: list[tuple[str, str, float]] = field(default_factory=list)

    @property
    def satisfies_dobrushin(self) -> bool:
        """Return whether Dobrushin's condition holds: the spectral radius of the influence is below 1."""
        return self.spectral_radius < 1

    def lines(self) -> list[tuple[str, str]]:
        """Return the printed lines, each as a pair of a name and a text."""
        strongest = ", ".join(f"{label!r} ({value:.3g})" for label, value in self.strongest)
        zeros = "none: every state can be reached"
        if self.hard_zeros:
            reach = {True: "reach every allowed state", False: "are trapped in a part of the allowed states",
                     None: "may be trapped in a part of the allowed states"}[self.irreducible]  # fmt: skip
            zeros = f"some; single moves {reach}; {counted(len(self.determined), 'variable')} cannot move alone"
        exact = "no clique tree fits"
        if self.width is not None:
            exact = f"clique tree of width {self.width}, {bytes_text(self.exact_memory or 0)}"
        shares = "; ".join(f"{sweeps} sweeps {_percent(share)}" for sweeps, share in self.dobrushin.items())
        coalesced = "; ".join(
            f"{sweeps} sweeps {_percent(share)} ({_seconds(self.seconds[sweeps])})"
            for sweeps, share in self.coalescence.items()
        )
        most = f"{counted(self.largest_cardinality, 'state')} and {counted(self.largest_degree, 'neighbour')}"
        norms = f"rows {rounded_up(self.row_norm)}, columns {rounded_up(self.column_norm)}"
        holds = f"Dobrushin's condition {'holds' if self.satisfies_dobrushin else 'fails'}"
        return [
            ("size", f"{counted(self.n_variables, 'variable')}, up to {most}"),
            ("influence", f"{norms}, spectral radius {self.spectral_radius:.3g}: {holds}"),
            ("strongest", strongest),
            ("zeros", zeros),
            ("exact", exact),
            ("dobrushin", f"variables bounded by 0.05 after {shares}"),
            (
                "coalescence",
                f"variables coalesce in 95% of {_PILOT_RUNS} pilot runs within {coalesced or 'no affordable scan'}",
            ),
            ("estimate", "; ".join(map(_plan_words, self.plans)) or "no guarantee was found in a few seconds"),
            *(("try", advice) for advice in self.advice),
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the findings as a dict that can be written as JSON.

        Pairs, and dicts with numbers as keys, become lists of dicts with names.
        """
        about = dict(vars(self))
        about["satisfies_dobrushin"] = self.satisfies_dobrushin
        about["strongest"] = [{"variable": label, "row_sum": value} for label, value in self.strongest]
        about["plans"] = [dict(zip(("targets", "method", "seconds"), plan, strict=True)) for plan in self.plans]
        about["dobrushin"] = [{"sweeps": sweeps, "share": share} for sweeps, share in self.dobrushin.items()]
        about["coalescence"] = [
            {"sweeps": sweeps, "share": share, "seconds": about["seconds"][sweeps]}
            for sweeps, share in self.coalescence.items()
        ]
        del about["seconds"]
        return about

    def _repr_html_(self) -> str:
        return card(f"Diagnosis of {self.model}", self.lines())

    def __str__(self) -> str:
        return "\n".join([f"Diagnosis of {self.model}", *(f"  {name:<12} {text}" for name, text in self.lines())])

    __repr__ = __str__


@public("looking at the model", read=read_source)
def diagnose(model: Model, *, progress: bool | None = None) -> Diagnosis:
    """Summarise in ten lines what can be certified about a model, at what cost, and what to try.

    Parameters
    ----------
    model : Model
    progress : bool, optional
        Show progress. None: only in a terminal or notebook; True: always; False: never.

    Returns
    -------
    Diagnosis
        The shares come from systematic sweeps and few pilot runs: hints, not certificates.

    Examples
    --------
    >>> import dobrushin as db
    >>> print(db.diagnose(db.Ising.grid(20, 20, couplings=0.3)))
    Diagnosis of Ising(n_variables=400, edges=760)
      size         400 variables, up to 2 states and 4 neighbours
      influence    rows 1.08, columns 1.12, spectral radius 1.06: Dobrushin's condition fails
      strongest    21 (1.07), 22 (1.07), 23 (1.07)
      zeros        none: every state can be reached
      exact        clique tree of width 22, 344 MiB
      dobrushin    variables bounded by 0.05 after 10 sweeps 0%; 100 sweeps 0%
      coalescence  variables coalesce in 95% of 64 pilot runs within 10 sweeps 23% (...); 100 sweeps 100% (...)
      estimate     all variables within 0.01 by symmetry, at once; variable 21 within 0.01 by local, at once
      try          method="exact": nothing is left to chance, for a clique tree of 344 MiB
      try          method="coalescence": all variables coalesce within 100 sweeps
      try          method="auto": all variables within 0.01 by symmetry, at once
    """
    model = as_model(model)
    space = workspace(model)
    bound, n = space.influence, model.n_variables
    common = describe_influence(model, bound)
    zeros = model._form.has_zeros
    width = memory = None
    if n <= _MAX_VARIABLES_FOR_TREE:
        with stage("looking for a clique tree"), suppress(BudgetError):
            tree = known_plan(space, memory_limit(None))
            width, memory = tree.width, tree.bytes
    everything = Objective(np.arange(n), np.ones(n), True)
    bounded = {}
    for sweeps in _CERTIFIED_SWEEPS[:2]:
        bounds = evaluate(bound, Scan.systematic(n, n * sweeps), everything).per_variable
        bounded[sweeps] = float((bounds <= _CLOSE_VARIATION).mean())
    coalesced, seconds = _coalesced_shares(model)
    plans, strongest = [], common["strongest"][0][0]
    with stage("planning"):
        for what, targets in (("all variables", "all"), (f"variable {strongest!r}", [strongest])):
            if (plan := quick_plan(model, targets, _SECONDS_OF_PLANNING)) is not None:
                plans.append((what, plan.method, plan.seconds))
    diagnosis = Diagnosis(
        **common,
        largest_cardinality=int(model.cardinalities.max()),
        hard_zeros=zeros,
        irreducible=_irreducible(model) if zeros else True,
        determined=_determined_variables(model) if zeros else [],
        width=width,
        exact_memory=memory,
        dobrushin=bounded,
        coalescence=coalesced,
        seconds=seconds,
        advice=[],
        plans=plans,
    )
    return replace(diagnosis, advice=_advice(diagnosis, model))


def describe_influence(model: Model, bound: Influence) -> dict[str, Any]:
    """Return the fields of `Diagnosis` that describe the model's graph and its influence, as a dict."""
    sums = np.asarray(bound.matrix.sum(axis=1)).ravel()
    return {
        "model": repr(model),
        "n_variables": model.n_variables,
        "largest_degree": int(np.diff(model._form.adjacency[0]).max(initial=0)),
        "row_norm": bound.norm(np.inf),
        "column_norm": bound.norm(1),
        "spectral_radius": bound.spectral_radius(),
        "strongest": [(model.labels[i], float(sums[i])) for i in np.argsort(-sums, kind="stable")[:3].tolist()],
    }


def _percent(share: float) -> str:
    """Return a share as text in whole percent; only exactly 1 and 0 become 100% and 0%.

    Examples
    --------
    >>> _percent(1.0), _percent(0.9999), _percent(0.3), _percent(0.001)
    ('100%', 'over 99%', '30%', 'below 1%')
    """
    if 0.995 <= share < 1.0:
        return "over 99%"
    return "below 1%" if 0.0 < share < 0.005 else f"{share:.0%}"


def _seconds(time: float) -> str:
    """Return a time in seconds as text, with two digits; from 100 s on, without decimals.

    Examples
    --------
    >>> _seconds(0.0141), _seconds(214.0)
    ('0.014 s', '214 s')
    """
    return f"{time:.0f} s" if time >= 100 else f"{time:.2g} s"


def _plan_words(plan: tuple[str, str, float]) -> str:
    what, method, seconds = plan
    return f"{what} within 0.01 by {method}, {f'about {seconds:.1g} s' if seconds >= 0.1 else 'at once'}"


def _coalesced_shares(model: Model) -> tuple[dict[int, float], dict[int, float]]:
    """Return the share of variables that coalesce in pilot runs, and seconds for 10 000 runs, both by number of sweeps.

    Numbers of sweeps that would take too long are left out.
    """
    n = model.n_variables
    shares, seconds = {}, {}
    kernel = choose_sets(model, Scan.systematic(n, n))
    for sweeps in _CERTIFIED_SWEEPS:
        if kernel.seconds(n * sweeps * _PILOT_RUNS) > _SECONDS_OF_PILOTS:
            break
        tally = tally_sets(model, kernel, Scan.systematic(n, n * sweeps), list(model.labels), _PILOT_RUNS, _SEED)
        if tally.trouble is not None:  # an interrupt
            raise tally.trouble
        shares[sweeps] = float((tally.open[-1] <= _CLOSE_VARIATION * _PILOT_RUNS).mean())
        seconds[sweeps] = kernel.seconds(n * sweeps * 1e4)
        if shares[sweeps] == 1:
            break
    return shares, seconds


def _determined_variables(model: Model) -> list[Hashable]:
    """Return the labels of variables that cannot change alone.

    Some factor allows each of them at most one state, whatever the states of the factor's other variables.
    """
    graph = model.to_factor_graph()
    stuck: set[int] = set()
    for k in _hard_factors(graph):
        scope, table = graph.factor(k)
        if len(scope) > 1:
            stuck |= {i for axis, i in enumerate(scope) if ((table > -np.inf).sum(axis=axis) <= 1).all()}
    return [model.labels[i] for i in sorted(stuck)]


def _hard_factors(graph: FactorGraph) -> list[int]:
    entries = np.flatnonzero(np.isneginf(graph._form.table))
    return np.unique(np.searchsorted(graph._form.table_start, entries, side="right") - 1).tolist()


def _irreducible(model: Model) -> bool | None:
    """Return whether updates of single variables lead from every allowed state to every other; None if this is unknown.

    It is unknown if there are too many joint states to enumerate.
    """
    from scipy import sparse
    from scipy.sparse import csgraph

    graph = model.to_factor_graph()
    if all(len(graph.factor(k)[0]) < 2 for k in _hard_factors(graph)):
        return True
    shape = tuple(graph.cardinalities.tolist())
    if np.log2(graph.cardinalities).sum() > np.log2(_MAX_STATES):
        return None
    states = np.stack(np.unravel_index(np.arange(int(np.prod(shape))), shape), axis=1)
    allowed = graph.log_density(states) > -np.inf
    pairs: list[NDArray[Any]] = []
    index = np.arange(len(states)).reshape(shape)
    for axis, size in enumerate(shape):
        lines = np.moveaxis(index, axis, 0).reshape(size, -1)
        pairs += [np.stack([lines[a], lines[b]]) for a in range(size) for b in range(a)]
    ends = np.concatenate(pairs, axis=1) if pairs else np.empty((2, 0), dtype=np.int64)
    ends = ends[:, allowed[ends[0]] & allowed[ends[1]]]
    links = sparse.csr_array((np.ones(ends.shape[1]), (ends[0], ends[1])), (len(states), len(states)))
    _, part = csgraph.connected_components(links, directed=False)
    return len(np.unique(part[allowed])) <= 1


def _advice(diagnosis: Diagnosis, model: Model) -> list[str]:
    advice = []
    if diagnosis.exact_memory is not None:
        size = bytes_text(diagnosis.exact_memory)
        advice.append(f'method="exact": nothing is left to chance, for a clique tree of {size}')
    if diagnosis.satisfies_dobrushin:
        advice.append('method="dobrushin": the bias is bounded before sampling')
    best = max(diagnosis.coalescence.values(), default=0.0)
    are_all_summed = any(what == "all variables" and method == "exact" for what, method, _ in diagnosis.plans)
    if best == 1:
        sweeps = next(sweeps for sweeps, share in diagnosis.coalescence.items() if share == 1)
        advice.append(f'method="coalescence": all variables coalesce within {sweeps} sweeps')
    elif best > 0 and not are_all_summed:
        advice.append(f'method="coalescence" for some targets: {_percent(best)} of the variables coalesce')
    if not diagnosis.satisfies_dobrushin and best < 1 and is_ferromagnet(model):
        advice.append('method="clusters": exact draws at every temperature, as all couplings are attractive')
    missing = [plan for plan in diagnosis.plans if not any(f'"{plan[1]}"' in words for words in advice)]
    advice += [f'method="auto": {_plan_words(plan)}' for plan in missing[:1]]
    if diagnosis.width is None and diagnosis.plans:
        advice.append("log_partition, log_evidence: bounds by the chain rule, from estimates of single variables")
    groups = suggest_groups(model) if diagnosis.determined or not diagnosis.satisfies_dobrushin else []
    blocks = model.merge(groups) if groups else None
    if blocks is not None and blocks._form.table.size < _MAX_BLOCK_ENTRIES:
        radius = influence(blocks).spectral_radius()
        size = f"{counted(len(groups), 'block')} of {sum(map(len, groups))} variables"
        merged = f"model.merge(suggest_groups(model)), {size}: spectral radius {radius:.3g}"
        together = ", and variables that determine each other move together" if diagnosis.determined else ""
        if radius <= diagnosis.spectral_radius and (radius < 1 or together):
            advice.append(f"{merged} instead of {diagnosis.spectral_radius:.3g}{together}")
    if not diagnosis.plans:
        advice.append('method="weights" with a longer time_limit=: bounded weights, for strong couplings of any sign')
        advice.append(
            'evidence= on strongly coupled variables, or a larger tolerance=, for a guarantee; method="uncertified" '
            "for an estimate without any"
        )
    return advice


@public()
def suggest_groups(model: Model, *, max_states: int = 16) -> list[list[Hashable]]:
    """Suggest groups of strongly coupled variables, to be merged into joint variables with ``model.merge``.

    A sampler that updates such groups forgets its start where updates of single variables do not: variables that
    determine each other cannot change alone at all. But the influence between groups can be larger than that between
    variables: compare ``influence(model.merge(groups)).spectral_radius()`` with that of the model, as `diagnose` does.

    Parameters
    ----------
    model : Model
    max_states : int
        Largest number of joint states of a group. The cost of updating a group grows in proportion to this number.

    Returns
    -------
    list of lists of labels
        Disjoint groups of two or more variables; an empty list where all couplings are weak.

    Notes
    -----
    Starting from the strongest influence, the groups of two neighbours are joined as long as their joint states stay
    within the limit.

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
    from scipy.cluster.hierarchy import DisjointSet

    model = as_model(model)
    max_states = check.count(max_states, "max_states", 2)
    matrix = known_influence(model).whole.matrix.tocoo()
    first, second = np.minimum(*matrix.coords), np.maximum(*matrix.coords)
    strong = matrix.data >= _STRONG
    order = np.lexsort((second[strong], first[strong], -matrix.data[strong]))
    groups = DisjointSet(np.unique(np.concatenate([first[strong], second[strong]])).tolist())
    states = model.cardinalities.tolist()  # number of joint states of each group, at the index of its root
    for i, j in zip(first[strong][order].tolist(), second[strong][order].tolist(), strict=True):
        joint = states[groups[i]] * states[groups[j]]
        if joint <= max_states and groups.merge(i, j):
            states[groups[i]] = joint
    found = sorted(sorted(group) for group in groups.subsets() if len(group) > 1)
    return [[model.labels[i] for i in group] for group in found]
