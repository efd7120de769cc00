"""A recurrent layer over padded batches that is not affected by padding."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class MaskedLSTM(nn.Module):
    """A bidirectional LSTM over right-padded rows.

    Args:
        input_size: width of the input.
        hidden_size: width of each direction; the output is 2 * hidden wide.
        layers: number of layers.
        dropout: between layers.
    """

    def __init__(self, input_size: int, *, hidden_size: int, layers: int = 1, dropout: float = 0.0) -> None:
        super().__init__()
        between = dropout if layers > 1 else 0.0
        self.lstm = nn.LSTM(
            input_size, hidden_size, layers, batch_first=True, bidirectional=True, dropout=between
        )
        for name, weight in self.lstm.named_parameters():
            if name.startswith("weight_hh"):
                for gate in weight.chunk(4):
                    nn.init.orthogonal_(gate)
            elif name.startswith("weight_ih"):
                for gate in weight.chunk(4):
                    nn.init.xavier_uniform_(gate)
            else:
                nn.init.zeros_(weight)

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """Map (B, S, input_size) with mask (B, S) to (B, S, 2 * hidden_size), zero at padding."""
        lengths = mask.sum(1).clamp(min=1).cpu()
        packed = pack_padded_sequence(states, lengths, batch_first=True, enforce_sorted=False)
        out, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=states.shape[1])
        return torch.where(mask[..., None], out, out.new_zeros(()))
