from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from groupwise.rollout.sampling import draw, uniforms

# Probabilities 0.1, 0.4, 0.2, 0.3: their running sums are 0.1, 0.5, 0.7, 1.
LOGITS = torch.tensor([0.1, 0.4, 0.2, 0.3]).log()
NEARLY_ONE = 1 - 1e-16


def draw_at(logits: Tensor, *uniform: float, temperature: float = 1.0, top_p: float = 1.0, top_k: int = 0) -> list[int]:
    """The tokens that one distribution gives at these uniform numbers."""
    rows = logits.expand(len(uniform), -1)
    numbers = torch.tensor(uniform, dtype=torch.float64)
    return draw(rows, numbers, temperature=temperature, top_p=top_p, top_k=top_k)[0].tolist()


def probabilities_at(logits: Tensor, *uniform: float, **options: float) -> list[float]:
    """exp of the log-probabilities reported at these uniform numbers."""
    rows = logits.expand(len(uniform), -1)
    options = {"temperature": 1.0, **options}
    numbers = torch.tensor(uniform, dtype=torch.float64)
    return draw(rows, numbers, **options)[1].exp().tolist()  # type: ignore[arg-type]


def grid(count: int) -> Tensor:
    """count uniform numbers in the middles of equal cells: the share of a token is its probability up to 1/count."""
    return (torch.arange(count, dtype=torch.float64) + 0.5) / count


def test_a_token_owns_its_share_of_the_unit_interval() -> None:
    assert draw_at(LOGITS, 0.0, 0.0999, 0.1001, 0.4999, 0.5001, 0.6999, 0.7001, 0.9999) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_the_reported_log_probability_is_the_tokens() -> None:
    assert probabilities_at(LOGITS, 0.05, 0.3, 0.6, 0.9) == pytest.approx([0.1, 0.4, 0.2, 0.3])
    shifted = LOGITS + 50.0  # logits are known up to a constant
    assert probabilities_at(shifted, 0.05, 0.3, 0.6, 0.9) == pytest.approx([0.1, 0.4, 0.2, 0.3], rel=1e-4)


def test_rows_are_drawn_each_from_its_own_distribution() -> None:
    logits = torch.stack([LOGITS, LOGITS.flip(0)])
    token_ids, logprobs = draw(logits, torch.tensor([0.05, 0.05]), temperature=1.0)
    assert token_ids.tolist() == [0, 0]
    assert logprobs.exp().tolist() == pytest.approx([0.1, 0.3])


def test_the_temperature_divides_the_logits() -> None:
    # At temperature 1/2 the probabilities are squared and renormalised: 1, 16, 4, 9 thirtieths.
    assert probabilities_at(LOGITS, 0.0, 0.3, 0.6, 0.9, temperature=0.5) == pytest.approx(
        [1 / 30, 16 / 30, 4 / 30, 9 / 30]
    )
    assert draw_at(LOGITS, 0.5 / 30, 1.5 / 30, 16.5 / 30, 17.5 / 30, 21.5 / 30, temperature=0.5) == [0, 1, 1, 2, 3]


def test_temperature_zero_takes_the_most_likely_token() -> None:
    assert draw_at(LOGITS, 0.0, 0.05, 0.9, NEARLY_ONE, temperature=0.0) == [1, 1, 1, 1]
    assert probabilities_at(LOGITS + 2.0, 0.9, temperature=0.0) == pytest.approx([0.4])  # at temperature 1


def test_top_k_keeps_the_most_likely_and_renormalises() -> None:
    # 0.4 and 0.3 stay and become 4/7 and 3/7; they stand at 1 and 3.
    assert draw_at(LOGITS, 0.0, 0.57, 0.572, NEARLY_ONE, top_k=2) == [1, 1, 3, 3]
    assert probabilities_at(LOGITS, 0.0, 0.9, top_k=2) == pytest.approx([4 / 7, 3 / 7])
    assert draw_at(LOGITS, 0.0, 0.5, NEARLY_ONE, top_k=1) == [1, 1, 1]
    assert draw_at(LOGITS, 0.05, NEARLY_ONE, top_k=9) == [0, 3]  # more than there are: all stay


def test_top_p_keeps_the_nucleus_and_renormalises() -> None:
    # In falling order 0.4, 0.3, 0.2, 0.1: 0.6 is reached by the first two, 0.75 by the first three.
    assert probabilities_at(LOGITS, 0.0, 0.9, top_p=0.6) == pytest.approx([4 / 7, 3 / 7])
    assert probabilities_at(LOGITS, 0.0, 0.5, 0.9, top_p=0.75) == pytest.approx([4 / 9, 2 / 9, 3 / 9])
    for top_p in (0.01, 0.0):  # the most likely token always stays
        assert draw_at(LOGITS, 0.0, NEARLY_ONE, top_p=top_p) == [1, 1]


def test_top_p_is_taken_of_what_top_k_left() -> None:
    # top_k 2 leaves 4/7 = 0.571 and 3/7; the nucleus of 0.5 is then the first alone, where 0.4 < 0.5 needs two.
    assert draw_at(LOGITS, 0.0, NEARLY_ONE, top_p=0.5) == [1, 3]
    assert draw_at(LOGITS, 0.0, NEARLY_ONE, top_p=0.5, top_k=2) == [1, 1]


