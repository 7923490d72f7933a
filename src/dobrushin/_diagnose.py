"""A doctor for models: what can be certified, at what cost, and what to try."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, fields, replace
from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dobrushin._coalescence.sets import choose_sets, tally_sets
from dobrushin._estimate.estimator import quick_plan
from dobrushin._estimate.exact import known_plan
from dobrushin._estimate.query import Workspace, workspace
from dobrushin._influence import influence
from dobrushin._influence.known import known_influence
from dobrushin._models import FactorGraph, Model
from dobrushin._models.sources import as_model, read_source
from dobrushin._scan import Scan
from dobrushin._shared import validate as check
from dobrushin._shared.call import public, stage
from dobrushin._shared.memory import memory_limit
from dobrushin._shared.text import card, counted, rounded_up
from dobrushin._variation import Objective, evaluate
from dobrushin.errors import BudgetError

# Larger models are not searched for a clique tree, or enumerated.
_MAX_FOR_TREE, _MAX_STATES = 20_000, 2**16
_SWEEPS = (10, 100, 1000)
_RUNS = 64
# Seconds of all pilot runs, and of planning.
_SECONDS = 2.0
_PLANNING = 2.0
# A variable counts as bounded, or as coalesced, from this bound or share of open runs down.
_CLOSE = 0.05
# Entries of the tables of blocks whose influence is computed.
_MAX_ENTRIES = 10**5
_SEED = np.random.SeedSequence(0, spawn_key=(1988,))

# Neighbours with less influence than this on each other gain nothing from a common update.
_STRONG = 0.25


@dataclass(frozen=True, repr=False)
class Diagnosis:
    """What `diagnose` found.

    Attributes
    ----------
    model : str
        What was looked at.
    n_variables, largest_degree, largest_cardinality : int
    row_norm, column_norm, spectral_radius : float
        Of the influence; below 1 Dobrushin's condition holds.
    strongest : list of (label, float)
        The variables on which the others have the most influence, and how much.
    hard_zeros : bool
        Whether some states are forbidden.
    irreducible : bool or None
        Whether single updates can go from every allowed state to every other; None where that is not known.
    determined : list of labels
        Variables that some factor fixes when its other variables are given: they cannot move alone.
    width : int or None
        Of the clique tree; None where it does not fit.
    exact_memory : int or None
        Bytes of its tables.
    dobrushin : dict from sweeps to share
        After so many systematic sweeps, the share of the variables with a bound of at most 0.05.
    coalescence : dict from sweeps to share
        After so many sweeps, the share of the variables that coalesce in at least 95% of a few pilot runs.
    seconds : dict from sweeps to float
        About how long 10 000 runs of coalescence would take.
    advice : list of str
        What to try.
    plans : list of (what, method, seconds)
        What `estimate` would do about all variables, and about the one that is moved the most, at a tolerance of 0.01;
        those for which a few seconds of planning have found no way to a guarantee are left out.
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
        """Whether the spectral radius is below 1."""
        return self.spectral_radius < 1

    def lines(self) -> list[tuple[str, str]]:
        """The findings as people read them: a name and a text each."""
        holds = "holds" if self.satisfies_dobrushin else "fails"
        strongest = ", ".join(f"{label!r} ({value:.3g})" for label, value in self.strongest)
        zeros = "none: every state can be reached"
        if self.hard_zeros:
            reach = {True: "can reach everything allowed", False: "are trapped in parts of what is allowed",
                     None: "may be trapped: not known"}[self.irreducible]  # fmt: skip
            zeros = f"some; single moves {reach}; {counted(len(self.determined), 'variable')} cannot move alone"
        exact = "no clique tree fits"
        if self.width is not None:
            exact = f"clique tree of width {self.width}, {(self.exact_memory or 0) / 2**20:.3g} MiB"
        shares = "; ".join(f"{sweeps} sweeps {_percent(share)}" for sweeps, share in self.dobrushin.items())
        coalesced = "; ".join(
            f"{sweeps} sweeps {_percent(share)} ({_seconds(self.seconds[sweeps])})"
            for sweeps, share in self.coalescence.items()
        )
        most = f"{counted(self.largest_cardinality, 'state')} and {counted(self.largest_degree, 'neighbour')}"
        norms = f"rows {rounded_up(self.row_norm)}, columns {rounded_up(self.column_norm)}"
        norms += f", spectral radius {self.spectral_radius:.3g}"
        return [
            ("size", f"{counted(self.n_variables, 'variable')}, up to {most}"),
            ("influence", f"{norms}: Dobrushin's condition {holds}"),
            ("strongest", strongest),
            ("zeros", zeros),
            ("exact", exact),
            ("dobrushin", f"variables bounded by 0.05 after {shares}"),
            (
                "coalescence",
                f"variables coalesce in 95% of {_RUNS} pilot runs within {coalesced or 'no affordable scan'}",
            ),
            ("estimate", "; ".join(map(_plan_words, self.plans)) or "no guarantee was found in a few seconds"),
            *(("try", advice) for advice in self.advice),
        ]

    def to_dict(self) -> dict[str, Any]:
        """The findings for JSON: lists of objects in the place of pairs and of numbers that are keys."""
        about = {field.name: getattr(self, field.name) for field in fields(self)}
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
        """For notebooks."""
        return card(f"Diagnosis of {self.model}", self.lines())

    def __str__(self) -> str:
        return "\n".join([f"Diagnosis of {self.model}", *(f"  {name:<12} {text}" for name, text in self.lines())])

    __repr__ = __str__


