"""What can go wrong, one class per thing a caller may want to catch."""

from __future__ import annotations

from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dobrushin._coalescence import Coalescence
    from dobrushin._estimate import Estimate, Estimates, Plan
    from dobrushin._learning import Fit
    from dobrushin._optimize import ScanResult
    from dobrushin._sampling import Samples


class _Told:
    """What errors share: a message, a hint for callers from Python, and pickling by the arguments of the error.

    The hint speaks of arguments and attributes. The command line leaves it out and has hints of its own.
    """

    args: tuple[Any, ...]
    message: str
    hint: str
    _arguments: tuple[Any, ...]

    def _tell(self, arguments: tuple[Any, ...], message: str, hint: str = "") -> None:
        self._arguments, self.message, self.hint = arguments, message, hint.strip()
        self.args = (f"{message} {self.hint}".rstrip(),)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._arguments


class ArgumentError(_Told, ValueError):
    """An argument that cannot be used: which one, why, and the first offending value.

    Attributes
    ----------
    function, argument : str
        Names of the public function that was called (empty until the error leaves it) and of its argument.
    value : object
        The offending value; None where the message describes it instead (``got``: "shape (2,)").
    """

    def __init__(
        self,
        argument: str,
        requirement: str,
        value: object = None,
        where: str = "",
        got: str = "",
        function: str = "",
    ) -> None:
        self.argument = argument
        self.value = value
        self._fault = f"must be {requirement}. Got {_short(got or _show(value))}{f' at {where}' if where else ''}."
        self._arguments = (argument, requirement, value, where, got)
        self.function = ""
        self.name_function(function)

    def name_function(self, function: str) -> None:
        """Name the public function whose argument it is, unless one is named already."""
        self.function = self.function or function
        arguments = (*self._arguments[:5], self.function)
        of = f" of dobrushin.{self.function}" if self.function else ""
        self._tell(arguments, self.about(f"The '{self.argument}' argument{of}"))

    def about(self, subject: str) -> str:
        """The same message about another subject, such as an option of the command line."""
        return f"{subject} {self._fault}"


class BudgetError(_Told, RuntimeError):
    """An exact computation that would need more than its stated limit.

    Attributes
    ----------
    required, limit : float
        What it would take and what was allowed, in `unit`.
    unit : str
        What `required` and `limit` count.
    plan : Plan or None
        Of an estimate: the plan that goes beyond its budget.
    estimate : Estimate or None
        Of an estimate: what it has reached, intervals that hold. At worst they say nothing.
    """

    def __init__(
        self,
        what: str,
        required: float,
        limit: float,
        unit: str,
        remedy: str,
        plan: Plan | None = None,
        estimate: Estimate | None = None,
    ) -> None:
        self.required = required
        self.limit = limit
        self.unit = unit
        self.plan = plan
        self.estimate = estimate
        message = f"{what} needs {required:.3g} {unit}, over the limit of {limit:.3g}."
        self._tell((what, required, limit, unit, remedy, plan, estimate), message, remedy + _reached(estimate))

    def carrying(self, plan: Plan | None, estimate: Estimate | None) -> BudgetError:
        """The same with another plan and another estimate."""
        what, required, limit, unit, remedy, *_ = self._arguments
        return BudgetError(what, required, limit, unit, remedy, plan, estimate)


class ToleranceError(_Told, RuntimeError):
    """No scan that meets the tolerance was found.

    Attributes
    ----------
    tolerance : float
        What was asked for.
    best : ScanResult
        The best certified scan that was found.
    """

    def __init__(self, tolerance: float, reached: float, best: ScanResult, why: str) -> None:
        self.tolerance = tolerance
        self.best = best
        message = (
            f"No scan with a bound of {tolerance:.6g} or less was found. The best one certifies {reached:.6g} "
            f"in {len(best.scan)} steps."
        )
        self._tell((tolerance, reached, best, why), message, f"It is the attribute 'best' of this error. {why}")

    def carrying(self, best: ScanResult, reached: float) -> ToleranceError:
        """The same with another scan."""
        return ToleranceError(self.tolerance, reached, best, self._arguments[3])


