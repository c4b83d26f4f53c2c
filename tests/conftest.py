"""The test run executes the shape annotations of the math; production never does. And it uses no network."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from jaxtyping import install_import_hook

if TYPE_CHECKING:
    from groupwise.models import LoadedModel
    from groupwise.models.tiny import Family

# The tower lets an int stand for a float, as type checkers do.
install_import_hook("groupwise.objective", "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))")

# Read when torch is first imported. Tiny models gain nothing from a second thread, and lose much where one spins.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# Read when huggingface_hub is first imported. A model that is not on this machine is then "not found", as in a test.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"


@pytest.fixture(autouse=True)
def unmeasured_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `groupwise doctor --measure` has kept on this machine is not there: a run would record forecasts."""
    monkeypatch.setattr("groupwise.launch.machine.HARDWARE_FILE", "not-measured-in-tests.json")


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., LoadedModel]:
    """tiny_model("qwen2"): the tiny model of a family, loaded once. Leave its weights and settings as they were."""
    from groupwise.models import load_model
    from groupwise.models.tiny import save_tiny_model

    @functools.cache
    def loaded(family: Family = "llama") -> LoadedModel:
        return load_model(str(save_tiny_model(tmp_path_factory.mktemp(family), family=family)), device="cpu")

    return loaded