@public("looking at the model")
def diagnose(model: Model, *, progress: bool | None = None) -> Diagnosis:
    """Say in ten lines what can be certified about a model, at what cost, and what to try.

    Parameters
    ----------
    model : Model
    progress : bool, optional
        Show what is done: None in a terminal or a notebook, True also in a log, False nowhere.

    Returns
    -------
    Diagnosis
        Its shares come from systematic sweeps and few pilot runs: they are hints and certify nothing.

    Examples
    --------
    >>> import dobrushin as db
    >>> print(db.diagnose(db.Ising.grid(20, 20, couplings=0.3)))
    Diagnosis of Ising(n_variables=400, edges=760)
      size         400 variables, up to 2 states and 4 neighbours
      influence    rows 1.08, columns 1.12, spectral radius 1.06: Dobrushin's condition fails
      strongest    21 (1.07), 22 (1.07), 23 (1.07)
      zeros        none: every state can be reached
      exact        clique tree of width 20, 593 MiB
      dobrushin    variables bounded by 0.05 after 10 sweeps 0%; 100 sweeps 0%
      coalescence  variables coalesce in 95% of 64 pilot runs within 10 sweeps 23% (...); 100 sweeps 100% (...)
      estimate     all variables within 0.01 by exact, ...; variable 21 within 0.01 by local, at once
      try          method "exact": the clique tree fits in memory
      try          method "coalescence": all variables coalesce within 100 sweeps
      try          method "auto": variable 21 within 0.01 by local, at once
    """
    return diagnose_model(read_source(model))


@singledispatch
def diagnose_model(model: Model) -> Diagnosis:
    """See `diagnose`; a family with bounds of its own registers another version."""
    model = as_model(model)
    space = workspace(model)
    bound = space.influence
    sums = np.asarray(bound.matrix.sum(axis=1)).ravel()
    strongest = [(model.labels[i], float(sums[i])) for i in np.argsort(-sums, kind="stable")[:3].tolist()]
    zeros = model._form.has_zeros
    determined = _determined_variables(model) if zeros else []
    with stage("looking for a clique tree"):
        width, memory = _tree(space)
    dobrushin = _bounded_shares(space)
    coalesced, seconds = _coalesced_shares(model)
    irreducible = _irreducible(model) if zeros else True
    diagnosis = Diagnosis(
        repr(model),
        model.n_variables,
        int(np.diff(model._form.adjacency[0]).max(initial=0)),
        int(model.cardinalities.max()),
        bound.norm(np.inf),
        bound.norm(1),
        bound.spectral_radius(),
        strongest,
        zeros,
        irreducible,
        determined,
        width,
        memory,
        dobrushin,
        coalesced,
        seconds,
        [],
    )
    with stage("planning"):
        diagnosis = replace(diagnosis, plans=_plans(model, strongest[0][0]))
    return replace(diagnosis, advice=_advice(diagnosis, model))


def _plans(model: Model, strongest: Hashable) -> list[tuple[str, str, float]]:
    """Plan estimates of all variables, and of the most strongly influenced one."""
    plans = {}
    for what, targets in (("all variables", "all"), (f"variable {strongest!r}", [strongest])):
        plan = quick_plan(model, targets, _PLANNING)
        if plan is not None:
            plans[what] = plan
    return [(what, plan.method, plan.seconds) for what, plan in plans.items()]


def _percent(share: float) -> str:
    """Write a share in whole percent; 100% and 0% are said of all and of none only.

    Examples
    --------
    >>> _percent(1.0), _percent(0.9999), _percent(0.3), _percent(0.001)
    ('100%', 'over 99%', '30%', 'below 1%')
    """
    if 0.995 <= share < 1.0:
        return "over 99%"
    return "below 1%" if 0.0 < share < 0.005 else f"{share:.0%}"


def _seconds(time: float) -> str:
    """Write seconds with two digits, or in full from 100 s on.

    Examples
    --------
    >>> _seconds(0.0141), _seconds(214.0)
    ('0.014 s', '214 s')
    """
    return f"{time:.0f} s" if time >= 100 else f"{time:.2g} s"


def _plan_words(plan: tuple[str, str, float]) -> str:
    what, method, seconds = plan
    return f"{what} within 0.01 by {method}, {f'about {seconds:.1g} s' if seconds >= 0.1 else 'at once'}"


def _tree(space: Workspace) -> tuple[int | None, int | None]:
    if space.model.n_variables > _MAX_FOR_TREE:
        return None, None
    try:
        plan = known_plan(space, memory_limit(None))
    except BudgetError:
        return None, None
    return plan.width, plan.bytes


