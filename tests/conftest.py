"""Compiled code is cached per content of the kernels, so that a changed callee in another file is never missed."""

import hashlib
import os
import tempfile
from pathlib import Path

KERNELS = Path(__file__).parent.parent / "src" / "dobrushin" / "_kernels"
digest = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(KERNELS.glob("*.py")))).hexdigest()[:16]
os.environ.setdefault("NUMBA_CACHE_DIR", str(Path(tempfile.gettempdir()) / f"dobrushin-kernels-{digest}"))

from hypothesis import settings  # noqa: E402

settings.register_profile("suite", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("suite")
