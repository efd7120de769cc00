"""Cross-entropy over many classes, summed over many positions, without keeping the logits in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from torch.autograd.function import FunctionCtx


class SummedNLL(torch.autograd.Function):
    """sum_n (logsumexp(W s_n + b) - (W s_n + b)[gold_n]).

    The forward pass computes the gradients as well, :data:`ROWS` rows at a time: the logits of these rows
    stay in the processor's cache, and none are kept for the backward pass. With p = softmax(W s_n + b) and g
    = one_hot(gold_n)::

        d/ds_n = W^T (p - g),    d/dW = sum_n (p - g) s_n^T,    d/db = sum_n (p - g)
    """

    ROWS = 256

    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)  # type: ignore[untyped-decorator]
    def forward(ctx: FunctionCtx, states: Tensor, weight: Tensor, bias: Tensor, gold: Tensor) -> Tensor:
        """(N, P), (K, P), (K,), (N,) to a scalar."""
        total = states.new_zeros(())
        grad_states, grad_weight, grad_bias = (torch.zeros_like(t) for t in (states, weight, bias))
        for start in range(0, len(states), SummedNLL.ROWS):
            chunk = slice(start, start + SummedNLL.ROWS)
            s, g = states[chunk], gold[chunk, None]
            logits = torch.addmm(bias, s, weight.t())
            # nll = log sum_k exp(x_k - max) - (x_gold - max); in place, the logits become p, then p - g
            largest = logits.amax(1, keepdim=True)
            gold_logit = logits.gather(1, g) - largest
            exps = logits.sub_(largest).exp_()
            sums = exps.sum(1, keepdim=True)
            total += (sums.log() - gold_logit).sum()
            residual = exps.div_(sums)
            residual.scatter_add_(1, g, torch.full_like(gold_logit, -1.0))
            grad_states[chunk] = residual @ weight
            grad_weight.addmm_(residual.t(), s)
            grad_bias += residual.sum(0)
        ctx.save_for_backward(grad_states, grad_weight, grad_bias)
        return total

    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")  # type: ignore[untyped-decorator]
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        grad_states, grad_weight, grad_bias = ctx.saved_tensors  # type: ignore[attr-defined]
        return grad * grad_states, grad * grad_weight, grad * grad_bias, None
