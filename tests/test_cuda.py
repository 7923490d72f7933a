"""The GPU makes the draws of the CPU. Without one, the same source runs on the host, thread after thread."""

import pickle
import sys
from dataclasses import replace

import numpy as np
import pytest

import dobrushin as db
import gpu_on_host
from dobrushin._kernels.generator import mix
from dobrushin._sampling.batches import Job, run_batch
from dobrushin._sampling.cuda import device_kernel
from dobrushin._sampling.kernel import Work, choose_kernel
from dobrushin._sampling.sampler import on_backend
from dobrushin._shared import device
from dobrushin._shared.running import master_key
from dobrushin.verify import verify_proof
from models import random_model

NO_GPU = None if device.is_available() else "no GPU: CuPy or the driver is missing"
MASTER = master_key(np.random.SeedSequence(5))


@pytest.fixture(
    params=[
        pytest.param("host", marks=pytest.mark.skipif(not gpu_on_host.COMPILER, reason="no C++ compiler")),
        pytest.param("gpu", marks=pytest.mark.skipif(bool(NO_GPU), reason=str(NO_GPU))),
    ]
)
def gpu(request, monkeypatch):
    """CuPy, or what stands in for it, and whether it is the real one."""
    if request.param == "gpu":
        yield device.cupy(), True
        device.cupy().get_default_memory_pool().set_limit(size=0)
        return
    pretended = gpu_on_host.Cupy()
    monkeypatch.setitem(sys.modules, "cupy", pretended)
    yield pretended, False


def ising(rng, degree, strong=False):
    """A random model whose variables have up to 4 or 6 neighbours; couplings of both signs."""
    if degree == 4:
        n, edges = 30, [(i, (i + d) % 30) for i in range(30) for d in (1, 6)]
    else:
        n, edges = 27, [(i, (i + d) % 27) for i in range(27) for d in (1, 3, 9)]
    couplings = np.zeros((n, n))
    for i, j in edges:
        couplings[i, j] = couplings[j, i] = rng.normal(0, 20.0 if strong else 0.4)
    return db.Ising(couplings, rng.normal(0, 0.3, n))


def scan_of(n, steps, rng):
    """A part of a cycle, steps in any order, and a cycle that is cut short."""
    part = db.Scan.systematic(n, steps)
    return part + db.Scan(rng.integers(0, n, 17)) + db.Scan.systematic(n, 2 * n + 5)


def both(made, scan, chains):
    """States of all variables after the scan, from the CPU and from the GPU."""
    moved = on_backend(made, scan, 1, "cuda")
    return [_states(kernel, scan, chains) for kernel in (made, moved)]


def states_of_both(gpu, made, scan):
    """Of many chains, which must be the same on both."""
    cpu, moved = both(made, scan, range(3, 20_003 if gpu[1] else 103))
    assert cpu.dtype == moved.dtype
    assert (cpu == moved).all()
    return cpu


def _states(kernel, scan, chains, x=None):
    x = kernel.start(MASTER, chains) if x is None else x
    before = 0
    for segment in scan._segments:
        half = segment.steps // 2
        for lo, hi in ((0, half), (half, segment.steps)):
            if hi > lo:
                kernel.run(x, Work(MASTER, chains, segment, lo, hi, before + lo))
        before += segment.steps
    return kernel.read(x, np.arange(kernel.region.size), len(chains))


def test_forked_processes_are_told_how_to_use_the_gpu(monkeypatch):
    def broken():
        raise RuntimeError("cudaErrorInitializationError: initialization error")

    pretended = gpu_on_host.Cupy()
    pretended.cuda.runtime.getDeviceCount = broken
    monkeypatch.setitem(sys.modules, "cupy", pretended)
    with pytest.raises(RuntimeError, match=r"forked.*get_context\('spawn'\)"):
        device.cupy()


