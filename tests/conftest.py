"""Compiled code is cached per content of the kernels, so that a changed callee in another file is never missed."""

import hashlib
import os
import signal
import sys
import tempfile
import threading
from pathlib import Path

KERNELS = Path(__file__).parent.parent / "src" / "dobrushin" / "_kernels"
digest = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(KERNELS.glob("*.py")))).hexdigest()[:16]
os.environ.setdefault("NUMBA_CACHE_DIR", str(Path(tempfile.gettempdir()) / f"dobrushin-kernels-{digest}"))

import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402

from dobrushin._shared.compile import compile_always  # noqa: E402

# Tests are of compiled kernels; `test_interpret` compares them with their Python.
compile_always()

# In the background, as some runners start the tests, Ctrl-C is ignored, and so it would be in what they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("suite", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("suite")


@pytest.fixture(autouse=True)
def close_figures():
    """Pyplot keeps what it shows, and warns of many figures."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")
