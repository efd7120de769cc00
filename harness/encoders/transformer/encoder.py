"""Transformers of any architecture that ``AutoModel`` supports, as encoders.

This module does not depend on specific architectures. The necessary properties are derived from the module
structure or by running the model once on a few tokens: the layers, the parameters before and after them, the
numbering of positions, and whether attention is causal.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from harness.core.fingerprint import data_fingerprint
from harness.data.tokens import EncoderOutput, TokenBatch
from harness.encoders.base import Encoder, Group
from harness.encoders.parameters import weights_fingerprint
from harness.encoders.transformer.tokenizer import HFTokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedModel

EMBEDDINGS = "embeddings"


class TransformerEncoder(Encoder):
    """A transformer and its tokenizer.

    Args:
        model: a ``PreTrainedModel`` without a task head.
        tokenizer: see :class:`HFTokenizer`.
        name: name in the configuration.
        pooling: ``cls`` or ``last``.
        identity: computes the hex digest of files and options, on demand since it reads all files; None =
            digest of the current weights.
        added: number of tokens beyond the model's table (GPT's start, delimiter and extract tokens). Their
            vectors are stored separately and initialised with the mean of the table, independently of any
            seed.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: HFTokenizer,
        *,
        name: str,
        pooling: str,
        identity: Callable[[], str] | None,
        added: int = 0,
    ) -> None:
        super().__init__()
        self.model = model
        self.tokenizer: HFTokenizer = tokenizer
        self.name, self.pooling, self.pairs = name, pooling, "joint"
        self.max_length = tokenizer.max_length
        self.has_pooler = getattr(model, "pooler", None) is not None
        self._identity = identity
        self._takes = frozenset(inspect.signature(model.forward).parameters)
        self._first_position = reserved_positions(model)
        table = embedding_table(model)
        self.added = (
            nn.Parameter(table.detach().mean(0, keepdim=True).repeat(added, 1).to(table.dtype))
            if added
            else None
        )
        self.structure = trace(self)
        self.hidden_size, self.num_layers = self.structure.hidden_size, self.structure.num_layers

    def forward(self, tokens: TokenBatch, *, all_layers: bool = False) -> EncoderOutput:
        mask = tokens.mask
        inputs: dict[str, Tensor | bool] = {"attention_mask": mask.long(), "return_dict": True}
        if "position_ids" in self._takes:
            # counted over real tokens, so that padding on either side has no effect:
            # mask [0, 1, 1] gives the positions [0, 0, 1]
            inputs["position_ids"] = (mask.long().cumsum(1) - 1).clamp(min=0) + self._first_position
        if "token_type_ids" in tokens.inputs:
            inputs["token_type_ids"] = tokens.inputs["token_type_ids"]
        inputs |= self._embedded(tokens.inputs["input_ids"])
        out = self.model(output_hidden_states=all_layers, **inputs)
        return EncoderOutput(
            last_hidden_state=out.last_hidden_state,
            hidden_states=torch.stack(out.hidden_states) if all_layers else None,
            pooler_output=out.pooler_output if self.has_pooler else None,
        )

    def _embedded(self, ids: Tensor) -> dict[str, Tensor]:
        if self.added is None:
            return {"input_ids": ids}
        size = len(embedding_table(self.model))
        known = self.model.get_input_embeddings()(ids.clamp(max=size - 1))
        extra = F.embedding((ids - size).clamp(min=0), self.added)
        return {"inputs_embeds": torch.where((ids >= size)[..., None], extra.to(known.dtype), known)}

    def layer_groups(self) -> list[Group]:
        """Return [0] everything before the first layer, then the layers.

        A layer's group includes modules that run after it and before the next layer; the last group includes
        the final norm and the pooler. Layers that share weights form one group.
        """
        names = [EMBEDDINGS, *(f"layer_{i}" for i in range(self.structure.distinct))]
        groups: list[Group] = [(name, []) for name in names]
        for name, parameter in self.named_parameters():
            groups[self.structure.group_of(name)][1].append(parameter)
        return groups

    def embedding_encoder(self) -> TableEncoder:
        return TableEncoder(
            embedding_table(self.model), self.tokenizer.table(), name=self.name, identity=self._derived
        )

    def _derived(self) -> str:
        return data_fingerprint([self.fingerprint(), "embedding table"])

    def fingerprint(self) -> str:
        if self._identity is not None:
            return self._identity()
        return weights_fingerprint(self)

    def gradient_checkpointing(self) -> None:
        """Recompute each layer in the backward pass; a no-op if the architecture does not support it.

        Non-reentrant: with reentrant checkpoints, frozen bottom layers would block the gradient of the layers
        above.
        """
        if not self.model.supports_gradient_checkpointing:
            return
        options = {"use_reentrant": False}
        if hasattr(self.model, "activation_checkpointing_enable"):
            self.model.activation_checkpointing_enable(activation_checkpointing_kwargs=options)
        else:
            self.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=options)  # type: ignore[no-untyped-call]


class TableEncoder(Encoder):
    """A subword embedding table alone: no positions, no context, no special tokens, rows of any length.

    Args:
        weight: (V, H), shared with the model, not copied.
        tokenizer: without special tokens.
        identity: computes the fingerprint.
    """

    def __init__(
        self, weight: nn.Parameter, tokenizer: HFTokenizer, *, name: str, identity: Callable[[], str]
    ) -> None:
        super().__init__()
        self.weight = weight
        self.tokenizer: HFTokenizer = tokenizer
        self.name, self.hidden_size, self.num_layers = name, weight.shape[1], 0
        self.max_length, self.pooling, self.pairs = None, "mean", "separate"
        self._identity = identity

    def forward(self, tokens: TokenBatch, *, all_layers: bool = False) -> EncoderOutput:
        states = F.embedding(tokens.inputs["input_ids"], self.weight) * tokens.mask[..., None]
        return EncoderOutput(last_hidden_state=states, hidden_states=states[None] if all_layers else None)

    def layer_groups(self) -> list[Group]:
        return [(EMBEDDINGS, [self.weight])]

    def embedding_encoder(self) -> TableEncoder:
        return self

    def fingerprint(self) -> str:
        return self._identity()


