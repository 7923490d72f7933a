"""thrml: its energies and conditionals as they are computed by itself, and bounds on what its schedules are worth."""

import itertools
import sys
import warnings

import numpy as np
import pytest

import dobrushin as db
from dobrushin.errors import ArgumentError, CertificateError
from transcripts import run_docstrings, run_section

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    try:
        import jax
        import jax.numpy as jnp
        import thrml
        from thrml import Block, BlockGibbsSpec, CategoricalNode, FactorSamplingProgram, SamplingSchedule, SpinNode
        from thrml.models import (
            CategoricalEBMFactor,
            CategoricalGibbsConditional,
            DiscreteEBMFactor,
            FactorizedEBM,
            IsingEBM,
            IsingSamplingProgram,
            SpinEBMFactor,
            SpinGibbsConditional,
        )
    except ImportError:
        thrml = None

needs_thrml = pytest.mark.skipif(thrml is None, reason="thrml is not installed (extra 'thrml')")
pytestmark = pytest.mark.filterwarnings("ignore")

if thrml is not None:

    class ProbeSpin(SpinGibbsConditional):
        """thrml's own parameters in the place of a draw."""

        def sample_given_parameters(self, key, parameters, sampler_state, output_sd):
            return parameters, sampler_state

    class ProbeCategories(CategoricalGibbsConditional):
        def sample_given_parameters(self, key, parameters, sampler_state, output_sd):
            return parameters, sampler_state


class Case:
    """A small program of thrml with everything enumerated by thrml's own functions."""

    def __init__(self, factors, groups, clamped=(), sizes=None, clamped_states=(), ebm=None):
        self.sizes = sizes or {}
        self.ebm = ebm or FactorizedEBM(factors)
        self.blocks = [block for group in groups for block in (group if isinstance(group, tuple) else (group,))]
        spec = BlockGibbsSpec(groups, list(clamped), self.ebm.node_shape_dtypes)
        self.program = FactorSamplingProgram(spec, [self.sampler(b) for b in self.blocks], self.ebm.factors, [])
        probes = [self.sampler(b, ProbeSpin, ProbeCategories) for b in self.blocks]
        self.probe = FactorSamplingProgram(spec, probes, self.ebm.factors, [])
        self.clamped_blocks, self.clamped = list(clamped), [jnp.asarray(state) for state in clamped_states]
        self.free = [node for block in self.blocks for node in block]
        self.cards = [self.size(node) for node in self.free]
        self.states = np.array(list(itertools.product(*map(range, self.cards))))

    def size(self, node):
        return 2 if isinstance(node, SpinNode) else self.sizes[node]

    def sampler(self, block, spin=None, categories=None):
        if isinstance(block.nodes[0], SpinNode):
            return (spin or SpinGibbsConditional)()
        return (categories or CategoricalGibbsConditional)(self.size(block.nodes[0]))

    def split(self, states):
        """States of the free nodes, as thrml has them: one array for each block."""
        found, place = [], 0
        for block in self.blocks:
            own = states[..., place : place + len(block)]
            found.append(
                jnp.asarray(own.astype(bool) if isinstance(block.nodes[0], SpinNode) else own.astype(np.uint8))
            )
            place += len(block)
        return found

    def law(self):
        """pi, by thrml's energy."""
        blocks = [*self.blocks, *self.clamped_blocks]
        energy = jax.vmap(lambda *free: self.ebm.energy([*free, *self.clamped], blocks))
        logs = -np.asarray(energy(*self.split(self.states)), dtype=np.float64)
        weights = np.exp(logs - logs.max())
        return weights / weights.sum()

    def conditionals(self, block):
        """For each joint state, the probabilities of the states of each node of a block, by thrml's sampler."""
        parameters = jax.vmap(
            lambda *free: thrml.sample_single_block(
                jax.random.key(0), list(free), self.clamped, self.probe, block, None
            )[0]
        )
        found = np.asarray(parameters(*self.split(self.states)), dtype=np.float64)
        if isinstance(self.blocks[block].nodes[0], SpinNode):
            up = 1 / (1 + np.exp(-2 * found))
            return np.stack([1 - up, up], axis=-1)
        weights = np.exp(found - found.max(axis=-1, keepdims=True))
        return weights / weights.sum(axis=-1, keepdims=True)

    def transition(self):
        """The matrix of one pass through all blocks, as `sample_blocks` does it."""
        starts = np.cumsum([0, *map(len, self.blocks)])
        matrix = np.eye(len(self.states))
        for group in self.program.gibbs_spec.sampling_order:
            step = np.ones((len(self.states), len(self.states)))
            drawn = set()
            for b in group:
                law = self.conditionals(b)
                for k in range(len(self.blocks[b])):
                    step *= law[:, k, :][:, self.states[:, starts[b] + k]]
                    drawn.add(starts[b] + k)
            kept = [k for k in range(len(self.free)) if k not in drawn]
            step *= (self.states[:, None, kept] == self.states[None, :, kept]).all(axis=-1)
            matrix = matrix @ step
        return matrix


