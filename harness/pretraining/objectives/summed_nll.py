"""The softmax's loss over many classes, summed over many places, without keeping their scores."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class SummedNLL(torch.autograd.Function):
    """sum_n (logsumexp(W s_n + b) - (W s_n + b)[gold_n]), whose gradients are made with it, some rows at a
    time: the scores of a few hundred rows stay in the processor's cache, and none are kept for later."""

    ROWS = 256

    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
    def forward(ctx: Any, states: Tensor, weight: Tensor, bias: Tensor, gold: Tensor) -> Tensor:
        """(N, P), (K, P), (K,), (N,) to 0-d."""
        total = states.new_zeros(())
        by_states, by_weight, by_bias = (torch.zeros_like(t) for t in (states, weight, bias))
        for at in range(0, len(states), SummedNLL.ROWS):
            here = slice(at, at + SummedNLL.ROWS)
            s, g = states[here], gold[here, None]
            scores = torch.addmm(bias, s, weight.t())
            largest = scores.amax(1, keepdim=True)
            right = scores.gather(1, g) - largest
            odds = scores.sub_(largest).exp_()
            mass = odds.sum(1, keepdim=True)
            total += (mass.log() - right).sum()
            shares = odds.div_(mass)
            shares.scatter_add_(1, g, torch.full_like(right, -1.0))
            by_states[here] = shares @ weight
            by_weight.addmm_(shares.t(), s)
            by_bias += shares.sum(0)
        ctx.save_for_backward(by_states, by_weight, by_bias)
        return total

    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        by_states, by_weight, by_bias = ctx.saved_tensors
        return grad * by_states, grad * by_weight, grad * by_bias, None
