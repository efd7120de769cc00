"""What ``conf/pretrain/encoder/*.yaml`` name: objectives from plain options, each checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.config.schema import betas
from harness.core.validation import choice, number, optional, section, text, truth
from harness.encoders.awd_lstm.model import Dropouts
from harness.errors import HarnessError, did_you_mean
from harness.pretraining.base import Recipe
from harness.pretraining.objectives.causal_lm import CausalLM
from harness.pretraining.objectives.masked_lm import MaskedLM
from harness.pretraining.objectives.word_lm import WordLM
from harness.pretraining.text.packing import Block

_count = number(low=1, whole=True)
_from_zero = number(low=0, whole=True)
_RECIPE: dict[str, Any] = {
    "lr": number(low=0),
    "weight_decay": number(low=0),
    "betas": lambda key, value: tuple(betas(key, value)),
    "eps": number(low=0),
    "warmup": number(low=0, high=1),
    "schedule": choice("linear", "cosine", "constant"),
    "max_grad_norm": optional(number(low=0)),
    "epochs": number(low=0.001),
}


def the_recipe(given: Mapping[str, Any]) -> Recipe:
    """Checked; what is missing has :class:`Recipe`'s default.

    Raises:
        HarnessError: a key or a value that does not do.
    """
    given = section("encoder.recipe", given)
    for key in given:
        if key not in _RECIPE:
            raise HarnessError(f"encoder.recipe.{key}: unknown key, {did_you_mean(key, _RECIPE)}")
    return Recipe(**{k: _RECIPE[k](f"encoder.recipe.{k}", v) for k, v in given.items()})


def bert(
    *, recipe: Mapping[str, Any], vocabulary: int, lower: bool, rows: str, batch_rows: int,
    next_sentence: bool, layers: int, width: int, heads: int, feed_forward: int, positions: int,
    activation: str, dropout: float, long_from: int, tokenizer: str | None, pseudo_lines: int,
) -> MaskedLM:  # fmt: skip
    """See :class:`harness.pretraining.objectives.masked_lm.MaskedLM` and :class:`harness.pretraining.text.packing.Block`."""
    return MaskedLM(
        Block(layers, width, heads, feed_forward, positions, activation, dropout),
        the_recipe(recipe),
        vocabulary=_count("encoder.vocabulary", vocabulary),
        lower=truth("encoder.lower", lower),
        rows=rows,
        batch_rows=_count("encoder.batch_rows", batch_rows),
        next_sentence=truth("encoder.next_sentence", next_sentence),
        long_from=_from_zero("encoder.long_from", long_from),
        tokenizer=optional(text)("encoder.tokenizer", tokenizer),
        pseudo_lines=_from_zero("encoder.pseudo_lines", pseudo_lines),
    )


def gpt(
    *, recipe: Mapping[str, Any], vocabulary: int, batch_rows: int, block: str, layers: int, width: int,
    heads: int, feed_forward: int, positions: int, activation: str, dropout: float, rows: str,
    long_from: int, tokenizer: str | None,
) -> CausalLM:  # fmt: skip
    """See :class:`harness.pretraining.objectives.causal_lm.CausalLM` and :class:`harness.pretraining.text.packing.Block`."""
    return CausalLM(
        Block(layers, width, heads, feed_forward, positions, activation, dropout),
        the_recipe(recipe),
        vocabulary=_count("encoder.vocabulary", vocabulary),
        batch_rows=_count("encoder.batch_rows", batch_rows),
        kind=block,
        rows=rows,
        long_from=_from_zero("encoder.long_from", long_from),
        tokenizer=optional(text)("encoder.tokenizer", tokenizer),
    )


def awd_lstm(
    *, recipe: Mapping[str, Any], embedding: int, hidden: int, layers: int, backwards: bool,
    dropouts: Mapping[str, float], dropout_multiplier: float, max_vocabulary: int, min_frequency: int,
    batch_rows: int, bptt: int, alpha: float, beta: float,
) -> WordLM:  # fmt: skip
    """See :class:`harness.pretraining.objectives.word_lm.WordLM`."""
    from harness.encoders.awd_lstm.encoder import the_dropouts

    rates: Dropouts = the_dropouts(section("encoder.dropouts", dropouts), dropout_multiplier)
    sizes = {"embedding": embedding, "hidden": hidden, "layers": layers}
    return WordLM(
        {k: _count(f"encoder.{k}", v) for k, v in sizes.items()},
        rates,
        the_recipe(recipe),
        backwards=truth("encoder.backwards", backwards),
        max_vocabulary=_count("encoder.max_vocabulary", max_vocabulary),
        min_frequency=_count("encoder.min_frequency", min_frequency),
        batch_rows=_count("encoder.batch_rows", batch_rows),
        bptt=_count("encoder.bptt", bptt),
        alpha=number(low=0)("encoder.alpha", alpha),
        beta=number(low=0)("encoder.beta", beta),
    )
