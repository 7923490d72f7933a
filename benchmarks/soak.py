"""Everything public against everything that can go wrong: `python benchmarks/soak.py --minutes 10 --seed 0`.

Each trial is a random call on a random model in a process of its own, to which something is done: Ctrl-C, a limit in
seconds, the death of a worker or of the whole run, a full disk, a read-only folder, little memory, a checkpoint that is
cut. Counted are

wrong      intervals and bounds that miss the exact value
lost       runs that went on from a file and came to another result
bare       errors that no caller is told to expect, and processes that crashed
overrun    calls that took more than 2 s longer than their time, twice
promise    other promises that were broken: a plan that was exceeded, an error without the estimate that it should carry
hang       trials that had to be killed

A trial depends on the seed and its number only: `--trial 17` repeats one and prints what it finds.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import faulthandler
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

# Threads of linear algebra take address space that trials with little of it would miss.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from soak_faults import run_trial
from soak_warmup import warm_up

KINDS = ("wrong", "lost", "bare", "overrun", "promise", "hang")
# Seconds after which a trial is killed.
_HANGS = 90.0


def main() -> int:
    """Run trials until the time is over, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first trial")
    parser.add_argument("--trial", type=int, nargs="+", help="run only these trials, and say what was found")
    parser.add_argument("--hangs", type=float, default=_HANGS, help="seconds after which a trial is killed")
    arguments = parser.parse_args()
    if not arguments.trial:
        warm_up()
    begin, found, number = time.monotonic(), [], arguments.first
    if arguments.trial:
        found = [isolate(arguments.seed, k, arguments.hangs) for k in arguments.trial]
        for report in found:
            print(f"trial {report['number']} ({report['seconds']:.1f} s) {report['about']}: {report['notes']}")
            print("\n".join(report["faults"]) or "  nothing wrong", flush=True)
    while not arguments.trial and time.monotonic() - begin < 60 * arguments.minutes:
        report = isolate(arguments.seed, number, arguments.hangs)
        found.append(report)
        number += 1
        for fault in report["faults"]:
            print(f"trial {report['number']} {report['about']}\n  {fault}", flush=True)
    return summarise(found, time.monotonic() - begin)


def isolate(seed: int, number: int, hangs: float = _HANGS) -> dict[str, Any]:
    """Run a trial in a process of its own, and kill that if it takes too long."""
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    (folder / "work").mkdir()
    begin = time.monotonic()
    child = os.fork()
    if child == 0:
        _be_a_trial(seed, number, folder, hangs)
    ending = _wait(child, hangs)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)  # it, or what it left
    if ending == "running":
        os.waitpid(child, 0)
    seconds = time.monotonic() - begin
    report: dict[str, Any] = {"number": number, "seconds": seconds, "about": "", "notes": [], "faults": []}
    with contextlib.suppress(OSError, ValueError):
        report |= json.loads((folder / "report").read_text())
    trace = (folder / "trace").read_text() if (folder / "trace").exists() else ""
    if ending == "running":
        report["faults"].append(f"hang: killed after {hangs} s\n{trace}")
    elif ending != "ended":
        report["faults"].append(f"bare: the process died ({ending})\n{trace}")
    shutil.rmtree(folder, ignore_errors=True)
    return report


def _wait(child: int, hangs: float) -> str:
    """How a process ended, or "running"."""
    end = time.monotonic() + hangs
    while time.monotonic() < end:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return "ended" if status == 0 else f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "failed"
        time.sleep(0.005)
    return "running"


def _be_a_trial(seed: int, number: int, folder: Path, hangs: float) -> None:
    """Run a trial, leave a report, and end."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    trace = os.fdopen(os.open(folder / "trace", os.O_WRONLY | os.O_CREAT), "w")
    os.dup2(trace.fileno(), 2)  # Python says there how its own workers end
    faulthandler.enable(trace)
    faulthandler.dump_traceback_later(max(1.0, hangs - 2.0), file=trace)
    code = 1
    try:
        trial = run_trial(seed, number, folder / "work")
        report = {"about": trial.about, "notes": trial.notes, "faults": trial.faults}
        (folder / "report").write_text(json.dumps(report))
        code = 0
    except BaseException:
        traceback.print_exc(file=trace)
        trace.flush()
    finally:
        os._exit(code)  # without waiting for workers


def summarise(found: list[dict[str, Any]], seconds: float) -> int:
    """Print the counts; 1 if there are any."""
    numbers = collections.defaultdict(list)
    for report in found:
        for fault in report["faults"]:
            numbers[fault.split(":", 1)[0]].append(report["number"])
    scenarios = collections.Counter(report["about"].split(":", 1)[0] for report in found)
    slowest = max(found, key=lambda report: report["seconds"], default={"seconds": 0.0, "number": 0})
    print(f"{len(found)} trials in {seconds / 60:.1f} minutes; {dict(scenarios)}")
    print(f"  the slowest is trial {slowest['number']}, {slowest['seconds']:.1f} s")
    for kind in KINDS:
        print(f"  {kind:8} {len(numbers[kind]):4}  {' '.join(map(str, sorted(set(numbers[kind]))))}")
    return 1 if any(numbers.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
