"""Read and write a file in the format that its name tells, or a folder."""

from __future__ import annotations

import os

from dobrushin._models import Model
from dobrushin._models.sources import as_model
from dobrushin._shared import validate as check
from dobrushin._shared.call import public
from dobrushin.errors import ArgumentError, FormatError
from dobrushin.io.folder import write_folder
from dobrushin.io.formats import FORMATS, Format, extensions, table
from dobrushin.io.source import LIMIT, Path, load, save
from dobrushin.typing import FormatName

# Files that hold no model, and what reads them.
_OTHERS = {".evid": "read_evidence", ".mar": "read_marginals"}


@public("reading")
def read(
    path: Path,
    *,
    beta: float = 1.0,
    memory_limit: float | str = LIMIT,
    format: FormatName | None = None,
    progress: bool | None = None,
) -> Model:
    """Read a model from a file.

    Parameters
    ----------
    path : str or path
        The file. Its extension tells the format, see Notes; with ``.gz`` after that, the file is unpacked.
    beta : float
        Inverse temperature, for files that hold energies: pi ∝ exp(-beta E).
    memory_limit : number or str, optional
        Bytes that the file may unpack to, and that the arrays it promises may take. Larger files are refused before
        memory is allocated. Default 1 GiB.
    format : str, optional
        The format by its name in `io.FORMATS`, where the extension does not tell.
    progress : bool, optional
        Show progress. None: only in a terminal or notebook; True: also in a log; False: never.

    Returns
    -------
    Model

    Raises
    ------
    FormatError
        If the file breaks the rules of its format; the error has the line, the expected and the found content.

    Notes
    -----
    {formats}

    No content of a file is executed, unpickled or guessed.

    Examples
    --------
    >>> import os, tempfile
    >>> import dobrushin as db
    >>> from dobrushin.io import read, write
    >>> path = os.path.join(tempfile.mkdtemp(), "triangle.mc")
    >>> with open(path, "w") as file:
    ...     _ = file.write("3 3\\n1 2 1\\n2 3 1\\n1 3 1\\n")
    >>> model = read(path, beta=0.5)
    >>> model, model.labels
    (Ising(n_variables=3, edges=3), (1, 2, 3))
    >>> model.log_density([[1, 1, 1], [1, 1, -1]])
    array([-1.5,  0.5])
    """
    name, kind = _format(path, format)
    if kind is None:
        reader = _OTHERS.get(os.path.splitext(name.lower().removesuffix(".gz"))[1])
        other = "open_model opens folders." if os.path.isdir(path) else "If the extension does not tell, use format=."
        hint = f"{reader} reads it." if reader else other
        raise FormatError(os.fsdecode(path), f"one of the extensions {extensions()}", repr(name), hint=hint)
    beta = _beta(beta, kind)
    source = load(path, memory_limit)
    content = kind.read(source)
    model: Model = content.model_of_file(source, beta) if kind.energies else content
    return model


# The registry knows the formats; the docstring lists them.
read.__doc__ = str(read.__doc__).replace(
    "{formats}", "\n    ".join(f"* {names}: {becomes}; labels: {labels}." for names, _, becomes, labels, _ in table())
)


