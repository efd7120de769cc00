"""ELMo's recurrent layers: LSTMs with projection and clipping, both directions in one batch.

For each direction (Sak et al. 2014, with the clipping of the published model)::

    [i, j, f, o] = [x_t; h_{t-1}] W + b
    c_t = clip(sigmoid(f + 1) * c_{t-1} + sigmoid(i) * tanh(j), cell_clip)
    h_t = clip((sigmoid(o) * tanh(c_t)) W_p, proj_clip)

Rows are packed by time step: step t contains only the rows that have more than t tokens, longest first, so
that padding costs nothing and cannot affect a state. The backward direction reads each row from its end. The
input projections of all steps are one matrix product; each step multiplies the states of both directions at
once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from harness.encoders.elmo.files import ElmoOptions, cell_key

State = tuple[Tensor, Tensor]
"""(2, B, P) and (2, B, C): projected state and cell state of each direction and row."""
MAX_GATES = 1 << 26
"""Maximum number of gate values whose input projections are computed at once, which bounds the memory."""


@dataclass(frozen=True, slots=True)
class Packing:
    """Positions of the words of B rows when they are packed by time step.

    Attributes:
        rows: (A,) Long, the rows that contain words, longest first.
        sizes: number of rows at each step; their sum is N, the packed length.
        source: (2, N) Long, the token at each packed position of a direction. Tokens are numbered row by row,
            followed by the sentence boundaries (begin, end).
        place: (2, tokens) Long, the packed position of each token in each direction.
    """

    rows: Tensor
    sizes: list[int]
    source: Tensor
    place: Tensor

    @classmethod
    def of(cls, mask: Tensor) -> Packing:
        """Pack a (B, S) mask of words; sentence boundaries are added around each row that contains words.

        Example: row 0 has the words [a], row 1 has [b, c]; tokens a=0, b=1, c=2, begin=3, end=4. With
            boundaries
        they take 3 and 4 steps: ``rows`` = [1, 0], ``sizes`` = [2, 2, 2, 1], step t starts at [0, 2, 4,
        6][t]::

            packed position      0  1 | 2  3 | 4  5 | 6     (row 1, row 0 at each step)
            forward  source      3  3 | 1  0 | 2  4 | 4     (begin begin | b a | c end | end)
            backward source      4  4 | 2  0 | 1  3 | 3     (end end | c a | b begin | begin)
            forward  place of a, b, c: [3, 2, 4]; backward: [3, 4, 2]
        """
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
        step = mask.cumsum(1)[mask]  # 1 for the first word: the begin is at step 0
        tokens = len(row)
        last, row_rank = steps[rows] - 1, rank[rows]
        ends = torch.stack([torch.zeros_like(last), last])  # begin and end of each row
        source = torch.empty(2, int(sizes.sum()), dtype=torch.long, device=device)
        # the backward direction reads a token at step (length - 1 - step)
        place = torch.stack([start[step] + rank[row], start[steps[row] - 1 - step] + rank[row]])
        numbers = torch.arange(tokens, device=device)
        for direction in (0, 1):
            source[direction, place[direction]] = numbers
            for mark in (0, 1):  # the backward direction starts with the end
                source[direction, start[ends[mark ^ direction]] + row_rank] = tokens + mark
        return cls(rows, sizes.tolist(), source, place)


class BiLSTMLayer(nn.Module):
    """One layer of two independent directions.

    Parameters, [0] forward and [1] backward: ``weight`` (2, 4 C, P + P), input first; ``biases``, two of
    (4 C,); ``projection`` (2, C, P). They are uninitialised until :meth:`reset_parameters` or :meth:`assign`.
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
            sizes: number of rows at each step.
            state: (2, A, P) and (2, A, C), initial states of the A rows.

        Returns:
            (2, N, P), and the final states of the rows.
        """
        if not sizes:
            return x, state
        # gates and cells are (.., rows): the product of a large matrix with a thin one is faster in this
        # layout
        h, c = state[0], state[1].transpose(1, 2)
        outputs: list[Tensor] = []
        finished: list[State] = []
        recurrent = self.weight[:, :, self.size :]
        for gates, rows in self._steps(x, sizes):
            if rows < h.shape[1]:  # the shortest rows end here: set their final states aside
                finished.append((h[:, rows:], c[:, :, rows:].transpose(1, 2)))
                h, c = h[:, :rows], c[:, :, :rows]
            # (2, C, rows) each
            i, j, f, o = torch.baddbmm(gates, recurrent, h.transpose(1, 2)).chunk(4, dim=1)
            c = _clip(torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(j), self.cell_clip)
            hidden = (torch.sigmoid(o) * torch.tanh(c)).transpose(1, 2)
            h = _clip(torch.bmm(hidden, self.projection), self.proj_clip)
            outputs.append(h)
        finished.append((h, c.transpose(1, 2)))
        # the shortest rows finished first: reversed, the parts are in the order of the rows
        last_h, last_c = (torch.cat(parts[::-1], dim=1) for parts in zip(*finished, strict=True))
        out = torch.cat(outputs, dim=1)
        return (out + x if self.skip else out), (last_h, last_c)

    def _steps(self, x: Tensor, sizes: list[int]) -> Iterator[tuple[Tensor, int]]:
        """Yield the input projections of the gates, (2, 4 C, rows), and the number of rows of each step."""
        bias = torch.stack(list(self.biases))
        forget = bias.new_zeros(4, self.cells)
        forget[2] = 1  # the published model adds 1 to the forget gate
        bias = (bias + forget.flatten())[..., None]
        inputs = self.weight[:, :, : self.size]
        max_rows = max(1, MAX_GATES // (8 * self.cells))
        first = at = 0
        while first < len(sizes):
            last, total = first + 1, sizes[first]
            while last < len(sizes) and total + sizes[last] <= max_rows:
                last, total = last + 1, total + sizes[last]
            gates = torch.baddbmm(bias, inputs, x[:, at : at + total].transpose(1, 2))
            for part in torch.split(gates, sizes[first:last], dim=2):
                yield part, part.shape[2]
            first, at = last, at + total

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw random values from torch's global generator."""
        for direction in (0, 1):
            nn.init.xavier_uniform_(self.weight[direction])
            nn.init.xavier_uniform_(self.projection[direction])
            self.biases[direction].zero_()

    def assign(self, weights: Mapping[str, np.ndarray], layer: int) -> None:
        """Use published weights."""

        def both(name: str) -> list[Tensor]:
            return [torch.from_numpy(weights[cell_key(d, layer, name)]) for d in (0, 1)]

        w, b, p = both("W_0"), both("B"), both("W_P_0")
        self.weight.data, self.projection.data = torch.stack([v.t() for v in w]), torch.stack(p)
        for parameter, value in zip(self.biases, b, strict=True):
            parameter.data = value

    def published(self, layer: int) -> dict[str, np.ndarray]:
        """Return the weights in the published layout."""
        out: dict[str, np.ndarray] = {}
        for d in (0, 1):
            values = {"W_0": self.weight[d].t(), "B": self.biases[d], "W_P_0": self.projection[d]}
            out |= {cell_key(d, layer, k): v.detach().cpu().float().numpy() for k, v in values.items()}
        return out


def _clip(x: Tensor, bound: float | None) -> Tensor:
    return x if bound is None else x.clamp(-bound, bound)
