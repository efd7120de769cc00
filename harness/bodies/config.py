"""The configuration of a task network's body in typed form; torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.core.instantiate import (
    COMPONENT_KEYS,
    Component,
    check_options,
    component_values,
    construct,
)
from harness.core.validation import Check, checked, choice, made, number, setting, truth

if TYPE_CHECKING:
    from harness.bodies.base import Body

_size = number(low=1, whole=True)
OPTIONS: dict[str, Check[object]] = {
    "hidden_size": _size,
    "layers": _size,
    "dropout": number(low=0, high=0.999),
    "features": choice("before", "after", "both"),
}
"""Checks of options that bodies share; a body may have others, which it checks itself."""


@dataclass(frozen=True, slots=True)
class BodyConfig(Component):
    """The network between encoder and head. See :class:`harness.core.instantiate.Component`.

    Attributes:
        joins_texts: it combines the two texts of an example, which are encoded separately.
    """

    joins_texts: bool = setting(truth, False)

    @classmethod
    def parse(cls, config: Mapping[str, object]) -> BodyConfig:
        """Parse the section ``body``.

        Raises:
            HarnessError: a value of the wrong type or range.
        """
        values = checked(cls, config, section="body", extra=True)
        options = {
            str(k): OPTIONS[k](f"body.{k}", v) if k in OPTIONS else v
            for k, v in config.items()
            if k not in (*values, *COMPONENT_KEYS)
        }
        component = component_values(config, key="body")
        check_options(str(component["target"]), options, key="body", reserved=("input_size",))
        return made(cls, {**component, **values, "options": options})

    @property
    def features(self) -> str:
        """Where the encoder's features enter: ``before`` the body, ``after`` it, or ``both``."""
        return str(self.options.get("features", "before"))

    def build(self, input_size: int) -> Body:
        """Make the body, its weights drawn from torch's global generator.

        Args:
            input_size: width of the encoder's states.
        """
        body: Body = construct(self.target, self.options, input_size, where=self.name)
        return body
