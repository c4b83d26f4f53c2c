"""Verifiers: one file (or family of files) for each kind of truth."""

from groupwise.types import Verifier
from groupwise.verifiers.contract import TaskVerifier, UnusableGold
from groupwise.verifiers.sql import SqlVerifier

__all__ = ["SqlVerifier", "TaskVerifier", "UnusableGold", "Verifier"]
