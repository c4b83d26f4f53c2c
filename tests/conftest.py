"""The test run executes the shape annotations of the math; production never does."""

from jaxtyping import install_import_hook

# The tower lets an int stand for a float, as type checkers do.
install_import_hook("groupwise.objective", "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))")
