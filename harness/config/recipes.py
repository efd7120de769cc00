"""Fill the open settings of a configuration: values from recipes, else the defaults of the sections."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace

from harness.bodies.config import BodyConfig
from harness.config.groups import Folders, Section, load_option, option_names
from harness.core.instantiate import COMPONENT_KEYS
from harness.core.paths import conf_dir
from harness.core.validation import checked, section_or_empty
from harness.encoders.config import EncoderConfig
from harness.errors import HarnessError, did_you_mean
from harness.records.parts import OptimizerConfig, ScheduleConfig, TaskConfig, TrainerConfig
from harness.strategies.strategy import Strategy

FILLED: dict[str, type] = {
    "optimizer": OptimizerConfig,
    "schedule": ScheduleConfig,
    "trainer": TrainerConfig,
}
"""Sections with settings that a recipe can set: those declared with ``auto``."""


def _open_settings() -> Iterator[tuple[str, str, str, object, object]]:
    """Yield recipe key, section, field, the value that leaves it open, and the default."""
    for section, schema in FILLED.items():
        for f in fields(schema):
            if f.metadata["auto"] is not ...:
                key = section if f.name == "name" else f.name  # a recipe's `schedule` is schedule.name
                yield key, section, f.name, f.metadata["auto"], f.default


OPEN = tuple(_open_settings())
RECIPE_KEYS = frozenset({*(key for key, *_ in OPEN), "body", "layers", "source"})


def recipe_of(encoder: EncoderConfig, strategy: Strategy) -> Section:
    """Return the hyperparameters of an encoder with a strategy: the encoder's recipe for the strategy, then
    the strategy's own.

    Raises:
        HarnessError: a key that recipes cannot set.
    """
    own = section_or_empty(f"encoder.recipe.{strategy.name}", encoder.recipe.get(strategy.name))
    merged = {**strategy.recipe, **own}
    for key in strategy.recipe:
        _check_key(key, where=f"strategy.recipe.{key}")
    return {k: v for k, v in merged.items() if v is not None}


def check_recipes(
    encoder: EncoderConfig, strategy: Strategy, folders: Folders, *, key: str = "encoder"
) -> None:
    """Check the recipes of an encoder and its members, also those for other strategies.

    Args:
        encoder: whose recipes are checked.
        strategy: of the cell.
        folders: configuration folders, which contain the other strategies.
        key: dotted key of the encoder's section.

    Raises:
        HarnessError: a strategy that does not exist, or a key that recipes cannot set.
    """
    names = {*option_names("strategy", folders or (conf_dir(),)), strategy.name}
    for name, recipe in encoder.recipe.items():
        where = f"{key}.recipe.{name}"
        if name not in names:
            raise HarnessError(f"{where}: there is no strategy {name}, {did_you_mean(name, sorted(names))}")
        for setting in section_or_empty(where, recipe):
            _check_key(setting, where=f"{where}.{setting}")
    for name, member in encoder.members.items():
        check_recipes(member, strategy, folders, key=f"{key}.members.{name}")


def _check_key(key: str, *, where: str) -> None:
    if key not in RECIPE_KEYS:
        raise HarnessError(f"{where}: a recipe cannot set this, {did_you_mean(key, sorted(RECIPE_KEYS))}")


def fill(given: Mapping[str, object], recipe: Mapping[str, object]) -> dict[str, Section]:
    """Return the sections of :data:`FILLED` with all settings filled: configured values take precedence over
    the recipe, and the recipe over the defaults.

    Args:
        given: a configuration whose sections have been checked.
        recipe: from :func:`recipe_of`.

    Raises:
        HarnessError: the recipe has a value of the wrong type or range.
    """
    out = {name: section_or_empty(name, given[name]) for name in FILLED}
    for key, section, name, left_open, default in OPEN:
        if out[section][name] == left_open:
            out[section][name] = recipe.get(key, default)
    try:
        out = {name: checked(FILLED[name], values, section=name) for name, values in out.items()}
    except HarnessError as e:
        raise HarnessError(f"{e} (in the recipe of the encoder for the strategy)") from e
    if out["trainer"]["select"] == "last":
        out["trainer"]["patience"] = None  # all epochs run, and the last one is taken
    return out


def choose_body(
    given: Mapping[str, object], recipe: Mapping[str, object], task: TaskConfig, *, over_features: bool
) -> Section:
    """Return the body's section: as configured, else from the recipe, else the task's body over features, or
    no body for fine-tuning.

    Args:
        given: the section ``body`` of the configuration.
        recipe: from :func:`recipe_of`; its body and that of the task are from :func:`with_bodies`.
        task: defines the body over features.
        over_features: the encoder provides features or is a table, or it cannot combine two texts.
    """
    if given["name"] != "auto":
        return _without_defaults(given)
    if more := [key for key in given if key not in ("name", *COMPONENT_KEYS)]:
        raise HarnessError(
            f"body.{more[0]}: body=auto takes its options from the recipe or the task; choose a body with "
            f"it, such as body=bilstm body.{more[0]}={given[more[0]]}"
        )
    if chosen := recipe.get("body"):
        return _without_defaults(section_or_empty("recipe.body", chosen))
    if not over_features:
        return load_option("body", "none")
    body = section_or_empty("task.feature_body", task.feature_body)
    return _without_defaults({**body, **task.feature_body_options})


def with_bodies(
    encoder: EncoderConfig, strategy: Strategy, task: TaskConfig, folders: Folders
) -> tuple[EncoderConfig, Strategy, TaskConfig]:
    """Replace the bodies that task and recipes name with their options, so that a stored configuration does
    not depend on the folders of the command that created it.

    Args:
        encoder, strategy, task: parsed sections.
        folders: configuration folders, see :func:`harness.config.groups.load_option`.

    Raises:
        HarnessError: a body does not exist.
    """
    own = section_or_empty(f"encoder.recipe.{strategy.name}", encoder.recipe.get(strategy.name))
    if own:
        recipe = {**encoder.recipe, strategy.name: _with_body(own, folders)}
        encoder = replace(encoder, recipe=recipe)
    if strategy.recipe:
        strategy = replace(strategy, recipe=_with_body(strategy.recipe, folders))
    if isinstance(task.feature_body, str):
        task = replace(task, feature_body=_body(task.feature_body, "task.feature_body", folders))
    return encoder, strategy, task


def _with_body(recipe: Mapping[str, object], folders: Folders) -> Section:
    name = recipe.get("body")
    return {**recipe, "body": _body(name, "recipe.body", folders)} if isinstance(name, str) else {**recipe}


def _body(name: str, key: str, folders: Folders) -> Section:
    try:
        return load_option("body", name, folders)
    except HarnessError as e:
        raise HarnessError(f"{key}={name}: {e}") from e


def check_feature_body(task: TaskConfig) -> None:
    """Check the options of the task's body over features, also in cells that have another body.

    Raises:
        HarnessError: an unknown option, or a value of the wrong type or range.
    """
    if task.feature_body_options and isinstance(task.feature_body, Mapping):
        try:
            BodyConfig.parse({**task.feature_body, **task.feature_body_options})
        except HarnessError as e:
            raise HarnessError(f"task.feature_body_options: {e}") from e


def must_join(task: TaskConfig) -> bool:
    """Whether the task's body over features combines two texts, so that some part of the network must."""
    return isinstance(task.feature_body, Mapping) and bool(task.feature_body.get("joins_texts"))


def _without_defaults(body: Mapping[str, object]) -> Section:
    """Drop the option that equals the default, so that setting it explicitly does not change the cell id."""
    return {k: v for k, v in body.items() if (k, v) != ("features", "before")}
