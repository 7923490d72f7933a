"""A forger of proofs: it knows the format, and makes checksums and words right again."""

from __future__ import annotations

import copy
import io
import json
import zipfile

import numpy as np

from dobrushin.verify.fields import CHAINS, DRIFT

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

    def save(self, path, words=True):
        """Write it. The seed of a plan follows from it, and is not written."""
        if words:
            self.document["claim"]["words"] = self.words()
            self.document["claim"]["assumptions"] = self.assumptions()
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            archive.writestr("proof.json", json.dumps(self.document))
            for name, array in self.arrays.items():
                data = io.BytesIO()
                np.save(data, array)
                archive.writestr(f"{name}.npy", data.getvalue())

    def words(self):
        """The claim in words."""
        from dobrushin.verify.document import Names, Question

        plan, claim = self.document["plan"], self.document["claim"]
        states, lines = self.arrays["states"].tolist(), []
        try:
            names = Names(plan, self.arrays["positions"], states)
            for about, low, high in zip(plan["questions"], claim["lower"], claim["upper"], strict=True):
                titles = Question(about, states, names).titles()
                lines += [f"{title}: from {a!r} to {b!r}" for title, a, b in zip(titles, low, high, strict=True)]
            lines += [f"given {names.event([v], [digit])}" for v, digit in plan["evidence"]]
            lower, upper, point = self.arrays["sites"][4:7] if self.is_field else np.empty((3, 0))
            known = np.flatnonzero(lower == upper).tolist()
            lines += [f"given {names.variables[v]} = {float(point[v])!r}" for v in known]
        except Exception:
            return claim["words"]
        return [*lines, f"all at once with confidence {plan['confidence']!r}"]

    @property
    def is_field(self):
        """Whether it is about a field, whose chains are believed."""
        return any(part.get("method") == "field" for part in self.document["plan"]["parts"])

    def assumptions(self):
        """Those of the file; about chains of a field, with the numbers in the file."""
        words = list(self.document["claim"]["assumptions"])
        if self.is_field and words:
            part, drift = self.document["plan"]["parts"][0], float(self.arrays["sites"][8].max())
            words[:2] = [CHAINS.format(part["chains"]), DRIFT.format(drift, part["slip"])]
        return words


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
