import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from groupwise.objective import aggregate, at_first_token, masked_mean, masked_sum

TOY_LOSSES = torch.tensor([[1.0, 1, 1, 1, 10, 0, 0, 0, 0, 0], [1.0, 1, 1, 1, 1, 1, 1, 1, 1, 10]])
TOY_MASK = torch.tensor([[True] * 5 + [False] * 5, [True] * 10])


@pytest.mark.parametrize(
    ("normalize", "denominator", "expected"),
    [
        ("sequence", 2, 2.35),  # (14/5 + 19/10) / 2
        ("token", 15, 2.2),  # (14 + 19) / 15
        ("constant", 2 * 10, 1.65),  # (14 + 19) / (2 * 10)
    ],
)
def test_toy_batch_by_hand(normalize, denominator, expected):
    loss = aggregate(TOY_LOSSES, TOY_MASK, normalize=normalize, denominator=denominator)
    assert_close(loss, torch.tensor(expected))


@pytest.mark.parametrize(
    ("normalize", "denominator", "expected"), [("sequence", 2, 0), ("token", 4, 0.5), ("constant", 8, 0.25)]
)
def test_three_normalizations_give_three_values_for_one_batch(normalize, denominator, expected):
    # loss = -A on every token, A = (1, -1), lengths 1 and 3: (-1 + 1)/2, (-1 + 3)/4, (-1 + 3)/(2 * 4)
    losses = torch.tensor([[-1.0, 0, 0], [1.0, 1, 1]])
    mask = torch.tensor([[True, False, False], [True, True, True]])
    assert_close(aggregate(losses, mask, normalize=normalize, denominator=denominator), torch.tensor(float(expected)))
    wide = torch.nn.functional.pad(losses, (0, 5), value=torch.nan)
    wide_mask = torch.nn.functional.pad(mask, (0, 5))
    assert_close(
        aggregate(wide, wide_mask, normalize=normalize, denominator=denominator), torch.tensor(float(expected))
    )


def test_only_sequence_means_punish_long_completions_less_per_token():
    # Lengths 2 and 4, same advantage. Weights of a token: 1/2 : 1/4 = 2 : 1 under "sequence", 1 : 1 otherwise.
    mask = torch.tensor([[True, True, False, False], [True] * 4])
    for normalize, denominator, ratio in (("sequence", 2, 2.0), ("token", 6, 1.0), ("constant", 8, 1.0)):
        losses = torch.ones(2, 4, requires_grad=True)
        aggregate(losses, mask, normalize=normalize, denominator=denominator).backward()
        assert losses.grad[0, 0] / losses.grad[1, 0] == ratio
        assert (losses.grad[0, 2:] == 0).all()


@settings(deadline=None)
@given(data=st.data(), normalize=st.sampled_from(["sequence", "token", "constant"]))
def test_no_split_or_order_changes_value_or_gradient(data, normalize):
    batch, length = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 5))
    seed = data.draw(st.integers(0, 2**31))
    generator = torch.Generator().manual_seed(seed)
    losses = torch.randn(batch, length, dtype=torch.float64, generator=generator)
    mask = torch.rand(batch, length, generator=generator) < 0.6
    denominator = {"sequence": batch, "token": int(mask.sum()), "constant": 7 * batch}[normalize]

    def value_and_gradient(parts):
        leaf = losses.clone().requires_grad_()
        total = sum(aggregate(leaf[p], mask[p], normalize=normalize, denominator=denominator) for p in parts)
        total.backward()
        return total.detach(), leaf.grad

    whole = value_and_gradient([torch.arange(batch)])
    order = torch.randperm(batch, generator=generator)
    size = data.draw(st.integers(1, batch))
    assert_close(value_and_gradient(order.split(size)), whole)


def test_gradient_matches_finite_differences():
    losses = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[True, False, True], [False, True, True]])
    for normalize in ("sequence", "token", "constant"):
        assert torch.autograd.gradcheck(lambda x, n=normalize: aggregate(x, mask, normalize=n, denominator=4), losses)


@pytest.mark.parametrize("rubbish", [torch.nan, torch.inf, -torch.inf, 3e38])
@pytest.mark.parametrize("normalize", ["sequence", "token", "constant"])
def test_masked_cells_and_rows_are_inert(rubbish, normalize):
    losses = torch.tensor([[1.0, rubbish], [rubbish, rubbish]], requires_grad=True)
    mask = torch.tensor([[True, False], [False, False]])
    loss = aggregate(losses, mask, normalize=normalize, denominator=2)
    loss.backward()
    assert loss == 0.5
    assert losses.grad.tolist() == [[0.5, 0.0], [0.0, 0.0]]


@pytest.mark.parametrize("shape", [(2, 3), (2, 0), (0, 3)])
def test_a_step_without_a_trained_token_gives_zero(shape):
    losses = torch.full(shape, torch.nan, requires_grad=True)
    loss = aggregate(losses, torch.zeros(shape, dtype=torch.bool), normalize="token", denominator=0)
    loss.backward()
    assert loss == 0
    assert (losses.grad == 0).all()


@pytest.mark.parametrize("denominator", [0, -1, float("nan")])
def test_a_denominator_that_cannot_be_right_is_refused(denominator):
    with pytest.raises(ValueError, match="whole optimizer step"):
        aggregate(torch.ones(1, 1), torch.ones(1, 1, dtype=torch.bool), normalize="token", denominator=denominator)


def test_an_unknown_normalization_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="sequence, token, constant"):
        aggregate(torch.ones(1, 1), torch.ones(1, 1, dtype=torch.bool), normalize="mean", denominator=1)


def test_masked_sum_and_mean_by_hand():
    values = torch.tensor([[2.0, torch.nan], [4.0, 6.0]])
    mask = torch.tensor([[1, 0], [1, 1]])  # a 0/1 mask is read as its truth value
    assert masked_sum(values, mask) == 12  # 2 + 4 + 6
    assert masked_mean(values, mask) == 4  # 12 / 3, not 12 / 4
    assert masked_mean(values, mask, dim=1).tolist() == [2, 5]
    assert masked_mean(values, torch.zeros_like(mask), dim=1).tolist() == [0, 0]


def test_half_precision_is_summed_in_single():
    ones = torch.ones(1, 1000, dtype=torch.bfloat16)  # in bfloat16, 256 + 1 = 256
    assert masked_sum(ones, torch.ones_like(ones)).dtype == torch.float32
    assert masked_sum(ones, torch.ones_like(ones)) == 1000


def test_the_test_run_checks_shapes():
    with pytest.raises(TypeError, match="loss_mask"):
        aggregate(torch.ones(2, 3), torch.ones(2, 1, dtype=torch.bool), denominator=1)


def test_one_value_a_row_stands_on_its_first_trained_token():
    values = torch.tensor([2.0, 3.0, torch.nan], requires_grad=True)
    mask = torch.tensor([[0, 1, 0, 1], [1, 1, 1, 0], [0, 0, 0, 0]])
    placed = at_first_token(values, mask)
    assert placed.tolist() == [[0, 2, 0, 0], [3, 0, 0, 0], [0, 0, 0, 0]]
    loss = aggregate(placed, mask, normalize="constant", denominator=2)
    loss.backward()
    assert loss == 2.5
    assert values.grad.tolist() == [0.5, 0.5, 0]
    assert at_first_token(torch.zeros(2), torch.zeros(2, 0)).shape == (2, 0)