def ising(rng, n=5, strength=0.4, clamped=0):
    """A random ring with a chord, in blocks of nodes that do not interact."""
    nodes = [SpinNode() for _ in range(n + clamped)]
    edges = [(nodes[i], nodes[(i + 1) % n]) for i in range(n)] + [(nodes[0], nodes[2])] if n > 3 else []
    edges += [(nodes[i], nodes[n + k]) for k in range(clamped) for i in range(0, n, 2)]
    colours = {}
    for node in nodes[:n]:
        near = {colours.get(a if b == node else b) for a, b in edges if node in (a, b)}
        colours[node] = next(c for c in itertools.count() if c not in near)
    blocks = [Block([node for node in nodes[:n] if colours[node] == c]) for c in sorted(set(colours.values()))]
    biases = jnp.asarray(rng.normal(size=n + clamped) * strength, dtype=jnp.float32)
    weights = jnp.asarray(rng.normal(size=len(edges)) * strength, dtype=jnp.float32)
    ebm = IsingEBM(nodes, edges, biases, weights, jnp.float32(1.3))
    held = [Block(nodes[n:])] if clamped else []
    states = [rng.random(clamped) < 0.5] if clamped else []
    return Case(None, blocks, held, clamped_states=states, ebm=ebm)


def mixed(rng, strength=0.3):
    """Spins and categories of different sizes, terms of three nodes, a superblock, clamped nodes, a node of its own."""
    s, c, d = [SpinNode() for _ in range(3)], [CategoricalNode() for _ in range(2)], CategoricalNode()
    held, alone = [SpinNode(), CategoricalNode()], SpinNode()

    def weights(*shape):
        return jnp.asarray(rng.normal(size=shape) * strength, dtype=jnp.float32)

    factors = [
        SpinEBMFactor([Block(s)], weights(3)),
        SpinEBMFactor([Block([s[0]]), Block([s[1]]), Block([held[0]])], weights(1)),
        CategoricalEBMFactor([Block(c), Block([d, d])], weights(2, 3, 2)),
        DiscreteEBMFactor([Block([s[2]])], [Block([c[0]])], weights(1, 3)),
        DiscreteEBMFactor([Block([s[0], s[1]])], [Block([d, d]), Block([held[1], held[1]])], weights(2, 2, 4)),
        DiscreteEBMFactor([Block([s[0], s[0]])], [Block([d, d]), Block([held[1], held[1]])], weights(2, 2, 4)),
    ]
    groups = [(Block([s[0]]), Block(c)), Block([s[1], s[2]]), Block([d]), Block([alone])]
    sizes = {c[0]: 3, c[1]: 3, d: 2, held[1]: 4}
    states = [np.array([True]), np.array([3], dtype=np.uint8)]
    return Case(factors, groups, [Block([held[0]]), Block([held[1]])], sizes, states)


