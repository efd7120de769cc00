"""Layers of a transformer and the parameters before and after them, observed in one run on a few tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle
    from transformers import PreTrainedModel

EMBEDDINGS = "embeddings"


def embedding_table(model: PreTrainedModel) -> nn.Parameter:
    """Return the input embedding table, (V, H)."""
    weight = model.get_input_embeddings().weight
    assert isinstance(weight, nn.Parameter)
    return weight


@dataclass(frozen=True)
class Structure:
    """The properties of a model observed in a run on a few tokens.

    Attributes:
        hidden_size: H.
        num_layers: L.
        causal: whether states never depend on later tokens.
        layers: path of the module list with the layers.
        parallel: paths of all lists that hold a part of each layer, ``layers`` among them.
        distinct: length of this list.
        after: module path -> number of layers started before it ran, for modules outside the lists.
        tables: paths of the embedding tables.
        mixable: whether all layers have the width of the last one, so that they can be mixed.
    """

    hidden_size: int
    num_layers: int
    causal: bool
    layers: str
    parallel: tuple[str, ...]
    distinct: int
    after: dict[str, int]
    tables: frozenset[str]
    mixable: bool = True

    def group_of(self, name: str) -> int:
        """Return the group of a parameter: 0 for the embeddings, 1 + i for layer i."""
        if name == "added":
            return 0
        path = name.rpartition(".")[0]
        for layers in self.parallel:
            if path.startswith(f"{layers}."):
                return 1 + int(path[len(layers) + 1 :].partition(".")[0])
        if path in self.tables or self._embeds(name):
            return 0
        return self.after.get(path, self.distinct)

    def _embeds(self, name: str) -> bool:
        """Classify parameters of modules that are never called by their name."""
        path = name.rpartition(".")[0]
        return path not in self.after and "emb" in name


def layer_list(model: nn.Module) -> tuple[str, nn.ModuleList]:
    """Return path and module list of the layers: the top-level list with the most parameters.

    Raises:
        ValueError: the model has no list of modules.
    """
    lists = _top_lists(model)
    if not lists:
        raise ValueError(f"{type(model).__name__} has no list of layers")
    return max(lists, key=lambda entry: sum(p.numel() for p in entry[1].parameters()))


def _top_lists(model: nn.Module) -> list[tuple[str, nn.ModuleList]]:
    """Return the module lists that are not inside another one."""
    out: list[tuple[str, nn.ModuleList]] = []
    for path, module in model.named_modules():
        if isinstance(module, nn.ModuleList) and not any(path.startswith(f"{p}.") for p, _ in out):
            out.append((path, module))
    return out


def parallel_lists(model: nn.Module) -> list[tuple[str, nn.ModuleList]]:
    """Return the list of the layers and the lists beside it of the same length.

    XLM has no module for a layer: layer 1 is ``attentions.1``, ``layer_norm1.1``, ``ffns.1`` and
    ``layer_norm2.1``.
    """
    path, layers = layer_list(model)
    parent = path.rpartition(".")[0]
    beside = [
        (p, m) for p, m in _top_lists(model) if p.rpartition(".")[0] == parent and len(m) == len(layers)
    ]
    return beside if len(layers) > 1 else [(path, layers)]


class LayerOrder:
    """Counts the layers that have started whenever another module runs."""

    def __init__(self, model: nn.Module) -> None:
        self.lists = parallel_lists(model)
        self.after: dict[str, int] = {}
        self._model = model
        self._started = 0

    @contextmanager
    def observed(self) -> Iterator[None]:
        """Observe the runs of the model in this context."""
        handles: list[RemovableHandle] = []
        for name, module in self._model.named_modules():
            layer = self._layer_of(name)
            if layer is not None:
                handles.append(module.register_forward_pre_hook(self._start(layer)))
            elif name and next(module.parameters(recurse=False), None) is not None:
                handles.append(module.register_forward_pre_hook(self._record(name)))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _layer_of(self, name: str) -> int | None:
        """Return the number of the layer that a module is or belongs to: some models call only its parts."""
        for path, _ in self.lists:
            if name.startswith(f"{path}."):
                return int(name[len(path) + 1 :].partition(".")[0])
        return None

    def _start(self, layer: int) -> Callable[..., None]:
        def hook(*_: object) -> None:
            self._started = max(self._started, layer + 1)

        return hook

    def _record(self, path: str) -> Callable[..., None]:
        def hook(*_: object) -> None:
            self.after.setdefault(path, self._started)

        return hook


def structure_of(order: LayerOrder, states: Tensor, layers: Sequence[Tensor], model: nn.Module) -> Structure:
    """Return the structure observed in a run of three rows (see :func:`reading_direction`).

    Args:
        order: observed the run.
        states: (3, 2, H) of the run.
        layers: its hidden states.
        model: the model.
    """
    (path, modules), lists = layer_list(model), order.lists
    return Structure(
        hidden_size=states.shape[-1],
        num_layers=len(layers) - 1,
        causal=reading_direction(states) == "causal",
        layers=path,
        parallel=tuple(p for p, _ in lists),
        distinct=len(modules),
        after=order.after,
        tables=frozenset(n for n, m in model.named_modules() if isinstance(m, nn.Embedding)),
        mixable=len({layer.shape for layer in layers} | {states.shape}) == 1,
    )


def reading_direction(states: Tensor) -> str:
    """Return ``bidirectional``, ``causal`` or ``none``: which tokens a state depends on.

    Args:
        states: (3, 2, H) of the rows [a, b], [a, c] and [c, b] of tokens with different vectors.
    """
    later, earlier = (states[0] - states[1]).abs().amax(-1), (states[0] - states[2]).abs().amax(-1)
    if bool(later[0] > 1e-5 * later[1]):
        return "bidirectional"
    return "causal" if bool(earlier[1] > 1e-5 * earlier[0]) else "none"


def distinct_ids(table: Tensor, number: int, *, avoid: Sequence[int] = ()) -> list[int]:
    """Return ``number`` ids whose vectors differ from each other, spread over the table; fewer if there are
    no more among 256 of its rows.

    Args:
        table: (V, H).
        number: how many.
        avoid: ids to leave out, such as those of special tokens.
    """
    step = max(1, len(table) // 256)
    excluded = set(avoid)
    # from the middle, where ids are words: the first ids are special tokens or bytes in many vocabularies
    order = [i % len(table) for i in range(len(table) // 2, len(table) // 2 + len(table), step)]
    out: list[int] = []
    for i in order:
        if i not in excluded and not any(torch.equal(table[i], table[j]) for j in out):
            out.append(i)
            if len(out) == number:
                break
    return out
