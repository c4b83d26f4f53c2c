"""Verifiers: one file (or family of files) for each kind of truth."""

from groupwise.types import Verifier
from groupwise.verifiers.classification import ClassificationVerifier
from groupwise.verifiers.compose import ComposeVerifier
from groupwise.verifiers.contract import TaskVerifier, UnusableGold
from groupwise.verifiers.extraction import ExtractionVerifier
from groupwise.verifiers.function_verifier import FunctionVerifier
from groupwise.verifiers.math_verifier import MathVerifier
from groupwise.verifiers.sql import SqlVerifier
from groupwise.verifiers.tools import ToolVerifier

__all__ = [
    "ClassificationVerifier",
    "ComposeVerifier",
    "ExtractionVerifier",
    "FunctionVerifier",
    "MathVerifier",
    "SqlVerifier",
    "TaskVerifier",
    "ToolVerifier",
    "UnusableGold",
    "Verifier",
]
