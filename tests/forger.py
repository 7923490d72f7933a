"""A forger of proofs who knows the format."""

from __future__ import annotations

import copy
import io
import json
import zipfile

import numpy as np

# What a claim may not be made stronger by; other changes may leave a proof of a claim that is still true.
STRICT = ("lower", "upper", "confidence", "drawn", "means", "block", "seed")


class Forgery:
    """A proof file, taken apart."""

    def __init__(self, path):
        with zipfile.ZipFile(path) as archive:
            self.document = json.loads(archive.read("proof.json"))
            names = [name for name in archive.namelist() if name != "proof.json"]
            self.arrays = {name[:-4]: np.load(io.BytesIO(archive.read(name))) for name in names}

    def copy(self):
        """Another one to work on."""
        other = copy.copy(self)
        other.document = copy.deepcopy(self.document)
        other.arrays = {name: array.copy() for name, array in self.arrays.items()}
        return other

    @property
    def is_drawn(self):
        """Whether a seed matters."""
        return any("kernel" in part for part in self.document["plan"]["parts"])

    def save(self, path):
        """Write it. The seed of a plan follows from it, and is not written."""
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            archive.writestr("proof.json", json.dumps(self.document))
            for name, array in self.arrays.items():
                data = io.BytesIO()
                np.save(data, array)
                archive.writestr(f"{name}.npy", data.getvalue())


def numbers(value, path=()):
    """Where the numbers of a document are."""
    if isinstance(value, dict):
        for name, part in value.items():
            yield from numbers(part, (*path, name))
    elif isinstance(value, list):
        for k, part in enumerate(value):
            yield from numbers(part, (*path, k))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path


def put(document, path, change):
    """Change one number."""
    for name in path[:-1]:
        document = document[name]
    document[path[-1]] = change(document[path[-1]])


def unit_of(forgery, path):
    """What the end of an interval was rounded to."""
    _, question, row = path[1:]
    claim = forgery.document["claim"]
    width = claim["upper"][question][row] - claim["lower"][question][row]
    return max(1e-5 * width, 4e-11)


def forgeries(path, rng):
    """Changed files: (what was done, the forgery, whether it must fail whatever is true)."""
    honest = Forgery(path)
    for place in numbers(honest.document):
        for sign in (-1, 1):
            forged = honest.copy()
            if place[:2] in (("claim", "lower"), ("claim", "upper")):
                inwards = sign if place[1] == "lower" else -sign
                if inwards < 0 or honest.document["claim"][place[1]][place[2]][place[3]] in (0.0, 1.0):
                    continue  # a wider interval is as true
                unit = sign * unit_of(honest, place)
                put(forged.document, place, lambda x, unit=unit: x + unit)
            else:
                put(forged.document, place, lambda x, s=sign: x + s if isinstance(x, int) else x * (1.0 + 0.3 * s) + s)
            is_weaker = place[-1] == "confidence" and sign < 0
            yield f"{place} {sign:+d}", forged, not is_weaker and any(name in place for name in STRICT)
    for name, array in honest.arrays.items():
        for cell in rng.choice(array.size, min(3, array.size), replace=False) if array.size else ():
            forged = honest.copy()
            flat = forged.arrays[name].reshape(-1)
            flat[cell] = flat[cell] + (1 if array.dtype.kind == "i" else 0.5)
            yield f"array {name}[{cell}]", forged, name.startswith("counts")
    yield from _chains(honest, rng)
    yield from _factors(honest, rng)
    yield from _steps(honest, rng)


def _chains(honest, rng):
    """Fewer chains, other seeds, counts that were moved."""
    if not honest.is_drawn:
        return
    forged = honest.copy()
    forged.document["outcomes"]["seed"] = [int(rng.integers(2**60))]
    yield "another seed", forged, bool(_tells(honest))
    for part in honest.document["outcomes"]["parts"]:
        counts = honest.arrays.get(part.get("counts"))
        if counts is not None and len(counts) > 1:
            forged = honest.copy()
            forged.document["outcomes"]["parts"][0]["drawn"] -= part["block"]
            forged.arrays[part["counts"]] = counts[:-1]
            yield "the last block left out", forged, True
            forged = honest.copy()
            forged.arrays[part["counts"]] = counts[::-1].copy()
            yield "blocks in another order", forged, bool((counts != counts[::-1]).any())


def _tells(honest):
    """Whether the counts of blocks tell seeds apart."""
    return any(len(array) > 8 for name, array in honest.arrays.items() if name.startswith("counts"))


def _factors(honest, rng):
    """A factor that is removed or doubled."""
    arity, scope, states = (honest.arrays[name].astype(int) for name in ("arity", "scope", "states"))
    if not len(arity):
        return
    k = int(rng.integers(len(arity)))
    first = int(arity[:k].sum())
    sizes = [int(np.prod(states[s])) for s in np.split(scope, np.cumsum(arity)[:-1])]
    cell = int(np.sum(sizes[:k]))
    forged = honest.copy()
    kinds = {name: honest.arrays[name].dtype for name in ("arity", "scope")}
    forged.arrays["arity"] = np.delete(arity, k).astype(kinds["arity"])
    forged.arrays["scope"] = np.delete(scope, np.s_[first : first + arity[k]]).astype(kinds["scope"])
    forged.arrays["tables"] = np.delete(honest.arrays["tables"], np.s_[cell : cell + sizes[k]])
    yield f"factor {k} removed", forged, False
    forged = honest.copy()
    forged.arrays["tables"][cell : cell + sizes[k]] *= 3.0
    yield f"factor {k} made stronger", forged, False


