"""Transformers of any architecture that ``AutoModel`` knows, as encoders over tokens.

Nothing here names an architecture. What must be known of one is found in its structure or by running it
once on a few tokens: which of its modules are layers, which parameters come before and after them, how
positions are counted, whether it looks ahead.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from harness.core.fingerprint import data_fingerprint
from harness.data.tokens import EncoderOutput, TokenBatch
from harness.encoders.base import Encoder, Group
from harness.encoders.transformer.tokenizer import HFTokenizer

EMBEDDINGS = "embeddings"


class TransformerEncoder(Encoder):
    """A transformer and its tokenizer.

    Args:
        model: a ``PreTrainedModel`` without a task head.
        tokenizer: see :class:`HFTokenizer`.
        name: as in the configuration.
        pooling: ``cls`` or ``last``.
        identity: gives the hex digest of files and options, which takes reading them all, so it waits until
            it is asked for; None = of the weights as they are then.
        added: number of tokens beyond the model's table that rows may hold (GPT's start, delimiter, extract).
            Their vectors start as the mean of the table, so that nothing of them depends on a seed, and are
            kept apart from it.
    """

    def __init__(
        self,
        model: Any,
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
        table = model.get_input_embeddings().weight
        self.added = (
            nn.Parameter(table.detach().mean(0, keepdim=True).repeat(added, 1).to(table.dtype))
            if added
            else None
        )
        self.structure = trace(self)
        self.hidden_size, self.num_layers = self.structure.hidden_size, self.structure.num_layers

    def forward(self, tokens: TokenBatch, *, all_layers: bool = False) -> EncoderOutput:
        mask = tokens.mask
        inputs: dict[str, Any] = {"attention_mask": mask.long(), "return_dict": True}
        if "position_ids" in self._takes:
            # counted over real tokens, so that padding on either side changes nothing
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
        table = self.model.get_input_embeddings()
        size = table.weight.shape[0]
        known = table(ids.clamp(max=size - 1))
        extra = F.embedding((ids - size).clamp(min=0), self.added)
        return {"inputs_embeds": torch.where((ids >= size)[..., None], extra.to(known.dtype), known)}

    def layer_groups(self) -> list[Group]:
        """[0] everything before the first layer, then the layers, each with what runs after it and before the
        next; the last one has the final norm and the pooler, too. Layers that share weights are one group."""
        names = [EMBEDDINGS, *(f"layer_{i}" for i in range(self.structure.distinct))]
        groups: list[Group] = [(name, []) for name in names]
        for name, parameter in self.named_parameters():
            groups[self.structure.place(name)][1].append(parameter)
        return groups

    def embedding_encoder(self) -> TableEncoder:
        table = self.model.get_input_embeddings().weight
        return TableEncoder(table, self.tokenizer.table(), name=self.name, identity=self._derived)

    def _derived(self) -> str:
        return data_fingerprint([self.fingerprint(), "embedding table"])

    def fingerprint(self) -> str:
        if self._identity is not None:
            return self._identity()
        digest = hashlib.sha256()
        for name, tensor in self.state_dict().items():
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().data)
        return digest.hexdigest()

    def gradient_checkpointing(self) -> None:
        """Recompute each layer in the backward pass, without reentrance: with reentrant checkpoints frozen
        bottom layers would cut the gradient of those above. No-op where the architecture has none."""
        if not self.model.supports_gradient_checkpointing:
            return
        options = {"use_reentrant": False}
        if hasattr(self.model, "activation_checkpointing_enable"):
            self.model.activation_checkpointing_enable(activation_checkpointing_kwargs=options)
        else:
            self.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=options)


class TableEncoder(Encoder):
    """A sub-word embedding table alone: no positions, no context, no special tokens, rows of any length.

    Args:
        weight: (V, H), shared with the model it comes from, not copied.
        tokenizer: without special tokens.
        identity: gives the fingerprint.
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


def reserved_positions(model: nn.Module) -> int:
    """Rows of the position table that stand for no position: RoBERTa counts from its padding index + 1."""
    words = model.get_input_embeddings()  # type: ignore[operator]
    for name, module in model.named_modules():
        tail = name.rpartition(".")[2]
        if "position" in tail and isinstance(module, nn.Embedding) and module is not words:
            return 0 if module.padding_idx is None else module.padding_idx + 1
    return 0


def position_limit(model: Any) -> int | None:
    """Most tokens of a row: what the configuration's position table holds less what is reserved in it."""
    size = getattr(model.config, "max_position_embeddings", None)
    return None if not size or size < 0 else int(size) - reserved_positions(model)


@dataclass(frozen=True)
class Structure:
    """What a run on a few tokens tells about a model.

    Attributes:
        hidden_size: H; num_layers: L; causal: whether states never depend on later tokens.
        layers: path of the module list that holds the layers; ``distinct`` its length.
        after: module path -> number of layers begun when it ran, for modules outside the list.
        tables: paths of the embedding tables.
    """

    hidden_size: int
    num_layers: int
    causal: bool
    layers: str
    distinct: int
    after: dict[str, int]
    tables: frozenset[str]

    def place(self, name: str) -> int:
        """Group of a parameter by its name: 0 the embeddings, 1 + i layer i."""
        if name == "added":
            return 0
        path = name.rpartition(".")[0]
        if path.startswith(f"{self.layers}."):
            return 1 + int(path[len(self.layers) + 1 :].partition(".")[0])
        if path in self.tables or self._embeds(name):
            return 0
        return self.after.get(path, self.distinct)

    def _embeds(self, name: str) -> bool:
        """Parameters of a module that never runs as one: only their name tells."""
        path = name.rpartition(".")[0]
        return path not in self.after and "emb" in name


def layer_list(model: nn.Module) -> tuple[str, nn.ModuleList]:
    """Path and module list of a model's layers: of those in no other list, the one with most parameters."""
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
    """Run ``encoder`` on two rows of two tokens that differ in the second, and watch its modules run."""
    path, layers = layer_list(encoder)
    begun = 0
    after: dict[str, int] = {}
    handles = []

    def starts(*_: Any) -> None:
        nonlocal begun
        begun += 1

    def ran(where: str) -> Callable[..., None]:
        def hook(*_: Any) -> None:
            after.setdefault(where, begun)

        return hook

    for name, module in encoder.named_modules():
        if name.startswith(f"{path}."):
            if module in list(layers):
                handles.append(module.register_forward_pre_hook(starts))
        elif next(module.parameters(recurse=False), None) is not None and name:
            handles.append(module.register_forward_pre_hook(ran(name)))
    was, _ = encoder.training, encoder.eval()
    try:
        out = encoder(_two_rows(encoder), all_layers=True)
    finally:
        encoder.train(was)
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
    table = encoder.model.get_input_embeddings().weight
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
    """(2, 2, H) states of two rows that differ in their second token only."""
    change = (states[0] - states[1]).abs().amax(-1)
    return bool(change[0] <= 1e-5 * change[1])
