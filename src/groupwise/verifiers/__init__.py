"""Verifiers: one file (or family of files) for each kind of truth."""

from groupwise.types import Verifier
from groupwise.verifiers.sql import SqlVerifier, UnusableGold

__all__ = ["SqlVerifier", "UnusableGold", "Verifier"]
