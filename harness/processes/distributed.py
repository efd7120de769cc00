"""Several processes that train one model: what each takes, and how they come to one result.

Each rank holds the whole model and takes every N-th example of a step, so that a step is the same examples
however many ranks there are. With l_i the losses of the step's items and S_r the items of rank r:

    gradient = sum_r sum_{i in S_r} grad l_i / sum_r |S_r|

The sum over ranks is taken here, by one explicit all-reduce a step, and not by wrapping the model: ranks may
have no example in a step, parameters that no rank used must keep no gradient at all, and a gradient scaler
must see the same numbers everywhere before it looks for infinities. Nothing depends on ``requires_grad``,
which is what lets layers thaw without the ranks coming apart.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from harness.errors import HarnessError

PATIENCE = timedelta(days=7)
"""How long a rank waits for the others: who has died is seen by the process above them, not by a clock."""
BUCKET = 1 << 24
"""Numbers that are sent at once: bounds what the all-reduce takes beside the gradients."""
SEED_STRIDE = 1 << 32
T = TypeVar("T")
K = TypeVar("K")


class PeerLost(Exception):
    """Another rank is gone; why is what that rank says, not this one."""


class World:
    """The ranks of one cell; as it stands here, the only one.

    Attributes:
        rank: of this process, from 0.
        size: how many there are.
    """

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank, self.size = rank, size

    @property
    def first(self) -> bool:
        """This rank decides, writes and talks."""
        return self.rank == 0

    def share(self, things: Sequence[T]) -> list[T]:
        """Every N-th of ``things``: disjoint over the ranks, together all; maybe none."""
        return list(things[self.rank :: self.size])

    def sum(self, numbers: Sequence[float]) -> list[float]:
        """Sums over the ranks, of as many numbers in each."""
        return list(numbers)

    def gather(self, thing: T) -> list[T]:
        """What each rank gave, in their order, on every rank."""
        return [thing]

    def on_first(self, make: Callable[[], T]) -> T:
        """What ``make`` gives on the first rank, where alone it is called."""
        return make()

    def collect(self, parts: Mapping[K, T]) -> dict[K, T]:
        """All ranks' entries on the first rank, nothing on the others.

        Raises:
            AssertionError: two ranks have the same key.
        """
        return dict(parts)

    def add_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """Gradients become their sums over the ranks; one that no rank has stays None."""

    def check_same(self, parameters: Sequence[Tensor], *, when: str) -> None:
        """Refuse to go on with ranks whose weights differ in a bit.

        Raises:
            HarnessError: see above.
        """

    def set_seed(self, seed: int) -> None:
        """Each rank draws dropout of its own; the first as one device would."""
        if not self.first:
            torch.manual_seed(seed + self.rank * SEED_STRIDE)

    @contextlib.contextmanager
    def first_ahead(self) -> Iterator[None]:
        """The first rank goes through the block before the others enter it: it fills a cache, they read."""
        yield

    def close(self) -> None:
        """Wait for all, then leave."""


ALONE = World()


class Group(World):
    """Ranks of one machine over ``torch.distributed``: gloo for what is said, NCCL for gradients on GPUs."""

    def __init__(self, rank: int, size: int, *, fast: Any = None) -> None:
        super().__init__(rank, size)
        self._fast = fast

    def all_reduce(self, values: Tensor) -> None:
        """Sums over the ranks, in place."""
        with _peers():
            dist.all_reduce(values, group=self._fast if values.is_cuda else None)

    def sum(self, numbers: Sequence[float]) -> list[float]:
        told = torch.tensor(numbers, dtype=torch.float64)
        self.all_reduce(told)
        return list(told.tolist())

    def gather(self, thing: T) -> list[T]:
        out: list[Any] = [None] * self.size
        with _peers():
            dist.all_gather_object(out, thing)
        return out

    def on_first(self, make: Callable[[], T]) -> T:
        told: list[Any] = [make() if self.first else None]
        with _peers():
            dist.broadcast_object_list(told, src=0)
        out: T = told[0]
        return out

    def collect(self, parts: Mapping[K, T]) -> dict[K, T]:
        out: list[Any] | None = [None] * self.size if self.first else None
        with _peers():
            dist.gather_object(dict(parts), out, dst=0)
        return join_parts(out or [])

    def add_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        having = self.sum([float(p.grad is not None) for p in parameters])
        used = [p for p, n in zip(parameters, having, strict=True) if n]
        for parameter in used:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        for bucket in buckets(used):
            flat = torch.cat([p.grad.reshape(-1) for p in bucket if p.grad is not None])
            self.all_reduce(flat)
            sizes = [p.numel() for p in bucket]
            for parameter, part in zip(bucket, flat.split(sizes), strict=True):
                assert parameter.grad is not None
                parameter.grad.copy_(part.view_as(parameter))

    def check_same(self, parameters: Sequence[Tensor], *, when: str) -> None:
        found = self.gather(bit_sums(parameters))
        apart = [rank for rank, sums in enumerate(found) if sums != found[0]]
        if apart:
            raise HarnessError(
                f"the weights of rank {apart[0]} are not those of rank 0 {when}: something in the cell "
                "depends on the rank; run it with trainer.devices=1"
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
    """One mapping of several without a common key.

    Raises:
        AssertionError: a key is in two of them.
    """
    out: dict[K, T] = {}
    for part in parts:
        twice = out.keys() & part.keys()
        if twice:
            raise AssertionError(f"predicted by two ranks: {sorted(map(str, twice))[:3]}")
        out.update(part)
    return out


def buckets(parameters: Sequence[nn.Parameter], *, most: int = BUCKET) -> list[list[nn.Parameter]]:
    """Neighbours of one type of number on one device, at most ``most`` numbers (one parameter at least)."""
    out: list[list[nn.Parameter]] = []
    held = 0
    for p in parameters:
        like = out and (out[-1][0].dtype, out[-1][0].device) == (p.dtype, p.device)
        if like and held + p.numel() <= most:
            out[-1].append(p)
            held += p.numel()
        else:
            out.append([p])
            held = p.numel()
    return out


def bit_sums(parameters: Sequence[Tensor]) -> list[int]:
    """The sum of each tensor's words of four bytes (bytes where its numbers are of another size) as whole
    numbers: equal for equal tensors, cheap on any device."""
    sums = []
    for p in parameters:
        flat = p.detach().reshape(-1)
        words = flat.view(torch.int32 if p.element_size() == 4 else torch.uint8)
        sums.append(words.sum(dtype=torch.int64))
    return [int(n) for n in torch.stack(sums).tolist()] if sums else []


def join(rank: int, size: int, *, port: int, listener: int | None, accelerator: str) -> Group:
    """Meet the other ranks on this machine.

    Args:
        port: of 127.0.0.1, where the first rank listens.
        listener: the first rank's file descriptor of the socket that is bound to it; None elsewhere.
        accelerator: as ``trainer.accelerator``.

    Raises:
        HarnessError: there are fewer devices than ranks.
    """
    cuda = accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available()
    if cuda:
        _take_device(rank, size)
    elif accelerator == "mps" or (accelerator != "cpu" and torch.backends.mps.is_available()):
        raise HarnessError(f"trainer.devices={size}: there is one mps device; give trainer.accelerator=cpu")
    if sys.platform == "linux":  # the ranks share a machine, whatever its name resolves to
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with _peers():
        store = dist.TCPStore(
            "127.0.0.1", port, size, is_master=rank == 0, timeout=PATIENCE, master_listen_fd=listener
        )
        dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=PATIENCE)
        fast = dist.new_group(backend="nccl", timeout=PATIENCE) if cuda and dist.is_nccl_available() else None
    return Group(rank, size, fast=fast)


def _take_device(rank: int, size: int) -> None:
    count = torch.cuda.device_count()
    if count < size:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "all")
        raise HarnessError(
            f"trainer.devices={size}: the cell's slot has {count} (CUDA_VISIBLE_DEVICES={visible}); give "
            "slots of as many devices (hydra.launcher.slots) or a smaller number"
        )
    torch.cuda.set_device(rank)


@contextlib.contextmanager
def _peers() -> Iterator[None]:
    """What fails in talking to the other ranks is their end, not this one's."""
    try:
        yield
    except HarnessError:
        raise
    except (RuntimeError, ValueError, OSError) as e:
        raise PeerLost(f"another rank is gone ({type(e).__name__}: {str(e).splitlines()[0][:200]})") from e
