"""Fill the open settings of a configuration: values from recipes, else the defaults of the sections."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path

from harness.core.paths import conf_dir
from harness.core.validation import checked, section_or_empty
from harness.encoders.config import EncoderConfig
from harness.errors import HarnessError, did_you_mean
from harness.records.parts import OptimizerConfig, ScheduleConfig, TaskConfig, TrainerConfig
from harness.strategies.strategy import Strategy

Section = dict[str, object]
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
    for key in merged:
        if key not in RECIPE_KEYS:
            where = f"encoder {encoder.name}, recipe.{strategy.name}.{key}"
            raise HarnessError(f"{where}: a recipe cannot set this, {did_you_mean(key, RECIPE_KEYS)}")
    return {k: v for k, v in merged.items() if v is not None}


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
    out = {name: checked(FILLED[name], values, section=name) for name, values in out.items()}
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
        recipe: from :func:`recipe_of`.
        task: defines the body over features.
        over_features: the encoder provides features or is a table, or it cannot combine two texts.

    Raises:
        HarnessError: the body does not exist.
    """
    if given["name"] != "auto":
        return _without_defaults(given)
    if chosen := recipe.get("body"):
        return _without_defaults(chosen if isinstance(chosen, Mapping) else load_group("body", str(chosen)))
    if not over_features:
        return load_group("body", "none")
    return _without_defaults({**load_group("body", task.feature_body), **task.feature_body_options})


def must_join(task: TaskConfig) -> bool:
    """Whether the task's body over features combines two texts, so that some part of the network must."""
    exists = (_group_folder("body") / f"{task.feature_body}.yaml").is_file()
    return exists and bool(load_group("body", task.feature_body).get("joins_texts"))


def _without_defaults(body: Mapping[str, object]) -> Section:
    """Drop the option that equals the default, so that setting it explicitly does not change the cell id."""
    return {k: v for k, v in body.items() if (k, v) != ("features", "before")}


def load_group(group: str, name: str) -> Section:
    """Load an option of a configuration group as plain data, from the installed configuration.

    Raises:
        HarnessError: the option does not exist.
    """
    return copy.deepcopy(_loaded(group, name))


@functools.cache
def _loaded(group: str, name: str) -> Section:
    from omegaconf import OmegaConf

    path = _group_folder(group) / f"{name}.yaml"
    if not path.is_file():
        names = [p.stem for p in path.parent.glob("*.yaml")]
        raise HarnessError(f"{group}={name}: there is no such option, {did_you_mean(name, names)}")
    data = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
    return {str(k): v for k, v in data.items()} if isinstance(data, dict) else {}


def _group_folder(group: str) -> Path:
    return conf_dir() / group
