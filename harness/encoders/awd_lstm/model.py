"""The AWD-LSTM and its language model (Merity, Keskar & Socher 2018, "Regularizing and Optimizing LSTM
Language Models"), as fastai trains them.

::

    x_t     = input dropout(E~ w_t)                      E~: embedding dropout on rows, section 4.3
    h_l     = LSTM_l(hidden dropout(h_{l-1}), U~_l)      U~: dropout on recurrent weights, section 2
    logits  = output dropout(h_L) E^T + b                tied input and output table, section 4.5

Input, hidden and output dropout draw one mask for all time steps of a row (section 4.2). After the last layer
there is only output dropout. The raw weights are the parameters of ``nn.LSTM``, whose kernel is called with
the dropped weights, so that no module is modified, and gradients, copies and saved states refer to the raw
weights only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Hidden = list[tuple[Tensor, Tensor]]
"""Hidden and cell states of every layer, (1, B, D) each."""
BPTT = 72
"""Number of tokens of truncated back-propagation, as in fastai."""
MAX_LEN = 20 * BPTT
"""Number of tokens at the end of a text that receive a gradient, as in fastai."""


@dataclass(frozen=True, slots=True)
class Dropouts:
    """Dropout rates; ``output`` applies to the language model only.

    Defaults: the classifier of Howard & Ruder 2018 (section 4.1); for ``output``, fastai's language model.
    """

    embedding: float = 0.05
    input: float = 0.4
    hidden: float = 0.3
    weight: float = 0.5
    output: float = 0.1

    def times(self, factor: float) -> Dropouts:
        """Return all rates multiplied by ``factor`` (fastai's ``drop_mult``)."""
        return Dropouts(*(getattr(self, name) * factor for name in Dropouts.__slots__))


@dataclass(frozen=True, slots=True)
class Sizes:
    """V words, E the width of the table and of the top layer, D the width of the middle layers, L layers."""

    words: int
    embedding: int = 400
    hidden: int = 1152
    layers: int = 3

    def widths(self) -> list[tuple[int, int]]:
        """Return the input and output width of each layer."""
        outs = [self.hidden] * (self.layers - 1) + [self.embedding]
        # 400, 1152 and 3 layers: (400, 1152), (1152, 1152), (1152, 400)
        return list(zip([self.embedding, *outs[:-1]], outs, strict=True))

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the encoder's tensors by name."""
        out: dict[str, tuple[int, ...]] = {"table.weight": (self.words, self.embedding)}
        for i, (n_in, n) in enumerate(self.widths()):
            out |= {f"rnns.{i}.weight_ih_l0": (4 * n, n_in), f"rnns.{i}.weight_hh_l0": (4 * n, n)}
            out |= {f"rnns.{i}.bias_ih_l0": (4 * n,), f"rnns.{i}.bias_hh_l0": (4 * n,)}
        return out


def row_dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Apply dropout to (B, S, D) with one mask for all S steps of a row."""
    if not training or p == 0:
        return x
    # the mask (B, 1, D) is broadcast over the steps; F.dropout scales what it keeps by 1 / (1 - p)
    return x * F.dropout(x.new_ones(x.shape[0], 1, x.shape[2]), p)


class WeightDropLSTM(nn.LSTM):
    """One LSTM layer with dropout on its recurrent weights: a new mask per call in training, none in eval
    mode.

    ``weight_hh_l0`` is the raw matrix. Input (B, S, D), output (B, S, D').
    """

    def __init__(self, input_size: int, hidden_size: int, *, dropout: float) -> None:
        super().__init__(input_size, hidden_size, batch_first=True)
        self.weight_dropout = dropout

    def forward(  # type: ignore[override]
        self, x: Tensor, hidden: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        if hidden is None:
            zero = x.new_zeros(1, x.shape[0], self.hidden_size)
            hidden = (zero, zero)
        weight_ih, raw, *biases = self.parameters()  # in the order that the kernel expects
        weights = [weight_ih, F.dropout(raw, self.weight_dropout, self.training), *biases]
        if x.is_cuda:
            weights = _contiguous(weights)
        # the CPU kernel does not support training in half precision: use the dtype of the weights there
        mixed = torch.is_autocast_enabled(x.device.type) and x.device.type != "cpu"
        with torch.autocast(x.device.type, enabled=mixed):
            # the last six: has_biases, num_layers, dropout, train, bidirectional, batch_first
            out, h, c = torch._VF.lstm(x, hidden, weights, True, 1, 0.0, self.training, False, True)
        return out, (h, c)


def _contiguous(weights: Sequence[Tensor]) -> list[Tensor]:
    """Return the weights as views of one buffer in cuDNN's order; otherwise cuDNN warns and copies."""
    flat = torch.cat([w.flatten() for w in weights])
    parts = torch.split(flat, [w.numel() for w in weights])
    return [part.view(w.shape) for part, w in zip(parts, weights, strict=True)]


class WordTable(nn.Module):
    """The embedding table and a separate table of added words.

    ``weight`` is (V, E); ids from V on are rows of ``added``. A new row is initialised with the mean of the
    table (as in the code of Howard & Ruder 2018 and in fastai).
    """

    def __init__(self, weight: Tensor, *, dropout: float = 0.0, added: int = 0) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)
        self.dropout = dropout
        self.added: nn.Parameter | None = None
        if added:
            self.add(added)

    def add(self, rows: int) -> None:
        """Extend ``added`` to ``rows`` rows; existing rows are kept."""
        existing = (
            self.weight.new_zeros(0, self.weight.shape[1]) if self.added is None else self.added.detach()
        )
        mean = self.weight.detach().mean(0, keepdim=True)
        new = torch.cat([existing, mean.expand(rows - len(existing), -1)])
        self.added = nn.Parameter(new, requires_grad=self.weight.requires_grad)

    def forward(self, ids: Tensor) -> Tensor:
        """Map (B, S) ids to (B, S, E). In training whole words are dropped, the same words in the whole
        batch."""
        out = self.look_up(ids)
        if self.training and self.dropout:
            total = len(self.weight) + (0 if self.added is None else len(self.added))
            # one mask value per row of the table, (V + added, 1), looked up for each token: (B, S, 1)
            out = out * F.dropout(out.new_ones(total, 1), self.dropout)[ids]
        return out

    def look_up(self, ids: Tensor) -> Tensor:
        """Map (B, S) ids to (B, S, E) without dropout."""
        if self.added is None:
            return F.embedding(ids, self.weight)
        size = len(self.weight)
        # Both tables are read for every id, with clamped indices. Example: V = 3 and ids [1, 4] read rows
        # [1, 2] of `weight` and [0, 1] of `added`; where() keeps weight[1] for id 1 and added[1] for id 4.
        pretrained = F.embedding(ids.clamp(max=size - 1), self.weight)
        new = F.embedding((ids - size).clamp(min=0), self.added)
        return torch.where((ids >= size)[..., None], new, pretrained)

    def all_rows(self) -> Tensor:
        """Return the table with the added rows, (V + added, E)."""
        return self.weight if self.added is None else torch.cat([self.weight, self.added])


class AwdLstm(nn.Module):
    """The table and the layers: 400 -> 1152 -> 1152 -> 400 in the published models.

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
            WeightDropLSTM(n_in, n_out, dropout=self.dropouts.weight) for n_in, n_out in sizes.widths()
        )

    @classmethod
    def of(cls, sizes: Sizes, weights: Mapping[str, Tensor], dropouts: Dropouts | None = None) -> AwdLstm:
        """Create the model with these weights, without drawing random numbers."""
        # on the meta device nothing is allocated or drawn; the weights are assigned below
        with torch.device("meta"):
            out = cls(sizes, dropouts)
        out.load_state_dict({k: weights[k] for k in sizes.shapes()}, assign=True)
        return out.requires_grad_(True)

    def forward(self, embedded: Tensor, hidden: Hidden | None = None) -> tuple[list[Tensor], Hidden]:
        """Compute the output of every layer for (B, S, E) vectors, and the final hidden states."""
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
        """Compute vectors and layers of whole rows, with the gradient truncated every :data:`BPTT` tokens.

        In training the state is passed between chunks without gradient, and tokens that are further from the
        end of their row than ``max_len`` (rounded up to whole chunks) receive none. Without gradient this is
        one pass.

        Args:
            ids: (B, S), padded on the right.
            lengths: (B,), number of tokens of each row.

        Returns:
            L + 1 tensors: (B, S, E), then the layers' outputs (B, S, D).
        """
        if not torch.is_grad_enabled() or not self.training or ids.shape[1] <= BPTT:
            embedded = self.table(ids)
            return [embedded, *self(embedded)[0]]
        chunks: list[list[Tensor]] = []
        hidden: Hidden | None = None
        for at in range(0, ids.shape[1], BPTT):
            # lengths [200, 40], max_len 144, chunk at 0: row 0 is detached here, row 1 is not
            far = (lengths - at > max_len)[:, None, None]
            with torch.set_grad_enabled(ids.shape[1] <= max_len or not bool(far.all())):
                embedded = self.table(ids[:, at : at + BPTT])
                outs, state = self(embedded, hidden)
            hidden = [(h.detach(), c.detach()) for h, c in state]
            chunks.append([torch.where(far, o.detach(), o) for o in (embedded, *outs)])
        return [torch.cat(parts, dim=1) for parts in zip(*chunks, strict=True)]


@dataclass(slots=True)
class LanguageModelOutput:
    """``logits`` (B, S, V) and the hidden states after the last token."""

    logits: Tensor
    hidden: Hidden = field(repr=False)


class AwdLstmLM(nn.Module):
    """An AWD-LSTM with a decoder that is tied to its table.

    Args:
        core: the layers.
        bias: (V,), the decoder's bias; zeros by default.
    """

    def __init__(self, core: AwdLstm, bias: Tensor | None = None) -> None:
        super().__init__()
        self.core = core
        words = len(core.table.all_rows())
        self.bias = nn.Parameter(torch.zeros(words) if bias is None else bias.detach().clone())

    def forward(self, ids: Tensor, hidden: Hidden | None = None) -> LanguageModelOutput:
        """Compute the logits of the word after each of (B, S) ids.

        Pass the returned hidden states to the next call for truncated back-propagation; they carry no
        gradient.
        """
        outs, state = self.core(self.core.table(ids), hidden)
        top = row_dropout(outs[-1], self.core.dropouts.output, self.training)
        logits = F.linear(top, self.core.table.all_rows(), self.bias)
        return LanguageModelOutput(logits, [(h.detach(), c.detach()) for h, c in state])

    def weights(self) -> dict[str, Tensor]:
        """Return the tensors by their file names; the table includes the rows of new words."""
        out = {k: v.detach() for k, v in self.core.state_dict().items() if k != "table.added"}
        return out | {"table.weight": self.core.table.all_rows().detach(), "decoder.bias": self.bias.detach()}

    def remap(self, old: Sequence[str], new: Sequence[str]) -> AwdLstmLM:
        """Return the model over another vocabulary: known words keep vector and bias, new words get the
        means."""
        rows = {word: i for i, word in enumerate(old)}
        index = torch.tensor([rows.get(word, -1) for word in new])
        known = (index >= 0)[:, None]
        table = self.core.table.all_rows().detach()
        weights = self.weights()
        # index -1 (a new word) reads the last row, which where() replaces by the mean
        weights["table.weight"] = torch.where(known, table[index], table.mean(0))
        bias = torch.where(known[:, 0], self.bias.detach()[index], self.bias.detach().mean())
        sizes = Sizes(len(new), *(getattr(self.core.sizes, k) for k in ("embedding", "hidden", "layers")))
        copied = {k: v.clone() for k, v in weights.items()}
        return AwdLstmLM(AwdLstm.of(sizes, copied, self.core.dropouts), bias)
