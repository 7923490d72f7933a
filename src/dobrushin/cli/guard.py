"""Errors on the command line: one sentence that speaks of options, and an exit code."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import dobrushin as db
from dobrushin._shared.text import hint

CERTIFIED, FAILED, USAGE, NO_CERTIFICATE, INTERRUPTED = 0, 1, 2, 3, 130
# As of a program that the signal for a closed pipe has ended.
CLOSED = 141

# Arguments of functions that an option of another name sets.
_OPTION_OF = {
    ("read", "path"): "model",
    ("write", "path"): "output",
    ("Scan.load", "path"): "scan",
    ("report.write", "path"): "report",
    "targets": "target",
    "max_steps": "steps",
}
_UNCERTIFIED_STEP = (
    "Keep the parameters smaller with --box or --ridge, raise --tolerance, or use --scan systematic, which needs no "
    "certificate and gives none."
)
_NO_ESTIMATE = (
    "What may help: a larger --tolerance, fewer variables (--target), or --evidence on strongly coupled ones. For an "
    "estimate without any guarantee use --method uncertified."
)
_NO_SCAN = (
    "What may help: a larger --tolerance, fewer variables (--target) or more --steps. For strong models see "
    "dobrushin certify --coalescence."
)
_TOO_DEAR = (
    "Allow more with --budget or --time-limit, or ask for less: a larger --tolerance, a lower --confidence, "
    "fewer variables."
)


class Usage(Exception):
    """An option that cannot be used."""


class Unwritable(Exception):
    """A file or folder that cannot be written, found before the work."""


def run_verb(run: Callable[[], int], options: Callable[[], Mapping[str, str]]) -> int:
    """Run a verb; an error becomes one sentence on stderr and an exit code.

    `options` is how each parameter of the verb is written on the command line.
    """
    try:
        with warnings.catch_warnings():
            # Vacuous bounds are marked in the output.
            warnings.simplefilter("ignore", db.VacuousBoundWarning)
            return run()
    except db.Interrupted as interruption:
        print(interruption.message, file=sys.stderr)
        return INTERRUPTED
    except KeyboardInterrupt as interruption:
        print(interruption if str(interruption) else "Interrupted.", file=sys.stderr)
        return INTERRUPTED
    except Usage as error:
        return _say(str(error), USAGE)
    except Unwritable as error:
        return _say(str(error), FAILED)
    except db.ArgumentError as error:
        return _say(error.about(_subject(error, options())), USAGE)
    except (db.CertificateError, db.ToleranceError) as error:
        return _say(_explanation(error), NO_CERTIFICATE)
    except db.BudgetError as error:
        if error.unit == "bytes" and "memory_limit" in options():
            return _say(f"{error.message} {_less_memory(error.required)}", FAILED)
        if error.plan is not None or error.result is not None:
            return _say(f"{error.message} {_TOO_DEAR}", NO_CERTIFICATE)
        return _say(error.message + (" Try another --method." if "method" in options() else ""), FAILED)
    except FileNotFoundError as error:
        return _say(f"There is no file {error.filename}{_nearest_file(error.filename)}.", FAILED)
    except IsADirectoryError as error:
        return _say(f"{error.filename} is a directory, not a file.", FAILED)
    except PermissionError as error:
        return _say(f"No permission to use {error.filename}.", FAILED)
    except BrokenPipeError:  # whoever reads what is printed has seen enough
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is flushed at the end
        return CLOSED
    except OSError as error:
        return _say(f"{error.filename or 'Output'}: {error.strerror or error}.", FAILED)
    except (db.FormatError, db.WorkerError) as error:
        return _say(error.message, FAILED)
    except (ImportError, MemoryError, ValueError) as error:
        return _say(str(error) or "Out of memory.", FAILED)


def _explanation(error: db.CertificateError | db.ToleranceError) -> str:
    """Explain an error about certificates with options; its own hint is for callers from Python."""
    from dobrushin._fields.anchor import REMEDY

    if isinstance(error, db.CertificateError) and error.remedy == REMEDY:
        return f"{error.message} {REMEDY}"
    hints = {db.UncertifiedStep: _UNCERTIFIED_STEP, db.CertificateError: _NO_ESTIMATE, db.ToleranceError: _NO_SCAN}
    return f"{error.message} {hints[type(error)]}"


def _less_memory(required: float) -> str:
    """Say what to do where a call needs so many bytes: allowing more helps only where the machine has them."""
    from dobrushin._shared.memory import free_memory

    if required <= free_memory():
        return "Allow more with --memory-limit, fix some variables with --evidence, or try another --method."
    return "Fix some variables with --evidence, or try another --method."


def _nearest_file(name: Any) -> str:
    """Suggest a file in the same folder with almost this name."""
    folder, base = os.path.split(os.fsdecode(name or ""))
    with suppress(OSError):
        return hint(base, os.listdir(folder or "."))
    return ""


def _say(text: str, code: int) -> int:
    print(f"Error: {text}", file=sys.stderr)
    return code


def _subject(error: db.ArgumentError, options: Mapping[str, str]) -> str:
    """Return the option that sets an argument of a function; other arguments are named in plain words."""
    here = (error.function, error.argument)
    name = _OPTION_OF.get(here) or _OPTION_OF.get(error.argument, error.argument)
    return options.get(name, f"The {name.replace('_', ' ')}")
