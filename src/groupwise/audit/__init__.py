"""Attacks on verifiers, and the go or no-go before training. Nothing here imports a tensor library.

Read `go_no_go` (what is tried), `checks` (when it is a no-go), then one attacks_<kind>.py for each kind of truth.
"""

from groupwise.audit.attack import Attack, AttackMaker
from groupwise.audit.checks import Judged
from groupwise.audit.go_no_go import AuditLimits, audit
from groupwise.audit.null_agents import NullAgent, null_agents
from groupwise.audit.report import AuditReport, Example, Finding, audit_table

__all__ = [
    "Attack",
    "AttackMaker",
    "AuditLimits",
    "AuditReport",
    "Example",
    "Finding",
    "Judged",
    "NullAgent",
    "audit",
    "audit_table",
    "null_agents",
]
