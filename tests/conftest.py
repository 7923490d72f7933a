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


def pytest_addoption(parser):
    parser.addoption("--all", action="store_true", help="also run the tests marked slow")


def pytest_collection_modifyitems(config, items):
    """Leave out slow tests, unless all were asked for or these were asked for by name."""
    if config.getoption("--all") or any("::" in argument for argument in config.args):
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    config.hook.pytest_deselected(items=slow)
    items[:] = [item for item in items if not item.get_closest_marker("slow")]


@pytest.fixture(autouse=True)
def close_figures():
    """Pyplot keeps what it shows, and warns of many figures."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


@pytest.fixture(scope="session")
def browser():
    """A real browser without a window; without one, tests that need it are skipped."""
    from browser import Browser, installed

    path = installed()
    if path is None:
        pytest.skip("no Chromium is installed")
    try:
        found = Browser(path)
    except (OSError, RuntimeError, TimeoutError) as error:
        pytest.skip(f"{path} does not start: {error}")
    yield found
    found.close()
