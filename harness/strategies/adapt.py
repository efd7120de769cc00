"""The strategy's field ``adapt``, and which encoders can be adapted; free of torch.

::

    strategy.adapt.epochs=3           passes over the texts of the training split; null or 0 = none
    strategy.adapt.lr=1e-4            learning rate; null = the encoder's (``adapt.lr`` in its YAML)
    strategy.adapt.batch_size=32      texts (AWD-LSTM: streams) per step at most; null = the encoder's
    strategy.adapt.seed=0             one adaptation for all seeds; ``cell`` = one per seed
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path

from harness.core.instantiate import locate
from harness.core.validation import checked, made, number, optional, setting
from harness.encoders.config import AdaptationSupport, EncoderConfig
from harness.errors import HarnessError

ADAPT_VERSION = 1
"""Incremented when the same ``strategy.adapt`` gives another encoder; part of the cells that have it."""
OWN_SEED = "cell"
LR = 1e-4
"""Learning rate for the adaptation of RoBERTa in steps of 256 texts (Gururangan et al. 2020, published
command)."""


def _seed(key: str, value: object) -> int | str:
    if value is None:
        return 0
    if value == OWN_SEED:
        return OWN_SEED
    try:
        return number(low=0, high=2**32 - 1, whole=True)(key, value)
    except HarnessError:
        raise HarnessError(f"{key}={value!r}: expected a whole number, or {OWN_SEED}") from None


@dataclass(frozen=True, slots=True)
class Adapt:
    """See the module.

    Attributes:
        epochs: passes over the training texts, above 0.
        lr: highest learning rate; None = not resolved, or each member's own.
        batch_size: as ``lr``.
        seed: of order, masks and dropout; or ``cell``.
    """

    epochs: float = setting(number(low=0, high=1e6), 0.0, auto=None)
    lr: float | None = setting(optional(number(low=1e-12, high=1e3)), None)
    batch_size: int | None = setting(optional(number(low=1, whole=True)), None)
    seed: int | str = setting(_seed, 0)

    def to_config(self) -> dict[str, object]:
        """The fields that are set, as a resolved configuration has them."""
        return {key: value for key in KEYS if (value := getattr(self, key)) is not None}


KEYS = tuple(f.name for f in fields(Adapt))


def parse_adapt(key: str, value: object) -> Adapt | None:
    """Check the field; None where nothing is to be adapted.

    Raises:
        HarnessError: an unknown key, or a value of the wrong type or range.
    """
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise HarnessError(f"{key}={value!r}: expected settings by name, such as {key}.epochs=2")
    values = checked(Adapt, value, section=key)
    epochs = values["epochs"]
    if epochs is None and any(value.get(name) is not None for name in KEYS):
        raise HarnessError(f"{key}: epochs is missing; give {key}.epochs=NUMBER")
    if not isinstance(epochs, float) or not epochs:
        return None
    return made(Adapt, {**values, "epochs": int(epochs) if epochs.is_integer() else epochs})


def support(encoder: EncoderConfig) -> AdaptationSupport:
    """How an encoder without members is adapted.

    Raises:
        HarnessError: its YAML does not say.
    """
    if encoder.adapt is None:
        raise HarnessError(f"strategy.adapt: {encoder.name} cannot be adapted; remove strategy.adapt")
    return encoder.adapt


def files_of(encoder: EncoderConfig, cache_dir: Path) -> dict[str, Path]:
    """The files that the adaptation of an encoder without members reads, by role: the encoder's own, and
    those beside its weights that its objective needs.

    Raises:
        HarnessError: a file is missing.
    """
    files = encoder.files(cache_dir)
    beside = encoder.adapt.beside if encoder.adapt and "weights" in files else ()
    for name in beside:
        path = files["weights"].parent / name
        if path.is_file():
            files[name] = path
    return files


def filled(encoder: EncoderConfig, adapt: Adapt) -> Adapt:
    """``adapt`` with learning rate and batch size of an encoder without members where it has none."""
    family = encoder.adapt
    if family is None:
        return adapt
    return replace(
        adapt,
        lr=adapt.lr or family.lr or min(LR, _fine_tuning_lr(encoder)),
        batch_size=family.batch_size and (adapt.batch_size or family.batch_size),
    )


def _fine_tuning_lr(encoder: EncoderConfig) -> float:
    recipe = encoder.recipe.get("full")
    lr = recipe.get("lr") if isinstance(recipe, Mapping) else None
    return number(low=0)("encoder.recipe.full.lr", lr) if lr else LR


def resolve_adapt(encoder: EncoderConfig, adapt: Adapt) -> Adapt:
    """The field of a resolved configuration: filled, except where members would fill it differently."""
    per_member = [filled(leaf, adapt) for _, leaf in encoder.leaves()]
    out = per_member[0]
    if len({member.lr for member in per_member}) > 1:
        out = replace(out, lr=adapt.lr)
    if len({member.batch_size for member in per_member}) > 1:
        out = replace(out, batch_size=adapt.batch_size)
    return out


def reason_against(encoder: EncoderConfig) -> str | None:
    """Why the encoder's objective cannot be continued; None when it can."""
    for _, leaf in encoder.leaves():
        name = leaf.name or encoder.name
        if leaf.adapt is None:
            return f"strategy.adapt: it is not known how {name}'s own objective is continued"
        if leaf.adapt.refuse and (reason := locate(leaf.adapt.refuse)(leaf.options)):
            return f"strategy.adapt: {name} {reason}"
    return None
