"""Judge which of a checkpoint's weights were used: all of the encoder must be there, and nothing
inside it may be dropped."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from harness.encoders.transformer.structure import layer_list
from harness.errors import HarnessError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

POOLER = "pooler"
_CONSTANTS = re.compile(
    r"(?:^|\.)(?:position_ids|token_type_ids|inv_freq|masked_bias|attn\.bias|attention\.bias|num_batches_tracked)$"
)
"""Buffers that old checkpoints contain although they are computed from the configuration."""


@dataclass(frozen=True, slots=True)
class LoadReport:
    """The weights that the file and the model do not share.

    Attributes:
        missing: weights of the model that the file lacks.
        mismatched: weights of another shape in the file.
        unexpected: weights of the file that the model lacks.
    """

    missing: frozenset[str]
    mismatched: frozenset[str]
    unexpected: frozenset[str]

    @property
    def has_pooler(self) -> bool:
        """Whether the file contains the whole pooler."""
        return not any(of_pooler(key) for key in self.missing | self.mismatched)

    def check(self, model: PreTrainedModel, folder: Path) -> None:
        """Refuse weights that do not cover the encoder, or of which a part inside the encoder is not used.

        Raises:
            HarnessError: names the weights.
        """
        missing = {k for k in self.missing | self.mismatched if not of_pooler(k)}
        inside = sorted(k for k in self.unexpected if is_inside(k, model))
        if missing:
            total = len(model.state_dict())
            unused = f"; in the encoder but not used: {_shown(inside)}" if inside else ""
            raise HarnessError(
                f"{folder}: {total - len(missing)} of {total} weights of a "
                f"{model.config.model_type} matched, "
                f"{len(missing - self.mismatched)} missing, {len(self.mismatched & missing)} of another "
                f"shape, {len(self.unexpected)} unexpected (first missing: {_shown(missing)}){unused}: "
                "these weights and config.json are not of one model"
            )
        self._check_layers(model, folder)
        if inside:
            raise HarnessError(
                f"{folder}: {len(inside)} weights inside the encoder are not used by transformers' "
                f"{model.config.model_type} ({_shown(inside)}): its states would be wrong; merge adapters "
                "into the model, or use a version of transformers that implements these weights"
            )

    def _check_layers(self, model: PreTrainedModel, folder: Path) -> None:
        path, layers = layer_list(model)
        pattern = re.compile(rf"(?:^|\.){re.escape(path)}\.(\d+)\.")
        beyond = [int(m[1]) for k in self.unexpected if (m := pattern.search(k)) and int(m[1]) >= len(layers)]
        if beyond:
            raise HarnessError(
                f"{folder}: the weights have {max(beyond) + 1} layers, config.json says "
                f"{len(layers)}: correct "
                "config.json"
            )


def is_inside(key: str, model: PreTrainedModel) -> bool:
    """Return whether a weight of the file that the model lacks lies within the encoder, not in a head.

    A key is inside if it begins like the model's own parts, with or without the prefix that models with a
    head put before them: ``encoder.layer.0.x`` and ``bert.encoder.layer.0.x``, but not ``cls.x``.
    """
    if _CONSTANTS.search(key):
        return False
    prefix = f"{model.base_model_prefix}."
    inner = key.removeprefix(prefix) if model.base_model_prefix else key
    first = inner.partition(".")[0]
    return first != POOLER and first in {name for name, _ in model.named_children()} | {
        name.partition(".")[0] for name in model.state_dict()
    }


def of_pooler(key: str) -> bool:
    """Return whether a weight belongs to the pooler."""
    return key.startswith(f"{POOLER}.")


def _shown(keys: Iterable[str]) -> str:
    return ", ".join(sorted(keys)[:3])