@public("writing")
def write(
    model: Model,
    path: Path,
    *,
    beta: float = 1.0,
    offset: float = 0.0,
    format: FormatName | None = None,
    progress: bool | None = None,
) -> None:
    """Write a model to a file, or to a folder that `open_model` opens.

    Parameters
    ----------
    model : Model
        Of any family for ``.npz`` and ``.uai``; a Bayesian network for ``.bif``; an `Ising` model for files of
        energies; an `Ising` or `Potts` model or a `LocalModel` for a folder.
    path : str or path
        A file is replaced in one step. Its extension tells the format as for `read`; with ``.gz`` behind it, the file
        is packed. XMLBIF and Hugin files are only read. A path without an extension, or with a slash at its end, is
        that of a folder, which must not exist yet; see Notes.
    beta : float
        Inverse temperature, for files that hold energies: E = -theta / beta.
    offset : float
        Constant of the energy, for ``.bqm`` and ``.coo``; as `read_offset` gives.
    format : str, optional
        The format by its name in `io.FORMATS`, or "folder", where the extension does not tell.
    progress : bool, optional
        Show progress. None: only in a terminal or notebook; True: also in a log; False: never.

    Notes
    -----
    A folder holds plain ``.npy`` arrays, which `open_model` maps and does not read: for models that do not fit in
    memory. They are written a part at a time. Variables are named by their positions there; states keep their names.
    `io.build_folder` makes such a folder from chunks of edges.

    Numbers are written in full. What was read from a file, and with the same `beta` is written and read again, is the
    same model to the last bit. A ``.npz`` file keeps every model so, with its labels and names of states; ``.uai`` and
    ``.bif`` files hold weights and an energy file the parameters over beta, so that others are rounded once.

    Examples
    --------
    >>> import os, tempfile
    >>> import dobrushin as db
    >>> from dobrushin.io import read, write
    >>> path = os.path.join(tempfile.mkdtemp(), "pair.npz")
    >>> write(db.Ising({("a", "b"): 0.3}), path)
    >>> read(path).labels
    ('a', 'b')
    >>> folder = os.path.join(tempfile.mkdtemp(), "torus")
    >>> write(db.Potts.grid(100, 100, states=3, couplings=0.2, periodic=True), folder)
    >>> db.open_model(folder)
    LocalModel(10000 variables, 20000 edges, 3 states)
    """
    model = as_model(model)
    if format == "folder" or (format is None and _is_folder(path)):
        for argument, value, usual in (("beta", beta, 1.0), ("offset", offset, 0.0)):
            if not check.is_real(value) or value != usual:
                raise ArgumentError(argument, f"{usual} for folders, which hold no energies", value)
        write_folder(model, path)
        return
    if not model._is_whole:
        requirement = "a model in memory; lazy models go to a folder (a path without an extension)"
        raise ArgumentError("model", requirement, model)
    name, kind = _format(path, format)
    if kind is None or not kind.written_from:
        requirement = (
            f"a file name with one of the extensions {extensions(written=True)}, also with .gz after it, or that of "
            "a folder, without an extension"
        )
        raise ArgumentError("path", requirement, name)
    beta, offset = _beta(beta, kind), check.finite_number(offset, "offset")
    if offset and not kind.energies:
        raise ArgumentError("offset", "0 for files without energies", offset)
    save(path, kind.write(model, beta, offset) if kind.energies else kind.write(model))


@public()
def read_offset(path: Path, *, memory_limit: float | str = LIMIT, format: FormatName | None = None) -> float:
    """Return the constant term of the energy in a file, over spins -1/+1, which a model does not have.

    Parameters
    ----------
    path, memory_limit, format
        As for `read`; the file must be one of energies.

    Returns
    -------
    float
        E(s) = offset + sum J_ij s_i s_j + sum h_i s_i. Energies of bits are those of spins by x = (1 + s) / 2.

    Examples
    --------
    >>> import os, tempfile
    >>> import dobrushin as db
    >>> from dobrushin.io import read_offset, write
    >>> path = os.path.join(tempfile.mkdtemp(), "pair.bqm")
    >>> write(db.Ising({(0, 1): 0.3}), path, offset=2.5)
    >>> read_offset(path)
    2.5
    """
    name, kind = _format(path, format)
    if kind is None or not kind.energies:
        raise ArgumentError("path", f"a file of energies ({extensions(energies=True)})", name)
    source = load(path, memory_limit)
    energy = kind.read(source)
    energy.model_of_file(source, 1.0)  # fails where the offset is no number
    return float(energy.offset)


@public(name="write")
def lost_names(model: Model, path: Path, format: str | None = None) -> str:
    """Describe which names of a model (labels, states) a file cannot hold, as words for a message; empty if none."""
    keeps: tuple[str, ...] = ("states",)
    if format != "folder" and not _is_folder(path):
        kind = _format(path, format)[1]
        keeps = () if kind is None else kind.keeps
    has = {"labels": not check.are_positions(model.labels), "states": model._state_names is not None}
    words = {"labels": "labels of the variables", "states": "names of the states"}
    return " and ".join(words[name] for name, given in has.items() if given and name not in keeps)


def _is_folder(path: Path) -> bool:
    """Return whether a path must be that of a folder, by its form."""
    text = check.path(path)
    return text.endswith(("/", os.sep)) or not os.path.splitext(os.path.basename(text))[1]


def _format(path: Path, format: str | None) -> tuple[str, Format | None]:
    """Return the file name of a path, and its format, or None if the format is unknown."""
    name = os.path.basename(check.path(path))
    if format is not None:
        return name, FORMATS[check.choice(format, tuple(FORMATS), "format")]
    extension = os.path.splitext(name.lower().removesuffix(".gz"))[1]
    return name, next((kind for kind in FORMATS.values() if extension in kind.extensions), None)


def _beta(beta: float, kind: Format) -> float:
    value = check.positive(beta, "beta")
    if value != 1.0 and not kind.energies:
        raise ArgumentError("beta", f"1.0 for {kind.extensions[0]} files, which hold no energies", beta)
    return value
