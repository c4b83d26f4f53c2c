"""What is wrong with a run, in plain words. Read `finding` (what is said), `diagnose` (the rules and their order), then
the rules by what they look at.
"""

from groupwise.runs.diagnosis.diagnose import (
    RULES,
    coverage,
    diagnose,
    diagnose_early,
    finding_lines,
    findings_json,
    nothing_found,
)
from groupwise.runs.diagnosis.finding import Finding

__all__ = [
    "RULES",
    "Finding",
    "coverage",
    "diagnose",
    "diagnose_early",
    "finding_lines",
    "findings_json",
    "nothing_found",
]
