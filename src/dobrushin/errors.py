"""Exceptions and warnings: one class for each thing that a caller may want to catch."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dobrushin._estimate import Estimate, Plan
    from dobrushin._exact.sums import LogPartition


class _Told:
    """A message, a hint for callers from Python, and pickling by the arguments of the error.

    The hint speaks of arguments and attributes. The command line leaves it out and has hints of its own.
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
    """An error that may carry a partial result: the attribute `result`, None where there is none."""

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
        *,
        function: str = "",
    ) -> None:
        self.argument = argument
        self.value = value
        self._fault = f"must be {requirement}. Got {_short(got or _show(value))}{f' at {where}' if where else ''}."
        self.function = ""
        self.name_function(function)

    def name_function(self, function: str) -> None:
        """Name the public function whose argument it is, unless one is named already."""
        self.function = self._given[1]["function"] = self.function or function
        of = f" of dobrushin.{self.function}" if self.function else ""
        self._tell(self.about(f"The '{self.argument}' argument{of}"))

    def about(self, subject: str) -> str:
        """Return the same message about another subject, such as an option of the command line."""
        return f"{subject} {self._fault}"


class BudgetError(_WithResult, RuntimeError):
    """A computation that would need more than its stated limit.

    Attributes
    ----------
    required, limit : float
        What it would take and what was allowed, in `unit`.
    unit : str
        What `required` and `limit` count.
    plan : Plan or None
        The plan of an estimate that goes beyond its budget.
    result : Estimate or None
        The partial result of an estimate: its intervals are valid, at worst vacuous.
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

    def with_result(self, result: Estimate | None, plan: Plan | None = None) -> BudgetError:
        """Return the same error with another partial result, and with another plan if one is given."""
        what, required, limit, unit, remedy = self._given[0][:5]
        return BudgetError(what, required, limit, unit, remedy, plan or self.plan, result=result)


class ToleranceError(_WithResult, RuntimeError):
    """No scan that meets the tolerance was found.

    Attributes
    ----------
    tolerance : float
        What was asked for.
    result : ScanResult
        The best certified scan that was found.
    """

    def __init__(self, tolerance: float, reached: float, why: str, *, result: Any) -> None:
        self.tolerance, self.why = tolerance, why
        message = (
            f"No scan with a bound of {tolerance:.6g} or less was found. The best one certifies {reached:.6g} "
            f"in {len(result.scan)} steps."
        )
        self._tell_with(result, message, why)


class CertificateError(_WithResult, RuntimeError):
    """No certificate is available for what was asked.

    Attributes
    ----------
    reasons : dict from method to str
        Why each method that was tried has none.
    remedy : str
        What may help.
    result : Estimate, LogPartition or None
        The partial result: valid intervals, some of them wider than the tolerance, at worst vacuous.
    """

    def __init__(self, reasons: dict[str, str], remedy: str, *, result: Estimate | LogPartition | None = None) -> None:
        self.reasons, self.remedy = reasons, remedy
        tried = " ".join(f"{method}: {reason}" for method, reason in reasons.items())
        is_useful = result is not None and not result._is_vacuous
        self._tell_with(result, f"No certificate is available. {tried}", remedy, is_useful)


class UncertifiedStep(CertificateError):
    """A fit that has come to parameters at which no scan is certified.

    Attributes
    ----------
    result : Fit
        The fit as it was after the last iteration that finished.
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
    """Exact draws that did not coalesce in time.

    Attributes
    ----------
    draws, open_draws : int
        How many were asked for, and how many of them did not coalesce.
    steps : int
        How far into the past they went.
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
            "The targets depend on nothing more, so that going further back does not help: try joint variables "
            "(model.merge, suggest_groups)."
            if stuck
            else "Allow more with max_steps, or try joint variables (model.merge, suggest_groups)."
        )
        self._tell(message, remedy)


class Interrupted(_WithResult, KeyboardInterrupt):
    """A call that was interrupted (Ctrl-C) after it had reached something.

    Attributes
    ----------
    result : Samples, Estimate, Estimates, Coalescence or Fit
        What the call would have returned, with the part of the work that had finished. The intervals of an estimate are
        valid but wider than was asked for, at worst vacuous.
    """

    def __init__(self, reached: str, hint: str = "", *, result: Any) -> None:
        self._tell_with(result, f"Interrupted: {reached}.", hint)


class WorkerError(_WithResult, RuntimeError):
    """An executor that ended before the work did: a worker died, or it was shut down.

    Attributes
    ----------
    result : Samples, Estimate, Estimates, Coalescence, dict or None
        What the call would have returned, with the part of the work that had finished: chains, valid intervals,
        answers, or segmentations by number.
    """

    def __init__(self, why: str, done: int, wanted: int, what: str, hint: str, *, result: Any = None) -> None:
        message = f"The executor ended when {done} of {wanted} {what} had finished ({why.rstrip('.')})."
        self._tell_with(result, message, hint)


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
        self._tell(message, hint)


def _show(value: Any) -> str:
    return repr(value.item() if hasattr(value, "item") and getattr(value, "size", 2) == 1 else value)


def _short(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "..."