class CertificateError(_Told, RuntimeError):
    """No certificate is available for what was asked.

    Attributes
    ----------
    reasons : dict from method to str
        Why each method that was tried has none.
    remedy : str
        What may help.
    estimate : Estimate or None
        Of an estimate: what was reached, intervals that hold, some of them wider than the tolerance. At worst they say
        nothing.
    """

    def __init__(self, reasons: dict[str, str], remedy: str, estimate: Estimate | None = None) -> None:
        self.reasons, self.remedy = reasons, remedy
        self.estimate = estimate
        tried = " ".join(f"{method}: {reason}" for method, reason in reasons.items())
        self._tell((reasons, remedy, estimate), f"No certificate is available. {tried}", remedy + _reached(estimate))

    def carrying(self, estimate: Estimate | None) -> CertificateError:
        """The same with another estimate."""
        return CertificateError(self.reasons, self._arguments[1], estimate)


class UncertifiedStep(CertificateError):
    """No scan is certified at the parameters that a fit has come to.

    Attributes
    ----------
    fit : Fit
        As it was after the last iteration that finished.
    """

    def __init__(self, fit: Fit, tolerance: float, reason: str) -> None:
        self.fit = fit
        remedy = (
            "Keep the parameters smaller with box or ridge, raise the tolerance, or use scan='systematic', which needs "
            "no certificate and gives none. The attribute 'fit' of this error has what was reached."
        )
        iterations = len(fit.history)
        fault = f"no scan bounds the bias of the gradient by {tolerance:g} {reason}, after {iterations} iterations."
        super().__init__({"dobrushin": fault}, remedy)
        self._arguments = (fit, tolerance, reason)


class CoalescenceError(_Told, RuntimeError):
    """Exact draws that did not settle in time.

    Attributes
    ----------
    draws, open_draws : int
        How many were asked for, and how many of them were not settled.
    steps : int
        How far into the past they went.
    """

    def __init__(self, draws: int, open_draws: int, steps: int, stuck: bool) -> None:
        self.draws = draws
        self.open_draws = open_draws
        self.steps = steps
        message = (
            f"After {steps} steps into the past {open_draws} of {draws} draws were not settled. The others are not "
            "returned: draws that settle soon differ from those that do not, and would be biased."
        )
        remedy = (
            "The targets depend on nothing more, so that going further back does not help: try joint variables "
            "(model.merge, suggest_groups)."
            if stuck
            else "Allow more with max_steps, or try joint variables (model.merge, suggest_groups)."
        )
        self._tell((draws, open_draws, steps, stuck), message, remedy)


class SamplingInterrupted(_Told, KeyboardInterrupt):
    """A run that was interrupted (Ctrl-C).

    Attributes
    ----------
    samples : Samples
        The chains with the first numbers, up to the first one that had not finished.
    """

    def __init__(self, samples: Samples, wanted: int) -> None:
        self.samples = samples
        self.wanted = wanted
        message = f"Interrupted: {samples.chains} of {wanted} chains had finished."
        self._tell((samples, wanted), message, "They are the attribute 'samples' of this error.")


class EstimateInterrupted(_Told, KeyboardInterrupt):
    """An estimate that was interrupted (Ctrl-C).

    Attributes
    ----------
    estimate : Estimate
        What was reached: intervals that hold, wider than was asked for. At worst they say nothing.
    """

    def __init__(self, estimate: Estimate) -> None:
        self.estimate = estimate
        message = f"Interrupted: the intervals so far hold within {estimate.half_width.max():.3g}."
        self._tell((estimate,), message, "They are the attribute 'estimate' of this error.")

    def carrying(self, estimate: Estimate) -> EstimateInterrupted:
        """The same with another estimate."""
        return EstimateInterrupted(estimate)


class CoalescenceInterrupted(_Told, KeyboardInterrupt):
    """A certificate by simulation that was interrupted (Ctrl-C).

    Attributes
    ----------
    certificate : Coalescence
        From the runs that had finished. At worst it says nothing.
    """

    def __init__(self, certificate: Coalescence, wanted: int) -> None:
        self.certificate = certificate
        message = f"Interrupted: {certificate.runs} of {wanted} runs had finished."
        self._tell((certificate, wanted), message, "What they show is the attribute 'certificate' of this error.")


