"""Transformers of any architecture that ``AutoModel`` supports, as encoders.

This module does not depend on specific architectures. The necessary properties are found out by running the
model on a few tokens (:mod:`harness.encoders.transformer.probe`): the layers, the parameters before and after
them, the numbering of positions, whether attention is causal, and whether padding changes the states.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from harness.core.fingerprint import data_fingerprint
from harness.data.tokens import EncoderOutput, TokenBatch
from harness.encoders.base import Encoder, Group
from harness.encoders.parameters import weights_fingerprint
from harness.encoders.transformer.probe import probe
from harness.encoders.transformer.structure import EMBEDDINGS, embedding_table
from harness.encoders.transformer.tokenizer import HFTokenizer
from harness.errors import HarnessError

if TYPE_CHECKING:
    from transformers import PreTrainedModel


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
            seed, at the scale that the model gives to its embeddings.
        source: the checkpoint, for messages.

    Attributes:
        structure: its layers; see :class:`~harness.encoders.transformer.structure.Structure`.
        explicit_positions: positions are counted over the real tokens and given to the model, so that padding
            on either side has no effect; False = the model counts them by itself.
        equal_lengths: padding changes this model's states, so rows of different lengths are run separately.
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
        source: str = "",
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
        self.added = _added_vectors(model, added) if added else None
        self.explicit_positions, self.equal_lengths = "position_ids" in self._takes, False
        label = f"{source or name}: {_article(model.config.model_type)}"
        self.structure = probe(self, label)
        self.hidden_size, self.num_layers = self.structure.hidden_size, self.structure.num_layers

    def forward(self, tokens: TokenBatch, *, all_layers: bool = False) -> EncoderOutput:
        if all_layers and not self.structure.mixable:
            raise HarnessError(
                f"encoder.layers: the layers of {self.name} have other widths than its output; use "
                f"encoder.layers=top"
            )
        if self.equal_lengths:
            return self._by_length(tokens, all_layers=all_layers)
        return self._run(tokens.inputs, tokens.mask, all_layers=all_layers)

    def raw_layers(self, tokens: TokenBatch) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return the states (B, S, H) and the model's hidden states, whose shapes may differ."""
        out = self.model(output_hidden_states=True, **self._model_inputs(tokens.inputs, tokens.mask))
        return out.last_hidden_state, out.hidden_states

    def _by_length(self, tokens: TokenBatch, *, all_layers: bool) -> EncoderOutput:
        """Run the rows of each length without padding, and pad their states with zeros."""
        mask = tokens.mask
        lengths = mask.sum(1)
        parts = []
        for length in sorted(set(lengths.tolist())):
            rows = (lengths == length).nonzero()[:, 0]
            inside = mask[rows]
            if length:
                inputs = {
                    k: v[rows][inside].reshape(len(rows), length, *v.shape[2:])
                    for k, v in tokens.inputs.items()
                }
                parts.append((rows, self._run(inputs, inputs["input_ids"] >= 0, all_layers=all_layers)))
        return _joined(parts, mask)

    def _run(self, inputs: Mapping[str, Tensor], mask: Tensor, *, all_layers: bool) -> EncoderOutput:
        out = self.model(output_hidden_states=all_layers, **self._model_inputs(inputs, mask))
        return EncoderOutput(
            last_hidden_state=out.last_hidden_state,
            hidden_states=torch.stack(out.hidden_states) if all_layers else None,
            pooler_output=out.pooler_output if self.has_pooler else None,
        )

    def _model_inputs(self, inputs: Mapping[str, Tensor], mask: Tensor) -> dict[str, Tensor | bool]:
        out: dict[str, Tensor | bool] = {"attention_mask": mask.long(), "return_dict": True}
        if self.explicit_positions:
            # counted over real tokens, so that padding on either side has no effect:
            # mask [0, 1, 1] gives the positions [0, 0, 1]
            out["position_ids"] = (mask.long().cumsum(1) - 1).clamp(min=0) + self._first_position
        if "token_type_ids" in inputs:
            out["token_type_ids"] = inputs["token_type_ids"]
        return out | self._embedded(inputs["input_ids"])

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


def _added_vectors(model: PreTrainedModel, number: int) -> nn.Parameter:
    """Return (number, H) copies of the mean of the table, at the scale of the embedding module's output."""
    table = embedding_table(model).detach()
    mean = table.mean(0, keepdim=True)
    row = int(table.norm(dim=-1).argmax())
    embedded = model.get_input_embeddings()(torch.tensor([row], device=table.device)).detach()[0]
    if not torch.equal(embedded, table[row]):  # Gemma and others multiply their vectors by sqrt(H)
        mean = mean * (embedded.norm() / table[row].norm())
    return nn.Parameter(mean.repeat(number, 1).to(table.dtype))


def _joined(parts: Sequence[tuple[Tensor, EncoderOutput]], mask: Tensor) -> EncoderOutput:
    """Join the outputs of some rows each, without padding, to those of a batch with the mask (B, S)."""
    first = parts[0][1]
    states = first.last_hidden_state.new_zeros(*mask.shape, first.last_hidden_state.shape[-1])
    layers = pooled = None
    if first.hidden_states is not None:
        layers = states.new_zeros(len(first.hidden_states), *states.shape)
    if first.pooler_output is not None:
        pooled = states.new_zeros(len(mask), first.pooler_output.shape[-1])
    for rows, out in parts:
        at = torch.zeros_like(mask)
        at[rows] = mask[rows]
        states[at] = out.last_hidden_state.flatten(0, 1)
        if layers is not None and out.hidden_states is not None:
            layers[:, at] = out.hidden_states.flatten(1, 2)
        if pooled is not None and out.pooler_output is not None:
            pooled[rows] = out.pooler_output
    return EncoderOutput(last_hidden_state=states, hidden_states=layers, pooler_output=pooled)


def _article(kind: str) -> str:
    return f"an {kind}" if kind[:1] in "aeiou" else f"a {kind}"


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