def embedding_table(model: PreTrainedModel) -> nn.Parameter:
    """Return the input embedding table, (V, H)."""
    weight = model.get_input_embeddings().weight
    assert isinstance(weight, nn.Parameter)
    return weight


def reserved_positions(model: nn.Module) -> int:
    """Return the number of unused rows of the position table: RoBERTa counts from its padding index + 1."""
    words = model.get_input_embeddings()  # type: ignore[operator]
    for name, module in model.named_modules():
        tail = name.rpartition(".")[2]
        if "position" in tail and isinstance(module, nn.Embedding) and module is not words:
            return 0 if module.padding_idx is None else module.padding_idx + 1
    return 0


def position_limit(model: PreTrainedModel) -> int | None:
    """Return the maximum row length: the size of the position table minus its reserved rows; None = no
    limit."""
    size = getattr(model.config, "max_position_embeddings", None)
    return None if not size or size < 0 else int(size) - reserved_positions(model)


@dataclass(frozen=True)
class Structure:
    """The properties of a model observed in a run on a few tokens.

    Attributes:
        hidden_size: H.
        num_layers: L.
        causal: whether states never depend on later tokens.
        layers: path of the module list with the layers.
        distinct: length of this list.
        after: module path -> number of layers started before it ran, for modules outside the list.
        tables: paths of the embedding tables.
    """

    hidden_size: int
    num_layers: int
    causal: bool
    layers: str
    distinct: int
    after: dict[str, int]
    tables: frozenset[str]

    def group_of(self, name: str) -> int:
        """Return the group of a parameter: 0 for the embeddings, 1 + i for layer i."""
        if name == "added":
            return 0
        path = name.rpartition(".")[0]
        if path.startswith(f"{self.layers}."):
            return 1 + int(path[len(self.layers) + 1 :].partition(".")[0])
        if path in self.tables or self._embeds(name):
            return 0
        return self.after.get(path, self.distinct)

    def _embeds(self, name: str) -> bool:
        """Classify parameters of modules that are never called by their name."""
        path = name.rpartition(".")[0]
        return path not in self.after and "emb" in name


def layer_list(model: nn.Module) -> tuple[str, nn.ModuleList]:
    """Return path and module list of the layers: the top-level list with the most parameters."""
    best: tuple[int, str, nn.ModuleList] | None = None
    inside: list[str] = []
    for path, module in model.named_modules():
        if not isinstance(module, nn.ModuleList) or any(path.startswith(f"{p}.") for p in inside):
            continue
        inside.append(path)
        size = sum(p.numel() for p in module.parameters())
        if best is None or size > best[0]:
            best = (size, path, module)
    if best is None:
        raise ValueError(f"{type(model).__name__} has no list of layers")
    return best[1], best[2]


@torch.no_grad()
def trace(encoder: TransformerEncoder) -> Structure:
    """Run ``encoder`` on two rows of two tokens that differ in the second, and record the order of
    modules."""
    path, layers = layer_list(encoder)
    started = 0
    after: dict[str, int] = {}
    handles = []

    def count_layer(*_: object) -> None:
        nonlocal started
        started += 1

    def record_order(path_of_module: str) -> Callable[..., None]:
        def hook(*_: object) -> None:
            after.setdefault(path_of_module, started)

        return hook

    for name, module in encoder.named_modules():
        if name.startswith(f"{path}."):
            if module in list(layers):
                handles.append(module.register_forward_pre_hook(count_layer))
        elif next(module.parameters(recurse=False), None) is not None and name:
            handles.append(module.register_forward_pre_hook(record_order(name)))
    training = encoder.training
    encoder.eval()
    try:
        out = encoder(_two_rows(encoder), all_layers=True)
    finally:
        encoder.train(training)
        for handle in handles:
            handle.remove()
    distinct = len(layers)
    return Structure(
        hidden_size=out.last_hidden_state.shape[-1],
        num_layers=len(out.hidden_states) - 1,
        causal=_is_causal(out.last_hidden_state),
        layers=path,
        distinct=distinct,
        after={name: min(count, distinct) for name, count in after.items()},
        tables=frozenset(n for n, m in encoder.named_modules() if isinstance(m, nn.Embedding)),
    )


def _two_rows(encoder: TransformerEncoder) -> TokenBatch:
    table = embedding_table(encoder.model)
    ids = torch.tensor([[1, 1], [1, 2]], device=table.device).clamp(max=len(table) - 1)
    ones = torch.ones_like(ids)
    inputs = {"input_ids": ids} | ({"token_type_ids": ones * 0} if encoder.tokenizer.types else {})
    none = torch.zeros(2, dtype=torch.long)
    return TokenBatch(
        inputs,
        ones.bool(),
        ones,
        torch.stack([ones, ones], -1),
        ones,
        word_to_token=ones,
        example=none,
        window=none,
    )


def _is_causal(states: Tensor) -> bool:
    """Return whether the first token's state ignores the second token, given states (2, 2, H) of two such
    rows."""
    change = (states[0] - states[1]).abs().amax(-1)
    return bool(change[0] <= 1e-5 * change[1])
