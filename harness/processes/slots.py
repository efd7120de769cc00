"""Slots of this machine: a slot runs one cell at a time, with its own devices and its share of the CPU."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.errors import HarnessError


@dataclass(frozen=True, slots=True)
class DeviceSlot:
    """Room for one cell.

    Attributes:
        devices: value of CUDA_VISIBLE_DEVICES in the worker; "" hides all devices, None leaves it unchanged.
        threads: the slot's share of the CPU, for tokenizers and table readers; arithmetic uses
            ``trainer.threads``, so that results do not depend on slots.
    """

    devices: str | None
    threads: int

    @property
    def label(self) -> str:
        return f"cuda {self.devices}" if self.devices else "cpu"


def cuda_devices() -> list[str]:
    """List the visible CUDA devices without initialising CUDA (a process that has cannot fork)."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        names = [d.strip() for d in visible.split(",")]
        return [d for d in names if d and d != "-1"]
    if shutil.which("nvidia-smi"):
        return _list_with_nvidia_smi()
    gpus = Path("/proc/driver/nvidia/gpus")
    return [str(n) for n, _ in enumerate(gpus.iterdir())] if gpus.is_dir() else []


def _list_with_nvidia_smi() -> list[str]:
    try:
        listing = subprocess.run(
            ["nvidia-smi", "-L"], capture_output=True, text=True, timeout=20, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    lines = [line.strip() for line in listing.splitlines()]
    # a GPU partitioned with MIG can only be addressed by the UUIDs of its partitions
    partitions = [line.rsplit("UUID: ", 1)[-1].rstrip(")") for line in lines if line.startswith("MIG ")]
    gpus = [str(n) for n, line in enumerate(x for x in lines if x.startswith("GPU "))]
    return partitions or gpus


def cores() -> int:
    """Number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def hardware_problems(*, accelerator: str, devices: int, precision: str) -> Iterator[str]:
    """Yield a line for each setting of a trainer that this machine cannot satisfy; does not import torch.

    Args:
        accelerator, devices, precision: of the section ``trainer``.
    """
    macos = sys.platform == "darwin"
    n_cuda = 0 if accelerator == "cpu" else len(cuda_devices())
    if accelerator in ("gpu", "cuda") and not n_cuda and not (macos and accelerator == "gpu"):
        yield (
            f"trainer.accelerator={accelerator}: this machine has no CUDA device; use "
            "trainer.accelerator=auto or cpu"
        )
        return
    if accelerator == "mps" and not macos:
        yield "trainer.accelerator=mps: exists on macOS only; use trainer.accelerator=auto or cpu"
        return
    if n_cuda and accelerator in ("gpu", "cuda") and (version := _torch_without_cuda()):
        yield f"trainer.accelerator={accelerator}: torch {version} has no CUDA support; install one that has"
    if n_cuda and devices > n_cuda:
        names = ",".join(cuda_devices())
        yield (
            f"trainer.devices={devices}: this machine has {n_cuda} CUDA devices ({names}); use at most that "
            "many, or trainer.accelerator=cpu"
        )
    on_cpu = not n_cuda and not macos
    if on_cpu and devices > cores():
        yield (
            f"trainer.devices={devices}: this machine has no CUDA device and {cores()} cores; use at most "
            f"trainer.devices={cores()}"
        )
    if on_cpu and precision == "16-mixed":
        yield (
            "trainer.precision=16-mixed: half precision needs a GPU; use trainer.precision=bf16-mixed or "
            "32-true on the CPU"
        )


def _torch_without_cuda() -> str:
    """Version of a torch built for the CPU only; "" for others."""
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return ""
    return version if version.endswith("+cpu") else ""


def cpu_share(slots: int) -> int:
    """CPU threads per slot; OMP_NUM_THREADS (set by cluster launchers) is an upper bound."""
    share = max(1, cores() // slots)
    bound = os.environ.get("OMP_NUM_THREADS", "")
    return min(share, int(bound)) if bound.isdecimal() and int(bound) > 0 else share


def make_slots(
    spec: object = "auto", *, cells_per_device: int = 1, accelerator: str = "auto", devices: int = 1
) -> list[DeviceSlot]:
    """Create the slots of this machine.

    Args:
        spec: ``auto`` = ``cells_per_device`` slots per CUDA device, or one slot on the CPU; a number = that
            many slots, distributed over the devices; a list = CUDA_VISIBLE_DEVICES of each slot.
        accelerator: ``cpu`` hides all devices.
        devices: the largest number of CUDA devices that any cell of the sweep uses. On the CPU, the ranks
            of a cell share the threads of its slot.

    Raises:
        HarnessError: an invalid value, or a cell needs more CUDA devices than there are.
    """
    if not isinstance(cells_per_device, int) or cells_per_device < 1:
        raise HarnessError(f"hydra.launcher.cells_per_device={cells_per_device}: must be an integer >= 1")
    visible = _visible_devices(
        spec, accelerator=accelerator, devices=devices, cells_per_device=cells_per_device
    )
    return [DeviceSlot(devices=value, threads=cpu_share(len(visible))) for value in visible]


def _check_listed_slots(slots: Sequence[str], *, devices: int) -> None:
    for slot in slots:
        count = len([d for d in slot.split(",") if d.strip()])
        if count < devices > 1:  # a slot without devices is on the CPU
            raise HarnessError(
                f"hydra.launcher.slots={list(slots)}: slot {slot!r} has {count} devices, but a cell needs "
                f"trainer.devices={devices}; use slots such as ['0,1','2,3']"
            )


def _visible_devices(
    spec: object, *, accelerator: str, devices: int, cells_per_device: int
) -> list[str | None]:
    """CUDA_VISIBLE_DEVICES of each slot.

    Four GPUs and cells of two devices: auto -> ["0,1", "2,3"], 3 -> ["0,1", "2,3", "0,1"].
    """
    names = cuda_devices() if accelerator != "cpu" else []
    if isinstance(spec, Sequence) and not isinstance(spec, str) and spec:
        _check_listed_slots([str(s) for s in spec], devices=devices if names else 1)
        return [str(s) for s in spec]
    groups: list[str | None] = []
    if names:
        if len(names) < devices:
            raise HarnessError(
                f"trainer.devices={devices}: this machine has {len(names)} CUDA devices ({','.join(names)}); "
                "use at most that many, or trainer.accelerator=cpu"
            )
        groups = [",".join(names[i : i + devices]) for i in range(0, len(names) - devices + 1, devices)]
    groups = groups or [None]
    if spec == "auto":
        return groups * (cells_per_device if groups != [None] else 1)
    if isinstance(spec, int) and not isinstance(spec, bool) and spec >= 1:
        return [groups[i % len(groups)] for i in range(spec)]
    raise HarnessError(
        f"hydra.launcher.slots={spec}: expected auto, a number >= 1, or a list such as [0,1] or ['0,1','2,3']"
    )
