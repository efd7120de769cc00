"""The attention-flow body: equations, masking of padding, gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from harness.bodies.attention_flow import AttentionFlow, FlowAttention
from harness.data.tokens import EncoderOutput, TokenBatch, TokenizedWindow
from harness.errors import HarnessError

torch.set_num_threads(1)
WIDTH = 6


def row(length: int, segment: int) -> TokenizedWindow:
    at = np.arange(length)
    return TokenizedWindow(
        inputs={"input_ids": at},
        word_ids=at,
        offsets=np.stack([at * 2, at * 2 + 1], 1),
        sequence_ids=np.full(length, segment),
        word_to_token=at,
    )


def batch(lengths: list[int], states: list[Tensor], *, width: int = 0) -> tuple[EncoderOutput, TokenBatch]:
    """Pad to the longest text (or to ``width``) with large values, so that a leak of padding is visible."""
    tokens = TokenBatch.collate([row(n, 0) for n in [*lengths, width]])
    out = torch.full((len(lengths) + 1, tokens.mask.shape[1], WIDTH), 1e3)
    for i, s in enumerate(states):
        out[i, : len(s)] = s
    keep = slice(0, len(lengths))
    return EncoderOutput(out[keep]), TokenBatch(
        inputs={},
        mask=tokens.mask[keep],
        word_ids=tokens.word_ids[keep],
        offsets=tokens.offsets[keep],
        sequence_ids=tokens.sequence_ids[keep],
        word_to_token=tokens.word_to_token[keep],
        example=tokens.example[keep],
        window=tokens.window[keep],
    )


def run(body: AttentionFlow, questions: list[Tensor], contexts: list[Tensor], *, width: int = 0):  # type: ignore[no-untyped-def]
    qe, qu = batch([len(q) for q in questions], questions, width=width)
    ce, cu = batch([len(c) for c in contexts], contexts, width=width)
    q, c = body((qe, ce), (qu, cu))
    return q.last_hidden_state, c.last_hidden_state


@pytest.fixture
def body() -> AttentionFlow:
    torch.manual_seed(0)
    return AttentionFlow(WIDTH, hidden_size=5, dropout=0.3).eval()


def test_attributes_and_shapes(body: AttentionFlow) -> None:
    assert (body.hidden_size, body.pairs) == (10, "separate")
    q, c = run(body, [torch.randn(3, WIDTH)], [torch.randn(7, WIDTH)])
    assert q.shape == (1, 3, 10)
    assert c.shape == (1, 7, 10)


def test_padding_does_not_leak(body: AttentionFlow) -> None:
    torch.manual_seed(1)
    questions = [torch.randn(n, WIDTH) for n in (4, 1, 9)]
    contexts = [torch.randn(n, WIDTH) for n in (6, 12, 1)]
    together = run(body, questions, contexts, width=20)
    for i, (question, context) in enumerate(zip(questions, contexts, strict=True)):
        alone = run(body, [question], [context])
        for side, given in enumerate((question, context)):
            n = len(given)
            torch.testing.assert_close(together[side][i, :n], alone[side][0], atol=1e-5, rtol=0)
            assert together[side][i, n:].abs().sum() == 0


@pytest.mark.parametrize(("question", "context"), [(0, 4), (3, 0), (0, 0)])
def test_empty_texts_give_finite_states(body: AttentionFlow, question: int, context: int) -> None:
    torch.manual_seed(2)
    given = [torch.randn(question, WIDTH)], [torch.randn(context, WIDTH)]
    alone, padded = run(body, *given), run(body, *given, width=9)
    for a, p, n in zip(alone, padded, (question, context), strict=True):
        assert torch.isfinite(p).all()
        torch.testing.assert_close(p[:, :n], a[:, :n], atol=1e-5, rtol=0)


def test_attention_is_the_published_formula() -> None:
    torch.manual_seed(3)
    attention = FlowAttention(4)
    u, h = torch.randn(1, 3, 4), torch.randn(1, 5, 4)
    w = attention.weight.reshape(-1)  # of [h; u; h * u]
    s = torch.stack([torch.stack([w @ torch.cat([t, j, t * j]) for j in u[0]]) for t in h[0]])
    torch.testing.assert_close(attention.similarity(u, h)[0], s)
    a = torch.softmax(s, 1) @ u[0]
    b = torch.softmax(s.max(1).values, 0) @ h[0]
    expected = torch.cat([h[0], a, h[0] * a, h[0] * b], 1)
    masks = torch.ones(1, 3, dtype=torch.bool), torch.ones(1, 5, dtype=torch.bool)
    actual = attention(u, h, question_mask=masks[0], context_mask=masks[1])
    torch.testing.assert_close(actual[0], expected)


def test_dropout_in_training_only(body: AttentionFlow) -> None:
    given = [torch.randn(3, WIDTH)], [torch.randn(7, WIDTH)]
    torch.testing.assert_close(run(body, *given), run(body, *given), atol=0, rtol=0)
    body.train()
    assert not torch.equal(run(body, *given)[1], run(body, *given)[1])


def test_every_parameter_gets_a_gradient(body: AttentionFlow) -> None:
    body.train()
    _, c = run(
        body, [torch.randn(3, WIDTH), torch.randn(2, WIDTH)], [torch.randn(7, WIDTH), torch.randn(4, WIDTH)]
    )
    c.pow(2).sum().backward()
    for name, parameter in body.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
        assert parameter.grad.abs().sum() > 0, name


def test_question_changes_the_context_states(body: AttentionFlow) -> None:
    context = torch.randn(7, WIDTH)
    one, other = (run(body, [torch.randn(3, WIDTH)], [context])[1] for _ in range(2))
    assert (one - other).abs().max() > 1e-4


def test_single_texts_and_invalid_options_are_rejected(body: AttentionFlow) -> None:
    encoded, tokens = batch([3], [torch.randn(3, WIDTH)])
    with pytest.raises(HarnessError, match="two texts"):
        body((encoded,), (tokens,))
    with pytest.raises(HarnessError, match=r"body\.hidden_size=0"):
        AttentionFlow(4, hidden_size=0)
    with pytest.raises(HarnessError, match=r"body\.dropout=1"):
        AttentionFlow(4, dropout=1.0)
