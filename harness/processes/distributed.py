"""Process groups: what the ranks of one training run exchange, and how they meet.

Every rank holds the whole model (DDP) or its shard (FSDP) and takes every N-th example of a step, so a step
consists of the same examples for any number of ranks. With l_i the losses of the step's items and S_r the
items of rank r:

    gradient = sum_r sum_{i in S_r} grad l_i / sum_r |S_r|

Lightning's strategies (:mod:`harness.processes.lightning`) reduce the gradients. This module does the rest:
sums of losses and item counts, predictions collected on rank 0, decisions made by rank 0, and a comparison of
all ranks' weights.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import Store, TCPStore

from harness.errors import HarnessError

TIMEOUT = timedelta(days=7)
"""The parent process detects dead ranks, so the timeout of the process group is effectively infinite."""
SEED_STRIDE = 1 << 32
PEER_ERRORS = ("gloo/transport", "Connection closed by peer", "Connection reset by peer", "NCCL error")
"""Parts of messages of errors that another rank's end causes in this one."""
T = TypeVar("T")
K = TypeVar("K")


class PeerLost(Exception):
    """Another rank is gone. The reason is in that rank's own error, not in this one."""


class World:
    """The ranks of one training run. This base class is a single process (no communication).

    Attributes:
        rank: of this process over all nodes, from 0.
        size: number of ranks over all nodes.
        local_rank: of this process on its node, from 0; the index of its device.
        num_nodes: number of machines; each has ``size // num_nodes`` ranks.
    """

    def __init__(self, rank: int = 0, size: int = 1, *, num_nodes: int = 1) -> None:
        self.rank, self.size, self.num_nodes = rank, size, num_nodes
        self.local_rank = rank % (size // num_nodes)

    @property
    def first(self) -> bool:
        """Whether this is rank 0, which decides, writes files and reports progress."""
        return self.rank == 0

    def share(self, values: Sequence[T]) -> list[T]:
        """This rank's part of ``values``, every N-th: disjoint over the ranks, complete together, maybe
        empty."""
        return list(values[self.rank :: self.size])

    def sum(self, numbers: Sequence[float]) -> list[float]:
        """Sum each number over the ranks; every rank passes the same number of numbers."""
        return list(numbers)

    def gather(self, value: T) -> list[T]:
        """The value of each rank, in the order of ranks, on every rank."""
        return [value]

    def on_first(self, make: Callable[[], T]) -> T:
        """Call ``make`` on rank 0 only and return its result on every rank."""
        return make()

    def collect(self, parts: Mapping[K, T]) -> dict[K, T]:
        """All ranks' entries on rank 0, nothing on the others.

        Raises:
            AssertionError: two ranks have the same key.
        """
        return dict(parts)

    def check_same(self, parameters: Sequence[Tensor], *, when: str) -> None:
        """Check that all ranks hold the same weights, bit for bit.

        Args:
            parameters: of this rank's model.
            when: completes the message, such as "after epoch 1".

        Raises:
            HarnessError: two ranks differ.
        """

    def set_seed(self, seed: int) -> None:
        """Give each rank its own dropout; rank 0 draws as a single device would."""
        if not self.first:
            torch.manual_seed(seed + self.rank * SEED_STRIDE)

    @contextlib.contextmanager
    def first_ahead(self) -> Iterator[None]:
        """Let rank 0 finish the block before the others enter it: it fills a cache that they read."""
        yield

    def close(self) -> None:
        """Wait for all ranks, then leave the process group."""


ALONE = World()


class Group(World):
    """Ranks over ``torch.distributed``: gloo for tensors on the CPU, NCCL for tensors on GPUs."""

    def all_reduce(self, values: Tensor) -> None:
        """Sum over the ranks, in place."""
        with _peers():
            dist.all_reduce(values)

    def sum(self, numbers: Sequence[float]) -> list[float]:
        values = torch.tensor(numbers, dtype=torch.float64)
        self.all_reduce(values)
        return list(values.tolist())

    def gather(self, value: T) -> list[T]:
        out: list[T] = [value] * self.size
        with _peers():
            dist.all_gather_object(out, value)
        return out

    def on_first(self, make: Callable[[], T]) -> T:
        result = [make()] if self.first else [None]
        with _peers():
            dist.broadcast_object_list(result, src=0)
        out: T = result[0]  # type: ignore[assignment]
        return out

    def collect(self, parts: Mapping[K, T]) -> dict[K, T]:
        out: list[Mapping[K, T]] | None = [{}] * self.size if self.first else None
        with _peers():
            dist.gather_object(dict(parts), out, dst=0)
        return join_parts(out or [])

    def check_same(self, parameters: Sequence[Tensor], *, when: str) -> None:
        sums = self.gather(bit_sums(parameters))
        different = [rank for rank, row in enumerate(sums) if row != sums[0]]
        if different:
            raise HarnessError(
                f"the weights of rank {different[0]} differ from those of rank 0 {when}: something in the "
                "cell depends on the rank; run it with trainer.devices=1"
            )

    @contextlib.contextmanager
    def first_ahead(self) -> Iterator[None]:
        if not self.first:
            self._wait()
        yield
        if self.first:
            self._wait()

    def close(self) -> None:
        self._wait()
        dist.destroy_process_group()

    def _wait(self) -> None:
        with _peers():
            dist.barrier()


def join_parts(parts: Sequence[Mapping[K, T]]) -> dict[K, T]:
    """Merge mappings that have no key in common.

    Raises:
        AssertionError: a key is in two of them.
    """
    out: dict[K, T] = {}
    for part in parts:
        duplicates = out.keys() & part.keys()
        if duplicates:
            raise AssertionError(f"predicted by two ranks: {sorted(map(str, duplicates))[:3]}")
        out.update(part)
    return out


def bit_sums(parameters: Sequence[Tensor]) -> list[int]:
    """A checksum per tensor: equal for equal tensors, and cheap on any device.

    The bits of each four-byte number are read as an integer and summed (single bytes where numbers have
    another size): [1.0, 2.0] = [0x3f800000, 0x40000000] gives 0x7f800000. A change of one bit changes the
    sum.
    """
    sums = []
    for p in parameters:
        flat = p.detach().reshape(-1)
        words = flat.view(torch.int32 if p.element_size() == 4 else torch.uint8)
        sums.append(words.sum(dtype=torch.int64))
    return [int(n) for n in torch.stack(sums).tolist()] if sums else []


def join(
    rank: int, size: int, *, port: int, listener: int | None, accelerator: str, num_nodes: int = 1
) -> Group:
    """Join the other ranks on this machine.

    Args:
        rank, size: of this process, number of ranks.
        port: of 127.0.0.1, where rank 0 listens.
        listener: rank 0's file descriptor of the socket that is bound to the port; None on other ranks.
        accelerator: as ``trainer.accelerator``.

    Raises:
        HarnessError: there are fewer devices than ranks.
    """
    world = Group(rank, size)
    cuda = take_device(world, accelerator)
    if sys.platform == "linux":  # the ranks share a machine, whatever address its name resolves to
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with _peers():
        store = TCPStore(
            "127.0.0.1", port, size, is_master=rank == 0, timeout=TIMEOUT, master_listen_fd=listener
        )
        init_group(world, cuda=cuda, store=store)
    return world


def init_group(world: World, *, cuda: bool, store: Store) -> None:
    """Create the default process group, which Lightning then uses as it is."""
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if cuda else "gloo",
        store=store,
        rank=world.rank,
        world_size=world.size,
        timeout=TIMEOUT,
        device_id=torch.device("cuda", world.local_rank) if cuda else None,
    )