CASES = {
    "ring": lambda rng: ising(rng),
    "clamped": lambda rng: ising(rng, clamped=2),
    "weak": lambda rng: ising(rng, strength=0.1),
    "apart": lambda rng: ising(rng, n=3, clamped=1),
    "mixed": mixed,
}


@needs_thrml
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seed", [0, 1])
def test_models_have_the_distribution_and_the_conditionals_of_thrml(name, seed):
    case = CASES[name](np.random.default_rng(seed))
    model = db.from_thrml(case.program, case.clamped or None)
    assert db.adapters.thrml.nodes(case.program) == case.free
    assert model.cardinalities.tolist() == case.cards
    law = case.law()
    assert db.exact.distribution(model).ravel() == pytest.approx(law, abs=2e-6)
    assert law @ case.transition() == pytest.approx(law, abs=2e-6)  # and thrml leaves it as it is
    spins = case.states * 2 - 1 if isinstance(model, db.Ising) else case.states
    place = 0
    for b, block in enumerate(case.blocks):
        found = case.conditionals(b)
        for k in range(len(block)):
            assert model.conditional(place, spins) == pytest.approx(found[:, k], abs=2e-6)
            place += 1
    if not case.clamped:
        whole = db.from_thrml(case.ebm)
        order = [db.adapters.thrml.nodes(case.ebm).index(node) for node in case.free]
        wanted = np.transpose(db.exact.distribution(whole), order).ravel()
        assert wanted == pytest.approx(law, abs=2e-6)


def worst(case, node, sweeps, transition):
    """The largest total variation of a node after so many sweeps, over all initial states, and its exact law."""
    column = case.states[:, case.free.index(node)]
    table = np.stack([column == k for k in range(case.size(node))], axis=1).astype(float)
    after = np.linalg.matrix_power(transition, sweeps) @ table
    return np.abs(after - case.law() @ table).sum(axis=1).max() / 2


@needs_thrml
@pytest.mark.parametrize("name", CASES)
def test_no_sample_is_further_from_the_truth_than_certified(name):
    rng = np.random.default_rng(7)
    too_small = 0
    for _ in range(3):
        case = CASES[name](rng)
        transition = case.transition()
        for sweeps in (0, 1, 2, 5):
            schedule = SamplingSchedule(sweeps, 1, 1)
            loose = db.adapters.thrml.certify(case.program, schedule)
            given = db.adapters.thrml.certify(case.program, schedule, clamped=case.clamped or None)
            assert loose.targets == case.free
            assert (given.first <= loose.first + 1e-9).all()
            for k, node in enumerate(case.free):
                true = worst(case, node, sweeps, transition)
                assert true <= given.first[k] + 1e-6
                assert given.bias[k] >= given.first[k]
                # Negative control: the bound for two more sweeps would not do.
                too_small += (
                    true
                    > db.adapters.thrml.certify(
                        case.program, SamplingSchedule(sweeps + 2, 1, 1), node, clamped=case.clamped or None
                    ).first[0]
                    + 1e-6
                )
    assert too_small


@needs_thrml
@pytest.mark.parametrize("name", ["ring", "clamped", "mixed"])
def test_bias_and_variance_of_averages_are_bounded(name):
    case = CASES[name](np.random.default_rng(3))
    transition, law = case.transition(), case.law()
    schedule = SamplingSchedule(2, 6, 2)
    found = db.adapters.thrml.certify(case.program, schedule, clamped=case.clamped or None)
    assert found.sweeps == 2 + 5 * 2
    powers = [np.linalg.matrix_power(transition, t) for t in range(found.sweeps + 1)]
    times = [2 + 2 * k for k in range(6)]
    tight = 0
    for k in range(len(case.free)):
        indicator = (case.states[:, k] == 0).astype(float)
        means = np.stack([powers[t] @ indicator for t in times])  # by time and initial state
        assert np.abs(means.mean(axis=0) - law @ indicator).max() <= found.bias[k] + 1e-6
        second = sum(
            powers[min(a, b)] @ (indicator * (powers[abs(a - b)] @ indicator))
            for a, b in itertools.product(times, times)
        )
        variance = (second / 36 - means.mean(axis=0) ** 2).max()
        assert np.sqrt(variance) <= found.standard_error[k] + 1e-6
        tight += np.sqrt(variance) > 0.5 * found.standard_error[k]
        assert found.effective_samples[k] <= 6 + 1e-9
    assert tight  # it is a bound that says something


