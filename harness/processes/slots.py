"""Where cells run: a slot is a place for one cell at a time, with its devices and its share of the CPU."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import HarnessError


@dataclass(frozen=True, slots=True)
class Slot:
    """One place for one cell.

    Attributes:
        devices: what CUDA_VISIBLE_DEVICES is set to in the child; "" hides all, None leaves it as it is.
        threads: CPU threads a cell takes unless ``trainer.threads`` says otherwise.
    """

    devices: str | None
    threads: int

    @property
    def label(self) -> str:
        return f"cuda {self.devices}" if self.devices else "cpu"


def cuda_devices() -> list[str]:
    """Names of the visible CUDA devices, found without loading CUDA (a process that did could not fork)."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        names = [d.strip() for d in visible.split(",")]
        return [d for d in names if d and d != "-1"]
    if shutil.which("nvidia-smi"):
        return _listed_by_driver()
    gpus = Path("/proc/driver/nvidia/gpus")
    return [str(n) for n, _ in enumerate(gpus.iterdir())] if gpus.is_dir() else []


def _listed_by_driver() -> list[str]:
    try:
        listing = subprocess.run(
            ["nvidia-smi", "-L"], capture_output=True, text=True, timeout=20, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    lines = [line.strip() for line in listing.splitlines()]
    # a partitioned GPU is reached through the names of its parts only
    parts = [line.rsplit("UUID: ", 1)[-1].rstrip(")") for line in lines if line.startswith("MIG ")]
    whole = [str(n) for n, line in enumerate(x for x in lines if x.startswith("GPU "))]
    return parts or whole


def cores() -> int:
    """CPU cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu_share(slots: int) -> int:
    """CPU threads of one of so many slots; OMP_NUM_THREADS (cluster launchers set it) is an upper bound."""
    share = max(1, cores() // slots)
    bound = os.environ.get("OMP_NUM_THREADS", "")
    return min(share, int(bound)) if bound.isdecimal() and int(bound) > 0 else share


def make_slots(
    spec: Any = "auto", *, cells_per_device: int = 1, accelerator: str = "auto", devices: int = 1
) -> list[Slot]:
    """The slots of this machine.

    Args:
        spec: ``auto`` = ``cells_per_device`` slots for every CUDA device, or one slot on the CPU; a number =
            so many slots, dealt out over the devices; a list = CUDA_VISIBLE_DEVICES of each slot.
        accelerator: ``cpu`` hides all devices.
        devices: CUDA devices of one cell, the most that any cell of the sweep takes. On the CPU a cell's
            ranks share the threads of its slot.

    Raises:
        HarnessError: a value outside this, or fewer CUDA devices than a cell takes.
    """
    if not isinstance(cells_per_device, int) or cells_per_device < 1:
        raise HarnessError(f"hydra.launcher.cells_per_device={cells_per_device}: must be a whole number >= 1")
    places = _places(spec, accelerator=accelerator, devices=devices, times=cells_per_device)
    return [Slot(devices=place, threads=cpu_share(len(places))) for place in places]


def _check_listed(places: Sequence[str], *, devices: int) -> None:
    for place in places:
        held = len([d for d in place.split(",") if d.strip()])
        if held < devices > 1:  # a slot without devices is on the CPU
            raise HarnessError(
                f"hydra.launcher.slots={list(places)}: slot {place!r} has {held} devices and a cell takes "
                f"trainer.devices={devices}; give slots such as ['0,1','2,3']"
            )


def _places(spec: Any, *, accelerator: str, devices: int, times: int) -> list[str | None]:
    names = cuda_devices() if accelerator != "cpu" else []
    if isinstance(spec, Sequence) and not isinstance(spec, str) and spec:
        _check_listed([str(s) for s in spec], devices=devices if names else 1)
        return [str(s) for s in spec]
    found: list[str | None] = []
    if names:
        if len(names) < devices:
            raise HarnessError(
                f"trainer.devices={devices}: there are {len(names)} CUDA devices here ({','.join(names)}); "
                "give so many at most, or trainer.accelerator=cpu"
            )
        found = [",".join(names[i : i + devices]) for i in range(0, len(names) - devices + 1, devices)]
    found = found or [None]
    if spec == "auto":
        return found * (times if found != [None] else 1)
    if isinstance(spec, int) and not isinstance(spec, bool) and spec >= 1:
        return [found[i % len(found)] for i in range(spec)]
    raise HarnessError(
        f"hydra.launcher.slots={spec}: give auto, a number >= 1, or a list such as [0,1] or ['0,1','2,3']"
    )
