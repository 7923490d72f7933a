"""Make the report's page from its template, with all names escaped, and write it to a file."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
from dataclasses import dataclass
from importlib.resources import files
from string import Template
from typing import Any

from dobrushin._diagnose import Diagnosis
from dobrushin._estimate import Estimate
from dobrushin._models.sources import as_model
from dobrushin._shared import validate as check
from dobrushin._shared.call import public
from dobrushin._shared.environment import replace_file
from dobrushin.errors import ArgumentError
from dobrushin.report.content import cell_texts, content
from dobrushin.report.network import network_picture
from dobrushin.typing import Evidence, ModelLike

_SCRIPTS = ("page.js", "answer.js", "curve.js", "scan.js")
# Height of the frame in a notebook, in pixels.
_FRAME = 640
# Rows for readers without scripts.
_STATIC_ROWS = 200


@public(name="report.write")
def write(
    estimate: Estimate,
    path: str | os.PathLike[str],
    *,
    model: ModelLike | None = None,
    evidence: Evidence | None = None,
    shape: tuple[int, int] | None = None,
    title: str | None = None,
    command: str | None = None,
    diagnosis: Diagnosis | bool | None = None,
) -> None:
    """Write an estimate as one interactive HTML page that needs no network.

    Parameters
    ----------
    estimate : Estimate
    path : str or path
        The file. An existing file is replaced once the whole page is written.
    model : Model, path, or a model of another library, optional
        The model of the estimate, without the evidence. A page with the model shows the names of the variables that
        the scan updates and their distances from the targets, the diagnosis, and for coalescence the bound against
        the steps.
    evidence : dict from label to state, optional
        Observed states. Default: the evidence of the estimate.
    shape : (rows, columns), optional
        Shape of the grid of variables, row by row. Default: found from the couplings, if each variable is coupled to
        its four neighbours.
    title : str, optional
        Heading of the page.
    command : str, optional
        Code or command line that made the estimate. Default: a call of `estimate`.
    diagnosis : Diagnosis or bool, optional
        Result of `diagnose`. By default a model of up to 20 000 variables is diagnosed here, which takes seconds;
        False leaves the diagnosis out.

    Notes
    -----
    Limits are rounded outwards, so that the intervals on the page hold as the intervals of the estimate do.
    A page stays below about 2 MB: it shows the first 20 000 rows and thins long scans, and says so.

    Examples
    --------
    >>> import dobrushin as db, pathlib, tempfile
    >>> from dobrushin import report
    >>> model = db.Ising.grid(50, 50, couplings=0.2)
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "page.html"
    >>> report.write(db.estimate(model, [1275], seed=1), path, model=model, diagnosis=False)
    >>> page = path.read_text()
    >>> "://" in page, len(page) < 100_000
    (False, True)
    """
    name = _file_name(path)
    page = _make(
        estimate, model=model, evidence=evidence, shape=shape, title=title, command=command, diagnosis=diagnosis
    )
    _save(name, page, path)


@dataclass(frozen=True, repr=False)
class Page:
    """A report as a page, which notebooks show as the result of a cell."""

    html: str
    title: str

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page to a file; an existing file is replaced once the whole page is written."""
        _save(_file_name(path), self.html.encode("utf-8", "xmlcharrefreplace"), path)

    def _repr_html_(self) -> str:
        """Return the page in a sandboxed frame, for notebooks."""
        style = f"width: 100%; height: {_FRAME}px; border: 0; resize: vertical"
        return (
            f'<iframe title="{html.escape(self.title)}" sandbox="allow-scripts" style="{style}" '
            f'srcdoc="{html.escape(self.html)}"></iframe>'
        )

    def __repr__(self) -> str:
        return f"Page({self.title!r}, {len(self.html):,} characters)"


@public(name="report.render")
def render(estimate: Estimate, **about: Any) -> Page:
    """Return an estimate as one interactive page, to be shown in a notebook.

    Parameters
    ----------
    estimate : Estimate
    **about
        As for `write`. The default ``model`` is the model of the estimate; the page has a diagnosis only with
        ``diagnosis=True``.

    Returns
    -------
    Page

    Examples
    --------
    >>> import dobrushin as db
    >>> db.report.render(db.estimate(db.Ising({(0, 1): 0.5}), [0]))
    Page('...', ... characters)
    """
    check.instance(estimate, Estimate, "estimate", "an Estimate")
    asked = None if estimate.asked is None else estimate.asked.model
    model = asked if asked is not None and asked._is_whole and asked._is_discrete else None
    text = _make(estimate, **{"model": model, "diagnosis": False, **about}).decode()
    return Page(text, about.get("title") or estimate.headline)


