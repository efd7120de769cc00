"""Lightning's strategies over ranks that exist already.

Ranks are forked from the warm server (:mod:`harness.processes.ranks`) or started by torchrun or Slurm
(:mod:`harness.processes.nodes`). Lightning is told so by a cluster environment, and so never runs the command
again by itself.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Literal

import pytorch_lightning as pl
import torch
from pytorch_lightning.plugins.environments import ClusterEnvironment  # type: ignore[attr-defined]
from pytorch_lightning.strategies import DDPStrategy, ModelParallelStrategy, Strategy
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from harness.errors import HarnessError
from harness.processes.distributed import TIMEOUT, World
from harness.records.parts import TrainerConfig


class ExistingRanks(ClusterEnvironment):
    """Ranks, sizes and nodes as ``world`` has them; the process group exists already."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    @property
    def creates_processes_externally(self) -> bool:
        return True

    @property
    def main_address(self) -> str:
        return "127.0.0.1"  # not used: the process group exists

    @property
    def main_port(self) -> int:
        return 0

    @staticmethod
    def detect() -> bool:
        return False

    def world_size(self) -> int:
        return self._world.size

    def set_world_size(self, size: int) -> None:
        """No-op: the size is given."""

    def global_rank(self) -> int:
        return self._world.rank

    def set_global_rank(self, rank: int) -> None:
        """No-op: the rank is given."""

    def local_rank(self) -> int:
        return self._world.local_rank

    def node_rank(self) -> int:
        return self._world.rank // (self._world.size // self._world.num_nodes)


@dataclass(slots=True)
class Sharding:
    """Parameters divided over the ranks (FSDP): each rank keeps a part and gathers a block when it is needed.

    Every rank loads the whole model on the CPU first; on its device it has its shards and one block at a
    time.

    Attributes:
        world: the ranks.
        precision: as ``trainer.precision``; ``bf16-mixed`` is autocast, as on one device.
        applied: the model has been sharded.
    """

    world: World
    precision: str
    applied: bool = False

    def apply(self, model: pl.LightningModule, encoder: nn.Module) -> None:
        """Shard the blocks of Hugging Face models, the rest of the encoder, and the rest of the model.

        Each is gathered in one piece before its forward or backward pass and freed after it.
        """
        if self.applied:
            return
        self.applied = True
        mesh = model.device_mesh
        assert mesh is not None
        blocks = {name for m in encoder.modules() for name in getattr(m, "_no_split_modules", None) or ()}
        inner = [m for m in encoder.modules() if type(m).__name__ in blocks]
        for module in (*inner, encoder, model):
            if any(True for _ in module.parameters()):
                fully_shard(module, mesh=mesh["data_parallel"])

    def autocast(self, device: torch.device) -> contextlib.AbstractContextManager[object]:
        """The context of a forward pass; FSDP under Lightning has no mixed precision of its own.

        Args:
            device: of the batch. It is the CPU on a machine with GPUs if ``trainer.accelerator=cpu``.
        """
        if self.precision != "bf16-mixed":
            return contextlib.nullcontext()
        return torch.autocast(device.type, dtype=torch.bfloat16)


class QuietDDPStrategy(DDPStrategy):
    """DDP without torch's warning that ``find_unused_parameters`` found none.

    Whether a parameter stays unused is known only after the first forward pass, and a rank without examples
    uses hardly any, so the search cannot be switched off in advance. If every parameter was used in the first
    pass, torch warns once per rank, from C++, where Python's warning filters do not apply. A spare parameter
    that belongs to DDP only, and that nothing uses, prevents that: it never has a gradient, and neither the
    optimizer nor a checkpoint contains it.
    """

    def _setup_model(self, model: nn.Module) -> DistributedDataParallel:
        spare = nn.Parameter(torch.zeros(1, device=self.root_device))
        model.register_parameter("spare", spare)
        try:
            return super()._setup_model(model)
        finally:
            del model.spare


def make_sharding(world: World, trainer: TrainerConfig) -> Sharding | None:
    """The sharding that ``trainer.strategy=fsdp`` asks for.

    Raises:
        HarnessError: 16-mixed, whose gradient scaler does not work with shards.
    """
    if world.size == 1 or trainer.strategy != "fsdp":
        return None
    if trainer.precision == "16-mixed":
        raise HarnessError("trainer.precision=16-mixed: not with trainer.strategy=fsdp; use bf16-mixed")
    return Sharding(world, trainer.precision)


def local(value: Tensor) -> Tensor:
    """This rank's shard of a tensor, or the tensor where it is not sharded; shares its memory."""
    return value.to_local() if isinstance(value, DTensor) else value


def gather_state_dict(model: nn.Module) -> dict[str, Tensor]:
    """All tensors of a sharded model on the CPU of rank 0; nothing on the others. Every rank must call it."""
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    state = get_model_state_dict(model, options=options)
    return {name: value for name, value in state.items() if isinstance(value, Tensor)}


def make_strategy(world: World, strategy: str) -> Strategy | Literal["auto"]:
    """The Lightning strategy for ``trainer.strategy`` (``auto``, ``ddp``, ``fsdp``).

    FSDP is torch's ``fully_shard`` through :class:`ModelParallelStrategy`, since Lightning's ``FSDPStrategy``
    requires a GPU; this one works with gloo on the CPU as well.
    """
    if world.size == 1:
        return "auto"
    if strategy == "fsdp":
        return ModelParallelStrategy(
            data_parallel_size=world.size,
            tensor_parallel_size=1,
            save_distributed_checkpoint=False,
            timeout=TIMEOUT,
        )
    # A parameter that no rank used keeps gradient None, so AdamW does not decay it: find_unused_parameters.
    # Ranks may have different numbers of evaluation batches: no broadcast of buffers in each forward.
    return QuietDDPStrategy(find_unused_parameters=True, broadcast_buffers=False, timeout=TIMEOUT)
