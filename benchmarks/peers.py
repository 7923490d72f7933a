"""Other libraries on the same work. Each is timed from its own built model to its result, compilation excluded."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

import dobrushin as db
from measure import seconds
from workloads import Workload

_MISSING = "not installed"


@dataclass(frozen=True)
class Measured:
    """Seconds, or why there are none."""

    seconds: float | None
    reason: str = ""


# Takes a workload and returns the call to be timed; None where the library has no such model.
Prepare = Callable[[Workload], Callable[[], object] | None]


def peer_names() -> list[str]:
    """All that are tried."""
    return list(_PEERS)


def measure_peers(work: Workload) -> Iterator[Measured]:
    """The same work by each of them."""
    for name, prepare in _PEERS.items():
        if not is_installed(_MODULES[name]):
            yield Measured(None, _MISSING)
            continue
        call = prepare(work)
        yield Measured(None, "-") if call is None else Measured(seconds(call))


def is_installed(module: str) -> bool:
    """Whether a module, or a part of a package, can be imported."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the package that it is a part of
        return False


def _dwave(work: Workload) -> Callable[[], object] | None:
    """Annealing that stays at one temperature, each spin drawn by the Gibbs rule."""
    if not isinstance(work.model, db.Ising):
        return None
    import dimod
    from dwave.samplers import SimulatedAnnealingSampler

    upper = upper_pairs(work.model)
    # Energies instead of log-potentials: the signs differ.
    model = dimod.BinaryQuadraticModel.from_numpy_vectors(
        -work.model.fields, (*upper.coords, -upper.data), 0.0, dimod.SPIN
    )
    return lambda: SimulatedAnnealingSampler().sample(
        model,
        beta_range=[1.0, 1.0],
        beta_schedule_type="linear",
        num_reads=work.chains,
        num_sweeps=work.sweeps,
        proposal_acceptance_criteria="Gibbs",
        seed=1,
    )


def _peapods(work: Workload) -> Callable[[], object] | None:
    """Periodic square lattices without fields: the couplings across the border are 0."""
    if not isinstance(work.model, db.Ising) or work.model.fields.any() or not (side := _side(work.model)):
        return None
    import peapods

    theta = work.model.couplings.tocsr()
    couplings = np.zeros((side, side, 2), dtype=np.float32)
    site = np.arange(side * side).reshape(side, side)
    couplings[:-1, :, 0] = theta[site[:-1].ravel(), site[1:].ravel()].reshape(side - 1, side)
    couplings[:, :-1, 1] = theta[site[:, :-1].ravel(), site[:, 1:].ravel()].reshape(side, side - 1)
    model = peapods.Ising((side, side), couplings, temperatures=np.ones(1), n_replicas=work.chains)
    return lambda: model.sample(work.sweeps, sweep_mode="gibbs")


def _side(model: db.Ising) -> int:
    """The side of a square grid; 0 for other graphs."""
    side = int(model.n_variables**0.5)
    upper = upper_pairs(model)
    steps = set(np.unique(upper.coords[1] - upper.coords[0]).tolist())
    return side if side**2 == model.n_variables and steps <= {1, side} else 0


def _thrml(work: Workload) -> Callable[[], object]:
    """Blocks of one colour each, compiled ahead; chains side by side."""
    import jax
    from thrml import Block, CategoricalNode, SamplingSchedule, SpinNode, sample_states

    n = work.model.n_variables
    ising = isinstance(work.model, db.Ising)
    nodes = [SpinNode() if ising else CategoricalNode() for _ in range(n)]
    color = colors(work.model)
    blocks = [Block([nodes[i] for i in np.flatnonzero(color == c)]) for c in range(color.max() + 1)]
    program = ising_program(work.model, nodes, blocks) if ising else _potts_program(work.model, nodes, blocks)
    schedule = SamplingSchedule(n_warmup=work.sweeps, n_samples=1, steps_per_sample=1)

    def chain(key: Any) -> Any:
        first, second = jax.random.split(key)
        kind = {"dtype": bool} if ising else {"dtype": "uint8"}
        start = [
            jax.random.randint(k, (len(block.nodes),), 0, 2 if ising else work.model.unaries.shape[1]).astype(**kind)
            for k, block in zip(jax.random.split(first, len(blocks)), blocks, strict=True)
        ]
        return sample_states(second, program, schedule, start, [], [Block(nodes)])

    keys = jax.random.split(jax.random.key(1), work.chains)
    compiled = jax.jit(jax.vmap(chain)).lower(keys).compile()
    return lambda: jax.block_until_ready(compiled(keys))


def ising_program(model: db.Ising, nodes: list[Any], blocks: list[Any]) -> Any:
    import jax.numpy as jnp
    from thrml.models import IsingEBM, IsingSamplingProgram

    upper = upper_pairs(model)
    edges = [(nodes[i], nodes[j]) for i, j in zip(*upper.coords, strict=True)]
    energy = IsingEBM(nodes, edges, jnp.asarray(model.fields), jnp.asarray(upper.data), jnp.asarray(1.0))
    return IsingSamplingProgram(energy, blocks, [])


def _potts_program(model: db.Potts, nodes: list[Any], blocks: list[Any]) -> Any:
    import jax
    import jax.numpy as jnp
    from thrml import Block, BlockGibbsSpec, FactorSamplingProgram
    from thrml.models import CategoricalEBMFactor, CategoricalGibbsConditional, SquareCategoricalEBMFactor

    upper, labels = upper_pairs(model), model.unaries.shape[1]
    ends = [Block([nodes[i] for i in side]) for side in upper.coords]
    pairs = SquareCategoricalEBMFactor(ends, jnp.asarray(upper.data)[:, None, None] * jnp.eye(labels))
    unaries = CategoricalEBMFactor([Block(nodes)], jnp.asarray(model.unaries))
    kinds = {type(nodes[0]): jax.ShapeDtypeStruct((), jnp.uint8)}
    specification = BlockGibbsSpec(blocks, [], kinds)
    samplers = [CategoricalGibbsConditional(labels) for _ in blocks]
    return FactorSamplingProgram(specification, samplers, [unaries, pairs], [])


def upper_pairs(model: db.Ising | db.Potts) -> Any:
    """Each pair once."""
    return sparse.coo_array(sparse.triu(model.couplings, k=1))


def colors(model: db.Ising | db.Potts) -> np.ndarray:
    """The first color that no neighbour has yet, in order of position: 2 of them on a grid."""
    start, neighbor = model.couplings.indptr.tolist(), model.couplings.indices.tolist()
    color = [-1] * model.n_variables
    for i in range(model.n_variables):
        taken = {color[j] for j in neighbor[start[i] : start[i + 1]]}
        color[i] = next(c for c in range(len(taken) + 1) if c not in taken)
    return np.array(color)


_MODULES = {"dwave-samplers": "dwave.samplers", "peapods": "peapods", "thrml": "thrml"}
_PEERS: dict[str, Prepare] = {"dwave-samplers": _dwave, "peapods": _peapods, "thrml": _thrml}
