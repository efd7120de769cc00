"""Typed sections of a resolved configuration: task, optimizer, schedule, trainer, logger and run options.

Each field declares its check (:func:`harness.core.validation.setting`); the files in ``conf`` contain the
same defaults and explain each key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from harness.core.instantiate import (
    COMPONENT_KEYS,
    Component,
    check_files,
    check_options,
    component_values,
    construct,
)
from harness.core.validation import (
    checked,
    choice,
    made,
    number,
    optional,
    or_auto,
    section,
    section_or_empty,
    setting,
    text,
    truth,
)
from harness.errors import HarnessError
from harness.records.contract import check_task
from harness.task import Task

_count = number(low=1, whole=True)
_rate = number(low=0, high=1e30)
Precision = Literal["32-true", "bf16-mixed", "16-mixed"]
SCHEDULES = ("constant", "linear", "cosine", "slanted")


def betas(key: str, value: object) -> list[float]:
    """Accept Adam's two decay rates."""
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise HarnessError(f"{key}={value!r}: expected two numbers, such as [0.9, 0.999]")
    return [number(low=0, high=0.9999999)(key, v) for v in value]


def _warmup(key: str, value: object) -> float:
    share = number(low=0, high=1)(key, value)
    if share == 1:
        raise HarnessError(
            f"{key}={value}: the learning rate would rise until the last step; give a share of the steps "
            "below 1, such as 0.1"
        )
    return share


def _tags(key: str, value: object) -> list[str]:
    tags = value if isinstance(value, list | tuple) else [None]
    if not all(isinstance(tag, str | int) and 1 <= len(str(tag)) <= 64 for tag in tags):
        raise HarnessError(f"{key}={value!r}: expected a list of words of at most 64 characters")
    return [str(tag) for tag in tags]


def train_size(key: str, value: object) -> int | None:
    """Accept a number of training examples; ``all`` is null."""
    if value is None or value == "all":
        return None
    try:
        return _count(key, value)
    except HarnessError as e:
        raise HarnessError(f"{e}, or all") from None


def _name_or_section(key: str, value: object) -> str | Mapping[str, object]:
    return section(key, value) if isinstance(value, Mapping) else text(key, value)


@dataclass(frozen=True, slots=True)
class OptimizerConfig:
    """AdamW (Loshchilov & Hutter 2019).

    Attributes:
        lr: learning rate of the task network.
        weight_decay: applied to matrices only.
        betas: decay rates of the two moments.
        eps: added to the denominator.
        max_grad_norm: gradient norm above which gradients are clipped; None = no clipping.
    """

    name: str = setting(choice("adamw"), "adamw")
    lr: float = setting(_rate, 1e-3, auto=None)
    weight_decay: float = setting(_rate, 0.0, auto=None)
    betas: tuple[float, ...] = setting(betas, (0.9, 0.999), auto=None)
    eps: float = setting(number(low=0), 1e-8)
    max_grad_norm: float | None = setting(optional(number(low=1e-12)), 1.0)


@dataclass(frozen=True, slots=True)
class ScheduleConfig:
    """Learning-rate schedule; ``warmup`` is the fraction of all steps in which the rate increases."""

    name: str = setting(choice(*SCHEDULES), "constant", auto="auto")
    warmup: float = setting(_warmup, 0.0, auto=None)


@dataclass(frozen=True, slots=True)
class TrainerConfig:
    """Training length, batches and devices; ``conf/trainer/default.yaml`` explains each key."""

    epochs: int = setting(_count, 10, auto=None)
    batch_size: int = setting(_count, 32, auto=None)
    eval_batch_size: int = setting(_count, 64)
    max_tokens_per_batch: int | None = setting(optional(_count), None)
    max_length: int | None = setting(optional(_count), None)
    stride: int = setting(number(low=0, whole=True), 64)
    select: str = setting(choice("best", "last"), "best")
    patience: int | None = setting(or_auto(_count), None, auto="auto")
    dropout: float = setting(number(low=0, high=0.999), 0.1, auto=None)
    precision: Precision = setting(choice("32-true", "bf16-mixed", "16-mixed"), "32-true")
    accelerator: str = setting(choice("auto", "cpu", "gpu", "cuda", "mps"), "auto")
    devices: int = setting(_count, 1)
    num_nodes: int = setting(_count, 1)
    strategy: str = setting(choice("auto", "ddp", "fsdp"), "auto")
    threads: int = setting(_count, 1)
    gradient_checkpointing: bool = setting(truth, False)
    save: bool = setting(truth, False)


@dataclass(frozen=True, slots=True)
class LoggerConfig:
    """Logger of the training curves; ``conf/logger/wandb.yaml`` explains each key."""

    name: str = setting(text, "none")
    _target_: str | None = setting(optional(text), None)
    mode: str | None = setting(optional(choice("offline", "online", "disabled")), None)
    project: str | None = setting(optional(text), None)
    entity: str | None = setting(optional(text), None)
    group: str | None = setting(optional(text), None)
    tags: tuple[str, ...] = setting(_tags, ())

    @property
    def target(self) -> str:
        """Dotted path of the logger's class; "" = no logger."""
        return self._target_ or ""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Limits of a run, and which cells are run; ``conf/config.yaml`` explains each key."""

    limit: int | None = setting(optional(_count), None)
    timeout: float | None = setting(optional(number(low=0.001)), None)
    memory_gb: float | None = setting(optional(number(low=0.001)), None)
    retry: str = setting(choice("all", "failed", "timeout", "none"), "all")
    overwrite: str = setting(choice("never", "failed", "always"), "never")
    fail_fast: bool = setting(truth, False)
    dry_run: bool = setting(truth, False)
    feature_cache_gb: float = setting(number(low=0), 20.0)


@dataclass(frozen=True, slots=True)
class TaskConfig(Component):
    """Configuration of a task and its data. See :class:`harness.core.instantiate.Component`.

    Attributes:
        feature_body: default body over features and embedding tables: the name of a configuration in
            ``body/``, or its content.
        feature_body_options: options that replace those of ``feature_body``.
    """

    feature_body: str | Mapping[str, object] = setting(_name_or_section, "bilstm")
    feature_body_options: Mapping[str, object] = setting(section_or_empty, {})

    @classmethod
    def parse(cls, config: Mapping[str, object]) -> TaskConfig:
        """Parse the section ``task``; options of ``_target_`` are passed on unchanged.

        Raises:
            HarnessError: a value of the wrong type.
        """
        given = {str(k): v for k, v in config.items()}
        values = checked(cls, given, section="task", extra=True)
        options = {k: v for k, v in given.items() if k not in (*values, *COMPONENT_KEYS)}
        if "train_size" in options:
            options["train_size"] = train_size("task.train_size", options["train_size"])
        component = component_values(config, key="task")
        check_options(str(component["target"]), options, key="task")
        check_files(str(component["files_function"]), options, key="task")
        return made(cls, {**component, **values, "options": options})

    @property
    def kind(self) -> str:
        """The kind of task, such as ``ner``; "" if the configuration does not name it."""
        return str(self.options.get("kind") or "")

    def build(self) -> Task:
        """Create the task without reading its data.

        Raises:
            HarnessError: an unknown option, or one of the wrong type.
        """
        try:
            task: Task = construct(self.target, self.arguments(), where=self.name)
        except (TypeError, ValueError, AttributeError) as e:  # an option of a type the task does not expect
            raise HarnessError(f"task {self.name}: an option has a value of the wrong type ({e})") from e
        check_task(task)
        return task
