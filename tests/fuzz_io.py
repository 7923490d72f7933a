"""Files that are broken, made up or hostile, and a judge of what a reader makes of them.

`benchmarks/fuzz.py` runs as many cases as one likes, `test_io.py` a few hundred of each format.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import random
import re
import signal
import struct
import time
import warnings
import zipfile
from pathlib import Path

import numpy as np

import fuzz_deepdive
import fuzz_networks
from dobrushin import io as files
from dobrushin.errors import FormatError
from fuzz_deepdive import make_deepdive  # noqa: F401 - found by name
from fuzz_networks import make_hugin, make_xmlbif  # noqa: F401 - found by name
from models import FAMILIES, random_model

LIMIT = 2**20
SECONDS = 5.0
EXTENSIONS = {
    "uai": ".uai",
    "bif": ".bif",
    "xmlbif": ".xmlbif",
    "hugin": ".net",
    "bqm": ".bqm",
    "coo": ".coo",
    "maxcut": ".mc",
    "npz": ".npz",
    "deepdive": ".meta",
    "evidence": ".evid",
    "marginals": ".MAR",
}
READERS = {
    "evidence": lambda path: files.read_evidence(path, memory_limit=LIMIT),
    "marginals": lambda path: files.read_marginals(path, memory_limit=LIMIT),
}
# A file of these formats says how much it holds: with less or more behind it, it must be refused.
# (Evidence does so too, but with a number less one of its two layouts may be the other one.)
COUNTED = ("uai", "bif", "bqm", "maxcut", "npz", "marginals", "deepdive")
BINARY = ("bqm", "npz", "deepdive")
STRANGE = (
    "-1 0 1 2 3 00 1.0 -0 +1 nan inf -inf NaN 1e400 1e-400 1e308 -1e308 -1e9 1e9 4294967296 9007199254740993 1_0 0x10 "
    '99999999999999999999 1e5 .5 5. . e - + 1e 1d3 \u0663 \u00e9 \x00 \x1f # { } ( ) [ ] ; , | " // /* */ MARKOV BAYES '
    "MAR PR network variable probability type discrete table default property yes no #vartype=SPIN vartype=BINARY"
)
WORDS = STRANGE.split(" ")


class TooSlow(BaseException):
    """A case that took longer than it may."""


# -- judging -------------------------------------------------------------------------------


def judge(kind, data, path, must_fail=False):
    """Read a file: "read" or "refused" where all is well, or else a sentence that says what is not."""
    if kind == "deepdive":
        fuzz_deepdive.write_files(fuzz_deepdive.parted(data), path)
    else:
        Path(path).write_bytes(data)
    read = READERS.get(kind, lambda path: files.read(path, memory_limit=LIMIT))
    start = time.perf_counter()
    try:
        with warnings.catch_warnings(), time_limit(SECONDS):
            warnings.simplefilter("error")
            result = read(path)
    except FormatError as error:
        message = str(error)
        fine = message.startswith("Cannot read ") and message.endswith(".") and "\n" not in message
        fine = (
            fine
            and os.path.splitext(error.path)[0] == os.path.splitext(path)[0]
            and len(message) < 400 + len(path)
            and error.expected
            and error.found
        )
        return "refused" if fine and in_time(start) else f"message: {message}"
    except TooSlow:
        return "too slow"
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    if must_fail:
        return "read, though something is missing or too much"
    if not in_time(start):
        return "too slow"
    unpacked = gzip.decompress(data) if path.endswith(".gz") else data
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return "read" if agrees(kind, unpacked, result) else "read as something else than what is in the file"
        except (ValueError, IndexError, KeyError, AssertionError) as error:
            return f"read, though a literal reading fails: {error!r}"


def in_time(start):
    return time.perf_counter() - start < SECONDS


class time_limit:
    """Raise `TooSlow` after so many seconds, where the system can."""

    def __init__(self, seconds):
        self.seconds = seconds

    def __enter__(self):
        if hasattr(signal, "setitimer"):
            self.before = signal.signal(signal.SIGALRM, self.stop)
            signal.setitimer(signal.ITIMER_REAL, self.seconds)

    def __exit__(self, *_):
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self.before)

    def stop(self, *_):
        raise TooSlow


def agrees(kind, data, result):
    """Whether a slow and literal reading of the same bytes gives the same: nothing left out, nothing added."""
    if kind == "evidence":
        numbers = [int(word) for word in data.split()]
        return [value for pair in result.items() for value in pair] in (numbers[1:], numbers[2:])
    if kind == "marginals":
        flat = [value for row in result for value in (len(row), *row.tolist())]
        numbers = [float(word) for word in data.split()[1:]]
        return flat in (numbers[1:], numbers[2:])
    if kind == "uai":
        return same_factors(result, *literal_uai(data))
    if kind == "maxcut":
        rows = [line.split() for line in data.decode().split("\n") if line.strip()]
        edges = {(int(i), int(j)): -float(w) for i, j, w in rows[1:] if float(w)}
        return result.n_variables == int(rows[0][0]) and same_couplings(result, edges)
    if kind == "coo":
        return same_energies(result, *literal_coo(data))
    if kind == "bqm":
        return same_energies(result, *literal_bqm(data))
    if kind == "deepdive":
        return fuzz_deepdive.same_model(data, result)
    if kind == "npz":
        with np.load(io.BytesIO(data), allow_pickle=False) as stored, np.load(io.BytesIO(npz_bytes(result))) as again:
            return set(stored) == set(again) and all(
                np.array_equal(stored[name], again[name]) for name in stored if name != "labels"
            )
    if not fuzz_networks.survives_bif(result):
        return False
    if kind in ("xmlbif", "hugin"):
        return fuzz_networks.same_numbers(kind, data, result)
    text = data.decode()
    if any(word in text for word in ("default", "property", "//", "/*", '"')):
        return True
    # BIF without these: every number of a row or table is in the model, but for a sum that is slightly off 1.
    rows = re.findall(r"(?:\)|\btable\b)([^;(){}]*);", text)
    numbers = np.array([float(word) for row in rows for word in row.replace(",", " ").split()])
    logs = np.concatenate([result.factor(k)[1].ravel() for k in range(result.n_factors)])
    return len(numbers) == len(logs) and np.allclose(np.sort(np.log(numbers)), np.sort(logs), rtol=0, atol=1.1e-5)


def literal_uai(data):
    words = data.split()[1:]
    n = int(words[0])
    sizes = [int(word) for word in words[1 : n + 1]]
    at, scopes = n + 2, []
    for _ in range(int(words[n + 1])):
        scopes.append([int(word) for word in words[at + 1 : at + 1 + int(words[at])]])
        at += 1 + int(words[at])
    tables = []
    for _ in scopes:
        tables.append([float(word) for word in words[at + 1 : at + 1 + int(words[at])]])
        at += 1 + int(words[at])
    assert at == len(words)
    if data.split()[0] == b"BAYES":
        tables = [normalised(table, sizes[scope[-1]]) for scope, table in zip(scopes, tables, strict=True)]
    return sizes, scopes, tables


def normalised(table, width):
    """Rows whose sum is off 1 by more than rounding, but slightly, are divided by it."""
    values = []
    for row in np.reshape(table, (-1, width)):
        total = np.add.reduceat(row, [0])[0]
        values += (row / total if 1e-15 * width < abs(total - 1) <= 1e-5 else row).tolist()
    return values


def same_factors(model, sizes, scopes, tables):
    label = [i for i, size in enumerate(sizes) if size > 1]
    if list(model.labels) != label or model.n_factors != len(scopes):
        return False
    for k, (scope, table) in enumerate(zip(scopes, tables, strict=True)):
        positions, logs = model.factor(k)
        kept = [v for v in scope if sizes[v] > 1]
        if [label[p] for p in positions] != kept or logs.ravel().tolist() != np.log(table).tolist():
            return False
    return True


def literal_coo(data):
    vartype, linear, pairs = None, {}, {}
    for line in data.decode("utf-8", "replace").split("\n"):
        if line.strip(" \t\r").startswith("#"):
            for name in ("SPIN", "BINARY"):
                told = re.sub(r"[ \t]", "", line).replace("vartype:", "vartype=")
                vartype = name if f"vartype={name}" in told else vartype
        elif line.strip():
            i, j, bias = line.split()
            key = tuple(sorted((int(i), int(j))))
            where = linear if key[0] == key[1] else pairs
            where[key] = where.get(key, 0.0) + float(bias)
    labels = sorted({v for key in (*linear, *pairs) for v in key})
    return vartype, labels, {v: linear.get((v, v), 0.0) for v in labels}, pairs


def literal_bqm(data):
    length = struct.unpack("<I", data[10:14])[0]
    header, at = json.loads(data[14 : 14 + length]), 14 + length
    (n, m), bias = header["shape"], np.dtype(header["dtype"])
    linear = np.dtype([("start", header["ntype"]), ("bias", bias)])
    quadratic = np.dtype([("other", header["itype"]), ("bias", bias)])
    at += bias.itemsize
    variables = np.frombuffer(data, linear, n, at)
    others = np.frombuffer(data, quadratic, 2 * m, at + n * linear.itemsize)
    labels = header["variables"] if data[8] == 1 else None
    if header["variables"] is True:
        labels = json.loads(data[at + n * linear.itemsize + 2 * m * quadratic.itemsize + 8 :])
    labels = [frozen(label) for label in labels] if labels else list(range(n))
    starts = [*variables["start"].tolist(), 2 * m]
    pairs = {}
    for v in range(n):
        for u, value in others[starts[v] : starts[v + 1]].tolist():
            if v < u:
                pairs[labels[v], labels[u]] = value
    return header["vartype"], labels, dict(zip(labels, variables["bias"].tolist(), strict=True)), pairs


def frozen(label):
    return tuple(frozen(part) for part in label) if isinstance(label, list) else label


def same_energies(model, vartype, labels, linear, pairs):
    """Energies of random states, by the file's own formula."""
    if list(model.labels) != labels:
        return False
    rng = np.random.default_rng(0)
    states = np.concatenate([np.full((1, len(labels)), -1), rng.choice([-1, 1], size=(4, len(labels)))])
    position = {label: k for k, label in enumerate(labels)}
    x = states if vartype == "SPIN" else (1 + states) / 2
    energy = sum((bias * x[:, position[v]] for v, bias in linear.items()), np.zeros(len(x)))
    energy += sum((bias * x[:, position[i]] * x[:, position[j]] for (i, j), bias in pairs.items()), np.zeros(len(x)))
    size = sum(map(abs, linear.values())) + sum(map(abs, pairs.values()))
    found = -model.log_density(states)
    return np.allclose(found - found[0], energy - energy[0], rtol=0, atol=1e-12 * (1 + 10 * size))


