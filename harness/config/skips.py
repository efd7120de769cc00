"""Cells that make no sense, or equal others: the reasons, found in the resolved configuration alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.strategies.adapt import reason_against
from harness.strategies.strategy import Strategy


def is_table(encoder: Mapping[str, Any]) -> bool:
    """Whether an encoder is nothing but an embedding table, or joins nothing but such."""
    members = [m for m in (encoder.get("members") or {}).values() if isinstance(m, Mapping)]
    return bool(encoder.get("table")) or (bool(members) and all(is_table(m) for m in members))


def has_table(encoder: Mapping[str, Any]) -> bool:
    """Whether an encoder is or has as a member a table: the cell's seed draws its unknown word."""
    members = [m for m in (encoder.get("members") or {}).values() if isinstance(m, Mapping)]
    return bool(encoder.get("table")) or any(has_table(m) for m in members)


def reason_to_skip(resolved: Mapping[str, Any], *, n_texts: int) -> str | None:
    """Why the cell makes no sense or equals another one; None when it should run."""
    encoder, strategy, body = (
        resolved["encoder"],
        Strategy.from_config(resolved["strategy"]),
        resolved["body"],
    )
    name, layers = encoder["name"], encoder["layers"]
    if encoder.get("table") and strategy.transfer == "encoder" and not strategy.frozen:
        return (
            f"{name} is an embedding table: strategy={strategy.name} would be the same cell as embedding_init"
        )
    if strategy.adapt is not None and (against := reason_against(encoder)):
        return against
    if layers != "top" and (encoder.get("table") or strategy.transfer == "embeddings"):
        return f"encoder.layers={layers}: an embedding table has no layers to choose from"
    if encoder["pairs"] == "joint" and strategy.transfer == "embeddings":
        return "encoder.pairs=joint: an embedding table takes the two texts of a pair apart"
    if strategy.layer_decay is not None and (encoder.get("table") or strategy.features):
        return f"strategy.layer_decay={strategy.layer_decay}: no layers are fine-tuned here"
    if body.get("features") == "after" and not _has_embeddings(encoder, strategy):
        return f"body.features=after reads the embedding layer: encoder.layers=mix, not {layers}"
    if body["name"] == "attention_flow" and n_texts == 1:
        return "body=attention_flow joins two texts, the task has one"
    if body["name"] == "attention_flow" and encoder["pairs"] == "joint":
        return "body=attention_flow needs the texts apart: encoder.pairs=separate"
    if (
        resolved["task"].get("feature_body") == "attention_flow"
        and encoder["pairs"] == "separate"
        and body["name"] != "attention_flow"
    ):
        return f"body={body['name']} over separate texts: the question would never meet the context"
    return None


def _has_embeddings(encoder: Mapping[str, Any], strategy: Strategy) -> bool:
    """Whether layer 0 is among what the body gets."""
    layers = encoder["layers"]
    table = encoder.get("table") or strategy.transfer == "embeddings"
    return bool(table) or layers == "mix" or (layers != "top" and layers[0] == 0)
