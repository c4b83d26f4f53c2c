"""The check that two ways of computing log-probabilities agree."""

from __future__ import annotations

from typing import Any

import pytest
from torch import Tensor
from training_cases import small_llama

from groupwise.errors import EngineError
from groupwise.models import ScoredSequence, padded_logprobs, tree_logprobs
from groupwise.training.numerics import check_logprobs

ROWS = [ScoredSequence(token_ids=(2, 3, 4, last, 1), prompt_length=2) for last in (5, 6)]


def test_the_tree_passes() -> None:
    assert check_logprobs(small_llama(), ROWS, logprobs=tree_logprobs) < 1e-5


def test_a_path_that_forgets_a_token_is_refused() -> None:
    def forgetful(model: Any, sequences: Any, *, temperature: float) -> Tensor:
        shifted = [
            ScoredSequence(token_ids=(2, *s.token_ids[2:]), prompt_length=s.prompt_length - 1) for s in sequences
        ]
        return padded_logprobs(model, shifted, temperature=temperature)

    with pytest.raises(EngineError, match=r"disagree by .* nats.*\n.*attention_check = false"):
        check_logprobs(small_llama(), ROWS, logprobs=forgetful)


def test_a_path_that_gives_nan_is_refused() -> None:
    def broken(model: Any, sequences: Any, *, temperature: float) -> Tensor:
        return padded_logprobs(model, sequences, temperature=temperature) * float("nan")

    with pytest.raises(EngineError, match="nan"):
        check_logprobs(small_llama(), ROWS, logprobs=broken)
