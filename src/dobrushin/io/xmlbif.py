"""Bayesian networks in XML: ``.xmlbif``, ``.bifxml``, ``.xml`` (XMLBIF 0.3).

``VARIABLE`` has a ``NAME`` and an ``OUTCOME`` for each state; ``DEFINITION`` says ``FOR`` which variable, ``GIVEN``
which parents, and has a ``TABLE`` in which the states of the variable are fastest and those of the first parent
slowest. Other elements are skipped. A file that declares entities is refused: they can make a small file a very large
one, or name other files.
"""

from __future__ import annotations

from typing import Any, NoReturn
from xml.etree import ElementTree
from xml.parsers import expat

from dobrushin._models import FactorGraph
from dobrushin.errors import FormatError
from dobrushin.io.networks import Network
from dobrushin.io.source import Source, quote


def read(source: Source) -> FactorGraph:
    """Read a factor graph of the tables; variables with one state are left out."""
    root = _parse(source)
    body = root if root.tag == "NETWORK" else root.find("NETWORK")
    if body is None or root.tag not in ("BIF", "NETWORK"):
        raise source.error("an element BIF with a NETWORK", quote(root.tag))
    network = Network(source)
    for element in body.findall("VARIABLE"):
        names = [_text(child) for child in element.findall("NAME")]
        if len(names) != 1 or element.get("TYPE", "nature") != "nature":
            found = quote(str(element.get("TYPE", len(names))))
            raise source.error("variables of the type nature with one NAME", found)
        states = [_text(child) for child in (*element.findall("OUTCOME"), *element.findall("VALUE"))]
        network.add_variable(names[0], states)
    for element in body.findall("DEFINITION"):
        names = [_text(child) for child in element.findall("FOR")]
        table = element.findall("TABLE")
        if len(names) != 1 or len(table) != 1:
            raise source.error("definitions FOR one variable, with one TABLE", f"{len(names)} and {len(table)}")
        words = " ".join(table[0].itertext()).split()
        network.add_words(names[0], [_text(child) for child in element.findall("GIVEN")], words)
    return network.to_model()


def _parse(source: Source) -> ElementTree.Element:
    """Parse XML; the parser itself refuses entities, so that no encoding or place in the file hides one."""
    builder = ElementTree.TreeBuilder()
    parser = expat.ParserCreate(None, "}")
    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler = builder.start, builder.end
    parser.CharacterDataHandler = builder.data

    def refuse(*_: Any) -> NoReturn:
        line = parser.CurrentLineNumber
        raise FormatError(source.path, "XML without entities of its own", "an entity", line)

    parser.EntityDeclHandler = parser.SkippedEntityHandler = refuse
    try:
        parser.Parse(source.data, True)
        return builder.close()
    except FormatError:
        raise
    except (expat.ExpatError, ValueError, LookupError, AssertionError) as error:
        raise source.error("XML", f"something else ({quote(str(error))})") from None


def _text(element: ElementTree.Element) -> str:
    return " ".join("".join(element.itertext()).split())