@pytest.mark.parametrize("uniform", [0.0, 1e-300, 0.25, 0.5, 0.75, 1 - 2**-53, NEARLY_ONE])
def test_an_impossible_token_is_never_drawn(uniform: float) -> None:
    impossible = -math.inf
    logits = torch.tensor([impossible, 0.0, impossible, impossible, 0.0, impossible])
    assert draw_at(logits, uniform) in ([1], [4])
    assert probabilities_at(logits, uniform) == pytest.approx([0.5])
    underflow = torch.tensor([-1000.0, 0.0, -1000.0])  # exp(-1000) is 0 in float32
    assert draw_at(underflow, uniform) == [1]


@settings(deadline=None)
@given(
    logits=st.lists(st.floats(-6, 6, width=32), min_size=1, max_size=12),
    temperature=st.floats(0.25, 4.0),
    top_k=st.integers(0, 12),
    top_p=st.floats(0.05, 1.0),
)
def test_draws_follow_the_distribution_that_is_reported(
    logits: list[float], temperature: float, top_k: int, top_p: float
) -> None:
    """Over an even grid of uniform numbers, every token comes up as often as its reported probability says."""
    count = 2000
    rows = torch.tensor(logits).expand(count, -1)
    token_ids, logprobs = draw(rows, grid(count), temperature=temperature, top_p=top_p, top_k=top_k)
    shares = torch.bincount(token_ids, minlength=len(logits)) / count
    reported = torch.zeros(len(logits)).index_put((token_ids,), logprobs.exp())
    torch.testing.assert_close(shares, reported, atol=1.5 / count, rtol=0)
    if top_k == 0 and top_p == 1.0:
        torch.testing.assert_close(reported, torch.softmax(rows[0] / temperature, dim=-1), atol=1 / count, rtol=0)


@settings(deadline=None, max_examples=30)
@given(logits=st.lists(st.floats(-4, 4, width=32), min_size=2, max_size=12), temperature=st.floats(0.5, 2.0))
def test_unrestricted_draws_follow_the_softmax(logits: list[float], temperature: float) -> None:
    count = 2000
    rows = torch.tensor(logits).expand(count, -1)
    token_ids, _ = draw(rows, grid(count), temperature=temperature)
    shares = torch.bincount(token_ids, minlength=len(logits)) / count
    torch.testing.assert_close(shares, torch.softmax(rows[0] / temperature, dim=-1), atol=1.5 / count, rtol=0)


def test_random_streams_draw_from_the_softmax() -> None:
    """Pearson's chi-square over 4,000 draws; 3 degrees of freedom exceed 16.3 once in 1,000. The seed is fixed."""
    count = 4000
    numbers = torch.stack([uniforms(11, (n, 0), 1)[0] for n in range(count)])
    token_ids, _ = draw(LOGITS.expand(count, -1), numbers, temperature=1.0)
    expected = LOGITS.exp() * count
    assert float(((torch.bincount(token_ids, minlength=4) - expected) ** 2 / expected).sum()) < 16.3


def test_a_stream_is_reproducible_and_its_length_does_not_matter() -> None:
    first = uniforms(3, (1, 2), 8)
    assert first.dtype == torch.float64
    assert torch.equal(uniforms(3, (1, 2), 8), first)
    assert torch.equal(uniforms(3, (1, 2), 50)[:8], first)
    assert bool(((first >= 0) & (first < 1)).all())


def test_streams_differ_and_do_not_follow_each_other() -> None:
    keys = [(seed, prompt, row) for seed in range(3) for prompt in range(3) for row in range(3)]
    streams = torch.stack([uniforms(seed, (prompt, row), 1000) for seed, prompt, row in keys])
    assert len({tuple(s) for s in streams[:, :4].tolist()}) == len(keys)
    # The correlation of 1,000 independent pairs has a standard deviation of 0.032; 351 pairs stay below 5 of them.
    assert float((torch.corrcoef(streams) - torch.eye(len(keys))).abs().max()) < 0.16


@pytest.mark.parametrize("width", [255, 256, 257, 3000])
def test_a_wide_vocabulary_is_drawn_as_its_running_sum_says(width: int) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(200, width, generator=generator)
    numbers = torch.rand(200, dtype=torch.float64, generator=generator)
    token_ids, logprobs = draw(logits, numbers, temperature=1.0)
    exact = torch.softmax(logits.double(), dim=-1)
    expected = torch.searchsorted(exact.cumsum(dim=-1), numbers[:, None], right=True).squeeze(-1)
    assert int((token_ids != expected).sum()) <= 1  # a number may lie within rounding of a border
    assert torch.allclose(logprobs.double(), exact.gather(-1, token_ids[:, None]).squeeze(-1).log(), atol=1e-5)


def test_a_nucleus_wider_than_the_first_candidates_is_whole() -> None:
    """3,000 equal tokens: half of the mass needs 1,500 of them."""
    logits = torch.zeros(3000)
    assert probabilities_at(logits, 0.5, top_p=0.5) == pytest.approx([1 / 1500], rel=1e-2)
    tokens = draw_at(logits, *grid(3000).tolist(), top_p=0.5)
    assert len(set(tokens)) == pytest.approx(1500, rel=1e-2)
