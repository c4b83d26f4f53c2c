"""Log-probabilities kept on disk: found again, never for another model or other pairs, never when damaged."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor

from groupwise.launch.reference_cache import cached_logprobs, reference_key
from groupwise.models import ScoredSequence
from groupwise.models.tiny import save_tiny_model

VALUES = torch.tensor([[-1.5, -2.25], [-3.0, -0.125]])
ROWS = (ScoredSequence(token_ids=(1, 2, 3), prompt_length=1), ScoredSequence(token_ids=(1, 4), prompt_length=1))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda *_: str(tmp_path))
    return tmp_path / "reference-logprobs"


class Computing:
    """Counts how often it is asked."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> Tensor:
        self.calls += 1
        return VALUES.double()


def test_the_second_call_reads_what_the_first_has_written(cache: Path) -> None:
    compute = Computing()
    first, first_note = cached_logprobs("k", (2, 2), compute)
    second, second_note = cached_logprobs("k", (2, 2), compute)
    assert compute.calls == 1
    assert (first_note, second_note) == ("computed", f"from {cache / 'k.safetensors'}")
    for values in (first, second):
        assert values.dtype == torch.float32
        assert torch.equal(values, VALUES)
    cached_logprobs("other", (2, 2), compute)
    assert compute.calls == 2


def flipped(content: bytes) -> bytes:
    return content[:-3] + bytes([content[-3] ^ 64]) + content[-2:]


@pytest.mark.parametrize("damage", [flipped, lambda content: content[:-4], lambda content: b"", lambda content: b"{}"])
def test_a_damaged_file_is_computed_again_and_replaced(cache: Path, damage) -> None:
    compute = Computing()
    cached_logprobs("k", (2, 2), compute)
    file = cache / "k.safetensors"
    file.write_bytes(damage(file.read_bytes()))
    values, note = cached_logprobs("k", (2, 2), compute)
    assert torch.equal(values, VALUES)
    assert note == f"computed again: {file} is damaged"
    assert cached_logprobs("k", (2, 2), compute)[1].startswith("from ")
    assert compute.calls == 2


def test_a_file_under_another_name_or_of_another_shape_is_not_believed(cache: Path) -> None:
    compute = Computing()
    cached_logprobs("k", (2, 2), compute)
    (cache / "k2.safetensors").write_bytes((cache / "k.safetensors").read_bytes())
    assert "damaged" in cached_logprobs("k2", (2, 2), compute)[1]
    assert "damaged" in cached_logprobs("k", (3, 2), compute)[1]


def test_where_nothing_can_be_kept_the_values_are_there_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda *_: str(tmp_path / "file"))
    values, note = cached_logprobs("k", (2, 2), Computing())
    assert torch.equal(values, VALUES)
    assert "not kept" in note


def test_the_key_changes_with_every_weight_and_with_every_token(tiny_model) -> None:
    model = tiny_model("llama").model
    key = reference_key(model, ROWS)
    assert reference_key(model, ROWS) == key
    changed = copy.deepcopy(model)
    last = list(changed.parameters())[-1]
    with torch.no_grad():
        last.view(-1)[-1] += 1e-3
    others = [
        reference_key(changed, ROWS),
        reference_key(copy.deepcopy(model).double(), ROWS),
        reference_key(model, ROWS[::-1]),
        reference_key(model, (ScoredSequence(token_ids=(1, 2, 3), prompt_length=2), ROWS[1])),
        reference_key(model, (ScoredSequence(token_ids=(1, 2, 5), prompt_length=1), ROWS[1])),
    ]
    assert len({key, *others}) == 6
    assert reference_key(copy.deepcopy(model), ROWS) == key


def test_the_key_is_the_same_after_saving_and_loading(tiny_model, tmp_path: Path) -> None:
    from groupwise.models import load_model

    again = load_model(str(save_tiny_model(tmp_path)), device="cpu")
    assert reference_key(again.model, ROWS) == reference_key(tiny_model("llama").model, ROWS)
