"""Pages whose examples need data that are not in the repository are run where there are such data."""

import os

collect_ignore = [] if os.environ.get("DOBRUSHIN_DATA") else ["gallery/counties.md"]