def same_couplings(model, edges):
    found = model.couplings.tocoo()
    stored = dict(zip(zip(*(c.tolist() for c in found.coords), strict=True), found.data.tolist(), strict=True))
    return len(stored) == 2 * len(edges) and all(stored[i - 1, j - 1] == w for (i, j), w in edges.items())


# -- making --------------------------------------------------------------------------------


def case(kind, seed, k, seeds):
    """Content of a file, the extension to give it, and whether it must be refused."""
    rng = random.Random(f"{seed}:{kind}:{k}")
    made = rng.random() < 0.5
    data = MAKERS[kind](rng) if made else rng.choice(seeds)
    how = rng.random()
    extension, must_fail = EXTENSIONS[kind], False
    if how < (0.5 if kind == "npz" else 0.1):  # arrays are changed where they are made
        pass
    elif how < 0.6 and kind in COUNTED and (kind == "npz" or how < 0.2):
        data, must_fail = (shorter(rng, kind, data) if rng.random() < 0.5 else longer(rng, kind, data)), True
    else:
        for _ in range(rng.choice((1, 1, 1, 2, 5))):
            data = mutate(rng, kind, data, rng.choice(seeds))
    if rng.random() < 0.05 and kind != "deepdive":  # which is many files
        data, extension = gzip.compress(data, 1, mtime=0), extension + ".gz"
        if rng.random() < 0.5:
            data = flip(rng, data)
    return data, extension, must_fail


