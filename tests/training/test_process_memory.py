"""The peak of the process: from the kernel's own file, and where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from groupwise.training import process_memory
from groupwise.training.process_memory import peak_bytes

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="on a GPU its allocations are counted")


def test_the_peak_is_read_from_the_status_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status = tmp_path / "status"
    status.write_text("Name:\tpython\nVmPeak:\t  999 kB\nVmHWM:\t  2048 kB\nVmRSS:\t  512 kB\n")
    monkeypatch.setattr(process_memory, "_STATUS", status)
    assert peak_bytes() == 2 * 1024 * 1024


@pytest.mark.parametrize("content", [None, "", "Name:\tpython\n", "VmHWM:\n"])
def test_without_that_line_it_is_what_the_process_used_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None
) -> None:
    status = tmp_path / "status"
    if content is not None:
        status.write_text(content)
    monkeypatch.setattr(process_memory, "_STATUS", status)
    assert peak_bytes() > 50e6  # torch alone is more
