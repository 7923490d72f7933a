"""A dimod sampler that draws by Gibbs sampling, for use by any library that works with dimod's samplers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import dobrushin
from dobrushin._influence import row_source
from dobrushin._sampling import sample
from dobrushin._scan import Scan
from dobrushin._shared import validate as check
from dobrushin._shared.call import public
from dobrushin._shared.environment import require
from dobrushin._shared.running import seed_sequence
from dobrushin._variation import evaluate, read_objective
from dobrushin.adapters.dimod import check_bqm, from_dimod, plain_seed
from dobrushin.errors import ArgumentError
from dobrushin.typing import Seed

if TYPE_CHECKING:
    import dimod
else:
    dimod = require("dimod", "dimod")

# Steps of the recursion, one for each coupling and sweep, that a bound may take: some tenths of a second.
_CHEAP_STEPS = 5e7


class DobrushinSampler(dimod.Sampler, dimod.Initialized):
    """Gibbs sampling as a dimod sampler: samples of pi ∝ exp(-beta E), with a bound on their distance from pi.

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
        """Keyword arguments of `sample`, as dimod expects: each with a list of related properties, all empty."""
        return {name: [] for name in ("num_reads", "beta", "num_sweeps", "seed", "initial_states")}

    @property
    def properties(self) -> dict[str, Any]:
        """Facts about the sampler, as dimod expects."""
        return {"library": f"dobrushin {dobrushin.__version__}", "scan": "systematic"}

    @public(name="adapters.DobrushinSampler.sample")
    def sample(
        self,
        bqm: dimod.BinaryQuadraticModel,
        *,
        num_reads: int | None = None,
        beta: float = 1.0,
        num_sweeps: int = 1000,
        seed: Seed = None,
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
        seed : int, SeedSequence, Generator or None
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
        check_bqm(bqm)
        model = from_dimod(bqm, beta=beta) if bqm.num_variables else None
        reads = num_reads or 1
        start: str | NDArray[Any] = "uniform"
        if initial_states is not None:
            try:
                read = self.parse_initial_states(bqm, initial_states, "tile", num_reads, copy_always=True)
            except (TypeError, ValueError) as error:
                requirement = f"states of the variables of the model ({error})"
                raise ArgumentError("initial_states", requirement, initial_states) from error
            states = read.initial_states.change_vartype(dimod.SPIN, inplace=False)
            place = {label: k for k, label in enumerate(states.variables)}
            reads, start = read.num_reads, states.record.sample[:, [place[label] for label in bqm.variables]]
        info = {"seed": plain_seed(sequence), "scan": "systematic", "num_sweeps": num_sweeps, "beta": float(beta)}
        if model is None:
            check.positive(beta, "beta")
            states = np.empty((reads, 0), dtype=np.int8)
            info |= {"kernel": "none", "total_variation_bound": 0.0, "marginal_bound": 0.0}
        else:
            scan = Scan.systematic(model.n_variables, model.n_variables * num_sweeps)
            run = sample(model, scan, chains=reads, seed=sequence, initial=start)
            assert run.states is not None
            states = run.states if bqm.vartype is dimod.SPIN else (run.states + 1) // 2
            info |= {"kernel": run.kernel, "total_variation_bound": None, "marginal_bound": None}
            if model.couplings.nnz * num_sweeps <= _CHEAP_STEPS:
                # The user did not ask for a bound, so a vacuous one causes no warning.
                rows = row_source(model)
                bound = evaluate(rows, scan, read_objective(rows, None, None), 1.0, run.update_error)
                info |= {"total_variation_bound": bound.tv_bound, "marginal_bound": float(bound.per_variable.max())}
        labels = list(bqm.variables)
        return dimod.SampleSet.from_samples_bqm((states.astype(np.int8), labels), bqm, info=info)