def shorter(rng, kind, data):
    """Without its last word, or in a binary file its last bytes."""
    if kind in BINARY:
        return data[: rng.randrange(len(data))]
    if kind == "bif":
        return data[: data.rstrip().rindex(b"}")]
    return b" ".join(data.split()[:-1]) if kind != "maxcut" else data.rstrip().rsplit(None, 1)[0]


def longer(rng, kind, data):
    """With something behind its end."""
    if kind in BINARY:
        return data + rng.randbytes(rng.choice((1, 8, 64)))
    return data + rng.choice((b" 1", b"\n0\n", b" 0.5", b" }", b"\n2 1\n"))


def mutate(rng, kind, data, other):
    """A small change: of bytes, words or lines."""
    text = kind not in BINARY
    how = rng.randrange(8 if text else 4)
    if not data or how == 0:
        return flip(rng, data)
    i, j = sorted((rng.randrange(len(data) + 1), rng.randrange(len(data) + 1)))
    if how == 1:
        return data[:i] + data[min(j, i + rng.choice((1, 4, 100))) :]
    if how == 2:
        return data[:j] + data[i : min(j, i + rng.choice((1, 4, 100)))] + data[j:]
    if how == 3:
        return data[:i] + other[rng.randrange(len(other) + 1) :] if rng.random() < 0.3 else flip(rng, data)
    words = data.split(b" ")
    k = rng.randrange(len(words))
    if how == 4:
        words[k] = rng.choice(WORDS).encode()
    elif how == 5:
        words.insert(k, rng.choice(WORDS).encode())
    elif how == 6:
        m = rng.randrange(len(words))
        words[k], words[m] = words[m], words[k]
    else:
        lines = data.split(b"\n")
        lines.insert(rng.randrange(len(lines)), lines.pop(rng.randrange(len(lines))))
        return b"\n".join(lines)
    return b" ".join(words)


