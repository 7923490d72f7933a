"""The pages say what the code has: names, and which function is which theorem."""

import importlib
import re
import runpy
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

import dobrushin as db

DOCS = Path(__file__).parent.parent / "docs"
MODULES = [name for name in db.__all__ if isinstance(getattr(db, name), ModuleType)]


def listed(text):
    """The names in the tables of the API page."""
    return re.findall(r"^   ([A-Za-z_][\w.]*)$", text, re.MULTILINE)


def public():
    """Every public name, once: what is in `dobrushin` itself is not asked for in `dobrushin.io` again."""
    names = {name for name in db.__all__ if name not in MODULES}
    for module in MODULES:
        own = importlib.import_module(f"dobrushin.{module}")
        for name in own.__all__:
            thing = getattr(own, name)
            if isinstance(thing, ModuleType):
                names |= {f"{module}.{name}.{inner}" for inner in thing.__all__}
            elif getattr(db, name, None) is not thing:
                names.add(f"{module}.{name}")
    return names


def test_the_reference_has_every_public_name_once():
    names = Counter(listed((DOCS / "api.md").read_text()))
    assert set(names) == public()
    assert max(names.values()) == 1


def test_pages_of_the_reference_do_not_collide_where_case_does_not_count():
    renamed = runpy.run_path(str(DOCS / "conf.py"))["autosummary_filename_map"]
    full = [f"dobrushin.{name}" for name in public()]
    pages = Counter(renamed.get(name, name).lower() for name in full)
    assert max(pages.values()) == 1, pages.most_common(3)
    assert max(Counter(name.lower() for name in full).values()) == 2  # so it would be without new names


def test_missing_and_unknown_names_are_seen():
    """Negative control."""
    text = (DOCS / "api.md").read_text()
    assert set(listed(text + "\n   nonsense\n")) - public() == {"nonsense"}
    assert public() - set(listed(text.replace("   read_evidence\n", ""))) == {"read_evidence"}


# -- theorems --------------------------------------------------------------------------------------------------------

MAP = (DOCS / "map.md").read_text(encoding="utf-8")
SOURCE = DOCS.parent / "src" / "dobrushin"


def resolve(path):
    """What a dotted name stands for; an error if there is no such thing."""
    parts = path.split(".")
    for k in range(len(parts), 0, -1):
        try:
            thing = importlib.import_module(".".join(parts[:k]))
        except ModuleNotFoundError:
            continue
        for name in parts[k:]:
            thing = getattr(thing, name)
        return thing
    raise ModuleNotFoundError(path)


def test_every_function_on_the_map_exists():
    names = set(re.findall(r"`(dobrushin\.[\w.]+)`", MAP))
    assert len(names) > 60
    for name in names:
        resolve(name)
    for nonsense in ("dobrushin.sampel", "dobrushin._kernels.descent.dog", "dobrushin._kernel.descent"):
        with pytest.raises((AttributeError, ModuleNotFoundError)):
            resolve(nonsense)


def test_every_section_of_the_theory_page_is_on_the_map():
    sections = re.findall(r"^### (.*)$", (DOCS / "theory.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert [section for section in sections if f"[{section}]" not in MAP] == []


def test_every_theorem_and_every_trusted_file_of_the_code_is_on_the_map():
    texts = {path: path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py")}
    cited = {name for text in texts.values() for name in re.findall(r"\b(?:Theorem|Algorithm) \d", text)}
    assert cited
    assert [name for name in sorted(cited) if f"| {name} |" not in MAP] == []
    trusted = [path for path, text in texts.items() if "[trusted" in text]
    assert len(trusted) > 30
    for path in trusted:
        module = ".".join(("dobrushin", *path.relative_to(SOURCE).with_suffix("").parts))
        assert re.search(rf"`{re.escape(module)}[`.]", MAP), module