def test_a_forked_process_finds_out_for_itself_whether_there_is_a_gpu(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", gpu_on_host.Cupy())
    device._answers.cache_clear()
    assert device.is_available()
    pretended = gpu_on_host.Cupy()
    pretended.cuda.runtime.getDeviceCount = lambda: 0
    monkeypatch.setitem(sys.modules, "cupy", pretended)
    assert device.is_available()  # it is asked once
    monkeypatch.setattr(device.os, "getpid", lambda: -1)
    assert not device.is_available()
    device._answers.cache_clear()


def test_streams_are_those_of_the_cpu(gpu):
    cp, _ = gpu
    model = db.Ising.grid(3, 3, couplings=0.2)
    scan = db.Scan.systematic(9, 9)
    made = choose_kernel(model, scan, 64, "bits")
    keys = on_backend(made, scan, 1, "cuda")._keys(MASTER, range(3, 1003))
    expected = Work(MASTER, range(64 * 3, 64 * 1003), scan._segments[0], 0, 1, 0).keys(64)
    assert (cp.asarray(keys).get() == expected).all()


@pytest.mark.parametrize("degree", [4, 6])
@pytest.mark.parametrize("strong", [False, True])
def test_bits_are_those_of_the_cpu(gpu, degree, strong):
    rng = np.random.default_rng(degree)
    model = ising(rng, degree, strong)
    n = model.n_variables
    scan = scan_of(n, 20 * n + 7 if gpu[1] else 3 * n + 7, rng)
    made = choose_kernel(model, scan, 1000, "bits")
    assert made.neighbor.shape[1] == degree
    assert made.certain.any() == strong
    for chains in (range(64, 64 + 70), range(20_032 if gpu[1] else 320)):
        cpu, moved = both(made, scan, chains)
        assert cpu.dtype == moved.dtype
        assert (cpu == moved).all()


@pytest.mark.parametrize("planes", [1, 2, 13])
@pytest.mark.usefixtures("gpu")
def test_late_bits_are_those_of_the_cpu(monkeypatch, planes):
    """Almost all chains are decided one by one where few planes are looked at by all."""
    monkeypatch.setattr(device_kernel, "PLANES", planes)
    rng = np.random.default_rng(1)
    model = ising(rng, 4)
    scan = scan_of(30, 65, rng)
    cpu, moved = both(choose_kernel(model, scan, 128, "bits"), scan, range(128))
    assert (cpu == moved).all()


@pytest.mark.usefixtures("gpu")
def test_ties_after_all_bits_are_those_of_the_cpu():
    """Thresholds that agree with the random number in all 64 bits, with probability 1 and without."""
    model = db.Ising(np.zeros((3, 3)))
    scan = db.Scan([0, 1, 2])
    made = choose_kernel(model, scan, 64, "bits")
    chains = range(64)
    keys = Work(MASTER, chains, scan._segments[0], 0, 1, 0).keys(64)
    words = [int(mix(word)) for word in keys[0] + keys[1] * np.arange(3 * 64, dtype=np.uint64)]
    threshold, certain = made.threshold.copy(), made.certain.copy()
    for t in range(3):  # chain 5 meets its own number, whatever its neighbours are
        threshold[t] = sum((words[64 * t + plane] >> 5 & 1) << (63 - plane) for plane in range(64))
    certain[1] = True
    tied = replace(made, threshold=threshold, certain=certain)
    cpu, moved = both(tied, scan, chains)
    assert (cpu == moved).all()
    assert cpu[:, 5].tolist() == [0, 1, 0]


@pytest.mark.parametrize("states", [2, 3, 8, 33, 130])
def test_potts_labels_are_those_of_the_cpu(gpu, states):
    rng = np.random.default_rng(states)
    model = db.Potts.grid(
        4, 5, states=states, couplings=rng.normal(0, 0.7, 31), unaries=rng.normal(size=(4, 5, states))
    )
    scan = scan_of(20, 67, rng)
    made = choose_kernel(model, scan, 1000, "potts")
    states_of_both(gpu, made, scan)


def dense(rng, n, equal):
    """An Ising model of more than 6 neighbours, some of whose couplings are equal but for their sign."""
    sizes = rng.choice([-0.3, 0.3], (n, n)) if equal else rng.normal(size=(n, n))
    couplings = np.triu(rng.random((n, n)) < 0.6, 1) * sizes
    couplings[np.triu_indices(n, 8)] = 0.0
    return db.Ising(couplings + couplings.T, rng.normal(size=n))


@pytest.mark.parametrize("kernel", ["field", "counts", "table", "conditional", "dense"])
def test_other_kernels_make_the_draws_of_the_cpu(gpu, kernel):
    rng = np.random.default_rng(len(kernel))
    if kernel == "conditional":
        model = random_model(rng, "factors", n=9, strength=0.8, max_states=4)
    else:
        model = ising(rng, 6) if kernel == "table" else dense(rng, 27, kernel == "counts")
    scan = scan_of(model.n_variables, 70, rng)
    made = choose_kernel(model, scan, 1000, kernel)
    cpu, moved = both(made, scan, range(64, 20_000 if gpu[1] else 184))
    assert cpu.dtype == moved.dtype
    assert (cpu == moved).all()
    assert len(np.unique(cpu)) > 1


@pytest.mark.parametrize("kernel", ["field", "potts"])
@pytest.mark.parametrize("chains", [384, 385, 700, 1024])
@pytest.mark.usefixtures("gpu")
def test_threads_with_several_chains_make_the_draws_of_the_cpu(kernel, chains, monkeypatch):
    """Also where the last threads have fewer."""
    monkeypatch.setattr(device_kernel, "MIN_LANES_CHAINS", 384)
    rng = np.random.default_rng(chains)
    model = db.Potts.grid(4, 5, states=5, couplings=0.4) if kernel == "potts" else dense(rng, 27, False)
    scan = scan_of(model.n_variables, 30, rng)
    made = choose_kernel(model, scan, 1000, kernel)
    lanes = device_kernel.LANES[made.device_loop]
    assert lanes > 1
    assert device_kernel.BLOCK * (lanes - 1) <= 384
    cpu, moved = both(made, scan, range(5, 5 + chains))
    assert (cpu == moved).all()


@pytest.mark.parametrize("kernel", ["field", "table", "conditional", "factors", "potts", "dense"])
@pytest.mark.parametrize(("uniform", "states", "words"), [(False, 3, ()), (True, 7, (8,)), (False, 20, (8, 16))])
def test_random_scans_are_those_of_the_cpu(gpu, kernel, uniform, states, words, monkeypatch):
    """Chains that the fast memory holds, in words of several sizes, and others."""
    monkeypatch.setattr(device_kernel, "MAX_RUNS_TOGETHER", 1000 if gpu[1] else 25)
    monkeypatch.setattr(device_kernel, "HELD_WORDS", words)
    rng = np.random.default_rng([len(kernel), uniform])
    model = db.Potts.grid(5, 7, states=states, couplings=0.4) if kernel == "potts" else ising(rng, 6)
    n = model.n_variables
    q = rng.random(n) * (rng.random(n) < 0.8)
    scan = db.Scan.uniform(n, 90) if uniform else db.Scan.random(q / q.sum(), 90)
    scan = scan + db.Scan.systematic(n, 11) + scan
    made = choose_kernel(model, scan, 1000, kernel)
    cpu, moved = both(made, scan, range(5, 5000 if gpu[1] else 60))
    assert (cpu == moved).all()


@pytest.mark.parametrize("family", ["pairwise", "factors", "spins", "potts"])
def test_labels_of_factors_are_those_of_the_cpu(gpu, family):
    """Exponentials may differ in the last bit, which changes one draw in some 10^15."""
    rng = np.random.default_rng(7)
    model = random_model(rng, family, n=7, strength=0.8)
    scan = scan_of(7, 70, rng)
    made = choose_kernel(model, scan, 1000, "factors")
    cpu, moved = both(made, scan, range(20_000 if gpu[1] else 100))
    assert cpu.dtype == moved.dtype
    assert (cpu == moved).all()


@pytest.mark.usefixtures("gpu")
def test_forbidden_labels_are_never_drawn():
    table = np.where(np.eye(3), -np.inf, 0.0)
    pairs = [((i, i + 1), table) for i in range(4)]
    model = db.FactorGraph([3] * 5, pairs)
    scan = db.Scan.systematic(5, 50)
    made = choose_kernel(model, scan, 100, "factors")
    moved = on_backend(made, scan, 1, "cuda")
    begin = np.repeat((np.arange(5) % 2)[:, None], 100, axis=1)
    states = _states(moved, scan, range(100), moved.load(begin))
    assert (states[1:] != states[:-1]).all()
    assert (states == _states(made, scan, range(100), made.load(begin))).all()


MODELS: list[tuple[str, db.Model]] = [
    ("bits", ising(np.random.default_rng(2), 4)),
    ("potts", db.Potts.grid(3, 4, states=5, couplings=0.3)),
]


@pytest.mark.parametrize(("name", "model"), MODELS, ids=["bits", "potts"])
@pytest.mark.usefixtures("gpu")
def test_batches_records_and_counts_of_a_run(name, model):
    """Through the one path that all runs take: kept states and counts, from batches of any size."""
    rng = np.random.default_rng(3)
    n = model.n_variables
    scan = scan_of(n, 5 * n, rng)
    made = choose_kernel(model, scan, 300, name)
    moved = on_backend(made, scan, 1, "cuda")
    rows, stops = np.array([0, 3]), np.arange(n, len(scan) + 1, n)
    largest = int(model.cardinalities.max())
    results = []
    for kernel, batches in ((made, [range(300)]), (moved, [range(300)]), (moved, [range(128), range(128, 300)])):
        job = Job(kernel, scan, MASTER, rows, stops, largest, counts=True)
        parts = [run_batch(pickle.loads(pickle.dumps(job)), batch, None, None, 0) for batch in batches]
        results.append((np.concatenate([p.states for p in parts], axis=2), sum(p.counts for p in parts)))
    for states, counts in results[1:]:
        assert (states == results[0][0]).all()
        assert (counts == results[0][1]).all()


@pytest.mark.parametrize(("name", "model"), MODELS, ids=["bits", "potts"])
def test_without_memory_the_host_holds_the_states(gpu, name, model):
    cp, real = gpu
    scan = scan_of(model.n_variables, 50, np.random.default_rng(4))
    made = choose_kernel(model, scan, 1000, name)
    moved = on_backend(made, scan, 1, "cuda")
    chains = range(40_000 if real else 500)
    expected = _states(made, scan, chains)
    moved.tables()
    if real:
        cp.get_default_memory_pool().free_all_blocks()
        cp.get_default_memory_pool().set_limit(size=cp.get_default_memory_pool().used_bytes() + 2**17)
    else:
        cp.limit = 2**10
    x = moved.start(MASTER, chains)
    assert isinstance(x, np.ndarray)
    assert (_states(moved, scan, chains, x) == expected).all()


@pytest.mark.usefixtures("gpu")
def test_long_runs_take_several_launches(monkeypatch):
    monkeypatch.setattr(device_kernel, "MAX_LAUNCH_STEPS", 7)
    for name, model in MODELS:
        scan = scan_of(model.n_variables, 50, np.random.default_rng(6))
        made = choose_kernel(model, scan, 100, name)
        cpu, moved = both(made, scan, range(70))
        assert (cpu == moved).all()


@pytest.mark.usefixtures("gpu")
def test_a_copy_of_the_states_can_be_gone_on_from():
    """As a checkpoint does."""
    name, model = MODELS[0]
    scan = db.Scan.systematic(30, 100)
    made = choose_kernel(model, scan, 100, name)
    moved = on_backend(made, scan, 1, "cuda")
    chains, segment = range(100), scan._segments[0]
    x = moved.start(MASTER, chains)
    moved.run(x, Work(MASTER, chains, segment, 0, 40, 0))
    copied = x.copy()
    assert isinstance(copied, np.ndarray)
    for state in (x, copied):
        moved.run(state, Work(MASTER, chains, segment, 40, 100, 40))
    rows, counts = np.arange(30), [np.zeros((30, 2), dtype=np.int64) for _ in range(2)]
    assert (moved.read(x, rows, 100) == moved.read(copied, rows, 100)).all()
    for state, count in zip((x, copied), counts, strict=True):
        moved.count(state, rows, 100, count)
    assert (counts[0] == counts[1]).all()


@pytest.mark.usefixtures("gpu")
def test_batches_fit_the_memory(monkeypatch):
    name, model = MODELS[0]
    scan = db.Scan.systematic(30, 100)
    moved = on_backend(choose_kernel(model, scan, 100, name), scan, 1, "cuda")
    assert list(moved.batches(range(1000), 2)) == [range(1000)]
    monkeypatch.setattr(device_kernel, "free_memory", lambda: 100 * 31 * 8)
    batches = list(moved.batches(range(64, 10_000), 2))
    assert [batch.start for batch in batches[1:]] == [batch.stop for batch in batches[:-1]]
    assert (batches[0].start, batches[-1].stop) == (64, 10_000)
    assert all(batch.start % 64 == 0 and len(batch) <= 64 * 40 for batch in batches)


def test_tables_that_do_not_fit_are_named(gpu, monkeypatch):
    cp, _ = gpu
    name, model = MODELS[0]
    scan = db.Scan.systematic(30, 100)
    moved = on_backend(choose_kernel(model, scan, 100, name), scan, 1, "cuda")
    x = moved.start(MASTER, range(100))

    def full(*_, **__):
        raise cp.cuda.memory.OutOfMemoryError(1, 2)

    monkeypatch.setattr(moved, "_make_tables", full)
    with pytest.raises(MemoryError, match=r"cannot hold the tables of this model: use backend='cpu'\."):
        moved.run(x, Work(MASTER, range(100), scan._segments[0], 0, 40, 0))


def test_runs_are_looked_at_now_and_then():
    name, model = MODELS[0]
    scan = db.Scan.systematic(30, 100)
    moved = device_kernel.DeviceBits(choose_kernel(model, scan, 100, name))
    assert moved.look(1) == moved.look(64) == device_kernel.MAX_LAUNCH_STEPS
    assert moved.look(10**7) == 10**4
    assert moved.look(10**12) == 1


def test_a_missing_gpu_is_one_clear_sentence(monkeypatch):
    model = ising(np.random.default_rng(0), 4)
    scan = db.Scan.systematic(30, 10)
    made = choose_kernel(model, scan, 100, "bits")

    def missing(*_):
        raise ImportError

    monkeypatch.setattr("importlib.import_module", missing)
    with pytest.raises(ImportError, match=r"needs cupy, which is not installed: pip install 'dobrushin\[cuda\]'"):
        on_backend(made, scan, 1, "cuda")
    monkeypatch.undo()

    class Runtime:
        def getDeviceCount(self):
            raise OSError("no driver")

    class Broken:
        cuda = type("cuda", (), {"runtime": Runtime()})

    monkeypatch.setitem(sys.modules, "cupy", Broken)
    with pytest.raises(RuntimeError, match=r"needs an NVIDIA GPU .* 'dobrushin\[cuda\]'\): no driver\."):
        on_backend(made, scan, 1, "cuda")


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(("name", "model"), MODELS, ids=["bits", "potts"])
def test_backends_give_the_same_samples(name, model, tmp_path):
    scan = scan_of(model.n_variables, 50, np.random.default_rng(5))
    keep = db.Record(every=20, counts=True)
    options = {"chains": 200, "seed": 3, "record": keep, "kernel": name}
    cpu = db.sample(model, scan, run=db.RunOptions(backend="cpu"), **options)
    for file in (None, tmp_path / "run", tmp_path / "run"):
        cuda = db.sample(model, scan, run=db.RunOptions(backend="cuda", checkpoint=file), **options)
        assert (cpu.states == cuda.states).all()
        assert (cpu.counts == cuda.counts).all()
        assert (cpu.update_error == cuda.update_error).all()
        assert cpu.kernel == cuda.kernel
    begin = np.zeros(model.n_variables) if name == "potts" else np.ones(model.n_variables)
    cpu, cuda = (
        db.sample(model, scan, run=db.RunOptions(backend=b), initial=begin, **options) for b in ("cpu", "cuda")
    )
    assert (cpu.states == cuda.states).all()


@pytest.mark.parametrize("method", ["dobrushin", "coalescence"])
@pytest.mark.usefixtures("gpu")
def test_backends_give_the_same_estimate(method):
    model = db.Ising.grid(5, 5, couplings=0.1)
    options = {"tolerance": 0.1, "confidence": 0.8, "method": method, "seed": 1}
    cpu, cuda = (db.estimate(model, [0, 12], run=db.RunOptions(backend=b), **options) for b in ("cpu", "cuda"))
    for part in ("value", "lower", "upper", "bias_bound"):
        assert (getattr(cpu, part) == getattr(cuda, part)).all()


def test_unknown_backends_are_named():
    model = MODELS[0][1]
    with pytest.raises(db.errors.ArgumentError, match="'backend'"):
        db.sample(model, db.Scan.systematic(30, 3), run=db.RunOptions(backend="tpu"))
    with pytest.raises(db.errors.ArgumentError, match="'backend'"):
        db.coalescence(model, db.Scan.systematic(30, 3), run=db.RunOptions(backend="tpu"))
    with pytest.raises(db.errors.ArgumentError, match="'backend'"):
        db.estimate(model, [0], run=db.RunOptions(backend="tpu"))


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("method", ["dobrushin", "coalescence", "exact"])
def test_answers_from_the_gpu_carry_a_proof(method, tmp_path):
    model = db.Potts.grid(3, 3, states=3, couplings=0.2)
    path = tmp_path / "answer.proof"
    db.estimate(
        model, [0], method=method, tolerance=0.25, confidence=0.8, run=db.RunOptions(backend="cuda"), proof=path
    )
    assert verify_proof(path).verdict == "holds"
