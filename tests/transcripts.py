"""Examples of libraries that are not installed everywhere: those of docstrings, and those of docs/adapters.md."""

import contextlib
import doctest
import io
import re
from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs" / "adapters.md"


def run_docstrings(module, library=""):
    """Run the examples that are skipped where the library is missing; how many there were."""
    count = 0
    for test in doctest.DocTestFinder().find(module, module.__name__):
        if f"import {library}" not in test.docstring and f"from {library}" not in test.docstring:
            continue
        for example in test.examples:
            example.options.pop(doctest.SKIP, None)
        count += len(test.examples)
        runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
        assert runner.run(test).failed == 0
    return count


def run_section(heading):
    """Run the Python blocks of a section in order, and compare what is printed with the text block that follows."""
    section = PAGE.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    names, printed, count = {}, "", 0
    for language, text in re.findall(r"```(python|text)\n(.*?)```", section, re.DOTALL):
        if language == "text":
            assert printed == text
            continue
        with contextlib.redirect_stdout(io.StringIO()) as caught:
            exec(text, names)
        printed, count = caught.getvalue(), count + 1
    return count
