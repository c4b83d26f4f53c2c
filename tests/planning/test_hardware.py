"""Named cards, the file of a measured machine, and refusals."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from plan_sizes import ROUND, TWO_CORES

from groupwise.errors import ConfigError
from groupwise.planning.hardware import (
    DECODE_BANDWIDTH_SHARE,
    TRAIN_SHARE,
    hardware_names,
    named_hardware,
    read_hardware,
    write_hardware,
)


def test_a_named_card_is_its_peaks_times_the_assumed_shares() -> None:
    card = named_hardware("a100")
    assert card.train_flops == pytest.approx(TRAIN_SHARE * 312e12)
    assert card.decode_bytes_per_s == pytest.approx(DECODE_BANDWIDTH_SHARE * 2.04e12)
    assert (card.bytes_per_number, card.price_per_hour, card.measured) == (2, None, False)
    assert named_hardware("RTX 4090", price_per_hour=0.5).price_per_hour == 0.5


@pytest.mark.parametrize("name", hardware_names())
def test_no_card_is_assumed_to_reach_its_peak(name: str) -> None:
    """A typing error in a table of peaks shows as a rate outside what any card has."""
    card = named_hardware(name)
    assert 20e12 < card.train_flops < 1e15
    assert 20e9 < card.decode_bytes_per_s < 8e12
    assert 20 < card.train_flops / card.decode_bytes_per_s < 500


def test_decoding_turns_from_memory_to_compute_where_published() -> None:
    """Rows at which a decode step reads as long as it computes, F / BW at bf16: 153, 295 and 206 at the peaks."""
    for name, rows in (("a100", 153), ("h100", 295), ("h200", 206)):
        card = named_hardware(name)
        peak_ratio = (card.train_flops / TRAIN_SHARE) / (card.decode_bytes_per_s / DECODE_BANDWIDTH_SHARE)
        assert peak_ratio == pytest.approx(rows, rel=0.01)


def test_an_unknown_card_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"(?s)'tpu-v9'.*a100, h100, h200.*rtx4090"):
        named_hardware("tpu-v9")


def test_a_file_comes_back_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "hardware.json"
    for hardware in (ROUND, TWO_CORES):
        write_hardware(path, hardware)
        assert read_hardware(path) == hardware


def test_files_that_are_no_hardware_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "hardware.json"
    with pytest.raises(ConfigError, match="cannot be read"):
        read_hardware(path)
    record = dataclasses.asdict(ROUND)
    del record["memory_bytes"]
    for text, reason in (
        ("{", "cannot be read"),
        ("[1]", "a JSON object"),
        (json.dumps({**record, "colour": 1}), "colour is unknown; memory_bytes is missing"),
        (json.dumps({**record, "memory_bytes": 0}), "memory_bytes = 0: expected a whole number >= 1"),
        (json.dumps({**record, "memory_bytes": 9, "train_flops": "fast"}), "train_flops = 'fast'"),
        (json.dumps({**record, "memory_bytes": 9, "measured": "yes"}), "measured = 'yes'"),
        (json.dumps({**record, "memory_bytes": 9, "bytes_per_number": 1}), "4 .float32. or 2 .bf16."),
    ):
        path.write_text(text)
        with pytest.raises(ConfigError, match=reason):
            read_hardware(path)


@pytest.mark.parametrize("wrong", [0.0, -1.0, float("nan"), float("inf")])
def test_rates_are_positive_and_finite(wrong: float) -> None:
    with pytest.raises(ConfigError, match="decode_flops"):
        dataclasses.replace(ROUND, decode_flops=wrong)


def test_a_price_may_be_zero_but_not_negative() -> None:
    assert dataclasses.replace(ROUND, price_per_hour=0.0).price_per_hour == 0.0
    with pytest.raises(ConfigError, match="price_per_hour"):
        dataclasses.replace(ROUND, price_per_hour=-1.0)
