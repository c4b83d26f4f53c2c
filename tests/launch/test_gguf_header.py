"""The header of a .gguf file, written by the `gguf` package."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

from groupwise.launch.gguf_header import read_header


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "m.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(3)
    writer.add_layer_norm_rms_eps(0.5)
    writer.add_token_list(["a", "bc", "\u00e9"])
    writer.add_token_scores([0.5, 1.5, 2.5])
    writer.add_bool("flag", True)
    writer.add_int64("long", -7)
    writer.add_array("nested", [[1, 2], [3]])
    writer.add_name("the name")
    writer.add_tensor("one", np.zeros((2, 3), dtype=np.float32))
    writer.add_tensor("two", np.zeros((4,), dtype=np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_settings_and_tensors_of_every_kind(file: Path) -> None:
    header = read_header(file)
    assert header.tensors == {"one": 6, "two": 4}
    expected = {
        "general.architecture": "llama", "llama.block_count": 3, "llama.attention.layer_norm_rms_epsilon": 0.5,
        "tokenizer.ggml.tokens": 3, "tokenizer.ggml.scores": 3, "flag": True, "long": -7, "nested": 2,
        "general.name": "the name",
    }  # fmt: skip
    assert expected.items() <= header.settings.items()


def test_what_is_cut_or_something_else_is_refused(file: Path, tmp_path: Path) -> None:
    whole = file.read_bytes()
    other = tmp_path / "other.gguf"
    for cut in (10, 40, 150):
        other.write_bytes(whole[:cut])
        with pytest.raises(ValueError, match="ends within its header"):
            read_header(other)
    other.write_bytes(b"GGML" + whole[4:])
    with pytest.raises(ValueError, match="does not begin"):
        read_header(other)
    other.write_bytes(whole[:4] + b"\x09" + whole[5:])
    with pytest.raises(ValueError, match="version 9"):
        read_header(other)
