import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared():
    """The folder with the reference data; tests that need it skip where it is missing."""
    folder = Path(os.environ.get("GROUPWISE_SHARED", Path(__file__).parents[3] / "shared"))
    if not folder.is_dir():
        pytest.skip(f"no reference data at {folder}; set GROUPWISE_SHARED to its folder")
    return folder