def flip(rng, data):
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 3))):
        if changed:
            changed[rng.randrange(len(changed))] = rng.choice((rng.randrange(256), 48 + rng.randrange(10), 32, 10))
    return bytes(changed)


def number(rng, value):
    return rng.choice((repr, "{:.6f}".format, "{:g}".format, "{:.3e}".format, "{:.17g}".format))(value)


def joined(rng, words):
    return "".join(word + rng.choice((" ", " ", "\n", "  ", "\t", " \r\n")) for word in words).encode()


def make_uai(rng):
    n = rng.randrange(1, 6)
    sizes = [rng.choice((1, 2, 2, 2, 3, 4)) for _ in range(n)]
    network = rng.random() < 0.4
    if network:
        scopes = [[*rng.sample(range(k), min(k, rng.randrange(3))), k] for k in range(n)]
    else:
        scopes = [rng.sample(range(n), rng.randrange(min(n, 4) + 1)) for _ in range(rng.randrange(6))]
    words = ["BAYES" if network else "MARKOV", str(n), *map(str, sizes), str(len(scopes))]
    for scope in scopes:
        words += map(str, [len(scope), *scope])
    for scope in scopes:
        shape = [sizes[v] for v in scope]
        table = [rng.choice((0.0, 1.0, rng.random(), rng.expovariate(0.1))) + 1e-9 for _ in range(int(np.prod(shape)))]
        if network:
            width = shape[-1]
            for row in range(0, len(table), width):
                total = sum(table[row : row + width])
                table[row : row + width] = [value / total for value in table[row : row + width]]
        words += [str(len(table)), *(number(rng, value) for value in table)]
    return joined(rng, words)


