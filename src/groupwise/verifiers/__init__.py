"""Verifiers: one file (or family of files) for each kind of truth. Each is imported on first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from groupwise.types import Verifier
from groupwise.verifiers.contract import TaskVerifier, UnusableGold

if TYPE_CHECKING:
    from groupwise.verifiers.classification import ClassificationVerifier
    from groupwise.verifiers.compose import ComposeVerifier
    from groupwise.verifiers.extraction import ExtractionVerifier
    from groupwise.verifiers.function_verifier import FunctionVerifier
    from groupwise.verifiers.math_verifier import MathVerifier
    from groupwise.verifiers.sql import SqlVerifier
    from groupwise.verifiers.tools import ToolVerifier

MODULES = {
    "ClassificationVerifier": "classification",
    "ComposeVerifier": "compose",
    "ExtractionVerifier": "extraction",
    "FunctionVerifier": "function_verifier",
    "MathVerifier": "math_verifier",
    "SqlVerifier": "sql",
    "ToolVerifier": "tools",
}

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


def __getattr__(name: str) -> Any:
    """The verifier of this name: together they would import jsonschema, sqlglot and numpy for a user of one of them."""
    if name not in MODULES:
        raise AttributeError(f"module 'groupwise.verifiers' has no attribute {name!r}")
    return getattr(import_module(f"groupwise.verifiers.{MODULES[name]}"), name)
