"""What is not run with the tests: scripts that make the site, and examples whose data are not in the repository."""

import os

collect_ignore = ["conf.py", "mathml.py", "make_notebook.py", "make_pictures.py"]
if not os.environ.get("DOBRUSHIN_DATA"):
    collect_ignore += ["gallery/counties.md", "gallery/language.md"]