@needs_thrml
def test_draws_of_thrml_are_as_near_as_certified():
    """A long run of thrml itself; and a bound for another temperature is found out."""
    row = [SpinNode() for _ in range(6)]
    edges = list(itertools.pairwise(row))

    def program(weight):
        ebm = IsingEBM(row, edges, jnp.full(6, 0.2), jnp.full(5, weight), jnp.array(1.0))
        return ebm, IsingSamplingProgram(ebm, [Block(row[::2]), Block(row[1::2])], [])

    ebm, sampled = program(0.3)
    chains, schedule = 4000, SamplingSchedule(8, 5, 3)
    start = [jnp.zeros((chains, 3), dtype=bool), jnp.zeros((chains, 3), dtype=bool)]
    draw = jax.vmap(lambda key, *state: thrml.sample_states(key, sampled, schedule, list(state), [], [Block(row)])[0])
    states = np.asarray(draw(jax.random.split(jax.random.key(1), chains), *start))
    share = states.mean(axis=(0, 1))
    found = db.adapters.thrml.certify(sampled, schedule)
    # Hoeffding for the averages of independent chains, wrong with probability 1e-9.
    allowed = found.bias + np.sqrt(np.log(2 * 6 / 1e-9) / (2 * chains))
    order = [db.adapters.thrml.nodes(sampled).index(node) for node in row]

    def distance(other):
        return np.abs(share - np.stack(db.exact.marginals(db.from_thrml(other)))[:, 1])

    assert (distance(ebm) <= allowed[order]).all()
    assert (distance(program(1.2)[0]) > allowed[order]).all()


@needs_thrml
def test_smallest_schedule_for_a_tolerance():
    case = ising(np.random.default_rng(1), strength=0.15)
    schedule = SamplingSchedule(0, 10, 2)
    found = db.adapters.thrml.certify(case.program, schedule, tolerance=0.01)
    assert (found.schedule.n_samples, found.schedule.steps_per_sample) == (10, 2)
    assert found.first.max() <= 0.01
    fewer = SamplingSchedule(found.schedule.n_warmup - 1, 10, 2)
    assert db.adapters.thrml.certify(case.program, fewer).first.max() > 0.01
    strong = ising(np.random.default_rng(1), strength=3.0)
    with pytest.raises(CertificateError, match=r"falls only to 0\.878, above the tolerance 0\.01"):
        db.adapters.thrml.certify(strong.program, schedule, tolerance=0.01)
    # The rounding of float32 is in the bound: no warm-up goes below it, and exact draws do.
    assert db.adapters.thrml.certify(case.program, SamplingSchedule(500, 1, 1)).first.min() > 1e-7
    assert db.adapters.thrml.certify(case.program, SamplingSchedule(500, 1, 1), update_error=0).first.max() < 1e-20
    with pytest.raises(CertificateError):
        db.adapters.thrml.certify(case.program, schedule, tolerance=1e-8)
    long = db.adapters.thrml.certify(case.program, SamplingSchedule(10**6, 10**6, 10), case.free[0])
    assert long.sweeps == 10**6 + 10 * (10**6 - 1)
    assert long.standard_error[0] < 0.001
    assert "1 target)" in repr(long)
    assert "vacuous" in repr(db.adapters.thrml.certify(case.program, SamplingSchedule(0, 1, 1)))


