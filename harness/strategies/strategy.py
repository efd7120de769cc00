"""A strategy is a point in a small space of orthogonal fields. Each YAML in ``conf/strategy`` is one point.

======================  ==================================================================================
``transfer``            ``nothing`` (same architecture, random), ``embeddings`` (the input embedding table
                        alone, under a task network), ``encoder`` (the whole encoder)
``lr``                  learning rate of the transferred part: None = as the rest, 0 = frozen, else absolute
``relative_lr``         the same as a factor of the rest's learning rate; excludes ``lr``
``layer_decay``         factor of the learning rate per layer from the top down; None = 1
``unfreeze``            when the transferred part starts to train: None = at once; ``gradual`` = one layer
                        group per epoch, top first, after one epoch of the task's part alone (Howard & Ruder
                        2018, section 3.3); a number = all of it after that many epochs (Kumar et al. 2022)
``adapt``               before the task, continue the encoder's own objective on the unlabelled texts of the
                        training split (:mod:`harness.strategies.adapt`); None = no
======================  ==================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from harness.core.validation import checked, choice, made, number, optional, section_or_empty, setting, text
from harness.errors import HarnessError
from harness.strategies.adapt import Adapt, parse_adapt

GRADUAL = "gradual"
TRANSFER = ("nothing", "embeddings", "encoder")
_rate = optional(number(low=0))


def _unfreeze(key: str, value: object) -> str | int | None:
    if value in (None, 0, "0", GRADUAL):
        return GRADUAL if value == GRADUAL else None
    try:
        return number(low=1, whole=True)(key, value)
    except HarnessError:
        raise HarnessError(f"{key}={value!r}: expected null, {GRADUAL} or a number of epochs") from None


@dataclass(frozen=True, slots=True)
class Strategy:
    """See the module's table.

    Attributes:
        recipe: hyperparameters for encoders whose own recipe does not set them.
        result_version: incremented when a fix changes results.
    """

    name: str = setting(text, "")
    transfer: str = setting(choice(*TRANSFER), "encoder")
    lr: float | None = setting(_rate, None)
    relative_lr: float | None = setting(_rate, None)
    layer_decay: float | None = setting(optional(number(low=1e-6, high=1)), None)
    unfreeze: str | int | None = setting(_unfreeze, None)
    adapt: Adapt | None = setting(parse_adapt, None)
    recipe: Mapping[str, object] = setting(section_or_empty, {})
    result_version: int = setting(number(low=0, whole=True), 1)
    about: str = setting(text, "")

    def __post_init__(self) -> None:
        choice(*TRANSFER)("strategy.transfer", self.transfer)
        if self.lr is not None and self.relative_lr is not None:
            raise HarnessError("strategy.lr and strategy.relative_lr exclude each other: give one of them")
        if self.transfer == "nothing" and (self.lr is not None or self.relative_lr is not None):
            raise HarnessError(
                "strategy.transfer=nothing: there is no transferred part; leave lr and relative_lr out"
            )
        if self.unfreeze is not None and (self.transfer == "nothing" or self.frozen):
            raise HarnessError(
                f"strategy.unfreeze={self.unfreeze}: no transferred part is trained here; leave it out"
            )

    @classmethod
    def parse(cls, config: Mapping[str, object]) -> Strategy:
        """Parse the section ``strategy``.

        Raises:
            HarnessError: an unknown key, or a value outside the space.
        """
        values = checked(cls, config, section="strategy")
        for key in ("relative_lr", "layer_decay"):  # a factor of one changes nothing
            values[key] = None if values[key] == 1 else values[key]
        return made(cls, values)

    @property
    def frozen(self) -> bool:
        """The transferred part is never trained, so that its features can be computed once."""
        return self.transfer != "nothing" and (self.lr == 0 or self.relative_lr == 0)

    @property
    def features(self) -> bool:
        """The encoder serves as features or as a table under a task network; it is not fine-tuned as a
        whole."""
        return self.transfer == "embeddings" or self.frozen

    def unfrozen_groups(self, groups: int, *, epoch: int) -> int:
        """The number of layer groups that train in ``epoch`` (from 0), counted from the top.

        A pure function, so that a run can be resumed without stored state.

        Args:
            groups: layer groups in total.
            epoch: counted from 0.
        """
        if self.unfreeze is None:
            return groups
        if self.unfreeze == GRADUAL:
            return min(groups, epoch)
        return groups if epoch >= int(self.unfreeze) else 0
