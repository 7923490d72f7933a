"""Peak memory of `optimize` above what was there before; run by the benchmark as a process of its own.

usage: memory_probe.py side steps      prints bytes, or null where the system does not tell
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

import dobrushin as db
from measure import random_ising

_STATUS = Path("/proc/self/status")
_RESET = Path("/proc/self/clear_refs")


def main(side: int, steps: int) -> None:
    """Print the peak as JSON."""
    warnings.simplefilter("ignore", db.VacuousBoundWarning)
    db.optimize_scan(random_ising(10, seed=0), db.Scan.systematic(100, steps=200))  # loads the kernels
    influence = db.influence(random_ising(side, seed=0))
    scan = db.Scan.systematic(side * side, steps=steps)
    try:
        # The largest size so far is forgotten: building the model may have needed more.
        _RESET.write_text("5")
        before = _status("VmRSS")
    except OSError:
        print(json.dumps(None))
        return
    db.optimize_scan(influence, scan)
    print(json.dumps(_status("VmHWM") - before))


def _status(field: str) -> int:
    """A size in bytes from the system's table of this process."""
    lines = _STATUS.read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