def _bounded_shares(space: Workspace) -> dict[int, float]:
    """Return the share of the variables that systematic sweeps bound, by the number of sweeps."""
    n = space.model.n_variables
    everything = Objective(np.arange(n), np.ones(n), True)
    shares = {}
    for sweeps in _SWEEPS[:2]:
        bounds = evaluate(space.influence, Scan.systematic(n, n * sweeps), everything).per_variable
        shares[sweeps] = float((bounds <= _CLOSE).mean())
    return shares


def _coalesced_shares(model: Model) -> tuple[dict[int, float], dict[int, float]]:
    """Return the share of the variables that coalesce in pilot runs, as long as these are quick, and their seconds."""
    n = model.n_variables
    shares, seconds = {}, {}
    kernel = choose_sets(model, Scan.systematic(n, n))
    for sweeps in _SWEEPS:
        if kernel.seconds(n * sweeps * _RUNS) > _SECONDS:
            break
        tally = tally_sets(model, kernel, Scan.systematic(n, n * sweeps), list(model.labels), _RUNS, _SEED)
        if tally.trouble is not None:  # an interrupt
            raise tally.trouble
        shares[sweeps] = float((tally.open[-1] <= _CLOSE * _RUNS).mean())
        seconds[sweeps] = kernel.seconds(n * sweeps * 1e4)
        if shares[sweeps] == 1:
            break
    return shares, seconds


def _determined_variables(model: Model) -> list[Hashable]:
    """Return the variables with at most one allowed state given the others in some factor."""
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
    """Return whether single moves reach every allowed state; None where there are too many states to enumerate."""
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


def _radius_of_blocks(model: Model, groups: list[list[Hashable]]) -> float | None:
    """Return the spectral radius of the influence between blocks; None where that would take too long."""
    blocks = model.merge(groups)
    return influence(blocks).spectral_radius() if blocks._form.table.size < _MAX_ENTRIES else None


def _all_by_sums(diagnosis: Diagnosis) -> bool:
    """Return whether `estimate` sums all variables: a method for some of them then helps nobody."""
    return any(what == "all variables" and method == "exact" for what, method, _ in diagnosis.plans)


def _advice(diagnosis: Diagnosis, model: Model) -> list[str]:
    advice = []
    if diagnosis.exact_memory is not None and diagnosis.exact_memory < 2**28:
        advice.append('method "exact": the clique tree is cheap')
    elif diagnosis.exact_memory is not None:
        advice.append('method "exact": the clique tree fits in memory')
    if diagnosis.satisfies_dobrushin:
        advice.append('method "dobrushin": the bias can be bounded before sampling')
    whole = [sweeps for sweeps, share in diagnosis.coalescence.items() if share == 1]
    if whole:
        advice.append(f'method "coalescence": all variables coalesce within {whole[0]} sweeps')
    elif diagnosis.coalescence and max(diagnosis.coalescence.values()) > 0 and not _all_by_sums(diagnosis):
        best = max(diagnosis.coalescence.values())
        advice.append(f'method "coalescence" for some targets: {_percent(best)} of the variables coalesce')
    missing = [plan for plan in diagnosis.plans if not any(f'"{plan[1]}"' in words for words in advice)]
    advice += [f'method "auto": {_plan_words(plan)}' for plan in missing[:1]]
    groups = suggest_groups(model)
    if groups and (diagnosis.determined or not diagnosis.satisfies_dobrushin):
        radius = _radius_of_blocks(model, groups)
        size = f"{counted(len(groups), 'block')} of {sum(map(len, groups))} variables"
        blocks = f"joint variables (suggest_groups, merge): {size}"
        is_larger = radius is not None and radius > diagnosis.spectral_radius
        if diagnosis.determined and not is_larger:
            advice.append(f"{blocks}, so that variables that determine each other move together")
        elif radius is not None and radius < 1:
            advice.append(f"{blocks} bring the spectral radius down to {radius:.3g}")
    if not diagnosis.plans:
        advice.append(
            "evidence on strongly coupled variables, or a larger tolerance; for an estimate without any guarantee, "
            "the method 'uncertified'"
        )
    return advice


@public()
def suggest_groups(model: Model, *, max_states: int = 16) -> list[list[Hashable]]:
    """Propose groups of strongly coupled variables to be made joint variables with ``model.merge``.

    Block updates of such groups forget their start where single updates do not: variables that determine each other
    cannot move alone at all.

    Parameters
    ----------
    model : Model
    max_states : int
        Largest number of joint states of a group. An update of a group costs as many times an update of a variable.

    Returns
    -------
    list of lists of labels
        Disjoint groups of two or more variables; empty where no coupling is strong.

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
    model = as_model(model)
    max_states = check.count(max_states, "max_states", 2)
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
        if a != b and states[a] * states[b] <= max_states:
            parent[max(a, b)] = min(a, b)
            states[min(a, b)] *= states[max(a, b)]
    groups: dict[int, list[Hashable]] = {}
    for i in np.unique(np.concatenate([first[strong], second[strong]])).tolist():
        groups.setdefault(root(i), []).append(model.labels[i])
    return [group for group in groups.values() if len(group) > 1]