class EstimatesInterrupted(_Told, KeyboardInterrupt):
    """Many queries that were interrupted (Ctrl-C).

    Attributes
    ----------
    estimates : Estimates
        Those that were answered: `estimate_many` goes on from there, if it is given them as ``finished``.
    """

    def __init__(self, estimates: Estimates, done: int) -> None:
        self.estimates = estimates
        message = f"Interrupted: {done} of {len(estimates)} queries were done."
        self._tell((estimates, done), message, "The same call with finished=error.estimates goes on from there.")


class FitInterrupted(_Told, KeyboardInterrupt):
    """A fit that was interrupted (Ctrl-C).

    Attributes
    ----------
    fit : Fit
        As it was after the last iteration that finished.
    """

    def __init__(self, fit: Fit, iterations: int) -> None:
        self.fit = fit
        message = f"Interrupted: {len(fit.history)} of {iterations} iterations had finished."
        self._tell((fit, iterations), message, "What was reached is the attribute 'fit' of this error.")


class WorkerError(_Told, RuntimeError):
    """An executor that ended before the work did: a worker died, or it was shut down.

    Attributes
    ----------
    samples : Samples or None
        Of a run of chains: those with the first numbers, up to the first one that had not finished.
    estimate : Estimate or None
        Of an estimate: what was reached, intervals that hold.
    certificate : Coalescence or None
        Of a certificate by simulation: what was reached.
    estimates : Estimates or None
        Of many queries: those that were answered.
    segmentations : dict from int to Segmentation
        Of many images: those that were labelled, by number.
    """

    samples: Samples | None = None
    estimate: Estimate | None = None
    certificate: Coalescence | None = None
    estimates: Estimates | None = None
    segmentations: Any = MappingProxyType({})

    def __init__(self, why: str, done: int, wanted: int, what: str, hint: str, **finished: Any) -> None:
        vars(self).update(finished)
        self._finished = finished
        message = f"The executor ended when {done} of {wanted} {what} had finished ({why.rstrip('.')})."
        self._tell((why, done, wanted, what, hint), message, hint)

    def carrying(self, estimate: Estimate) -> WorkerError:
        """The same with another estimate."""
        return WorkerError(*self._arguments, **self._finished | {"estimate": estimate})

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), **self._finished), self._arguments


def how_to_go_on(saved: bool) -> str:
    """What to do after a `WorkerError`."""
    if saved:
        return "They are in the checkpoint: the same call with a new executor goes on from there."
    return "With checkpoint= the same call could go on from there, with a new executor."


class CacheWarning(UserWarning):
    """Compiled code can be kept only until the process ends, because no other folder can be written."""


class CheckpointWarning(UserWarning):
    """A checkpoint that can no longer be written; the run goes on without it."""


class VacuousBoundWarning(UserWarning):
    """A bound that holds but says nothing, because it is not below the trivial one."""


class FormatError(_Told, ValueError):
    """A file that cannot be read: where, what was expected there and what was found.

    Attributes
    ----------
    path : str
        The file.
    line : int or None
        Line of the first thing that is wrong, counted from 1; None for binary files and for files as a whole.
    expected, found : str
        What the format asks for, and what the file has instead.
    """

    def __init__(self, path: str, expected: str, found: str, line: int | None = None, hint: str = "") -> None:
        self.path = path
        self.line = line
        self.expected = expected
        self.found = found
        place = "" if line is None else f", line {line}"
        name = path if path.isprintable() else repr(path)
        message = f"Cannot read {name}{place}: expected {expected}, found {found}."
        self._tell((path, expected, found, line, hint), message, hint)


def _reached(estimate: Estimate | None) -> str:
    """Where to find an estimate that says something."""
    if estimate is None or estimate.says_nothing:
        return ""
    return " What was reached is the attribute 'estimate' of this error."


def _show(value: Any) -> str:
    return repr(value.item() if hasattr(value, "item") and getattr(value, "size", 2) == 1 else value)


def _short(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "..."
