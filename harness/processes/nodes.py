"""One cell over several nodes: its ranks are processes that torchrun or Slurm started.

The command is started once per device, with the same arguments everywhere:

    torchrun --nnodes=2 --node-rank=0 --nproc-per-node=1 --master-addr=HOST --master-port=29500 \
        -m harness task=... encoder=... trainer.num_nodes=2 trainer.devices=1      # on the first node
    torchrun --nnodes=2 --node-rank=1 --nproc-per-node=1 --master-addr=HOST --master-port=29500 \
        -m harness task=... encoder=... trainer.num_nodes=2 trainer.devices=1      # on the second node
    srun --nodes=2 --ntasks-per-node=4 harness task=... trainer.num_nodes=2 trainer.devices=4

Every process resolves the same cell. Rank 0 decides whether the cell has to run, holds its lease, isolates it
in a worker process as always, and writes its record; the other ranks only train and predict. They need the
same data and encoder files, but not a shared results folder. A rank that fails passes its error on through
the launcher's key-value store, so that the record has it.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from pytorch_lightning.plugins.environments import (  # type: ignore[attr-defined]
    SLURMEnvironment,
    TorchElasticEnvironment,
)
from torch._C._distributed_c10d import PrefixStore, Store, TCPStore

from harness.core.events import Progress
from harness.errors import HarnessError, describe_error
from harness.processes import worker
from harness.processes.distributed import TIMEOUT, Group, init_group, is_peer_error, take_device
from harness.records.cell import Cell
from harness.records.parts import TrainerConfig
from harness.records.record import Record

DECISION, ERROR, RECORDED = "decision", "error", "recorded"
ERROR_SECONDS = 2.0
"""How long a rank that lost another waits for that one's error."""
POLL_SECONDS = 0.5
"""Between two looks for another rank's error."""
RECORD_SECONDS = 5.0
"""How long a rank that failed stays: torchrun ends all other processes of a node as soon as one has ended."""


@dataclass(frozen=True, slots=True)
class LaunchedRank:
    """This process as the launcher numbered it, and the store that all ranks share."""

    rank: int
    local_rank: int
    size: int
    store: Store

    def decide(self, *, run: bool) -> None:
        """On rank 0: tell the other ranks whether the cell runs."""
        self.announce(DECISION, "run" if run else "done")

    def finish(self) -> None:
        """On rank 0: tell the other ranks that the record is written."""
        self.announce(RECORDED)

    def announce(self, key: str, value: str = "yes") -> None:
        """Publish a value; without effect when the store is gone."""
        with contextlib.suppress(dist.DistError, RuntimeError):
            self.store.set(key, value)

    def wait_for(self, key: str, *, seconds: float | None = None) -> str | None:
        """The value of ``key``; None if it is not there within ``seconds`` (None = wait as long as it
        takes)."""
        try:
            self.store.wait([key], TIMEOUT if seconds is None else timedelta(seconds=seconds))
            return str(self.store.get(key), "utf-8")
        except (dist.DistError, RuntimeError):
            if seconds is None:
                raise
            return None


def launched_rank(trainer: TrainerConfig, *, host: bool) -> LaunchedRank:
    """This process among those of the launcher.

    Args:
        trainer: with ``num_nodes`` and ``devices``.
        host: this process may serve the store where the launcher does not.

    Raises:
        HarnessError: there is no launcher, or it started another number of processes.
    """
    environment = next((e() for e in (TorchElasticEnvironment, SLURMEnvironment) if e.detect()), None)
    nodes, devices = trainer.num_nodes, trainer.devices
    if environment is None:
        raise HarnessError(
            f"trainer.num_nodes={nodes}: start the command once per device on every node, for example: "
            "torchrun "
            f"--nnodes={nodes} --node-rank=0 --nproc-per-node={devices} --master-addr=HOST "
            "--master-port=29500 "
            "-m harness ..."
        )
    rank, size = environment.global_rank(), environment.world_size()
    if size != nodes * devices:
        raise HarnessError(
            f"trainer.num_nodes={nodes}, trainer.devices={devices}: the launcher started {size} processes; "
            f"expected {nodes * devices}"
        )
    served = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    address = environment.main_address
    if sys.platform == "linux" and address in ("127.0.0.1", "localhost"):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    store = TCPStore(
        address, environment.main_port, is_master=host and rank == 0 and not served, wait_for_workers=False
    )
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return LaunchedRank(rank, environment.local_rank(), size, PrefixStore(f"harness-{attempt}", store))


def follow(cell: Cell, rank: LaunchedRank, *, runner: str) -> None:
    """On ranks other than 0: run the cell if rank 0 decides to.

    Raises:
        HarnessError: as ``runner``.
    """
    if rank.wait_for(DECISION) == "run":
        worker.load_function(runner)(cell, _silent)


def run_on_rank(cell: Cell, progress: Progress, *, runner: str) -> Record:
    """Run a cell in this process together with the ranks on other nodes.

    Args:
        cell: with ``trainer.num_nodes`` above 1.
        progress: receives rank 0's events.
        runner: ``module:function`` called as ``function(cell, progress, world)``.

    Raises:
        HarnessError: another rank failed: its error.
    """
    trainer = cell.trainer
    rank = launched_rank(trainer, host=False)
    torch.set_num_threads(max(1, trainer.threads // trainer.devices))
    threading.Thread(target=_exit_after_error, args=(rank,), daemon=True).start()
    try:
        world = Group(rank.rank, rank.size, num_nodes=trainer.num_nodes)
        world.local_rank = rank.local_rank
        cuda = take_device(world, trainer.accelerator)
        init_group(world, cuda=cuda, store=PrefixStore("group", rank.store))
        run: Callable[..., Record] = worker.load_function(runner)
        record = run(cell, progress if world.first else _silent, world)
        world.close()
        return record
    except BaseException as error:
        if is_peer_error(error):
            message = rank.wait_for(ERROR, seconds=ERROR_SECONDS)
            if message is not None:
                raise HarnessError(message) from error
            raise
        prefix = "" if isinstance(error, HarnessError) else f"rank {rank.rank} of {rank.size}: "
        rank.announce(ERROR, prefix + describe_error(error))
        if rank.rank > 0:
            rank.wait_for(RECORDED, seconds=RECORD_SECONDS)
        raise


def _exit_after_error(rank: LaunchedRank) -> None:
    """End this process when another rank has failed and this one has not noticed, such as while it waits for
    the others to join. The last lines of the log are the reason in the record."""
    with contextlib.suppress(dist.DistError, RuntimeError):
        # by polling: a thread that waits in the store keeps all others from using it
        while not rank.store.check([ERROR]):
            time.sleep(POLL_SECONDS)
        time.sleep(2 * ERROR_SECONDS)
        print(rank.wait_for(ERROR), file=sys.stderr, flush=True)
        os._exit(1)


def _silent(event: Mapping[str, Any]) -> None:
    """Progress of ranks other than 0 is not reported."""