@needs_thrml
def test_small_odd_models():
    node = SpinNode()
    alone = IsingEBM([node], [], jnp.array([0.3]), jnp.zeros(0), jnp.array(2.0))
    assert db.from_thrml(alone).fields == pytest.approx([0.6])
    assert db.estimate(alone, [0])[0].value[1] == pytest.approx(1 / (1 + np.exp(-1.2)))
    pair = IsingEBM([node, other := SpinNode()], [(node, other), (other, node)], jnp.zeros(2), jnp.array([0.1, 0.2]),
                    jnp.array(1.0))  # fmt: skip
    assert float(db.from_thrml(pair).couplings[0, 1]) == pytest.approx(0.3, abs=1e-7)
    # A category of one state is no variable.
    one, three = CategoricalNode(), CategoricalNode()
    table = jnp.array([[[0.1, 0.5, 0.9]]])
    ebm = FactorizedEBM([CategoricalEBMFactor([Block([one]), Block([three])], table)])
    model = db.from_thrml(ebm)
    assert model.n_variables == 1
    assert db.exact.marginals(model)[0] == pytest.approx(np.exp([0.1, 0.5, 0.9]) / np.exp([0.1, 0.5, 0.9]).sum())
    assert db.adapters.thrml.nodes(ebm) == [three]
    program = FactorSamplingProgram(
        BlockGibbsSpec([Block([one]), Block([three])], []),
        [CategoricalGibbsConditional(1), CategoricalGibbsConditional(3)], ebm.factors, [],
    )  # fmt: skip
    assert db.adapters.thrml.certify(program, SamplingSchedule(1, 1, 1)).first.max() < 1e-4


@needs_thrml
def test_the_arithmetic_of_jax_is_as_assumed():
    """The bounds on draws rest on it: checked here on this machine, for many numbers."""
    unit = 2.0**-24
    x = np.linspace(-30, 30, 200_001).astype(np.float32)
    exact = 1 / (1 + np.exp(-x.astype(np.float64)))
    assert np.abs(np.asarray(jax.nn.sigmoid(x), dtype=np.float64) - exact).max() <= 16 * unit
    u = np.concatenate([np.arange(1, 2**23, 97), 2**23 - np.arange(1, 2000)]) / 2**23
    logs = np.asarray(jnp.log(u.astype(np.float32)), dtype=np.float64)
    assert np.abs(logs / np.log(u) - 1).max() <= 8 * unit
    outer = np.asarray(jnp.log(-jnp.log(u.astype(np.float32))), dtype=np.float64)
    wanted = np.log(-np.log(u))
    assert (np.abs(outer - wanted) <= 8 * unit * (1 + np.abs(wanted))).all()
    draws = np.asarray(jax.random.uniform(jax.random.key(0), (100_000,)), dtype=np.float64)
    assert (draws * 2**23 == np.floor(draws * 2**23)).all()


