"""Attention flow between a question and a context.

With contextual states ``h_t`` of the context and ``u_j`` of the question, both from one shared BiLSTM
(Seo et al. 2017, "Bidirectional Attention Flow for Machine Comprehension", section 2; the shared encoder and
the reduction are those of Clark & Gardner 2018, "Simple and Effective Multi-Paragraph Reading
Comprehension", section 2.1)::

    S_tj = w_h . h_t + w_u . u_j + (w_m * h_t) . u_j       trilinear similarity
    a_t  = sum_j softmax_j(S_tj) u_j                       context to question
    b    = sum_t softmax_t(max_j S_tj) h_t                 question to context
    g_t  = relu(W [h_t; a_t; h_t * a_t; h_t * b])          reduced to the width of h_t
    m    = BiLSTM(g)                                       modelling layer

The context's new states are ``m``, the question's are ``u``.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from harness.bodies.base import Body
from harness.bodies.rnn import MaskedLSTM
from harness.data.tokens import EncoderOutput, TokenBatch
from harness.errors import HarnessError


class AttentionFlow(Body):
    """Bidirectional attention flow (formulas in the module docstring).

    Args:
        input_size: H, width of the input states.
        hidden_size: LSTM units per direction; the output states are twice as wide.
        dropout: on the input of both LSTMs and of the reduction, in training only.

    Raises:
        HarnessError: a size or rate out of range; or, in ``forward``, a number of texts other than two.
    """

    pooling = "max"
    pairs = "separate"

    def __init__(self, input_size: int, hidden_size: int = 100, dropout: float = 0.2) -> None:
        super().__init__()
        if hidden_size < 1:
            raise HarnessError(f"body.hidden_size={hidden_size}: must be at least 1")
        if not 0 <= dropout < 1:
            raise HarnessError(f"body.dropout={dropout}: must be in [0, 1)")
        self.hidden_size = 2 * hidden_size
        self.dropout = nn.Dropout(dropout)
        self.contextual = MaskedLSTM(input_size, hidden_size=hidden_size)
        self.attention = FlowAttention(self.hidden_size)
        self.reduce = nn.Linear(4 * self.hidden_size, self.hidden_size)
        self.modelling = MaskedLSTM(self.hidden_size, hidden_size=hidden_size)

    def forward(
        self, encoded: tuple[EncoderOutput, ...], tokens: tuple[TokenBatch, ...]
    ) -> tuple[EncoderOutput, ...]:
        """Map (B, Sq, H) and (B, Sc, H) to (B, Sq, 2 hidden_size) and (B, Sc, 2 hidden_size), zero at
        padding."""
        if len(encoded) != 2 or len(tokens) != 2:
            raise HarnessError(
                "body=attention_flow needs two texts encoded separately (question and context): "
                "use a task over pairs with encoder.pairs=separate, or body=none or body=bilstm"
            )
        question, context = (
            self.contextual(self.dropout(e.last_hidden_state), u.mask)
            for e, u in zip(encoded, tokens, strict=True)
        )
        flow = self.attention(question, context, question_mask=tokens[0].mask, context_mask=tokens[1].mask)
        reduced = torch.relu(self.reduce(self.dropout(flow)))
        return EncoderOutput(question), EncoderOutput(self.modelling(self.dropout(reduced), tokens[1].mask))


class FlowAttention(nn.Module):
    """Both directions of attention over one similarity matrix; D is the width of the states of both texts."""

    def __init__(self, width: int) -> None:
        super().__init__()
        # no bias: a common bias cancels in both softmaxes
        self.weight = nn.Parameter(torch.empty(3, width).uniform_(-1, 1) / (3 * width) ** 0.5)

    def similarity(self, question: Tensor, context: Tensor) -> Tensor:
        """Map (B, Sq, D) and (B, Sc, D) to (B, Sc, Sq), without a four-dimensional intermediate tensor."""
        of_context, of_question, of_both = self.weight
        product = (context * of_both) @ question.transpose(1, 2)
        similarity: Tensor = (
            product + (context @ of_context)[:, :, None] + (question @ of_question)[:, None, :]
        )
        return similarity

    def forward(
        self, question: Tensor, context: Tensor, *, question_mask: Tensor, context_mask: Tensor
    ) -> Tensor:
        """Compute [h; a; h * a; h * b] of each context token.

        Args:
            question: (B, Sq, D), zero at padding.
            context: (B, Sc, D), zero at padding.
            question_mask, context_mask: (B, Sq) and (B, Sc) Bool.

        Returns:
            (B, Sc, 4 D)
        """
        similarity = self.similarity(question, context)
        # not -inf, which would give NaN for a row without tokens; with the lowest number it attends to zeros
        lowest = torch.finfo(similarity.dtype).min
        similarity = similarity.masked_fill(~question_mask[:, None, :], lowest)
        attended = torch.softmax(similarity, dim=2).to(question.dtype) @ question
        best = similarity.amax(dim=2).masked_fill(~question_mask.any(1, keepdim=True), 0.0)
        weight = torch.softmax(best.masked_fill(~context_mask, lowest), dim=1).to(context.dtype)
        summary = weight[:, None, :] @ context  # (B, 1, D)
        return torch.cat([context, attended, context * attended, context * summary], dim=-1)
