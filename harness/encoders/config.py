"""The configuration of an encoder in typed form; torch-free."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.core.instantiate import (
    COMPONENT_KEYS,
    Component,
    check_files,
    check_options,
    component_values,
    construct,
    locate,
)
from harness.core.redaction import PLACES
from harness.core.validation import (
    checked,
    choice,
    made,
    number,
    optional,
    section,
    section_or_empty,
    setting,
    text,
    truth,
)
from harness.encoders.facts import EncoderFacts
from harness.errors import HarnessError

if TYPE_CHECKING:
    from harness.encoders.base import Encoder

Layers = str | tuple[int, ...]
"""``top``, ``mix``, ``auto`` (until the configuration is resolved), or numbers of layers, 0 the
embeddings."""
MemberPath = tuple[str, ...]
"""Names of members that lead from an encoder to one that it contains; () = the encoder itself."""


def check_layers(key: str, value: object) -> str | list[int]:
    """Accept ``top``, ``mix``, ``auto`` (the recipe's), or the numbers of the layers to mix."""
    if value is None:
        return "top"
    if isinstance(value, str) and value in ("top", "mix", "auto"):
        return value
    if not isinstance(value, list | tuple) or not value:
        raise HarnessError(f"{key}={value!r}: expected top, mix, or a list of layers such as [0,3]")
    return [number(low=0, whole=True)(key, v) for v in value]


@dataclass(frozen=True, slots=True)
class MixOptions:
    """What the learned mix of layers does besides weighting (:class:`harness.encoders.scalar_mix.ScalarMix`).

    Attributes:
        layer_norm: normalise each layer first.
        l2: weight of the penalty on the mixing scalars.
    """

    layer_norm: bool = setting(truth, False)
    l2: float = setting(number(low=0), 0.0)


def check_mix(key: str, value: object) -> MixOptions | None:
    """Accept a mapping of :class:`MixOptions`; None where no option has an effect."""
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise HarnessError(f"{key}={value!r}: expected layer_norm or l2, such as {{l2: 0.001}}")
    given = {str(k): v for k, v in value.items() if v is not None}
    options = made(MixOptions, checked(MixOptions, given, section=key))
    return None if options == MixOptions() else options


def _names(key: str, value: object) -> list[str]:
    if not isinstance(value, list | tuple):
        raise HarnessError(f"{key}={value!r}: expected a list of names")
    return [text(key, v) for v in value]


@dataclass(frozen=True, slots=True)
class AdaptationSupport:
    """How the encoder's own pretraining objective is continued (``adapt`` in its YAML).

    Attributes:
        module: dotted path of a module with ``adapt(job)`` and ``placed(encoder, folder)``.
        objective: its name, for the record.
        lr: learning rate; None = that of the encoder's recipe for ``full``, at most 1e-4.
        batch_size: texts (AWD-LSTM: streams) per step at most; None = the objective has no batches.
        beside: files beside the weights that the objective reads and the encoder does not.
        refuse: dotted path of a function ``(options) -> reason or None`` for checkpoints that cannot be
            trained further; "" = all can.
    """

    module: str = setting(text, "")
    objective: str = setting(text, "")
    lr: float | None = setting(optional(number(low=1e-12, high=1e3)), None)
    batch_size: int | None = setting(optional(number(low=1, whole=True)), None)
    beside: tuple[str, ...] = setting(_names, ())
    refuse: str = setting(text, "")

    def decisive(self) -> list[object]:
        """What of it can change the adapted encoder."""
        return [self.module, self.lr, self.batch_size, list(self.beside)]


def _adaptation(key: str, value: object) -> AdaptationSupport:
    return made(AdaptationSupport, checked(AdaptationSupport, section(key, value), section=key))


@dataclass(frozen=True, slots=True)
class EncoderConfig(Component):
    """An encoder, resolved. See :class:`harness.core.instantiate.Component`.

    Attributes:
        layers: which layers the task network reads.
        pairs: ``joint`` (one sequence) or ``separate``: how two texts are encoded.
        table: it is an embedding table without context, or joins nothing but such tables.
        joint: it can read two texts as one sequence.
        mix: options of the mix of layers; None where there is nothing to set.
        members: the encoders that it joins, by name.
        recipe: hyperparameters by strategy.
        adapt: how its own objective is continued; None where that is unknown.
    """

    layers: Layers = setting(check_layers, "top")
    pairs: str = setting(choice("auto", "joint", "separate"), "auto")
    table: bool = setting(truth, False)
    joint: bool = setting(truth, False)
    mix: MixOptions | None = setting(check_mix, None)
    recipe: Mapping[str, object] = setting(section_or_empty, {})
    adapt: AdaptationSupport | None = setting(optional(_adaptation), None)
    members: Mapping[str, EncoderConfig] = field(default_factory=dict)

    @classmethod
    def parse(cls, config: Mapping[str, object], *, key: str = "encoder") -> EncoderConfig:
        """Parse an encoder's section.

        Args:
            config: as composed; options of ``_target_`` are passed on unchanged.
            key: where it stands, for messages.

        Raises:
            HarnessError: a value of the wrong type, or a member that is no encoder.
        """
        values = checked(cls, config, section=key, extra=True)
        members = _members(config, key=key)
        values["table"] = bool(values["table"]) or (
            bool(members) and all(member.table for member in members.values())
        )
        apart = {*values, "members", *COMPONENT_KEYS}
        options = {str(k): v for k, v in config.items() if k not in apart}
        component = component_values(config, key=key)
        check_options(str(component["target"]), options, key=key, reserved=("random_init", "cache_dir"))
        if key == "encoder":  # the files function of an encoder may return those of its members
            check_files(str(component["files_function"]), options, key=key)
        return made(cls, {**component, **values, "options": options, "members": members})

    def build(self, *, random_init: bool = False, cache_dir: Path) -> Encoder:
        """Load the encoder.

        Args:
            random_init: the same architecture with random weights from torch's global generator.
            cache_dir: tables and downloads.

        Raises:
            HarnessError: an option it does not take, or files that cannot be loaded.
        """
        extra = {"random_init": random_init, "cache_dir": cache_dir}
        encoder: Encoder = construct(self.target, {**self.arguments(), **extra}, where=self.name)
        return encoder

    def check(self, cache_dir: Path) -> EncoderFacts:
        """Check the encoder's files without loading it; torch-free.

        Raises:
            HarnessError: files that cannot be loaded as this encoder.
        """
        if not self.check_function:
            return EncoderFacts()
        facts: EncoderFacts = locate(self.check_function)(self.file_arguments(), cache_dir)
        return facts

    def arguments(self) -> dict[str, object]:
        """Keyword arguments of the target; members are configurations."""
        members = {"members": self.members} if self.members else {}
        return {"name": self.name, **self.options, **members}

    def text_option(self, name: str) -> str | None:
        """An option as text; None where it is not set."""
        value = self.options.get(name)
        return None if value is None else str(value)

    def with_options(self, **options: object) -> EncoderConfig:
        """A copy with other options."""
        return replace(self, options={**self.options, **options})

    def leaves(self, place: MemberPath = ()) -> Iterator[tuple[MemberPath, EncoderConfig]]:
        """The encoders that it is made of, with the names that lead to them; itself where it has no
        members."""
        if not self.members:
            yield place, self
        for name, member in self.members.items():
            yield from member.leaves((*place, name))

    def replaced(self, place: MemberPath, leaf: EncoderConfig) -> EncoderConfig:
        """A copy with the encoder at ``place`` replaced by ``leaf``."""
        if not place:
            return leaf
        name, *rest = place
        return replace(self, members={**self.members, name: self.members[name].replaced(tuple(rest), leaf)})

    @property
    def has_table(self) -> bool:
        """Whether it is or contains an embedding table: the cell's seed draws the vector of unknown words."""
        return self.table or any(member.has_table for member in self.members.values())

    def content(self) -> dict[str, object]:
        """What decides its states besides the content of its files; keys caches."""
        members = {name: member.content() for name, member in self.members.items()}
        return {
            "target": self.target,
            "result_version": self.result_version,
            "options": {
                k: v for k, v in self.options.items() if v is not None and k not in (*PLACES, "sha256")
            },
            **({"members": members} if members else {}),
        }


def _members(config: Mapping[str, object], *, key: str) -> dict[str, EncoderConfig]:
    """The members that are set. One without ``path`` and ``files`` lies in the folder of its name below the
    encoder's own ``path``, if that is given.

    Raises:
        HarnessError: one is not an encoder's configuration.
    """
    out: dict[str, EncoderConfig] = {}
    for name, member in section_or_empty(f"{key}.members", config.get("members")).items():
        where = f"{key}.members.{name}"
        if member is None:
            continue
        if not isinstance(member, Mapping) or "_target_" not in member:
            raise HarnessError(
                f"{where}={member!r}: expected an encoder; choose one with encoder@{where}=NAME "
                "(see `harness list`)"
            )
        values = {str(k): v for k, v in member.items()}
        if config.get("path") is not None and values.get("path") is None and not values.get("files"):
            values["path"] = str(Path(str(config["path"])) / name)
        out[name] = EncoderConfig.parse(values, key=where)
    return out
