"""What a strategy's field ``adapt`` says, and which encoders it can be done with; free of torch.

::

    strategy.adapt.epochs=3           passes over the texts of the training split; null or 0 = none
    strategy.adapt.lr=1e-4            the rate; null = the family's
    strategy.adapt.batch_size=32      texts (AWD-LSTM: streams) a step at most; null = the family's
    strategy.adapt.seed=0             one adaptation for all seeds; ``cell`` = one a seed
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.core.instantiate import locate
from harness.core.validation import number, optional
from harness.encoders.awd_lstm.files import the_directions
from harness.encoders.concat.files import active_members
from harness.encoders.transformer.hub import CONFIG, local_folder
from harness.errors import HarnessError, did_you_mean

KEYS = ("epochs", "lr", "batch_size", "seed")
OWN_SEED = "cell"
Place = tuple[str, ...]
"""Keys that lead from an encoder's configuration to that of a member; () = itself."""


@dataclass(frozen=True, slots=True)
class Adapt:
    """See the module.

    Attributes:
        epochs: passes over the training texts, above 0.
        lr: rate at its highest; None = not resolved, or each member's own.
        batch_size: as ``lr``.
        seed: decides order, masks and dropout; or ``cell``.
    """

    epochs: float
    lr: float | None = None
    batch_size: int | None = None
    seed: int | str = 0

    def to_config(self) -> dict[str, Any]:
        """What is set, as a resolved configuration has it."""
        return {key: value for key in KEYS if (value := getattr(self, key)) is not None}


@dataclass(frozen=True, slots=True)
class Family:
    """How encoders of one loader are adapted.

    Attributes:
        module: holds ``adapt(job) -> AdaptationResult`` and ``adapted_config(config, folder) -> config``.
        objective: in words.
        lr: None = the rate that the encoder's recipe has for ``full``, what its weights bear, but at most
            :data:`LR`.
        batch_size: texts, or streams, a step at most; None = that is no question here.
        beside: files beside the weights that an encoder does not need, but its objective does.
    """

    module: str
    objective: str
    lr: float | None
    batch_size: int | None
    beside: tuple[str, ...] = ()


LR = 1e-4
"""With which Gururangan et al. 2020 adapt RoBERTa, in steps of 256 texts (the command they published)."""
FAMILIES = {
    "harness.encoders.transformer.load_bert": Family(
        "harness.adaptation.masked_lm", "masked language model", None, 32
    ),
    "harness.encoders.transformer.load_gpt": Family(
        "harness.adaptation.causal_lm", "causal language model", None, 32
    ),
    # rate and batch: Howard & Ruder 2018, section 4.1
    "harness.encoders.awd_lstm.load": Family("harness.adaptation.awd_lstm", "language model", 4e-3, 64),
    "harness.encoders.elmo.load": Family(
        "harness.adaptation.elmo",
        "bidirectional language model",
        None,
        32,
        beside=("softmax.safetensors", "vocabulary.txt"),
    ),
    # the rate with which word2vec starts
    "harness.encoders.static.load": Family("harness.adaptation.word_vectors", "skip-gram", 0.025, None),
    "harness.encoders.fasttext.load": Family("harness.adaptation.subwords", "skip-gram", 0.025, None),
}
"""By the encoder's ``_target_``."""
COMPOUND: dict[str, Callable[[Mapping[str, Any]], Mapping[str, Mapping[str, Any]]]] = {
    "harness.encoders.concat.load": lambda c: active_members(c.get("members")),
    "harness.encoders.awd_lstm.load_bidirectional": lambda c: the_directions(c.get("members"), c.get("path")),
}
"""Encoders that are made of others: each of these is adapted by itself."""


def parse(value: Any) -> Adapt | None:
    """The checked field; None where nothing is to be adapted.

    Raises:
        HarnessError: a key or a value that does not do.
    """
    where = "strategy.adapt"
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise HarnessError(f"{where}={value!r}: settings by name are wanted, such as {where}.epochs=2")
    for key in value:
        if key not in KEYS:
            raise HarnessError(f"{where}.{key}: unknown key, {did_you_mean(str(key), KEYS)}")
    epochs = optional(number(low=0, high=1e6))(f"{where}.epochs", value.get("epochs"))
    lr = optional(number(low=1e-12, high=1e3))(f"{where}.lr", value.get("lr"))
    size = optional(number(low=1, whole=True))(f"{where}.batch_size", value.get("batch_size"))
    seed = _seed(f"{where}.seed", value.get("seed"))
    if epochs is None and not (lr is None and size is None and value.get("seed") is None):
        raise HarnessError(f"{where}: epochs is missing; give {where}.epochs=NUMBER")
    if not epochs:
        return None
    return Adapt(int(epochs) if epochs == int(epochs) else epochs, lr, size, seed)


