"""Where a cell computes, and in which precision."""

from __future__ import annotations

import torch

from harness.errors import HarnessError


def pick_device(accelerator: str) -> torch.device:
    """The device Lightning would take for ``accelerator``; of several CUDA devices this rank's.

    Raises:
        HarnessError: there is no such device here.
    """
    if accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    if accelerator in ("auto", "gpu", "mps") and torch.backends.mps.is_available():
        return torch.device("mps")
    if accelerator not in ("auto", "cpu"):
        raise HarnessError(f"trainer.accelerator={accelerator}: no such device here, valid: auto, cpu")
    return torch.device("cpu")


def autocast_type(precision: str) -> torch.dtype | None:
    return {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}.get(precision)