@needs_thrml
def test_what_cannot_be_certified_is_refused_in_one_sentence():
    a, b, c = (SpinNode() for _ in range(3))
    ebm = IsingEBM([a, b, c], [(a, b), (b, c)], jnp.zeros(3), jnp.array([0.1, 0.2]), jnp.array(1.0))
    good = IsingSamplingProgram(ebm, [Block([a, c]), Block([b])], [])
    schedule = SamplingSchedule(1, 1, 1)
    certify, read = db.adapters.thrml.certify, db.from_thrml
    spec, samplers = good.gibbs_spec, [SpinGibbsConditional(), SpinGibbsConditional()]
    weights = jnp.array([0.5])
    one_way = thrml.InteractionGroup(
        thrml.models.discrete_ebm.DiscreteEBMInteraction(1, weights), Block([a]), [Block([b])]
    )
    held = IsingSamplingProgram(ebm, [Block([a])], [Block([b, c])])
    infinite = IsingEBM([a, b], [(a, b)], jnp.zeros(2), jnp.array([jnp.inf]), jnp.array(1.0))
    loop = IsingEBM([a, b], [(a, a)], jnp.zeros(2), jnp.ones(1), jnp.array(1.0))
    coarse = IsingEBM([a, b], [(a, b)], *(jnp.ones(k, jnp.bfloat16) for k in (2, 1, ())))
    x = CategoricalNode()
    sizes = FactorizedEBM(
        [CategoricalEBMFactor([Block([x])], jnp.ones((1, 3))), CategoricalEBMFactor([Block([x])], jnp.ones((1, 2)))]
    )
    cases = [
        (lambda: certify(IsingSamplingProgram(ebm, [Block([a, b]), Block([c])], []), schedule),
         "nodes that do not interact. Got an interaction inside of the free superblock 0."),
        (lambda: certify(IsingSamplingProgram(ebm, [Block([a]), (Block([b]), Block([c]))], []), schedule),
         "an interaction inside of the free superblock 1"),
        (lambda: certify(FactorSamplingProgram(spec, samplers, ebm.factors, [one_way]), schedule),
         "all nodes of a term have the same weights for it. Got a term of 2 nodes with different weights."),
        (lambda: certify(FactorSamplingProgram(spec, [ProbeSpin(), ProbeSpin()], ebm.factors, []), schedule),
         "with the samplers .* Got ProbeSpin."),
        (lambda: read(infinite), "finite numbers. Got inf"),
        (lambda: read(loop), "a term that has a node twice"),
        (lambda: read(sizes), "agree on the categories of each node. Got 3 and 2."),
        (lambda: read(IsingEBM([a, b], [(a, b)], jnp.zeros(3), jnp.ones(1), jnp.array(1.0))), "a bias for each node"),
        (lambda: read(coarse), "float32 or float64. Got bfloat16."),
        (lambda: read(3), "an energy of thrml .* Got 3."),
        (lambda: read(ebm, [jnp.array([True])]), "'clamped' .* only a SamplingProgram has clamped nodes"),
        (lambda: read(held), "the states of the 1 clamped blocks"),
        (lambda: read(held, [jnp.array([True])]), r"for each node of block 0 \(2\). Got shape \(1,\)"),
        (lambda: read(held, [jnp.array([0, 1])]), "True or False for spins. Got 0 at node 0 of block 0."),
        (lambda: certify(held, schedule, [b]), "distinct free nodes of the program"),
        (lambda: certify(good, schedule, [a, a]), "distinct free nodes of the program"),
        (lambda: certify(good, schedule, [SpinNode()]), "distinct free nodes"),
        (lambda: certify(good, schedule, 3), "free nodes of the program, or Blocks"),
        (lambda: certify(good, schedule, []), "at least one node"),
        (lambda: certify(good, (1, 1, 1)), "a thrml.SamplingSchedule"),
        (lambda: certify(good, SamplingSchedule(-1, 1, 1)), "n_warmup is a number of sweeps or samples. Got -1."),
        (lambda: certify(good, schedule, tolerance=0), "'tolerance'"),
        (lambda: certify(good, schedule, update_error=2), "between 0 and 1. Got 2."),
        (lambda: certify(ebm, schedule), "a sampling program of thrml. Got IsingEBM."),
    ]  # fmt: skip
    for call, sentence in cases:
        with pytest.raises(ArgumentError, match=sentence) as caught:
            call()
        assert "\n" not in str(caught.value)


def test_missing_thrml_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "thrml", None)
    for call in (db.from_thrml, db.adapters.thrml.nodes):
        with pytest.raises(ImportError, match=r"^This needs thrml, which .*: pip install 'dobrushin\[thrml\]'$"):
            call(None)
    with pytest.raises(ImportError, match="thrml"):
        db.adapters.thrml.certify(None, None)


@needs_thrml
def test_examples_run_where_thrml_is():
    from dobrushin.adapters import thrml as module

    assert run_docstrings(module) >= 15
    assert run_section("thrml") >= 2
