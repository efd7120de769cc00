"""Reasons to skip cells that are meaningless or equal to others, based on the resolved configuration."""

from __future__ import annotations

from harness.bodies.config import BodyConfig
from harness.encoders.config import EncoderConfig
from harness.strategies.adapt import reason_against
from harness.strategies.strategy import Strategy


def reason_to_skip(
    encoder: EncoderConfig, strategy: Strategy, body: BodyConfig, *, n_texts: int, must_join: bool
) -> str | None:
    """Return why the cell is meaningless or equal to another one; None if it should run.

    Args:
        encoder, strategy, body: resolved sections.
        n_texts: texts per example.
        must_join: the task relates the tokens of its two texts, so that some part of the network must combine
            them.
    """
    return _encoder_reason(encoder, strategy, body) or _body_reason(
        encoder, body, n_texts=n_texts, must_join=must_join
    )


def _encoder_reason(encoder: EncoderConfig, strategy: Strategy, body: BodyConfig) -> str | None:
    name, layers = encoder.name, _shown(encoder)
    if encoder.table and strategy.transfer == "encoder" and not strategy.frozen:
        return (
            f"{name} is an embedding table: strategy={strategy.name} would be the same cell as embedding_init"
        )
    if strategy.adapt is not None and (reason := reason_against(encoder)):
        return reason
    if layers != "top" and (encoder.table or strategy.transfer == "embeddings"):
        return f"encoder.layers={layers}: an embedding table has no layers to choose from"
    if encoder.pairs == "joint" and strategy.transfer == "embeddings":
        return "encoder.pairs=joint: an embedding table takes the two texts of a pair separately"
    if strategy.layer_decay is not None and (encoder.table or strategy.features):
        return f"strategy.layer_decay={strategy.layer_decay}: no layers are fine-tuned here"
    if body.features == "after" and not _has_embeddings(encoder, strategy):
        return f"body.features=after reads the embedding layer: expected encoder.layers=mix, not {layers}"
    return None


def _body_reason(encoder: EncoderConfig, body: BodyConfig, *, n_texts: int, must_join: bool) -> str | None:
    if body.joins_texts and n_texts == 1:
        return f"body={body.name} combines two texts, the task has one"
    if body.joins_texts and encoder.pairs == "joint":
        return f"body={body.name} needs separate texts: encoder.pairs=separate"
    if must_join and encoder.pairs == "separate" and not body.joins_texts:
        return f"body={body.name} over separate texts: question and context would never be combined"
    return None


def _shown(encoder: EncoderConfig) -> str:
    return encoder.layers if isinstance(encoder.layers, str) else str(list(encoder.layers))


def _has_embeddings(encoder: EncoderConfig, strategy: Strategy) -> bool:
    """Whether layer 0 is among the layers that the body reads."""
    layers = encoder.layers
    table = encoder.table or strategy.transfer == "embeddings"
    return table or layers == "mix" or (not isinstance(layers, str) and layers[0] == 0)