def make_bif(rng):
    names = rng.sample(["a", "b", "c_1", "rain", '"two words"', "x.y", "<5", "\u00e9t\u00e9"], rng.randrange(1, 6))
    states = {name: [f"{'s' if rng.random() < 0.8 else '>='}{k}" for k in range(rng.randrange(1, 4))] for name in names}
    comma = rng.choice((", ", ",", " "))
    text = [
        rng.choice(("network unknown {\n}\n", 'network "n" { property "p (1, 2)" ; }', "// first\nnetwork x { }\n"))
    ]
    for name in names:
        kinds = comma.join(states[name])
        text.append(f"variable {name} {{\n  type discrete [ {len(states[name])} ] {{ {kinds} }};\n}}\n")
    for k, name in enumerate(names):
        parents = rng.sample(names[:k], min(k, rng.randrange(3)))
        bar = rng.choice(("|", "|", "")) if parents else ""
        separator = comma if bar else " "
        text.append(f"probability ( {name} {bar} {separator.join(parents)} ) {{\n")
        size = len(states[name])
        row = [number(rng, 1 / size)] * size
        count = int(np.prod([len(states[p]) for p in parents])) if parents else 1
        if not parents or rng.random() < 0.3:
            text.append(f"  table {comma.join(row * count)};\n")
        elif rng.random() < 0.3:
            text.append(f"  default {comma.join(row)};\n")
        else:
            for r in np.ndindex(*(len(states[p]) for p in parents)):
                given = comma.join(states[p][i] for p, i in zip(parents, r, strict=True))
                text.append(f"  ({given}) {comma.join(row)};\n")
        text.append("}\n" if rng.random() < 0.9 else "/* end */ }\n")
    return "".join(text).encode()


def random_couplings(rng):
    n = rng.randrange(1, 7)
    pairs = [(i, j) for i in range(n) for j in range(i + 1, n) if rng.random() < 0.5]
    return n, {pair: rng.choice((1.0, -1.0, rng.gauss(0, 1))) for pair in pairs}


def make_bqm(rng):
    n, pairs = random_couplings(rng)
    version = rng.choice((1, 2))
    bias = rng.choice(("float64", "float64", "float32"))
    index, start = (rng.choice(("uint32", "uint64", "int32", "int64", "uint16")) for _ in range(2))
    names = [rng.choice((k, f"v{k}", (k, "a"), k + 0.5)) for k in range(n)]
    labelled = rng.random() < 0.5
    header = {"dtype": bias, "itype": index, "ntype": start, "shape": [n, len(pairs)], "type": "BinaryQuadraticModel"}
    header["variables"] = (names if labelled else list(range(n))) if version == 1 else labelled
    header["vartype"] = rng.choice(("SPIN", "BINARY"))
    text = json.dumps(header).encode() + b"\n"
    text += b" " * (-(len(text) + 14) % 64)
    around = [sorted((sum(pair) - v, w) for pair, w in pairs.items() if v in pair) for v in range(n)]
    starts = np.cumsum([0] + [len(near) for near in around])
    parts = [b"DIMODBQM", bytes([version, 0]), struct.pack("<I", len(text)), text, np.dtype(bias).type(0.5).tobytes()]
    for v in range(n):
        parts += [np.dtype(start).type(starts[v]).tobytes(), np.dtype(bias).type(rng.gauss(0, 1)).tobytes()]
    for near in around:
        for u, w in near:
            parts += [np.dtype(index).type(u).tobytes(), np.dtype(bias).type(w).tobytes()]
    if version == 2 and labelled:
        text = json.dumps(names).encode()
        text += b" " * (-(len(text) + 8) % 64)
        parts += [b"VARS", struct.pack("<I", len(text)), text]
    return b"".join(parts)


def make_coo(rng):
    n, pairs = random_couplings(rng)
    labels = rng.sample(range(10 ** rng.randrange(1, 12)), n)
    lines = [f"{labels[i]} {labels[j]} {number(rng, w)}" for (i, j), w in pairs.items()]
    lines += [f"{v} {v} {number(rng, rng.gauss(0, 1))}" for v in labels if rng.random() < 0.7 or not pairs]
    rng.shuffle(lines)
    lines.insert(0, f"# vartype{rng.choice(':=')}{rng.choice(('SPIN', 'BINARY'))}")
    if rng.random() < 0.3:
        lines.insert(1, f"# offset={number(rng, rng.gauss(0, 1))}")
    return rng.choice(("\n", "\r\n")).join([*lines, ""]).encode()


