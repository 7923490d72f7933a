"""What the package decides, for whoever listens: nobody does by default."""

from __future__ import annotations

import logging

log = logging.getLogger("dobrushin")
# A package that has no handler at all prints its warnings.
log.addHandler(logging.NullHandler())
