"""Bayesian networks in XML: ``.xmlbif``, ``.bifxml``, ``.xml`` (XMLBIF 0.3).

``VARIABLE`` has a ``NAME`` and an ``OUTCOME`` for each state; ``DEFINITION`` says ``FOR`` which variable, ``GIVEN``
which parents, and has a ``TABLE`` in which the states of the variable are fastest and those of the first parent
slowest. Other elements are skipped. A file that declares entities is refused: they can make a small file a very large
one.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree

from dobrushin._models import FactorGraph
from dobrushin.io.networks import Network
from dobrushin.io.numbers import quote
from dobrushin.io.source import Source

_COMMENT = re.compile(rb"<!--.*?-->", re.DOTALL)


def read(source: Source) -> FactorGraph:
    """A factor graph of the tables; variables with one state are left out."""
    if b"<!ENTITY" in _COMMENT.sub(b"", source.data).upper():
        raise source.error("XML without entities of its own", "an entity", source.data.upper().find(b"<!ENTITY"))
    try:
        root = ElementTree.fromstring(source.data)
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise source.error("XML", f"something else ({quote(str(error))})") from None
    body = root if root.tag == "NETWORK" else root.find("NETWORK")
    if body is None or root.tag not in ("BIF", "NETWORK"):
        raise source.error("an element BIF with a NETWORK", quote(root.tag))
    network = Network({}, {}, {})
    for element in body.findall("VARIABLE"):
        network.add_variable(source, *_variable(source, element))
    for element in body.findall("DEFINITION"):
        names = [_text(child) for child in element.findall("FOR")]
        table = element.findall("TABLE")
        if len(names) != 1 or len(table) != 1:
            raise source.error("definitions FOR one variable, with one TABLE", f"{len(names)} and {len(table)}")
        words = " ".join(table[0].itertext()).split()
        network.add_table(source, names[0], [_text(child) for child in element.findall("GIVEN")], words)
    return network.finish(source)


def _variable(source: Source, element: ElementTree.Element) -> tuple[str, list[str]]:
    names = [_text(child) for child in element.findall("NAME")]
    if len(names) != 1 or element.get("TYPE", "nature") != "nature":
        raise source.error("variables of the type nature with one NAME", quote(str(element.get("TYPE", len(names)))))
    return names[0], [_text(child) for child in (*element.findall("OUTCOME"), *element.findall("VALUE"))]


def _text(element: ElementTree.Element) -> str:
    return " ".join("".join(element.itertext()).split())
