"""Sets on the GPU are those on the CPU. Without a GPU, the same source runs on the host, thread after thread."""

import numpy as np
import pytest

import dobrushin as db
from dobrushin._coalescence.sets import choose_sets
from dobrushin._sampling.kernel import Work
from dobrushin._sampling.sampler import on_backend
from test_cuda import MASTER, MODELS, _states, both, ising, scan_of, states_of_both
from test_cuda import gpu as gpu


@pytest.mark.parametrize("degree", [4, 6])
def test_sets_are_those_of_the_cpu(gpu, degree):
    rng = np.random.default_rng(degree)
    model = ising(rng, degree)
    n = model.n_variables
    scan = scan_of(n, 5 * n + 7, rng)
    made = choose_sets(model, scan)
    assert made.name == "set bits"
    cpu, moved = both(made, scan, range(10_000 if gpu[1] else 200))
    assert cpu.dtype == moved.dtype
    assert (cpu == moved).all()
    assert 0 < (cpu < 0).mean() < 1


@pytest.mark.parametrize("states", [2, 3, 9, 33])
def test_sets_of_labels_are_those_of_the_cpu(gpu, states):
    rng = np.random.default_rng(states)
    unaries = np.where(rng.random((4, 5, states)) < 0.2, -np.inf, 2.0 * rng.normal(size=(4, 5, states)))
    unaries[..., 0] = 0.0
    model = db.Potts.grid(4, 5, states=states, couplings=rng.normal(0, 1.5, 31), unaries=unaries)
    scan = scan_of(20, 67, rng)
    made = choose_sets(model, scan)
    assert made.name == "set labels"
    cpu = states_of_both(gpu, made, scan)
    assert 0 < (cpu < 0).mean() < 1 or states == 33  # so many labels all settle


@pytest.mark.parametrize("states", [2, 3, 5, 34])
def test_races_of_factors_are_those_of_the_cpu(gpu, states):
    """Mixed cardinalities, factors of up to five variables, forbidden states."""
    rng = np.random.default_rng(states)
    sizes = [states, *rng.integers(2, 4, size=7).tolist()]
    scopes = [(0, 1), (1, 2, 3), (2, 4), (3, 4, 5, 6), (6, 7), (0, 7), (5,), (1, 2, 4, 6, 7)]
    tables = [rng.normal(0, 0.7, size=[sizes[v] for v in scope]) for scope in scopes]
    tables[3][rng.random(tables[3].shape) < 0.1] = -np.inf
    tables[3][0, 0, 0, 0] = 0.0
    model = db.FactorGraph(sizes, list(zip(scopes, tables, strict=True)))
    scan = scan_of(8, 61, rng)
    made = choose_sets(model, scan)
    assert made.name == "set race"
    cpu = states_of_both(gpu, made, scan)
    assert 0 < (cpu < 0).mean() < 1


@pytest.mark.parametrize("name", ["set labels", "set race"])
@pytest.mark.usefixtures("gpu")
def test_sets_that_the_host_holds_are_read_as_on_the_gpu(name):
    """As after a checkpoint, or without memory: the GPU keeps these sets in another form than the CPU."""
    model = db.Potts.grid(3, 4, states=5, couplings=0.6)
    scan = db.Scan.systematic(12, 40)
    made = choose_sets(model if name == "set labels" else model.to_factor_graph(), scan)
    assert made.name == name
    moved = on_backend(made, scan, 1, "cuda")
    chains, segment = range(100), scan._segments[0]
    x = moved.start(MASTER, chains)
    moved.run(x, Work(MASTER, chains, segment, 0, 20, 0))
    copied = x.copy()
    assert isinstance(copied, np.ndarray)
    expected = _states(made, scan, chains)
    for state in (x, copied):
        moved.run(state, Work(MASTER, chains, segment, 20, 40, 20))
        assert (moved.read(state, np.arange(12), 100) == expected).all()
    assert 0 < (expected < 0).mean() < 1


@pytest.mark.usefixtures("gpu")
def test_what_the_gpu_cannot_do_is_said():
    couplings = np.triu(np.random.default_rng(0).normal(size=(20, 20)), 1)
    scan = db.Scan.systematic(20, 30)
    made = choose_sets(db.Ising(couplings + couplings.T), scan)
    with pytest.raises(db.errors.ArgumentError, match="'cpu' for the kernel 'set field'"):
        on_backend(made, scan, 1, "cuda")
    assert on_backend(made, scan, 10**9, "auto") is made


@pytest.mark.usefixtures("gpu")
def test_backends_give_the_same_certificate():
    model = MODELS[0][1]
    scan = db.Scan.systematic(30, 300)
    cpu, cuda = (db.coalescence(model, scan, runs=300, seed=1, run=db.RunOptions(backend=b)) for b in ("cpu", "cuda"))
    assert (cpu.value, cpu.failures, cpu.update_error) == (cuda.value, cuda.failures, cuda.update_error)
    assert (cpu.per_variable == cuda.per_variable).all()
