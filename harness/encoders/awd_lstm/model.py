"""The AWD-LSTM and its language model (Merity, Keskar & Socher 2018, "Regularizing and Optimizing LSTM
Language Models"), as fastai trains them.

::

    x_t     = input dropout(E~ w_t)                      E~: rows of the table dropped out, section 4.3
    h_l     = LSTM_l(hidden dropout(h_{l-1}), U~_l)      U~: weights of the recurrence dropped out, section 2
    logits  = output dropout(h_L) E^T + b                one table for both ends, section 4.5

Input, hidden and output dropout draw one mask for all time steps of a row (section 4.2). There is none
behind the last layer but the output's. The recurrence is the library's: the raw weights are the parameters of
``nn.LSTM``, and its kernel is called with the dropped ones in their place, so that nothing is ever written
into a module and gradients, copies and saved states are those of the raw weights alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Hidden = list[tuple[Tensor, Tensor]]
"""States and cells of every layer, (1, B, D) each."""
BPTT = 72
"""Units the gradient goes back through, as in fastai."""
MAX_LEN = 20 * BPTT
"""Units at the end of a text that the gradient reaches, as in fastai."""


@dataclass(frozen=True, slots=True)
class Dropouts:
    """Rates; ``output`` is the language model's. The defaults are the classifier's of Howard & Ruder 2018
    (section 4.1) and, for ``output``, fastai's language model's."""

    embedding: float = 0.05
    input: float = 0.4
    hidden: float = 0.3
    weight: float = 0.5
    output: float = 0.1

    def times(self, factor: float) -> Dropouts:
        """All rates times ``factor`` (fastai's ``drop_mult``)."""
        return Dropouts(*(getattr(self, name) * factor for name in Dropouts.__slots__))


@dataclass(frozen=True, slots=True)
class Sizes:
    """V words, E the width of the table and of the top layer, D that of the layers between, L layers."""

    words: int
    embedding: int = 400
    hidden: int = 1152
    layers: int = 3

    def widths(self) -> list[tuple[int, int]]:
        """Width of the input and of the output of each layer."""
        outs = [self.hidden] * (self.layers - 1) + [self.embedding]
        return list(zip([self.embedding, *outs[:-1]], outs, strict=True))

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the encoder's tensors by name."""
        out: dict[str, tuple[int, ...]] = {"table.weight": (self.words, self.embedding)}
        for i, (wide, n) in enumerate(self.widths()):
            out |= {f"rnns.{i}.weight_ih_l0": (4 * n, wide), f"rnns.{i}.weight_hh_l0": (4 * n, n)}
            out |= {f"rnns.{i}.bias_ih_l0": (4 * n,), f"rnns.{i}.bias_hh_l0": (4 * n,)}
        return out


def row_dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """(B, S, D) with one mask for all S steps of a row."""
    if not training or p == 0:
        return x
    return x * F.dropout(x.new_ones(x.shape[0], 1, x.shape[2]), p)


class WeightDropLSTM(nn.LSTM):
    """One layer whose recurrent weights drop out: a fresh mask for each call in training, none in eval.

    ``weight_hh_l0`` is the raw matrix. Input (B, S, D), output (B, S, D').
    """

    def __init__(self, wide: int, hidden: int, *, dropout: float) -> None:
        super().__init__(wide, hidden, batch_first=True)
        self.weight_dropout = dropout

    def forward(  # type: ignore[override]
        self, x: Tensor, hidden: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        if hidden is None:
            zero = x.new_zeros(1, x.shape[0], self.hidden_size)
            hidden = (zero, zero)
        wide, raw, *biases = self.parameters()  # in the order in which the kernel takes them
        weights = [wide, F.dropout(raw, self.weight_dropout, self.training), *biases]
        if x.is_cuda:
            weights = _in_one_piece(weights)
        # the CPU's kernel has no half precision for training: there it stays what the weights are
        mixed = torch.is_autocast_enabled(x.device.type) and x.device.type != "cpu"
        with torch.autocast(x.device.type, enabled=mixed):
            out, h, c = torch._VF.lstm(x, hidden, weights, True, 1, 0.0, self.training, False, True)
        return out, (h, c)


def _in_one_piece(weights: Sequence[Tensor]) -> list[Tensor]:
    """The same weights as views of one buffer, in the order cuDNN keeps them: else it warns and copies."""
    flat = torch.cat([w.flatten() for w in weights])
    parts = flat.split([w.numel() for w in weights])
    return [part.view(w.shape) for part, w in zip(parts, weights, strict=True)]


class WordTable(nn.Module):
    """The embedding table and, kept apart from it, vectors of words it lacks.

    ``weight`` is (V, E); ids from V on are rows of ``added``. A new row starts as the mean of the table
    (Howard & Ruder 2018's code, as fastai's).
    """

    def __init__(self, weight: Tensor, *, dropout: float = 0.0, added: int = 0) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)
        self.dropout = dropout
        self.added: nn.Parameter | None = None
        if added:
            self.add(added)

    def add(self, rows: int) -> None:
        """Make ``added`` hold ``rows`` rows; those it has stay."""
        here = self.weight.new_zeros(0, self.weight.shape[1]) if self.added is None else self.added.detach()
        mean = self.weight.detach().mean(0, keepdim=True)
        new = torch.cat([here, mean.expand(rows - len(here), -1)])
        self.added = nn.Parameter(new, requires_grad=self.weight.requires_grad)

    def forward(self, ids: Tensor) -> Tensor:
        """(B, S) ids to (B, S, E). In training whole words drop out, the same throughout the batch."""
        out = self.look_up(ids)
        if self.training and self.dropout:
            total = len(self.weight) + (0 if self.added is None else len(self.added))
            out = out * F.dropout(out.new_ones(total, 1), self.dropout)[ids]
        return out

    def look_up(self, ids: Tensor) -> Tensor:
        """(B, S) ids to (B, S, E), nothing dropped."""
        if self.added is None:
            return F.embedding(ids, self.weight)
        size = len(self.weight)
        known = F.embedding(ids.clamp(max=size - 1), self.weight)
        new = F.embedding((ids - size).clamp(min=0), self.added)
        return torch.where((ids >= size)[..., None], new, known)

    def whole(self) -> Tensor:
        """(V + added, E)."""
        return self.weight if self.added is None else torch.cat([self.weight, self.added])


class AwdLstm(nn.Module):
    """The layers: 3 of 400 -> 1152 -> 1152 -> 400 in the published models.

    Args:
        sizes: V, E, D, L.
        dropouts: rates in training.
    """

    def __init__(self, sizes: Sizes, dropouts: Dropouts | None = None) -> None:
        super().__init__()
        self.sizes, self.dropouts = sizes, dropouts or Dropouts()
        table = torch.empty(sizes.words, sizes.embedding).uniform_(-0.1, 0.1)
        self.table = WordTable(table, dropout=self.dropouts.embedding)
        self.rnns = nn.ModuleList(
            WeightDropLSTM(wide, n, dropout=self.dropouts.weight) for wide, n in sizes.widths()
        )

    @classmethod
    def of(cls, sizes: Sizes, weights: Mapping[str, Tensor], dropouts: Dropouts | None = None) -> AwdLstm:
        """With these weights; nothing is drawn."""
        with torch.device("meta"):
            out = cls(sizes, dropouts)
        out.load_state_dict({k: weights[k] for k in sizes.shapes()}, assign=True)
        return out.requires_grad_(True)

    def forward(self, embedded: Tensor, hidden: Hidden | None = None) -> tuple[list[Tensor], Hidden]:
        """Output of every layer for (B, S, E) vectors, and the hidden states at the end."""
        x = row_dropout(embedded, self.dropouts.input, self.training)
        outs, new = [], []
        for i, rnn in enumerate(self.rnns):
            if i:
                x = row_dropout(x, self.dropouts.hidden, self.training)
            x, state = rnn(x, None if hidden is None else hidden[i])
            outs.append(x)
            new.append(state)
        return outs, new

    def read(self, ids: Tensor, lengths: Tensor, *, max_len: int = MAX_LEN) -> list[Tensor]:
        """Vectors and layers of whole rows, the gradient cut every :data:`BPTT` tokens.

        In training the state is carried over the cuts without its gradient, and tokens further from the end of
        their row than ``max_len`` (rounded up to whole chunks) get none. Without gradient this is one pass.

        Args:
            ids: (B, S), padded on the right.
            lengths: (B,), tokens of each row.

        Returns:
            L + 1 tensors: (B, S, E), then the layers' (B, S, D).
        """
        if not torch.is_grad_enabled() or not self.training or ids.shape[1] <= BPTT:
            embedded = self.table(ids)
            return [embedded, *self(embedded)[0]]
        chunks: list[list[Tensor]] = []
        hidden: Hidden | None = None
        for at in range(0, ids.shape[1], BPTT):
            far = (lengths - at > max_len)[:, None, None]
            with torch.set_grad_enabled(ids.shape[1] <= max_len or not bool(far.all())):
                embedded = self.table(ids[:, at : at + BPTT])
                outs, state = self(embedded, hidden)
            hidden = [(h.detach(), c.detach()) for h, c in state]
            chunks.append([torch.where(far, o.detach(), o) for o in (embedded, *outs)])
        return [torch.cat(parts, dim=1) for parts in zip(*chunks, strict=True)]


@dataclass(slots=True)
class Prediction:
    """Of a language model: ``logits`` (B, S, V) and the hidden states after the last token."""

    logits: Tensor
    hidden: Hidden = field(repr=False)


class AwdLstmLM(nn.Module):
    """An AWD-LSTM with the decoder that shares its table.

    Args:
        core: the layers.
        bias: (V,) of the decoder; zeros by default.
    """

    def __init__(self, core: AwdLstm, bias: Tensor | None = None) -> None:
        super().__init__()
        self.core = core
        words = len(core.table.whole())
        self.bias = nn.Parameter(torch.zeros(words) if bias is None else bias.detach().clone())

    def forward(self, ids: Tensor, hidden: Hidden | None = None) -> Prediction:
        """Scores of the word after each of (B, S) ids; pass the hidden states on for truncated
        back-propagation, they carry no gradient."""
        outs, state = self.core(self.core.table(ids), hidden)
        top = row_dropout(outs[-1], self.core.dropouts.output, self.training)
        logits = F.linear(top, self.core.table.whole(), self.bias)
        return Prediction(logits, [(h.detach(), c.detach()) for h, c in state])

    def weights(self) -> dict[str, Tensor]:
        """Tensors by the names of our files, rows of new words among the table's."""
        out = {k: v.detach() for k, v in self.core.state_dict().items() if k != "table.added"}
        return out | {"table.weight": self.core.table.whole().detach(), "decoder.bias": self.bias.detach()}

    def remap(self, old: Sequence[str], new: Sequence[str]) -> AwdLstmLM:
        """The same model over another vocabulary: words it knew keep vector and bias, the others get the
        means of both."""
        place = {word: i for i, word in enumerate(old)}
        at = torch.tensor([place.get(word, -1) for word in new])
        known = (at >= 0)[:, None]
        table = self.core.table.whole().detach()
        weights = self.weights()
        weights["table.weight"] = torch.where(known, table[at], table.mean(0))
        bias = torch.where(known[:, 0], self.bias.detach()[at], self.bias.detach().mean())
        sizes = Sizes(len(new), *(getattr(self.core.sizes, k) for k in ("embedding", "hidden", "layers")))
        copied = {k: v.clone() for k, v in weights.items()}
        return AwdLstmLM(AwdLstm.of(sizes, copied, self.core.dropouts), bias)
