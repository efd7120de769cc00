"""Bodies: masking of padding, dropout, shared weights, and the scalar mix."""

import numpy as np
import pytest
import torch

from harness.bodies.bilstm import BiLSTM
from harness.bodies.none import NoBody
from harness.data.tokens import EncoderOutput, TokenBatch, TokenizedWindow
from harness.encoders.scalar_mix import ScalarMix


def tokens_of(*lengths: int) -> TokenBatch:
    def row(n: int) -> TokenizedWindow:
        ids = np.arange(n)
        return TokenizedWindow({"input_ids": ids}, ids, np.zeros((n, 2), int), np.zeros(n, int), ids)

    return TokenBatch.collate([row(n) for n in lengths])


@pytest.mark.parametrize("layers", [1, 2])
def test_bilstm_ignores_padding(layers: int) -> None:
    torch.manual_seed(0)
    body = BiLSTM(6, hidden_size=5, layers=layers).eval()
    states = torch.randn(1, 3, 6)
    alone = body((EncoderOutput(states),), (tokens_of(3),))[0].last_hidden_state
    batch = torch.full((2, 9, 6), 7.0)
    batch[0, :3] = states
    together = body((EncoderOutput(batch),), (tokens_of(3, 9),))[0].last_hidden_state
    assert alone.shape == (1, 3, 10)
    assert torch.allclose(alone[0], together[0, :3], atol=1e-6)
    assert not together[0, 3:].any()


def test_bilstm_shares_its_weights_over_both_texts() -> None:
    torch.manual_seed(0)
    body = BiLSTM(4, hidden_size=3).eval()
    states = torch.randn(1, 4, 4)
    first, second = body((EncoderOutput(states), EncoderOutput(states)), (tokens_of(4), tokens_of(4)))
    assert torch.equal(first.last_hidden_state, second.last_hidden_state)


def test_bilstm_dropout_only_in_training() -> None:
    body = BiLSTM(4, hidden_size=3, dropout=0.5)
    states = EncoderOutput(torch.randn(1, 4, 4))
    run = lambda: body((states,), (tokens_of(4),))[0].last_hidden_state  # noqa: E731
    assert not torch.equal(run(), run())
    body.eval()
    assert torch.equal(run(), run())


def test_no_body_is_the_identity() -> None:
    encoded = (EncoderOutput(torch.randn(1, 4, 4), pooler_output=torch.randn(1, 4)),)
    body = NoBody(4)
    assert body(encoded, (tokens_of(4),)) is encoded
    assert (body.hidden_size, body.pooling) == (4, None)


@pytest.mark.parametrize(
    ("scalars", "gamma", "value"),
    [([0, 0, 0], 1, 2.0), ([1, 2, 3], 1, 2.57521), ([1, 2, 3], 2, 5.150421)],
)
def test_scalar_mix_is_a_softmax(scalars: list[float], gamma: float, value: float) -> None:
    """Weights are softmax(scalars), and the sum is multiplied by gamma (Peters et al. 2018, equation 1)."""
    mix = ScalarMix(3)
    mix.scalars.data, mix.gamma.data = torch.tensor(scalars, dtype=torch.float), torch.tensor(float(gamma))
    layers = torch.tensor([1.0, 2.0, 3.0]).view(3, 1, 1, 1)
    assert mix(layers).item() == pytest.approx(value, abs=1e-5)
    assert sum(mix.weights) == pytest.approx(1.0)
