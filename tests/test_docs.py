"""The pages say what the code has: names, and which function is which theorem."""

import importlib
import re
import runpy
from collections import Counter
from pathlib import Path
from types import ModuleType

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
        names |= {f"{module}.{name}" for name in own.__all__ if getattr(db, name, None) is not getattr(own, name)}
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
