"""A strategy is a point in a small space of orthogonal fields. Each YAML in ``conf/strategy`` is one point.

======================  ==================================================================================
``transfer``            ``nothing`` (same architecture, random), ``embeddings`` (the input embedding table
                        alone, under a task network), ``encoder`` (all of it)
``lr``                  learning rate of what was carried: None = as the rest, 0 = frozen, else absolute
``relative_lr``         the same as a factor of the rest's rate; excludes ``lr``
``layer_decay``         factor of the rate for each layer downwards from the top; None = 1
``unfreeze``            when what was carried starts to move: None = at once; ``gradual`` = one layer group
                        an epoch, top first, after one epoch of the task's part alone (Howard & Ruder 2018,
                        section 3.3); a number = all of it after so many epochs (Kumar et al. 2022)
``adapt``               before the task, continue the encoder's own objective on the unlabelled texts of the
                        training split (:mod:`harness.strategies.adapt`): None = not
======================  ==================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from harness.core.validation import number, optional
from harness.errors import HarnessError, did_you_mean
from harness.strategies.adapt import Adapt, parse

GRADUAL = "gradual"
TRANSFER = ("nothing", "embeddings", "encoder")


@dataclass(frozen=True, slots=True)
class Strategy:
    """See the module's table. Raises HarnessError on values outside the space."""

    name: str
    transfer: str
    lr: float | None = None
    relative_lr: float | None = None
    layer_decay: float | None = None
    unfreeze: str | int | None = None
    adapt: Adapt | None = None

    def __post_init__(self) -> None:
        if str(self.transfer) not in TRANSFER:
            raise HarnessError(
                f"strategy.transfer={self.transfer}: {did_you_mean(str(self.transfer), TRANSFER)}"
            )
        if self.lr is not None and self.relative_lr is not None:
            raise HarnessError("strategy.lr and strategy.relative_lr exclude each other: give one of them")
        if self.transfer == "nothing" and (self.lr is not None or self.relative_lr is not None):
            raise HarnessError("strategy.transfer=nothing has no carried part: leave lr and relative_lr out")
        if self.unfreeze is not None and (self.transfer == "nothing" or self.frozen):
            raise HarnessError(f"strategy.unfreeze={self.unfreeze}: nothing here ever thaws; leave it out")

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Strategy:
        names = {f.name for f in fields(cls)}
        unknown = [k for k in config if k not in names and k not in ("recipe", "result_version", "about")]
        if unknown:
            raise HarnessError(f"strategy.{unknown[0]}: unknown key, {did_you_mean(unknown[0], names)}")
        given = {k: v for k, v in config.items() if k in names}
        rate = optional(number(low=0))
        for key, check in (
            ("lr", rate),
            ("relative_lr", rate),
            ("layer_decay", optional(number(low=1e-6, high=1))),
        ):
            given[key] = check(f"strategy.{key}", given.get(key))
        given["unfreeze"] = _unfreeze(given.get("unfreeze"))
        given["adapt"] = parse(given.get("adapt"))
        # a factor of one is no factor
        for key in ("relative_lr", "layer_decay"):
            given[key] = None if given[key] == 1 else given[key]
        return cls(**given)

    @property
    def frozen(self) -> bool:
        """The carried part never moves: features can be computed once."""
        return self.transfer != "nothing" and (self.lr == 0 or self.relative_lr == 0)

    @property
    def features(self) -> bool:
        """The encoder serves as features or as a table under a task network (not fine-tuned as a whole)."""
        return self.transfer == "embeddings" or self.frozen

    def unfrozen_groups(self, groups: int, *, epoch: int) -> int:
        """How many of ``groups`` layer groups move in ``epoch`` (from 0), counted from the top: a pure
        function, so that a run that is taken up again needs no memory of it."""
        if self.unfreeze is None:
            return groups
        if self.unfreeze == GRADUAL:
            return min(groups, epoch)
        return groups if epoch >= int(self.unfreeze) else 0


def _unfreeze(value: object) -> str | int | None:
    if value in (None, 0, "0"):
        return None
    if value == GRADUAL:
        return GRADUAL
    try:
        return int(number(low=1, whole=True)("strategy.unfreeze", value))
    except HarnessError:
        raise HarnessError(
            f"strategy.unfreeze={value!r}: null, {GRADUAL} or a number of epochs is wanted"
        ) from None
