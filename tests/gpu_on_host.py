"""A stand-in for CuPy: kernels are compiled with the C++ compiler of the host and run thread after thread.

It knows just what the package uses of CuPy, so that its source and what surrounds it are tested without a GPU.
"""

import ctypes
import hashlib
import itertools
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np

COMPILER = shutil.which("g++") or shutil.which("clang++")

_SHIM = """
#include <cmath>
#include <cstddef>
using std::exp;
using std::fma;
#define __global__
#define __device__
#define __constant__ static const
#define __shared__ static
#define __forceinline__ inline
#define __launch_bounds__(threads, blocks)
struct Place { unsigned x, y, z; };
extern "C" { Place threadIdx, blockIdx, blockDim, gridDim; }
inline double __dmul_rn(double a, double b) { return a * b; }
union Double {
    double number;
    struct { int low, high; } half;
};
inline double __hiloint2double(int high, int low) {
    Double both;
    both.half = {low, high};
    return both.number;
}
inline int __double2hiint(double number) { return Double{number}.half.high; }
inline int __double2loint(double number) { return Double{number}.half.low; }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
template <class T> void atomicAdd(T* where, T what) { *where += what; }
template <class T> void atomicMax(T* where, T what) { *where = *where < what ? what : *where; }
template <class T> void atomicMin(T* where, T what) { *where = *where > what ? what : *where; }
inline void __syncthreads() {}
"""
_TYPES = {np.int32: ctypes.c_int32, np.uint32: ctypes.c_uint32, np.int64: ctypes.c_int64, np.uint64: ctypes.c_uint64}
_TYPES |= {np.float64: ctypes.c_double}


class OutOfMemoryError(MemoryError):
    """The memory that the stand-in was given is used up."""


class Array(np.ndarray):
    """An array "on the device"."""

    @property
    def data(self):
        """Where it is."""
        return SimpleNamespace(ptr=self.ctypes.data)

    def get(self, out=None):
        """A copy on the host."""
        if out is None:
            return np.array(self)
        out[...] = self
        return out


class RawModule:
    """Compiled source."""

    def __init__(self, code, options):
        assert "-std=c++17" in options
        folder = Path(tempfile.gettempdir()) / "dobrushin-gpu-on-host"
        folder.mkdir(exist_ok=True)
        flags = [option for option in options if option.startswith(("-D", "-std"))]
        name = hashlib.sha256("\n".join([_SHIM, code, *flags]).encode()).hexdigest()[:20]
        library = folder / f"{name}.so"
        if not library.exists():
            with tempfile.TemporaryDirectory(dir=folder) as work:
                (Path(work) / "code.cc").write_text(_SHIM + code)
                made = Path(work) / "code.so"
                command = [
                    COMPILER,
                    "-O1",
                    "-w",
                    "-ffp-contract=off",
                    "-shared",
                    "-fPIC",
                    *flags,
                    "code.cc",
                    "-o",
                    made,
                ]
                subprocess.run(command, check=True, cwd=work)
                made.replace(library)
        self.library = ctypes.CDLL(str(library))

    def get_function(self, name):
        """A kernel: called with a grid, a block and arguments."""
        function = getattr(self.library, name)
        function.restype = None
        thread, block, size, grid = (
            (ctypes.c_uint * 3).in_dll(self.library, place)
            for place in ("threadIdx", "blockIdx", "blockDim", "gridDim")
        )

        def call(blocks, threads, arguments):
            if name.startswith("count_labels"):  # the one kernel whose threads wait for each other
                threads = (1, 1, 1)
            blocks = (*blocks, 1)[:3]
            size[:3] = threads
            grid[:3] = blocks
            passed = [ctypes.c_void_p(a.ctypes.data) if isinstance(a, Array) else _TYPES[type(a)](a) for a in arguments]
            for z, y, x in itertools.product(range(blocks[2]), range(blocks[1]), range(blocks[0])):
                block[:3] = x, y, z
                for t in range(threads[0]):
                    thread[0] = t
                    function(*passed)

        return call


class Cupy:
    """What is used of the module, with some memory."""

    RawModule = RawModule

    def __init__(self):
        self.limit = None  # bytes of one array
        runtime = SimpleNamespace(
            getDeviceCount=lambda: 1, getDevice=lambda: 0, memGetInfo=lambda: (2**30, 2**30)
        )  # fmt: skip
        memory = SimpleNamespace(OutOfMemoryError=OutOfMemoryError)
        stream = SimpleNamespace(synchronize=lambda: None)
        self.cuda = SimpleNamespace(runtime=runtime, memory=memory, get_current_stream=lambda: stream)

    def get_default_memory_pool(self):
        """A pool that holds nothing."""
        return SimpleNamespace(total_bytes=lambda: 0, used_bytes=lambda: 0, free_all_blocks=lambda: None)

    def _checked(self, array):
        if self.limit is not None and array.nbytes > self.limit:
            raise OutOfMemoryError
        return array.view(Array)

    def asarray(self, array):
        """A copy."""
        return self._checked(np.array(array))

    def concatenate(self, arrays):
        """As in NumPy."""
        return self._checked(np.concatenate(arrays))

    def zeros(self, shape, dtype):
        """As in NumPy."""
        return self._checked(np.zeros(shape, dtype))

    def empty(self, shape, dtype):
        """As in NumPy, but with something in it."""
        return self._checked(np.full(shape, 77, dtype))
