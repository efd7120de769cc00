"""Construction of pretrainers: ``_target_`` of ``conf/pretrain/encoder/*.yaml``, with checked options.

Imports torch only when an objective is built.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from harness.core.instantiate import locate, refuse_unknown
from harness.core.validation import Check, choice, number, optional, section, text, truth
from harness.errors import HarnessError, did_you_mean
from harness.pretraining.base import AnyObjective, Pretrainer
from harness.pretraining.budget import Recipe
from harness.pretraining.config import target_options
from harness.records.parts import betas

if TYPE_CHECKING:
    from harness.pretraining.objectives.bilm import BiLMObjective
    from harness.pretraining.objectives.causal_lm import CausalLM
    from harness.pretraining.objectives.masked_lm import MaskedLM
    from harness.pretraining.objectives.word_lm import WordLM

_count = number(low=1, whole=True)
_from_zero = number(low=0, whole=True)
_RECIPE: dict[str, Check[Any]] = {
    "lr": number(low=0),
    "weight_decay": number(low=0),
    "betas": lambda key, value: tuple(betas(key, value)),
    "eps": number(low=0),
    "warmup": number(low=0, high=1),
    "schedule": choice("linear", "cosine", "constant"),
    "max_grad_norm": optional(number(low=0)),
    "epochs": number(low=0.001),
}
AnyPretrainer: TypeAlias = "Pretrainer | AnyObjective"


def build_pretrainer(encoder: Mapping[str, object]) -> AnyPretrainer:
    """Build the pretrainer of an encoder configuration.

    Raises:
        HarnessError: an unknown or invalid option.
    """
    target, options = locate(str(encoder["_target_"])), target_options(encoder)
    refuse_unknown(target, options, where=f"encoder={encoder['name']}")
    pretrainer: AnyPretrainer = target(**options)
    return pretrainer


def build_recipe(given: Mapping[str, object]) -> Recipe:
    """Check hyperparameters; missing ones take the defaults of :class:`Recipe`.

    Raises:
        HarnessError: an unknown key or an invalid value.
    """
    given = section("encoder.recipe", given)
    for key in given:
        if key not in _RECIPE:
            raise HarnessError(f"encoder.recipe.{key}: unknown key, {did_you_mean(key, _RECIPE)}")
    return Recipe(**{k: _RECIPE[k](f"encoder.recipe.{k}", v) for k, v in given.items()})


def bert(
    *, recipe: Mapping[str, object], vocabulary: int, lower: bool, packing: str, batch_rows: int,
    next_sentence: bool, layers: int, width: int, heads: int, feed_forward: int, positions: int,
    activation: str, dropout: float, long_rows_after_epoch: int, tokenizer: str | None, pseudo_lines: int,
) -> MaskedLM:  # fmt: skip
    """Build :class:`harness.pretraining.objectives.masked_lm.MaskedLM`."""
    from harness.pretraining.objectives.masked_lm import MaskedLM
    from harness.pretraining.text.packing import TransformerSizes

    return MaskedLM(
        TransformerSizes(layers, width, heads, feed_forward, positions, activation, dropout),
        build_recipe(recipe),
        vocabulary=_count("encoder.vocabulary", vocabulary),
        lower=truth("encoder.lower", lower),
        packing=packing,
        batch_rows=_count("encoder.batch_rows", batch_rows),
        next_sentence=truth("encoder.next_sentence", next_sentence),
        long_rows_after_epoch=_from_zero("encoder.long_rows_after_epoch", long_rows_after_epoch),
        tokenizer=optional(text)("encoder.tokenizer", tokenizer),
        pseudo_lines=_from_zero("encoder.pseudo_lines", pseudo_lines),
    )


def gpt(
    *, recipe: Mapping[str, object], vocabulary: int, batch_rows: int, block: str, layers: int, width: int,
    heads: int, feed_forward: int, positions: int, activation: str, dropout: float, packing: str,
    long_rows_after_epoch: int, tokenizer: str | None,
) -> CausalLM:  # fmt: skip
    """Build :class:`harness.pretraining.objectives.causal_lm.CausalLM`."""
    from harness.pretraining.objectives.causal_lm import CausalLM
    from harness.pretraining.text.packing import TransformerSizes

    return CausalLM(
        TransformerSizes(layers, width, heads, feed_forward, positions, activation, dropout),
        build_recipe(recipe),
        vocabulary=_count("encoder.vocabulary", vocabulary),
        batch_rows=_count("encoder.batch_rows", batch_rows),
        block=block,
        packing=packing,
        long_rows_after_epoch=_from_zero("encoder.long_rows_after_epoch", long_rows_after_epoch),
        tokenizer=optional(text)("encoder.tokenizer", tokenizer),
    )


def awd_lstm(
    *, recipe: Mapping[str, object], embedding: int, hidden: int, layers: int, backwards: bool,
    dropouts: Mapping[str, float], dropout_multiplier: float, max_vocabulary: int, min_frequency: int,
    batch_rows: int, bptt: int, alpha: float, beta: float,
) -> WordLM:  # fmt: skip
    """Build :class:`harness.pretraining.objectives.word_lm.WordLM`."""
    from harness.encoders.awd_lstm.encoder import resolve_dropouts
    from harness.pretraining.objectives.word_lm import WordLM

    given: dict[str, Any] = section("encoder.dropouts", dropouts)
    sizes = {"embedding": embedding, "hidden": hidden, "layers": layers}
    return WordLM(
        {k: _count(f"encoder.{k}", v) for k, v in sizes.items()},
        resolve_dropouts(given, dropout_multiplier),
        build_recipe(recipe),
        backwards=truth("encoder.backwards", backwards),
        max_vocabulary=_count("encoder.max_vocabulary", max_vocabulary),
        min_frequency=_count("encoder.min_frequency", min_frequency),
        batch_rows=_count("encoder.batch_rows", batch_rows),
        bptt=_count("encoder.bptt", bptt),
        alpha=number(low=0)("encoder.alpha", alpha),
        beta=number(low=0)("encoder.beta", beta),
    )


def elmo(
    *, recipe: Mapping[str, object], cells: int, projection: int, layers: int, clip: float | None,
    dropout: float, characters: int, filters: Sequence[Sequence[int]], highways: int, max_characters: int,
    skip: bool, max_vocabulary: int, min_frequency: int, softmax: str, row_words: int, batch_words: int,
) -> BiLMObjective:  # fmt: skip
    """Build :class:`harness.pretraining.objectives.bilm.BiLMObjective`."""
    from harness.encoders.elmo.files import ElmoOptions
    from harness.pretraining.objectives.bilm import BiLMObjective
    from harness.pretraining.objectives.bilm_model import MARKERS

    clip_at = optional(number(low=1e-6))("encoder.clip", clip)
    options = ElmoOptions(
        dim=_count("encoder.cells", cells),
        projection_dim=_count("encoder.projection", projection),
        num_layers=_count("encoder.layers", layers),
        cell_clip=clip_at,
        proj_clip=clip_at,
        use_skip_connections=truth("encoder.skip", skip),
        dropout=number(low=0, high=0.99)("encoder.dropout", dropout),
        char_dim=_count("encoder.characters", characters),
        filters=_filters("encoder.filters", filters),
        n_highway=_from_zero("encoder.highways", highways),
        activation="relu",
        max_characters=number(low=3, whole=True)("encoder.max_characters", max_characters),
    )
    return BiLMObjective(
        options,
        build_recipe(recipe),
        max_vocabulary=number(low=len(MARKERS) + 1, whole=True)("encoder.max_vocabulary", max_vocabulary),
        min_frequency=_count("encoder.min_frequency", min_frequency),
        softmax=softmax,
        row_words=_count("encoder.row_words", row_words),
        batch_words=_count("encoder.batch_words", batch_words),
    )


def _filters(key: str, value: object) -> tuple[tuple[int, int], ...]:
    """Width and number of each convolution's filters."""
    pairs = value if isinstance(value, list | tuple) else ()
    if not pairs or not all(isinstance(p, list | tuple) and len(p) == 2 for p in pairs):
        raise HarnessError(f"{key}={value!r}: expected pairs of width and number, as in [[3, 64]]")
    return tuple((_count(key, width), _count(key, n)) for width, n in pairs)
