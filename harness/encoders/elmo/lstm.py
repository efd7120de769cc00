"""ELMo's recurrent layers: LSTMs with projection and clipping, both directions side by side.

For each direction (Sak et al. 2014, with the clipping of the published model)::

    [i, j, f, o] = [x_t; h_{t-1}] W + b
    c_t = clip(sigmoid(f + 1) * c_{t-1} + sigmoid(i) * tanh(j), cell_clip)
    h_t = clip((sigmoid(o) * tanh(c_t)) W_p, proj_clip)

Rows are packed: at step t only those that are that long are there, longest first, so padding costs nothing
and cannot reach a state. The backward direction reads each row from its own end. The products of all steps'
inputs are one product; a step multiplies both directions' states at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from harness.encoders.elmo.files import ElmoOptions, cell_key

State = tuple[Tensor, Tensor]
"""(2, B, P) and (2, B, C): projected state and cell of each direction and row."""
AT_ONCE = 1 << 26
"""Numbers of the gates whose inputs' products are taken at once: they stay bounded, whatever the batch."""


@dataclass(frozen=True, slots=True)
class Packing:
    """Where the words of B rows lie when they are packed by time step.

    Attributes:
        rows: (A,) Long, the rows that have words, longest first.
        sizes: rows at each step; their sum is N, the packed length.
        source: (2, N) Long, which token each packed place of a direction holds: tokens are numbered row after
            row, then the sentence's begin and end.
        place: (2, tokens) Long, where each token lies in each direction.
    """

    rows: Tensor
    sizes: list[int]
    source: Tensor
    place: Tensor

    @classmethod
    def of(cls, mask: Tensor) -> Packing:
        """Of a (B, S) mask of words; each row that has any is read between its begin and end."""
        device = mask.device
        words = mask.sum(1)
        steps = torch.where(words > 0, words + 2, 0)
        rows = steps.argsort(descending=True, stable=True)[: int((words > 0).sum())]
        rank = torch.empty_like(words).fill_(-1)
        rank[rows] = torch.arange(len(rows), device=device)
        longest = int(steps.max()) if len(rows) else 0
        sizes = (steps[None, :] > torch.arange(longest, device=device)[:, None]).sum(1)
        start = sizes.cumsum(0) - sizes
        row = mask.nonzero()[:, 0]
        at = mask.cumsum(1)[mask]  # 1 for the first word: the begin is at 0
        tokens = len(row)
        last, mine = steps[rows] - 1, rank[rows]
        ends = torch.stack([torch.zeros_like(last), last])  # begin and end of each row
        source = torch.empty(2, int(sizes.sum()), dtype=torch.long, device=device)
        place = torch.stack([start[at] + rank[row], start[steps[row] - 1 - at] + rank[row]])
        numbers = torch.arange(tokens, device=device)
        for direction in (0, 1):
            source[direction, place[direction]] = numbers
            for mark in (0, 1):
                source[direction, start[ends[mark ^ direction]] + mine] = tokens + mark
        return cls(rows, sizes.tolist(), source, place)


class BiLSTMLayer(nn.Module):
    """One layer of both directions, which never meet.

    Parameters, [0] forward and [1] backward: ``weight`` (2, 4 C, P + P), input first; ``biases``, two of
    (4 C,); ``projection`` (2, C, P). They have no values until they are drawn or assigned.
    """

    def __init__(self, options: ElmoOptions, *, skip: bool) -> None:
        super().__init__()
        self.size, self.cells, self.skip = options.projection_dim, options.dim, skip
        self.cell_clip, self.proj_clip = options.cell_clip, options.proj_clip
        self.weight = nn.Parameter(torch.empty(2, 4 * self.cells, 2 * self.size))
        self.biases = nn.ParameterList(torch.empty(4 * self.cells) for _ in range(2))
        self.projection = nn.Parameter(torch.empty(2, self.cells, self.size))

    def forward(self, x: Tensor, sizes: list[int], state: State) -> tuple[Tensor, State]:
        """Run over all steps.

        Args:
            x: (2, N, P), packed.
            sizes: rows at each step.
            state: (2, A, P) and (2, A, C), where the A rows start.

        Returns:
            (2, N, P), and the rows' final states.
        """
        if not sizes:
            return x, state
        # gates and cells lie with rows last: the large matrix times a thin one is the faster product
        h, c = state[0], state[1].transpose(1, 2)
        outputs: list[Tensor] = []
        finished: list[State] = []
        recurrent = self.weight[:, :, self.size :]
        for gates, rows in self._steps(x, sizes):
            if rows < h.shape[1]:
                finished.append((h[:, rows:], c[:, :, rows:].transpose(1, 2)))
                h, c = h[:, :rows], c[:, :, :rows]
            i, j, f, o = torch.baddbmm(gates, recurrent, h.transpose(1, 2)).chunk(4, dim=1)
            c = _clip(torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(j), self.cell_clip)
            out = (torch.sigmoid(o) * torch.tanh(c)).transpose(1, 2)
            h = _clip(torch.bmm(out, self.projection), self.proj_clip)
            outputs.append(h)
        finished.append((h, c.transpose(1, 2)))
        last_h, last_c = (torch.cat(parts[::-1], dim=1) for parts in zip(*finished, strict=True))
        found = torch.cat(outputs, dim=1)
        return (found + x if self.skip else found), (last_h, last_c)

    def _steps(self, x: Tensor, sizes: list[int]) -> Iterator[tuple[Tensor, int]]:
        """What the inputs give to the gates, (2, 4 C, rows) a step, and the step's rows."""
        bias = torch.stack(list(self.biases))
        one = bias.new_zeros(4, self.cells)
        one[2] = 1  # the forget gate's
        bias = (bias + one.flatten())[..., None]
        inputs = self.weight[:, :, : self.size]
        most = max(1, AT_ONCE // (8 * self.cells))
        first = at = 0
        while first < len(sizes):
            last, total = first + 1, sizes[first]
            while last < len(sizes) and total + sizes[last] <= most:
                last, total = last + 1, total + sizes[last]
            gates = torch.baddbmm(bias, inputs, x[:, at : at + total].transpose(1, 2))
            for part in gates.split(sizes[first:last], dim=2):
                yield part, part.shape[2]
            first, at = last, at + total

    @torch.no_grad()
    def draw(self) -> None:
        """Random values from torch's global generator."""
        for direction in (0, 1):
            nn.init.xavier_uniform_(self.weight[direction])
            nn.init.xavier_uniform_(self.projection[direction])
            self.biases[direction].zero_()

    def assign(self, weights: Mapping[str, np.ndarray], layer: int) -> None:
        """Take over published weights."""

        def both(name: str) -> list[Tensor]:
            return [torch.from_numpy(weights[cell_key(d, layer, name)]) for d in (0, 1)]

        w, b, p = both("W_0"), both("B"), both("W_P_0")
        self.weight.data, self.projection.data = torch.stack([v.t() for v in w]), torch.stack(p)
        for parameter, value in zip(self.biases, b, strict=True):
            parameter.data = value

    def published(self, layer: int) -> dict[str, np.ndarray]:
        """The weights as they are published."""
        out: dict[str, np.ndarray] = {}
        for d in (0, 1):
            values = {"W_0": self.weight[d].t(), "B": self.biases[d], "W_P_0": self.projection[d]}
            out |= {cell_key(d, layer, k): v.detach().cpu().float().numpy() for k, v in values.items()}
        return out


def _clip(x: Tensor, bound: float | None) -> Tensor:
    return x if bound is None else x.clamp(-bound, bound)
