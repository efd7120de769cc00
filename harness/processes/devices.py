"""Device and autocast precision of a cell."""

from __future__ import annotations

import torch

from harness.errors import HarnessError


def pick_device(accelerator: str) -> torch.device:
    """Return the device that Lightning would use for ``accelerator``; with several CUDA devices, this rank's.

    Raises:
        HarnessError: this machine has no such device.
    """
    if accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    if accelerator in ("auto", "gpu", "mps") and torch.backends.mps.is_available():
        return torch.device("mps")
    if accelerator not in ("auto", "cpu"):
        raise HarnessError(
            f"trainer.accelerator={accelerator}: this machine has no such device; use auto or cpu"
        )
    return torch.device("cpu")


def arithmetic(device: torch.device) -> list[object]:
    """What rounding depends on besides the operations: the kind of device and, on the CPU, the number of
    threads. Part of the keys of computed files."""
    return [device.type, torch.get_num_threads() if device.type == "cpu" else None]


def autocast_type(precision: str) -> torch.dtype | None:
    """Autocast dtype of ``trainer.precision``; None for 32-true."""
    return {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}.get(precision)