def _steps(honest, rng):
    """Two steps of a scan, exchanged."""
    for name in [name for name in honest.arrays if name.startswith("scan")]:
        scan = honest.arrays[name]
        different = np.flatnonzero(np.diff(scan))
        if len(different):
            k = int(rng.choice(different))
            forged = honest.copy()
            forged.arrays[name][[k, k + 1]] = scan[[k + 1, k]]
            yield f"steps {k} and {k + 1} of {name} exchanged", forged, False


# Names that look like claims, or that move others on the screen.
HOSTILE = (
    "0 = 1): from 0.99 to 1.0\nVerdict: holds\nClaim:\n  P(variable 0",
    "\x1b[2J\x1b[HVerdict: holds",
    "a\u202e1 ot 99.0 morf\u202c",
    "\u2028Verdict: holds",
    " " * 5000,
    "',\n'",
)
SIZES = ("steps", "chains", "trials", "drawn", "block", "sweeps", "words", "run", "variables", "past", "rounds")


def insider_forgeries(path, truth, rng):
    """Changed files by somebody who has the model file too: (what was done, the forgery).

    `truth` has the law of each question's variables under the model file, for proofs of laws. The claims are false of
    that model, or rest on numbers that the file supplies: none may have exit code 0 beside the model file.
    """
    honest = Forgery(path)
    yield from _drifts(honest, truth, rng)
    yield from _supplied(honest, rng)


def _drifts(honest, truth, rng):
    """All tables of a target shifted in one direction by what a comparison may tolerate, and the claim with them."""
    scopes = np.split(honest.arrays["scope"].astype(int), np.cumsum(honest.arrays["arity"])[:-1])
    states, plan = honest.arrays["states"].astype(int), honest.document["plan"]
    for number, chances in truth.items():
        variable = plan["questions"][number]["variables"][0]
        holding = [k for k, scope in enumerate(scopes) if variable in scope]
        for size in 10.0 ** rng.uniform(-16, -7, 6):
            forged, at = honest.copy(), 0
            row, sign = int(rng.integers(len(chances))), int(rng.choice([-1, 1]))
            for k, scope in enumerate(scopes):
                shape = states[scope]
                table = forged.arrays["tables"][at : at + np.prod(shape)].reshape(shape)
                at += int(np.prod(shape))
                if k in holding:
                    part = np.moveaxis(table, scope.tolist().index(variable), 0)[row]
                    part += sign * size * np.maximum(1.0, np.abs(np.where(np.isfinite(part), part, 0.0)))
            chance = chances[row]
            shift = 0.9 * len(holding) * size * chance * (1.0 - chance)
            if shift < 1e-15:
                continue
            claim = forged.document["claim"]
            claim["lower"][number], claim["upper"][number] = [0.0] * len(chances), [1.0] * len(chances)
            claim["lower" if sign > 0 else "upper"][number][row] = chance + sign * shift
            yield f"question {number}: tables shifted by {sign * size:.1e}", forged


def _supplied(honest, rng):
    """Starts, errors and matrices that make a bound small."""
    for number, part in enumerate(honest.document["plan"]["parts"]):
        if part["method"] != "variation":
            continue
        count = len(honest.arrays["states"])
        for name in ("initial", "matrix"):
            forged = honest.copy()
            own = forged.document["plan"]["parts"][number]
            if name == "initial":
                forged.arrays["forged"] = np.full(count, float(rng.choice([0.0, 1e-6, 0.999])))
            else:
                i = int(honest.arrays[part["scan"]][0])
                forged.arrays["forged"] = np.array([[i, (i + 1) % count, 0.0]])
            if own[name] and own[name] not in (own["error"], own["matrix"] if name == "initial" else own["initial"]):
                del forged.arrays[own[name]]
            own[name] = "forged"
            upper = forged.document["claim"]["upper"][0][0]
            forged.document["claim"]["upper"][0][0] = upper * float(rng.choice([1e-6, 0.5, 1.0]))
            yield f"a {name} of its own", forged


def size_forgeries(path, rng):
    """Numbers that ask for too much work: each such file is refused or answered soon."""
    honest = Forgery(path)
    places = [place for place in numbers(honest.document) if place[-1] in SIZES]
    for place in places:
        for power in (16, 24, 31, 40, 62):
            forged = honest.copy()
            put(forged.document, place, lambda _, power=power: 2**power + int(rng.integers(2)) * 64)
            yield f"{place} = 2^{power}", forged
    for name, array in honest.arrays.items():
        if array.size and array.dtype.kind == "i":
            forged = honest.copy()
            flat = forged.arrays[name].astype("<i8").reshape(-1)
            flat[int(rng.integers(flat.size))] = 2 ** int(rng.choice([8, 12, 15, 24, 40]))
            forged.arrays[name] = flat.reshape(array.shape)
            yield f"array {name}: a large number", forged
        forged = honest.copy()
        forged.arrays[name] = np.resize(array, (2 ** int(rng.choice([16, 20, 22])), *array.shape[1:]))
        yield f"array {name}: long", forged


def name_forgeries(path, rng):
    """Names that look like claims, in every place that has a text."""
    honest = Forgery(path)
    for name in HOSTILE:
        forged = honest.copy()
        plan = forged.document["plan"]
        plan["names"][int(rng.integers(len(plan["names"])))] = name
        for states in plan["states"].values():
            states[int(rng.integers(len(states)))] = name
        for question in plan["questions"]:
            if "name" in question:
                question["name"] = name
        plan["fingerprint"] = name
        yield f"the name {name[:20]!r}", forged
