"""Other libraries on the way to the same answer: the marginal of one corner, at the same standard error.

They have no error bars that hold, so nothing is asked of them but as many draws as the standard error takes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import dobrushin as db
from peers import colors, is_installed, ising_program, upper_pairs

# Draws of one chain come in batches of so many sweeps, far longer than they remember.
_BATCH = 20
# Updates between two looks at the standard error.
_UPDATES = 4 * 10**8


@dataclass(frozen=True)
class Found:
    """Seconds that a library takes to the standard error, or why there are none."""

    name: str
    seconds: float | None
    note: str


# Draws of the corner, and the seconds that they took; rows are independent of one another.
Draw = Callable[[int], tuple[NDArray[np.float64], float]]


def measure_answers(model: db.Ising, error: float, sweeps: int, most_seconds: float) -> Iterator[Found]:
    """Each library until the standard error `error`.

    Parameters
    ----------
    sweeps
        From a random start to the first draw.
    most_seconds
        A run that is not done by then is extrapolated: its squared error falls as 1 / time.
    """
    for name, (module, prepare) in _PEERS.items():
        if not is_installed(module):
            yield Found(name, None, "not installed")
        else:
            yield _until(name, prepare(model, sweeps), error, most_seconds)


def _until(name: str, draw: Draw, error: float, most_seconds: float) -> Found:
    values, elapsed, block = [], 0.0, 0
    while True:
        block += 1
        more, seconds = draw(block)
        values.append(more)
        elapsed += seconds
        count = sum(part.size for part in values)
        reached = _standard_error(np.concatenate(values).mean(axis=1))
        if reached <= error:
            return Found(name, elapsed, f"{count} draws")
        if elapsed > most_seconds:
            factor = (reached / error) ** 2
            return Found(name, elapsed * factor, f"extrapolated from {count} draws in {elapsed:.0f} s")


def _standard_error(means: NDArray[np.float64]) -> float:
    """Of the mean of independent values."""
    return float(np.std(means, ddof=1) / np.sqrt(len(means)))


def _dwave(model: db.Ising, sweeps: int) -> Draw:
    """Independent reads: only the last state of a run is returned. Its own clock, which leaves out all conversions."""
    import dimod
    from dwave.samplers import SimulatedAnnealingSampler

    pairs = upper_pairs(model)
    energies = dimod.BinaryQuadraticModel.from_numpy_vectors(
        -model.fields, (*pairs.coords, -pairs.data), 0.0, dimod.SPIN
    )
    reads = max(20, _UPDATES // (sweeps * model.n_variables))

    def draw(block: int) -> tuple[NDArray[np.float64], float]:
        found = SimulatedAnnealingSampler().sample(
            energies,
            beta_range=[1.0, 1.0],
            beta_schedule_type="linear",
            num_reads=reads,
            num_sweeps=sweeps,
            proposal_acceptance_criteria="Gibbs",
            seed=block,
        )
        corner = found.record.sample[:, found.variables.index(0)]
        return (corner[:, None] == 1).astype(float), found.info["timing"]["sampling_ns"] * 1e-9

    return draw


def _thrml(model: db.Ising, sweeps: int) -> Draw:
    """Long chains that draw after every sweep, compiled ahead; each block is a chain of its own."""
    import jax
    from thrml import Block, SamplingSchedule, SpinNode, sample_states

    nodes = [SpinNode() for _ in range(model.n_variables)]
    color = colors(model)
    blocks = [Block([nodes[i] for i in np.flatnonzero(color == c)]) for c in range(color.max() + 1)]
    program = ising_program(model, nodes, blocks)
    draws = max(1, _UPDATES // model.n_variables // _BATCH) * _BATCH
    schedule = SamplingSchedule(n_warmup=sweeps, n_samples=draws, steps_per_sample=1)

    def chain(key: jax.Array) -> list[jax.Array]:
        first, second = jax.random.split(key)
        keys = jax.random.split(first, len(blocks))
        start = [jax.random.bernoulli(k, 0.5, (len(block.nodes),)) for k, block in zip(keys, blocks, strict=True)]
        return sample_states(second, program, schedule, start, [], [Block([nodes[0]])])

    compiled = jax.jit(chain).lower(jax.random.key(0)).compile()

    def draw(block: int) -> tuple[NDArray[np.float64], float]:
        key = jax.random.key(block)
        begin = time.perf_counter()
        found = jax.block_until_ready(compiled(key))
        elapsed = time.perf_counter() - begin
        return np.asarray(found[0], dtype=float).reshape(-1, _BATCH), elapsed

    return draw


_PEERS: dict[str, tuple[str, Callable[[db.Ising, int], Draw]]] = {
    "dwave-samplers": ("dwave.samplers", _dwave),
    "thrml": ("thrml", _thrml),
}
