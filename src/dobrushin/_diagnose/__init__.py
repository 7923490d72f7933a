"""What can be certified about a model, and what to try. Hints, no certificates."""

from dobrushin._diagnose.diagnosis import Diagnosis, diagnose
from dobrushin._diagnose.groups import suggest_groups

__all__ = ["Diagnosis", "diagnose", "suggest_groups"]
