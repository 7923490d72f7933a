"""dimod: binary quadratic models as Ising models and back, and a sampler for what speaks dimod.

E(s) = sum J_ij s_i s_j + sum h_i s_i + offset over spins, pi ∝ exp(-beta E): theta = -beta J. Models of bits are those
of spins by x = (1 + s) / 2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import dobrushin
from dobrushin._influence import row_source
from dobrushin._models import Ising
from dobrushin._models.forms import rounding_of
from dobrushin._sampling import Samples, sample
from dobrushin._scan import Scan
from dobrushin._shared import validate as check
from dobrushin._shared.call import public
from dobrushin._shared.environment import require
from dobrushin._shared.running import kept_seed, seed_sequence
from dobrushin._variation import evaluate, read_objective
from dobrushin.errors import ArgumentError
from dobrushin.io.energies import Energy

if TYPE_CHECKING:
    import dimod
else:
    dimod = require("dimod", "dimod")

# Steps of the recursion, one for each coupling and sweep, that a bound may take: some tenths of a second.
_CHEAP = 5e7


@public(name="adapters.from_dimod")
def from_dimod(bqm: dimod.BinaryQuadraticModel, *, beta: float = 1.0) -> Ising:
    """Return the Ising model of a dimod model.

    Parameters
    ----------
    bqm : dimod.BinaryQuadraticModel
        Of spins or of bits; a bit 0 is the spin -1.
    beta : float
        Inverse temperature.

    Returns
    -------
    Ising
        With the labels of the model, in its order. The states of bits are called 0 and 1: evidence is given and answers
        come so. Arrays of states have spins all the same.

    Notes
    -----
    pi(s) ∝ exp(-beta E(s)): theta_ij = -beta J_ij, theta_i = -beta h_i. The offset of the energy does not matter to a
    distribution and is not kept; interactions of 0 are not kept either.

    Examples
    --------
    >>> import dimod
    >>> from dobrushin.adapters import from_dimod
    >>> model = from_dimod(dimod.BinaryQuadraticModel({"a": 1.0}, {("a", "b"): -0.5}, "SPIN"), beta=2.0)
    >>> model.labels, model.fields, float(model.couplings[0, 1])
    (('a', 'b'), array([-2.,  0.]), 1.0)
    """
    return _model(bqm, beta)


@public(name="adapters.to_dimod")
def to_dimod(model: Ising, *, beta: float = 1.0, offset: float = 0.0) -> dimod.BinaryQuadraticModel:
    """Return the dimod model of an Ising model.

    Parameters
    ----------
    model : Ising
    beta : float
        Inverse temperature.
    offset : float
        Constant of the energy over spins; of a model that was made from `bqm`, it is ``bqm.spin.offset``.

    Returns
    -------
    dimod.BinaryQuadraticModel
        Of spins, with the labels of the model, in its order.

    Notes
    -----
    J_ij = -theta_ij / beta, h_i = -theta_i / beta. At beta = 1 nothing is rounded. What `from_dimod` made, comes back
    by `from_dimod` at the same beta to the last bit; other models are rounded once.

    Examples
    --------
    >>> import dobrushin as db
    >>> from dobrushin.adapters import from_dimod, to_dimod
    >>> to_dimod(db.Ising({("a", "b"): 0.5}, fields={"a": -1.0}))
    BinaryQuadraticModel({'a': 1.0, 'b': 0.0}, {('b', 'a'): -0.5}, 0.0, 'SPIN')
    """
    check.instance(model, Ising, "model", "an Ising model")
    beta, offset = check.positive(beta, "beta"), check.finite_number(offset, "offset")
    with np.errstate(over="ignore"):
        energy = Energy.of_model(model, beta, offset, "")
    if not np.isfinite(energy.J).all() or not np.isfinite(energy.h).all():
        raise ArgumentError("beta", "large enough that the model's parameters over beta are finite", beta)
    labels = list(model.labels)
    if None in labels:
        raise ArgumentError("model", "without the label None, which dimod replaces", model)
    return dimod.BinaryQuadraticModel.from_numpy_vectors(
        energy.h, (energy.i, energy.j, energy.J), offset, dimod.SPIN, variable_order=labels
    )


@public(name="adapters.to_sampleset")
def to_sampleset(samples: Samples, bqm: dimod.BinaryQuadraticModel) -> dimod.SampleSet:
    """What `dobrushin.sample` drew of a dimod model, as a dimod sample set.

    Parameters
    ----------
    samples : Samples
        Of ``from_dimod(bqm)``, with all variables.
    bqm : dimod.BinaryQuadraticModel

    Returns
    -------
    dimod.SampleSet
        In the vartype of the model, bits for BINARY, with its energies. A row for each chain and kept step; `info` has
        ``seed``, ``kernel``, ``chains`` and ``steps``.

    Examples
    --------
    >>> import dimod
    >>> import dobrushin as db
    >>> bqm = dimod.BinaryQuadraticModel({"a": -1.0}, {("a", "b"): 2.0}, "BINARY")
    >>> run = db.sample(db.adapters.from_dimod(bqm), db.Scan.systematic(2, 40), chains=500, seed=1)
    >>> found = db.adapters.to_sampleset(run, bqm)
    >>> found.vartype.name, len(found), sorted(set(found.record.sample.ravel().tolist()))
    ('BINARY', 500, [0, 1])
    """
    check.instance(samples, Samples, "samples", "Samples")
    _size(bqm)
    states = samples._draws()
    if set(samples.variables) != set(bqm.variables) or not samples.spins:
        requirement = "of an Ising model with the variables of 'bqm'"
        raise ArgumentError("samples", requirement, got=f"{len(samples.variables)} variables")
    rows = states.reshape(-1, states.shape[-1]).astype(np.int8)
    if bqm.vartype is dimod.BINARY:
        rows = (rows + 1) // 2
    seed = _plain_seed(seed_sequence(samples.seed))
    info = {"seed": seed, "kernel": samples.kernel, "chains": samples.chains, "steps": samples.steps}
    return dimod.SampleSet.from_samples_bqm((rows, list(samples.variables)), bqm, info=info)


class DobrushinSampler(dimod.Sampler, dimod.Initialized):
    """Gibbs sampling as a dimod sampler: samples of pi ∝ exp(-beta E), and a bound on how far from it they are.

    It draws from a distribution, and does not look for the least energy: use a large `beta` for low energies.

    Attributes
    ----------
    parameters, properties : dict
        As dimod asks of its samplers.

    Examples
    --------
    >>> import dimod
    >>> from dobrushin.adapters import DobrushinSampler
    >>> bqm = dimod.BinaryQuadraticModel({"a": -1.0}, {("a", "b"): 0.2}, "SPIN")
    >>> found = DobrushinSampler().sample(bqm, num_reads=1000, num_sweeps=50, seed=1)
    >>> len(found), found.info["kernel"], found.info["total_variation_bound"] < 1e-12
    (1000, 'bits', True)
    >>> round(float((found.record.sample[:, 0] == 1).mean()), 2)  # 1 / (1 + exp(-2)) = 0.88
    0.8...
    """

    @property
    def parameters(self) -> dict[str, Any]:
        """Keywords of `sample`, each with the properties that concern it: none."""
        return {name: [] for name in ("num_reads", "beta", "num_sweeps", "seed", "initial_states")}

    @property
    def properties(self) -> dict[str, Any]:
        """Facts about the sampler, known before it is used."""
        return {"library": f"dobrushin {dobrushin.__version__}", "scan": "systematic"}

    @public(name="adapters.DobrushinSampler.sample")
    def sample(
        self,
        bqm: dimod.BinaryQuadraticModel,
        *,
        num_reads: int | None = None,
        beta: float = 1.0,
        num_sweeps: int = 1000,
        seed: int | np.random.SeedSequence | None = None,
        initial_states: Any = None,
        **unknown: Any,
    ) -> dimod.SampleSet:
        """Sample from a binary quadratic model.

        Parameters
        ----------
        bqm : dimod.BinaryQuadraticModel
            Of spins or of bits.
        num_reads : int, optional
            Number of independent chains; the last state of each is returned. Default 1, or one for each initial state.
        beta : float
            Inverse temperature.
        num_sweeps : int
            How often each chain goes through all variables.
        seed : int, SeedSequence or None
            As for `dobrushin.sample`.
        initial_states : samples-like, optional
            Where chains start, in any form that ``dimod.as_samples`` reads; used again and again when there are fewer
            than `num_reads`. Default uniform.
        **unknown
            Other keywords are ignored, with dimod's warning.

        Returns
        -------
        dimod.SampleSet
            In the vartype of the model. Its `info` has the `seed` that repeats the run, `kernel`, `scan`, `num_sweeps`
            and `beta`, and two certified numbers: `total_variation_bound`, on the distance of the joint law of a sample
            from pi, and `marginal_bound`, on that of the law of any single variable. They hold from every start and
            are 1 where nothing is known; None where they would take long.

        Notes
        -----
        The bounds are the Dobrushin variation of the scan with all variables as targets, and its largest entry (see
        `dobrushin.variation`), with the rounding of the updates included.
        """
        self.remove_unknown_kwargs(**unknown)
        if num_reads is not None:
            check.count(num_reads, "num_reads")
        num_sweeps = check.count(num_sweeps, "num_sweeps")
        sequence = seed_sequence(seed)
        model = _model(bqm, beta) if _size(bqm) else None
        reads, start = self._read_start(bqm, num_reads, initial_states)
        info = {"seed": _plain_seed(sequence), "scan": "systematic", "num_sweeps": num_sweeps, "beta": float(beta)}
        if model is None:
            check.positive(beta, "beta")
            states = np.empty((reads, 0), dtype=np.int8)
            info |= {"kernel": "none", "total_variation_bound": 0.0, "marginal_bound": 0.0}
        else:
            scan = Scan.systematic(model.n_variables, model.n_variables * num_sweeps)
            run = sample(model, scan, chains=reads, seed=sequence, initial=start)
            assert run.states is not None
            states = run.states if bqm.vartype is dimod.SPIN else (run.states + 1) // 2
            info |= {"kernel": run.kernel, **_bounds(model, run, num_sweeps)}
        labels = list(bqm.variables)
        return dimod.SampleSet.from_samples_bqm((states.astype(np.int8), labels), bqm, info=info)

    def _read_start(
        self, bqm: dimod.BinaryQuadraticModel, num_reads: int | None, initial_states: Any
    ) -> tuple[int, str | NDArray[Any]]:
        """The number of chains, and their first states as spins by position."""
        if initial_states is None:
            return num_reads or 1, "uniform"
        try:
            read = self.parse_initial_states(bqm, initial_states, "tile", num_reads, copy_always=True)
        except (TypeError, ValueError) as error:
            requirement = f"states of the variables of the model ({error})"
            raise ArgumentError("initial_states", requirement, initial_states) from error
        states = read.initial_states.change_vartype(dimod.SPIN, inplace=False)
        place = {label: k for k, label in enumerate(states.variables)}
        return read.num_reads, states.record.sample[:, [place[label] for label in bqm.variables]]


def _size(bqm: Any) -> int:
    """The number of variables of what must be a model."""
    check.instance(bqm, dimod.BinaryQuadraticModel, "bqm", "a dimod.BinaryQuadraticModel")
    return int(bqm.num_variables)


def _model(bqm: Any, beta: float) -> Ising:
    """The Ising model, or one sentence with the first bias that cannot be used."""
    if not _size(bqm):
        raise ArgumentError("bqm", "a model of at least one variable", bqm)
    beta = check.positive(beta, "beta")
    try:
        linear, (i, j, quadratic), _, labels = bqm.to_numpy_vectors(sort_labels=False, return_labels=True)
        Q, a = (np.asarray(biases, dtype=np.float64) for biases in (quadratic, linear))
    except (TypeError, ValueError):  # a model of objects can hold anything
        raise ArgumentError("bqm", "a model whose biases are real numbers", bqm) from None
    # Numbers of other types were rounded when they became floats.
    error = 0.0 if bqm.dtype in (np.float32, np.float64) else rounding_of(Q, 1.0) + rounding_of(a, 1.0)
    make = Energy if bqm.vartype is dimod.SPIN else Energy.of_bits

    def refuse(value: float, ends: tuple[int, ...]) -> Exception:
        requirement = f"such that its biases over spins, times beta, are {check.FINITE}"
        names = ", ".join(repr(labels[end]) for end in ends)
        return ArgumentError("bqm", requirement, -value, f"label{'s' * (len(ends) > 1)} {names}")

    return make(np.asarray(i), np.asarray(j), Q, a, 0.0, labels, error).model(beta, refuse)


def _bounds(model: Ising, run: Samples, num_sweeps: int) -> dict[str, float | None]:
    """The certificate of a run where it is cheap. It is not asked for, so that a vacuous one is no warning."""
    if model.couplings.nnz * num_sweeps > _CHEAP:
        return {"total_variation_bound": None, "marginal_bound": None}
    source = row_source(model)
    bound = evaluate(source, run.scan, read_objective(source, None, None), 1.0, run.update_error)
    return {"total_variation_bound": bound.tv_bound, "marginal_bound": float(bound.per_variable.max())}


def _plain_seed(sequence: np.random.SeedSequence) -> Any:
    """A seed that any format can hold: a number, or the parts of a sequence that was spawned."""
    seed = kept_seed(sequence)
    if not isinstance(seed, np.random.SeedSequence):
        return seed
    entropy: Any = seed.entropy
    entropy = int(entropy) if np.ndim(entropy) == 0 else [int(number) for number in entropy]
    return {"entropy": entropy, "spawn_key": [int(number) for number in seed.spawn_key]}
