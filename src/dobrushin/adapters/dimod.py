"""Conversions between dimod and this library: binary quadratic models, Ising models, and samples.

E(s) = sum J_ij s_i s_j + sum h_i s_i + offset over spins, pi ∝ exp(-beta E): theta = -beta J. Models of bits are those
of spins by x = (1 + s) / 2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dobrushin._models import Ising
from dobrushin._models.forms import rounding_of
from dobrushin._sampling import Samples
from dobrushin._shared import validate as check
from dobrushin._shared.call import public
from dobrushin._shared.environment import require
from dobrushin._shared.running import kept_seed, seed_sequence
from dobrushin._shared.text import counted
from dobrushin.errors import ArgumentError
from dobrushin.io.energies import Energy

if TYPE_CHECKING:
    import dimod


@public()
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
    >>> import dobrushin as db
    >>> model = db.from_dimod(dimod.BinaryQuadraticModel({"a": 1.0}, {("a", "b"): -0.5}, "SPIN"), beta=2.0)
    >>> model.labels, model.fields, float(model.couplings[0, 1])
    (('a', 'b'), array([-2.,  0.]), 1.0)
    """
    check_bqm(bqm)
    if not bqm.num_variables:
        raise ArgumentError("bqm", "a model of at least one variable", bqm)
    beta = check.positive(beta, "beta")
    try:
        vectors: Any = bqm.to_numpy_vectors(sort_labels=False, return_labels=True)
        linear, (i, j, quadratic), _, labels = vectors
        Q, a = (np.asarray(biases, dtype=np.float64) for biases in (quadratic, linear))
    except (TypeError, ValueError):  # a model of objects can hold anything
        raise ArgumentError("bqm", "a model whose biases are real numbers", bqm) from None
    # Numbers of other types were rounded when they became floats.
    error = 0.0 if bqm.dtype in (np.float32, np.float64) else rounding_of(Q, 1.0) + rounding_of(a, 1.0)
    energy = Energy(np.asarray(i), np.asarray(j), Q, a, 0.0, labels, error)

    def refuse(value: float, ends: tuple[int, ...]) -> Exception:
        requirement = f"such that its biases over spins, times beta, are {check.FINITE}"
        names = ", ".join(repr(labels[end]) for end in ends)
        return ArgumentError("bqm", requirement, -value, f"label{'s' * (len(ends) > 1)} {names}")

    return (energy if bqm.vartype.name == "SPIN" else energy.of_bits()).model(beta, refuse)


@public()
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
    >>> db.to_dimod(db.Ising({("a", "b"): 0.5}, fields={"a": -1.0}))
    BinaryQuadraticModel({'a': 1.0, 'b': 0.0}, {('b', 'a'): -0.5}, 0.0, 'SPIN')
    """
    check.instance(model, Ising, "model", "an Ising model")
    beta, offset = check.positive(beta, "beta"), check.finite_number(offset, "offset")
    with np.errstate(over="ignore"):
        energy = Energy.of_model(model, beta, offset, "")
    if not np.isfinite(energy.J).all() or not np.isfinite(energy.h).all():
        raise ArgumentError("beta", "large enough that the model's parameters divided by beta are finite", beta)
    labels = list(model.labels)
    if None in labels:
        raise ArgumentError("model", "without the label None, which dimod replaces", model)
    return require("dimod", "dimod").BinaryQuadraticModel.from_numpy_vectors(
        energy.h, (energy.i, energy.j, energy.J), offset, "SPIN", variable_order=labels
    )


@public()
def to_sampleset(samples: Samples, bqm: dimod.BinaryQuadraticModel) -> dimod.SampleSet:
    """Return samples of a dimod model, drawn by `dobrushin.sample`, as a dimod sample set.

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
    >>> run = db.sample(db.from_dimod(bqm), db.Scan.systematic(2, 40), chains=500, seed=1)
    >>> found = db.to_sampleset(run, bqm)
    >>> found.vartype.name, len(found), sorted(set(found.record.sample.ravel().tolist()))
    ('BINARY', 500, [0, 1])
    """
    check.instance(samples, Samples, "samples", "Samples")
    check_bqm(bqm)
    states = samples._draws()
    if set(samples.variables) != set(bqm.variables) or not samples._spins:
        requirement = "of an Ising model with the variables of 'bqm'"
        raise ArgumentError("samples", requirement, got=counted(len(samples.variables), "variable"))
    rows = states.reshape(-1, states.shape[-1]).astype(np.int8)
    if bqm.vartype.name == "BINARY":
        rows = (rows + 1) // 2
    seed = plain_seed(seed_sequence(samples.seed))
    info = {"seed": seed, "kernel": samples.kernel, "chains": samples.chains, "steps": samples.steps}
    return require("dimod", "dimod").SampleSet.from_samples_bqm((rows, list(samples.variables)), bqm, info=info)


def check_bqm(bqm: Any) -> None:
    """Refuse a value that is not a dimod model."""
    kind = require("dimod", "dimod").BinaryQuadraticModel
    check.instance(bqm, kind, "bqm", "a dimod.BinaryQuadraticModel")


def plain_seed(sequence: np.random.SeedSequence) -> Any:
    """Return a seed as a number, or as a dict if it was spawned from another one, for files of any format."""
    seed = kept_seed(sequence)
    if not isinstance(seed, np.random.SeedSequence):
        return seed
    entropy: Any = seed.entropy
    entropy = int(entropy) if np.ndim(entropy) == 0 else [int(number) for number in entropy]
    return {"entropy": entropy, "spawn_key": [int(number) for number in seed.spawn_key]}
