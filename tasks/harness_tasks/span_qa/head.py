"""Start and end scores of the tokens of a context, and the best span over all windows.

A linear layer gives each token two scores, ``[s_i, e_i] = W h_i + b``; the loss is the mean of the cross
entropies of the first and the last token, with a softmax over the window's context tokens and its null
position (Devlin et al. 2019, sections 4.2 and 4.3). A span scores ``s_i + e_j``, i <= j; null scores ``s_null
+ e_null``, the minimum over the windows. The null position is the first special token of a joint row ([CLS]).
Rows of the context alone have a learned pair of null scores instead, and only if the data have unanswerable
questions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from harness.data.batch import Batch
from harness.data.targets import IGNORE_INDEX
from harness.data.text import Example
from harness.data.tokens import EncoderOutput, TokenBatch
from harness.errors import HarnessError
from harness.task import HeadInput, Prediction
from harness_tasks.span_qa.targets import NULL

N_BEST = 5
_KEEP = 4 * N_BEST  # per window; different spans of tokens can be the same span of characters
_NONE = float("-inf")


@dataclass(frozen=True, slots=True)
class Span:
    """A candidate answer: its character span in the context and its score."""

    start: int
    end: int
    score: float


class SpanHead(nn.Module):
    """See the module.

    Args:
        spec: properties of the states that it reads.
        unanswerable: null may be the answer.
        max_answer_tokens: maximum length of a predicted span.
        null_threshold: with unanswerable questions, "" is predicted when the null score exceeds the best
            span's by more than this.
    """

    def __init__(
        self, spec: HeadInput, *, unanswerable: bool, max_answer_tokens: int = 30, null_threshold: float = 0.0
    ) -> None:
        super().__init__()
        self.joint = spec.pairs == "joint"
        self.unanswerable = unanswerable
        self.max_answer_tokens = max_answer_tokens
        self.null_threshold = null_threshold
        self.dropout = nn.Dropout(spec.dropout)
        self.scores = nn.Linear(spec.hidden_size, 2)
        nn.init.normal_(self.scores.weight, std=0.02)
        nn.init.zeros_(self.scores.bias)
        # created only where it is used: DDP reports parameters without a gradient as an error
        self.null = nn.Parameter(torch.zeros(2)) if unanswerable and not self.joint else None

    def forward(self, encoded: tuple[EncoderOutput, ...], batch: Batch) -> dict[str, Tensor]:
        """Compute the scores of the last text's tokens.

        Returns:
            ``start`` and ``end`` (B, S), -inf outside the context; ``null`` (B, 2), start and end score of
            the null position, -inf where there is none.
        """
        tokens = batch.tokens[-1]
        scores = self.scores(self.dropout(encoded[-1].last_hidden_state)).float()  # (B, S, 2)
        start, end = scores.masked_fill(~self._context(tokens)[..., None], _NONE).unbind(-1)
        return {"start": start, "end": end, "null": self._null(scores, tokens)}

    def loss(self, outputs: dict[str, Tensor], batch: Batch) -> tuple[Tensor, int]:
        """Sum of the losses of the windows that have a target, and their number."""
        total = outputs["start"].new_zeros(())
        width = outputs["start"].shape[1]
        rows = batch.targets["start"] != IGNORE_INDEX
        for i, side in enumerate(("start", "end")):
            target = batch.targets[side][rows]
            # (rows with a target, S + 1): the null position is the last class, number S
            logits = torch.cat([outputs[side], outputs["null"][:, i : i + 1]], dim=1)[rows]
            target = torch.where(target == NULL, width, target)
            total = total + functional.cross_entropy(logits, target, reduction="sum") / 2
        return total, int(rows.sum())

    def decode(self, outputs: dict[str, Tensor], batch: Batch) -> list[Prediction]:
        """The best span of each example over its windows, or "" where null wins."""
        candidates = self._candidates(outputs, batch)
        nulls = outputs["null"].sum(1).tolist()
        return [
            self._prediction(
                example,
                best_spans([span for row in rows for span in candidates[row]]),
                null=min(nulls[row] for row in rows),
            )
            for example, rows in zip(batch.examples, batch.groups, strict=True)
        ]

    def _context(self, tokens: TokenBatch) -> Tensor:
        return tokens.mask & (tokens.sequence_ids == (1 if self.joint else 0))

    def _null(self, scores: Tensor, tokens: TokenBatch) -> Tensor:
        if self.null is not None:
            return self.null.float().expand(len(tokens), 2)
        if not self.joint:
            return scores.new_full((len(tokens), 2), _NONE)
        special = tokens.special
        if not bool(special.any(1).all()):
            raise HarnessError(
                "this encoder's joint rows have no special token for 'no answer in this window': use "
                "encoder.pairs=separate with body=attention_flow"
            )
        return scores[torch.arange(len(tokens), device=scores.device), special.int().argmax(1)]

    def _candidates(self, outputs: dict[str, Tensor], batch: Batch) -> list[list[Span]]:
        """The best spans of each row, at most :data:`_KEEP`.

        A span counts in the window that owns its first word, where that word has the most context. A span
        that this window cuts off counts in the windows that contain it completely.

        Example: start [1, 2, -inf], end [0, 3, 1] and longest = 2 give scores[i, d] = start[i] + end[i + d]:

            [[1, 4], [5, 3], [-inf, -inf]]

        Flattened, the two best are 5 at 2 and 4 at 1: (first, last) = (2 // 2, 1 + 2 % 2) = (1, 1) and (0,
            1).
        """
        tokens = batch.tokens[-1]
        word = self._context(tokens) & (tokens.word_ids >= 0)
        start, end = (outputs[side].masked_fill(~word, _NONE) for side in ("start", "end"))
        rows, width = start.shape
        longest = min(self.max_answer_tokens, width)

        def ahead(values: Tensor, fill: float) -> Tensor:  # [b, i, d] = values[b, i + d]
            return functional.pad(values, (0, longest - 1), value=fill).unfold(1, longest, 1)

        owned, limit = _ownership(batch, word)
        counts = owned[:, :, None] | (ahead(tokens.offsets[..., 1], 0) > limit[:, :, None])
        # (B, S, longest): every span of at most `longest` tokens; beyond the row's end the end score is -inf
        scores = (start[:, :, None] + ahead(end, _NONE)).masked_fill(~counts, _NONE)
        score, at = scores.reshape(rows, width * longest).topk(min(_KEEP, width * longest), dim=1)
        first = at // longest
        # topk() may return spans that leave the row: -inf, dropped below, but gather() needs an index
        last = (first + at % longest).clamp(max=width - 1)
        chars = (tokens.offsets[..., 0].gather(1, first), tokens.offsets[..., 1].gather(1, last), score)
        return [
            [Span(a, b, s) for a, b, s in zip(*columns, strict=True) if s != _NONE and a < b]
            for columns in zip(*(c.tolist() for c in chars), strict=True)
        ]

    def _prediction(self, example: Example, spans: Sequence[Span], *, null: float) -> Prediction:
        context = example.texts[-1].text
        nbest = [{"text": context[s.start : s.end], **asdict(s)} for s in spans]
        extra: dict[str, object] = {"nbest": nbest, "start": None, "end": None}
        value = ""
        margin = null - spans[0].score if spans else float("inf")
        if self.unanswerable:
            extra |= {"null_score": null, "null_margin": margin if spans else None}
        if spans and not (self.unanswerable and margin > self.null_threshold):
            value = context[spans[0].start : spans[0].end]
            extra |= {"start": spans[0].start, "end": spans[0].end}
        return Prediction(value=value, scores=tuple(s.score for s in spans), extra=extra)


def _ownership(batch: Batch, word: Tensor) -> tuple[Tensor, Tensor]:
    """Which rows own the words of their tokens.

    Example: an example's windows show words 0-3 (characters 0-20) and 2-5 (characters 9-33). The first owns
        words
    0-2, the second 3-5. Then a token of word 2 is owned in the first window only, and its limit is 20 in
    both: a span from word 2 that ends after character 20 counts in the second window.

    Args:
        batch: whole examples.
        word: (B, S) Bool, the context tokens that belong to a word.

    Returns:
        (B, S) Bool: this row owns the token's word; and (B, S) Long: the last character in the row that owns
        it.
    """
    tokens = batch.tokens[-1]
    owns = tokens.word_to_token >= 0  # (B, W)
    last = (tokens.offsets[..., 1] * word).amax(1)
    limit = owns.new_zeros((len(batch), owns.shape[1]), dtype=torch.long)  # (N, W)
    index = batch.row_example[:, None].expand_as(owns)
    limit.scatter_reduce_(0, index, owns * last[:, None], reduce="amax")
    # word ids of the question can exceed W; they are masked, but must be valid indices
    at = tokens.word_ids.clamp(min=0, max=owns.shape[1] - 1)
    return word & owns.gather(1, at), limit[batch.row_example].gather(1, at)


def best_spans(spans: Sequence[Span], *, n: int = N_BEST) -> list[Span]:
    """The ``n`` best distinct spans of characters, best first; ties in the order of the text."""
    out: dict[tuple[int, int], Span] = {}
    for span in sorted(spans, key=lambda s: (-s.score, s.start, s.end)):
        out.setdefault((span.start, span.end), span)
        if len(out) == n:
            break
    return list(out.values())
