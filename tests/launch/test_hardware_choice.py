"""Which machine a plan is made for."""

from __future__ import annotations

from pathlib import Path

import pytest

from groupwise.errors import ConfigError
from groupwise.launch import hardware_choice
from groupwise.launch.hardware_choice import chosen_hardware
from groupwise.planning.hardware import Hardware, named_hardware, write_hardware

MEASURED = Hardware(
    name="2 threads",
    memory_bytes=8 << 30,
    bytes_per_number=4,
    train_flops=1e11,
    prefill_flops=1e11,
    decode_flops=1e11,
    decode_bytes_per_s=1e10,
    update_bytes_per_s=1e10,
    process_bytes=0,
    measured=True,
)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "cache" / "hardware.json"
    monkeypatch.setattr(hardware_choice, "hardware_file", lambda: path)
    return path


def test_what_was_measured_is_taken_unless_a_card_is_named(file: Path, tmp_path: Path) -> None:
    write_hardware(file, MEASURED)
    assert chosen_hardware() == MEASURED
    assert chosen_hardware("this") == MEASURED
    assert chosen_hardware("H100") == named_hardware("h100")
    other = tmp_path / "other.json"
    write_hardware(other, named_hardware("l4"))
    assert chosen_hardware(str(other)) == named_hardware("l4")


@pytest.mark.parametrize("name", [None, "this"])
def test_a_machine_that_was_not_measured_is_refused_with_both_ways_out(file: Path, name: str | None) -> None:
    with pytest.raises(ConfigError, match=r"(?s)not measured.*groupwise doctor --measure.*--hardware NAME.*h100"):
        chosen_hardware(name)


def test_unknown_cards_and_broken_files_are_refused(file: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="h100"):
        chosen_hardware("abacus")
    with pytest.raises(ConfigError, match="cannot be read"):
        chosen_hardware(str(tmp_path / "none.json"))
    file.parent.mkdir()
    file.write_text('{"name": "x"}')
    with pytest.raises(ConfigError, match="train_flops is missing"):
        chosen_hardware()
