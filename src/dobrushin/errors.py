"""Exceptions and warnings: one class for each kind of failure that callers may want to handle."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dobrushin._estimate import Estimate, Plan
    from dobrushin._exact.sums import LogPartition


class _Told:
    """Base class of errors that have a message and a hint for callers from Python.

    The hint names arguments and attributes; the command line leaves it out and gives its own. Errors are pickled by the
    arguments of their constructor.
    """

    args: tuple[Any, ...]
    message: str
    hint: str
    _given: tuple[tuple[Any, ...], dict[str, Any]]

    def __new__(cls, *args: Any, **options: Any) -> Any:
        error: Any = BaseException.__new__(cls, *args)  # type: ignore[type-var]
        error._given = args, options
        return error

    def _tell(self, message: str, hint: str = "") -> None:
        self.message, self.hint = message, hint.strip()
        self.args = (f"{message} {self.hint}".rstrip(),)

    def __reduce__(self) -> tuple[Any, ...]:
        args, options = self._given
        return partial(type(self), **options), args


class _WithResult(_Told):
    """Base class of errors with an attribute `result`: a partial result, or None."""

    result: Any

    def _tell_with(self, result: Any, message: str, hint: str, is_useful: bool = True) -> None:
        self.result = result
        known = getattr(result, "_reached", _RESULT)
        self._tell(message, f"{known} {hint}" if is_useful else hint)

    def with_result(self, result: Any) -> Any:
        """Return the same error with another partial result."""
        args, options = self._given
        return type(self)(*args, **{**options, "result": result})


_RESULT = "The attribute 'result' of this error has the partial result."


class ArgumentError(_Told, ValueError):
    """Raised if an argument of a public function cannot be used.

    Attributes
    ----------
    function, argument : str
        Names of the public function (empty until the error leaves the function) and of its argument.
    value : object
        The first offending value; None if the message describes the value instead ("shape (2,)").
    """

    def __init__(
        self,
        argument: str,
        requirement: str,
        value: object = None,
        where: str = "",
        got: str = "",
        *,
        function: str = "",
    ) -> None:
        self.argument = argument
        self.value = value
        self._fault = f"must be {requirement}. Got {_short(got or _show(value))}{f' at {where}' if where else ''}."
        self.function = ""
        self.name_function(function)

    def name_function(self, function: str) -> None:
        """Put the name of the public function into the message, unless it has one already."""
        self.function = self._given[1]["function"] = self.function or function
        of = f" of dobrushin.{self.function}" if self.function else ""
        self._tell(self.about(f"The '{self.argument}' argument{of}"))

    def about(self, subject: str) -> str:
        """Return the message with another subject, such as an option of the command line."""
        return f"{subject} {self._fault}"


class BudgetError(_WithResult, RuntimeError):
    """Raised if a computation would need more time, memory or work than its limit.

    Attributes
    ----------
    required, limit : float
        What the computation needs, and the limit, in `unit`.
    unit : str
        Unit of `required` and `limit`.
    plan : Plan or None
        The plan of an estimate that exceeds its budget.
    result : Estimate, dict or None
        The partial result of an estimate, whose intervals are valid, at worst vacuous; of `average_over` a dict from
        settings to estimates.
    """

    def __init__(
        self,
        what: str,
        required: float,
        limit: float,
        unit: str,
        remedy: str,
        plan: Plan | None = None,
        *,
        result: Estimate | None = None,
    ) -> None:
        self.required = required
        self.limit = limit
        self.unit = unit
        self.plan = plan
        digits = next((d for d in range(3, 17) if f"{required:.{d}g}" != f"{limit:.{d}g}"), 3)
        message = f"{what} needs {required:.{digits}g} {unit}, over the limit of {limit:.{digits}g}."
        self._tell_with(result, message, remedy, result is not None and not result._is_vacuous)

    def with_result(self, result: Any, plan: Plan | None = None) -> BudgetError:
        """Return the same error with another partial result, and with another plan if one is given."""
        what, required, limit, unit, remedy = self._given[0][:5]
        return BudgetError(what, required, limit, unit, remedy, plan or self.plan, result=result)


class ToleranceError(_WithResult, RuntimeError):
    """Raised if no scan was found whose certificate is within the tolerance.

    Attributes
    ----------
    tolerance : float
        The requested tolerance.
    result : ScanResult
        The scan with the smallest certified bound that was found.
    """

    def __init__(self, tolerance: float, reached: float, why: str, *, result: Any) -> None:
        self.tolerance, self.why = tolerance, why
        message = (
            f"No scan with a bound of {tolerance:.6g} or less was found. The best one certifies {reached:.6g} "
            f"in {len(result.scan)} steps."
        )
        self._tell_with(result, message, why)


class CertificateError(_WithResult, RuntimeError):
    """Raised if no method can certify a result within the tolerance.

    Attributes
    ----------
    reasons : dict from method to str
        Why each method that was tried has no certificate.
    remedy : str
        Advice: what may help.
    result : Estimate, LogPartition, dict or None
        The partial result: valid intervals, some of them wider than the tolerance, at worst vacuous; of `average_over`
        a dict from settings to estimates.
    """

    def __init__(self, reasons: dict[str, str], remedy: str, *, result: Estimate | LogPartition | None = None) -> None:
        self.reasons, self.remedy = reasons, remedy
        tried = " ".join(f"{method}: {reason}" for method, reason in reasons.items())
        is_useful = result is not None and not result._is_vacuous
        self._tell_with(result, f"No certificate is available. {tried}", remedy, is_useful)


class UncertifiedStep(CertificateError):
    """Raised if a fit reaches parameters for which no scan can be certified.

    Attributes
    ----------
    result : Fit
        The fit after the last iteration that finished.
    """

    def __init__(self, tolerance: float, reason: str, *, result: Any) -> None:
        iterations = len(result.history)
        after = f"{iterations} iteration{'s' if iterations != 1 else ''}"
        fault = f"no scan bounds the bias of the gradient by {tolerance:g} {reason}, after {after}."
        remedy = (
            "Keep the parameters smaller with box or ridge, raise the tolerance, or pass "
            "method=GibbsGradient(scan='systematic'), which needs no certificate and gives none."
        )
        self.reasons, self.remedy = {"dobrushin": fault}, remedy
        message = f"No certificate is available. dobrushin: {fault}"
        self._tell_with(result, message, remedy)


class CoalescenceError(_Told, RuntimeError):
    """Raised if some exact draws did not coalesce within the limit of steps; no draws are returned then.

    Attributes
    ----------
    draws, open_draws : int
        Number of requested draws, and number of draws that did not coalesce.
    steps : int
        Number of steps into the past from which draws were run.
    """

    def __init__(self, draws: int, open_draws: int, steps: int, stuck: bool) -> None:
        self.draws = draws
        self.open_draws = open_draws
        self.steps = steps
        message = (
            f"After {steps} steps into the past {open_draws} of {draws} draws had not coalesced. The others are not "
            "returned: draws that coalesce soon differ from those that do not, and would be biased."
        )
        remedy = (
            "No other variable influences the targets, so going further back does not help: try joint variables "
            "(model.merge, suggest_groups)."
            if stuck
            else "Allow more steps with max_steps, or try joint variables (model.merge, suggest_groups)."
        )
        self._tell(message, remedy)


class Interrupted(_WithResult, KeyboardInterrupt):
    """Raised on Ctrl-C if a call already has a partial result.

    Attributes
    ----------
    result : Samples, Estimate, Estimates, Coalescence, Fit or dict
        The result of the work that had finished. The intervals of an estimate are valid but wider than the tolerance,
        at worst vacuous.
    """

    def __init__(self, reached: str, hint: str = "", *, result: Any) -> None:
        self._tell_with(result, f"Interrupted: {reached}.", hint)


class WorkerError(_WithResult, RuntimeError):
    """Raised if an executor ends before the work is done: a worker died, or the executor was shut down.

    Attributes
    ----------
    result : Samples, Estimate, Estimates, Coalescence, dict or None
        The result of the work that had finished: chains, valid intervals, answers, or segmentations by number.
    """

    def __init__(self, why: str, done: int, wanted: int, what: str, hint: str, *, result: Any = None) -> None:
        message = f"The executor ended when {done} of {wanted} {what} had finished ({why.rstrip('.')})."
        self._tell_with(result, message, hint)


class CacheWarning(UserWarning):
    """Warns that compiled code is kept only until the process ends, because no folder for it can be written."""


class CheckpointWarning(UserWarning):
    """Warns that a checkpoint can no longer be written; the run continues without it."""


class VacuousBoundWarning(UserWarning):
    """Warns that a bound is vacuous: valid, but no better than the trivial bound."""


class FormatError(_Told, ValueError):
    """Raised if a file cannot be read because its content is not what the format requires.

    Attributes
    ----------
    path : str
        Path of the file.
    line : int or None
        Line of the first fault, counted from 1; None for binary files, or if the fault is not in a single line.
    expected, found : str
        What the format requires at this place, and what the file has instead.
    """

    def __init__(self, path: str, expected: str, found: str, line: int | None = None, hint: str = "") -> None:
        self.path = path
        self.line = line
        self.expected = expected
        self.found = found
        place = "" if line is None else f", line {line}"
        name = path if path.isprintable() else repr(path)
        message = f"Cannot read {name}{place}: expected {expected}, found {found}."
        self._tell(message, hint)


def _show(value: Any) -> str:
    return repr(value.item() if hasattr(value, "item") and getattr(value, "size", 2) == 1 else value)


def _short(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "..."