def _make(
    estimate: Estimate,
    *,
    model: Any = None,
    evidence: Any = None,
    shape: Any = None,
    title: Any = None,
    command: Any = None,
    diagnosis: Any = None,
) -> bytes:
    """Return the page after checking the arguments of `write`."""
    check.instance(estimate, Estimate, "estimate", "an Estimate")
    if model is not None:
        model = as_model(model)
        if not model._is_whole:
            raise ArgumentError("model", "a Model; for a LocalModel leave it out", model)
    if evidence is None and estimate.asked is not None:
        evidence = estimate.asked.evidence
    check.evidence(evidence or {})
    check.instance(diagnosis, Diagnosis | bool | None, "diagnosis", "a Diagnosis, True or False")
    check.instance(title, str | None, "title", "text")
    check.instance(command, str | None, "command", "text")
    if shape is not None and model is None:
        raise ArgumentError("shape", "given together with the model", shape)
    cells = check.grid_shape(shape)
    data = content(estimate, model, dict(evidence or {}), cells, title, command, diagnosis)
    network = network_picture(estimate, model)
    style = _asset("page.css")
    script = "\n" + "(() => {\n'use strict';\n" + "\n".join(map(_asset, _SCRIPTS)) + "})();\n"
    parts = {
        "title": html.escape(data["title"]),
        "style": style,
        "style_hash": _hash(style),
        "script": script,
        "script_hash": _hash(script),
        "static": _static(data),
        "network": f'<figure class="network" tabindex="0" role="region" aria-label="Graph">{network}</figure>'
        * bool(network),
        "data": embed(data),
    }
    # Names may hold halves of characters, which have no place in UTF-8.
    return Template(_asset("page.html")).substitute(parts).encode("utf-8", "xmlcharrefreplace")


def embed(data: Any) -> str:
    """Write data as JSON inside a script element, escaping <, > and & so that no text can end the element."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))  # ASCII: no line separators either
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _static(data: dict[str, Any]) -> str:
    """Return the part of the page that is shown where JavaScript cannot run."""
    rows, verdict, again = data["rows"], data["verdict"], data["reproduce"]
    lines = [f'<div class="verdict {verdict["level"]}"><p><strong>{html.escape(verdict["headline"])}</strong></p>']
    lines.append(f"<p>{html.escape(verdict['text'])}</p></div><h2>The answer</h2>")
    columns = ("target", "state", rows["value_name"], "lower", "upper", "bias bound")
    heads = "".join(f'<th scope="col">{name}</th>' for name in columns)
    lines.append(f'<div class="scroller"><table><thead><tr>{heads}</tr></thead><tbody>')
    count = min(len(rows["target"]), _STATIC_ROWS)
    for k in range(count):
        cells = zip(columns, cell_texts(rows, k), strict=True)
        line = "".join(f'<td data-label="{name}">{html.escape(text)}</td>' for name, text in cells)
        lines.append(f"<tr>{line}</tr>")
    lines.append("</tbody></table></div>")
    if rows["total"] > count:
        lines.append(f"<p>The first {count} of {rows['total']} rows. The others are shown where scripts may run.</p>")
    certificate = data["certificate"]
    paragraphs = [*certificate["words"], *(f"Assumed: {text}." for text in certificate["assumptions"])]
    lines.append("<h2>Why to believe it</h2>" + "".join(f"<p>{html.escape(text)}</p>" for text in paragraphs))
    lines.append(f"<h2>How to repeat it</h2><pre>{html.escape(again['command'])}</pre>")
    lines.append("".join(f"<p>{html.escape(f'{key}: {value}')}</p>" for key, value in again["facts"]))
    return "\n".join(lines)


def _asset(name: str) -> str:
    return files("dobrushin.report").joinpath(name).read_text("utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _file_name(path: Any) -> str:
    """Return the path as text; raise `ArgumentError` if it cannot be written."""
    name = check.path(path)
    if not name or os.path.isdir(name):
        raise ArgumentError("path", "the name of a file, not of a folder", name)
    if not os.path.isdir(os.path.dirname(os.path.abspath(name))):
        raise ArgumentError("path", "in a folder that exists", name)
    return os.path.realpath(name)


def _save(name: str, page: bytes, path: Any) -> None:
    """Replace the file once the whole page is written; after an error the old file remains."""
    try:
        replace_file(name, page)
    except OSError as error:
        raise OSError(error.errno, f"The report cannot be written ({error.strerror})", os.fsdecode(path)) from None