def make_maxcut(rng):
    n, pairs = random_couplings(rng)
    lines = [f"{i + 1} {j + 1} {rng.choice((number(rng, w), '1', '-1'))}" for (i, j), w in pairs.items()]
    return "\n".join([f"{n} {len(lines)} ", *lines, ""]).encode()


def npz_bytes(model):
    return files.FORMATS["npz"].write(model)


def make_npz(rng):
    """A model's own file, or one whose arrays were changed and packed again, so that the checksums are right."""
    numpy_rng = np.random.default_rng(rng.randrange(2**32))
    labels = rng.random() < 0.5
    data = npz_bytes(random_model(numpy_rng, rng.choice(FAMILIES), zeros=rng.random() < 0.5, labels=labels))
    if rng.random() < 0.3:
        return data
    with np.load(io.BytesIO(data)) as stored:
        arrays = dict(stored)
    for _ in range(rng.choice((0, 1, 1, 2))):
        change(rng, arrays)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as packed:
        for name, array in arrays.items():
            member = io.BytesIO()
            np.save(member, array, allow_pickle=True)
            packed.writestr(f"{name}.npy", member.getvalue())
    return buffer.getvalue()


def change(rng, arrays):
    name = rng.choice(list(arrays))
    array = arrays[name].copy()
    how = rng.randrange(8)
    if how == 0:
        del arrays[name]
    elif how == 1:
        arrays[rng.choice((name + "x", "fields", "tables", "unaries", "size", "../a"))] = array
    elif how == 2:
        with np.errstate(all="ignore"), contextlib.suppress(OverflowError, ValueError, TypeError):
            arrays[name] = array.astype(rng.choice(("f4", "i4", "f8", "i8", "u1", "c16", "O", "S3", ">f8", "?")))
    elif how == 3:
        arrays[name] = array[: rng.randrange(len(array) + 1)] if len(array) else array
    elif how == 4:
        arrays[name] = np.concatenate([array, array])
    elif how == 5:
        arrays[name] = array[:, None]
    elif len(array):
        with np.errstate(all="ignore"):
            value = np.array(rng.choice((-1, 0, 1, 2, 255, 2**31, 2**62, np.nan, np.inf, -np.inf, 1e300)))
            array[rng.randrange(len(array))] = value.astype(array.dtype)
        arrays[name] = array


def make_evidence(rng):
    pairs = [(v, rng.randrange(4)) for v in rng.sample(range(50), rng.randrange(5))]
    words = [len(pairs), *(value for pair in pairs for value in pair)]
    return joined(rng, map(str, [1, *words] if rng.random() < 0.5 else words))


def make_marginals(rng):
    rows = [np.random.default_rng(rng.randrange(2**32)).dirichlet(np.ones(k)) for k in rng.choices((1, 2, 3), k=3)]
    words = [word for row in rows for word in (str(len(row)), *(number(rng, p) for p in row.tolist()))]
    return joined(rng, ["MAR", *(["1"] if rng.random() < 0.5 else []), str(len(rows)), *words])


MAKERS = {kind: globals()[f"make_{kind}"] for kind in EXTENSIONS}


def seeds(kind):
    """Real files where there are some, none of them long; and made ones."""
    found = []
    places = {
        "uai": "uai/*.uai",
        "bif": "bif/*.bif.gz",
        "bqm": "ising/*.bqm",
        "maxcut": "ising/gset/*",
        "evidence": "uai/*.evid",
        "marginals": "uai/*.MAR",
    }
    if kind in places and os.environ.get("DOBRUSHIN_DATA"):
        for path in sorted(Path(os.environ["DOBRUSHIN_DATA"]).glob(places[kind])):
            data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
            if len(data) < 25_000:
                found.append(data)
    return [*found[:12], *(MAKERS[kind](random.Random(k)) for k in range(12))]
