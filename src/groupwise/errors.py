"""Errors that a user can act on. Each message says what was given, what is allowed and what to do.

The command line prints these as one message and exits with code 2; anything else is a bug and keeps its traceback.
"""


class GroupwiseError(Exception):
    """Base of every error that is the input's fault, not ours."""


class ConfigError(GroupwiseError, ValueError):
    """The recipe: unknown key, wrong type, impossible value."""


class DataError(GroupwiseError, ValueError):
    """Tasks: missing file or column, empty set, every prompt too long."""


class VerifierError(GroupwiseError, ValueError):
    """Ground truth that cannot be used: a gold that does not run, a snapshot that is not a database."""


class EngineError(GroupwiseError, RuntimeError):
    """Models: not found, not loadable, numerics that do not agree."""