def take_device(world: World, accelerator: str) -> bool:
    """Select this rank's CUDA device; False where it computes on the CPU.

    Raises:
        HarnessError: there are fewer devices than ranks on this node.
    """
    if accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available():
        per_node, count = world.size // world.num_nodes, torch.cuda.device_count()
        if count < per_node:
            visible = os.environ.get("CUDA_VISIBLE_DEVICES", "all")
            raise HarnessError(
                f"trainer.devices={per_node}: the cell's slot has {count} (CUDA_VISIBLE_DEVICES={visible}); "
                "use slots with as many devices (hydra.launcher.slots) or a smaller number"
            )
        torch.cuda.set_device(world.local_rank)
        return True
    if accelerator == "mps" or (accelerator != "cpu" and torch.backends.mps.is_available()):
        raise HarnessError(
            f"trainer.devices={world.size}: there is one mps device; use trainer.accelerator=cpu"
        )
    return False


def is_peer_error(error: BaseException | None) -> bool:
    """Whether ``error`` is a consequence of another rank's end, such as a connection that was closed."""
    while error is not None:
        if isinstance(error, PeerLost | dist.DistError):
            return True
        if isinstance(error, RuntimeError) and any(part in str(error) for part in PEER_ERRORS):
            return True
        error = error.__cause__
    return False


@contextlib.contextmanager
def _peers() -> Iterator[None]:
    """Raise :class:`PeerLost` for errors in communication: they mean that another rank has ended."""
    try:
        yield
    except HarnessError:
        raise
    except (RuntimeError, ValueError, OSError) as e:
        raise PeerLost(f"another rank is gone ({type(e).__name__}: {str(e).splitlines()[0][:200]})") from e