def _seed(key: str, value: Any) -> int | str:
    if value in (None, OWN_SEED):
        return value or 0
    try:
        return int(number(low=0, high=2**32 - 1, whole=True)(key, value))
    except HarnessError:
        raise HarnessError(f"{key}={value!r}: a whole number, or {OWN_SEED}, is wanted") from None


def members(encoder: Mapping[str, Any], place: Place = ()) -> list[tuple[Place, Mapping[str, Any]]]:
    """The encoders that an encoder is made of, with their places in its configuration; itself if of none."""
    parts = COMPOUND.get(str(encoder.get("_target_")))
    if parts is None:
        return [(place, encoder)]
    found = parts(encoder)
    return [leaf for name, part in found.items() for leaf in members(part, (*place, "members", name))]


def family(encoder: Mapping[str, Any]) -> Family | None:
    """How an encoder that is not made of others is adapted; None where that is not known."""
    return FAMILIES.get(str(encoder.get("_target_")))


def files_of(encoder: Mapping[str, Any], cache_dir: Path) -> dict[str, Path]:
    """What the adaptation of an encoder that is not made of others reads, by role: the encoder's files, and
    those beside its weights that its objective needs.

    Raises:
        HarnessError: the encoder's files cannot be had.
    """
    find, its = encoder.get("_files_"), family(encoder)
    files: dict[str, Path] = dict(locate(find)(encoder, cache_dir)) if find else {}
    for name in its.beside if its and "weights" in files else ():
        path = files["weights"].parent / name
        if path.is_file():
            files[name] = path
    return files


def filled(encoder: Mapping[str, Any], adapt: Adapt) -> Adapt:
    """``adapt`` with rate and batch size of the encoder's family where it has none."""
    its = family(encoder)
    if its is None:
        return adapt
    recipe = (encoder.get("recipe") or {}).get("full") or {}
    return replace(
        adapt,
        lr=adapt.lr or its.lr or min(LR, float(recipe.get("lr") or LR)),
        batch_size=its.batch_size and (adapt.batch_size or its.batch_size),
    )


def resolved(encoder: Mapping[str, Any], adapt: Adapt) -> dict[str, Any]:
    """The field as a resolved configuration has it: filled, but for what members of a joint encoder would
    fill differently."""
    try:
        found = [filled(leaf, adapt) for _, leaf in members(encoder)]
    except HarnessError:  # what is wrong with a member is said where it is needed
        return adapt.to_config()
    out = found[0]
    for key in ("lr", "batch_size"):
        if len({getattr(f, key) for f in found}) > 1:
            out = replace(out, **{key: getattr(adapt, key)})
    return out.to_config()


def reason_against(encoder: Mapping[str, Any]) -> str | None:
    """Why the encoder's objective cannot be continued; None when it can."""
    for _, leaf in members(encoder):
        name = leaf.get("name") or encoder.get("name")
        if family(leaf) is None:
            return f"strategy.adapt: it is not known how {name}'s own objective is continued"
        if _replaced_tokens(leaf):
            return (
                f"strategy.adapt: {name} was trained by telling replaced tokens, and its checkpoint lacks "
                "the generator that replaces them"
            )
        if str(leaf.get("path") or leaf.get("member") or "").endswith(".ftz"):
            return f"strategy.adapt: {name} is a compressed fastText model, which cannot be trained further"
    return None


def _replaced_tokens(encoder: Mapping[str, Any]) -> bool:
    """Whether a transformer is ELECTRA's discriminator, by its ``config.json``."""
    if encoder.get("_target_") != "harness.encoders.transformer.load_bert":
        return False
    try:
        folder = local_folder(encoder.get("path"), Path())
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except (HarnessError, OSError, ValueError):
        return False  # its loader says what is wrong with it
    made = " ".join(config.get("architectures") or ())
    return config.get("model_type") == "electra" and "MaskedLM" not in made
