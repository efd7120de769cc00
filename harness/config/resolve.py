"""Resolve a composed configuration to a cell: what runs, its identity, and the reason if it is skipped.

Does not import torch, because a sweep resolves hundreds of cells before it imports anything heavy. Encoder,
strategy, task and recipe are parsed only here; all other code receives them in typed form.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from harness.bodies.config import BodyConfig
from harness.config.cell_id import GROUPS, cell_id, draws_masks, hardware_identity, identity
from harness.config.groups import Folders, Section, load_option, searched_folders
from harness.config.guessed import redundant_options
from harness.config.labels import refuse_booleans, typed_labels
from harness.config.portable import portable_sections
from harness.config.recipes import (
    check_feature_body,
    check_recipes,
    choose_body,
    fill,
    must_join,
    recipe_of,
    with_bodies,
)
from harness.config.schema import check, check_patience, check_windows
from harness.config.skips import reason_to_skip
from harness.core.fingerprint import slug
from harness.core.paths import cache_folder
from harness.core.redaction import PLACES
from harness.core.validation import made
from harness.encoders.config import EncoderConfig
from harness.errors import HarnessError
from harness.records.cell import Cell
from harness.records.inputs import InputFiles, fingerprint_inputs
from harness.records.parts import (
    LoggerConfig,
    OptimizerConfig,
    RunOptions,
    ScheduleConfig,
    TaskConfig,
    TrainerConfig,
)
from harness.strategies.adapt import resolve_adapt
from harness.strategies.strategy import Strategy
from harness.task import Task

DEFAULTS = {"body": "auto", "optimizer": "adamw", "schedule": "auto", "trainer": "default"}
"""Default options of the groups, with which a variant is compared."""


@dataclass(frozen=True, slots=True)
class Parts:
    """Parsed sections that determine how open settings are filled.

    Attributes:
        encoder, strategy, task: parsed; ``adapt`` of the strategy is resolved, and the bodies that they name
            are replaced by their options.
        recipe: of the encoder for the strategy.
        over_features: the default body is the task's network over features.
        truncate: the task uses only the first window of a text.
    """

    encoder: EncoderConfig
    strategy: Strategy
    task: TaskConfig
    recipe: Section
    over_features: bool
    truncate: bool

    def sections(self, given: Mapping[str, object]) -> dict[str, Section]:
        """Return body, optimizer, schedule and trainer with all open settings filled."""
        out = fill(given, self.recipe)
        check_windows(out["trainer"], truncate=self.truncate)
        body = choose_body(_section(given, "body"), self.recipe, self.task, over_features=self.over_features)
        return {"body": body, **out}


def prepare(
    config: Mapping[str, object], *, overrides: Sequence[str] = (), folders: Folders | None = None
) -> Cell:
    """Resolve a configuration, either composed or stored.

    Args:
        config: the configuration as plain data.
        overrides: command-line overrides (``key=value``), for the name of the variant.
        folders: folders with the bodies that task and recipes name; None = those of the current command.

    Raises:
        HarnessError: names the key, the value and the fix. Raised before any data are read or written.
    """
    given = _checked(config)
    task_config = TaskConfig.parse(_section(given, "task"))
    task = task_config.build()
    parts = _parts(given, task_config, task, folders=searched_folders() if folders is None else folders)
    sections = parts.sections(given)
    body = BodyConfig.parse(sections["body"])
    sections["body"] = {**sections["body"], **body.options}
    reason = reason_to_skip(
        parts.encoder, parts.strategy, body, n_texts=task.n_texts, must_join=must_join(parts.task)
    )
    resolved = {**given, **_component_sections(given, parts), **sections}
    cache_dir = cache_folder(_text_or_none(given["cache_dir"]))
    adapts = parts.strategy.adapt is not None
    files = InputFiles()
    if reason is None:
        files = fingerprint_inputs(parts.encoder, parts.task, body, adapts=adapts, cache_dir=cache_dir)
    trainer = made(TrainerConfig, sections["trainer"])
    masks = draws_masks(trainer, body, parts.encoder, parts.strategy)
    hardware = hardware_identity(trainer, draws_masks=masks)
    redundant = _redundant(parts.task, files, cache_dir) if reason is None else {}
    identifier = cell_id(
        {**resolved, "task": {**_section(resolved, "task"), **redundant}},
        files.fingerprints,
        hardware=hardware,
        adapts=parts.encoder if adapts else None,
    )
    kept = [o for o in overrides if o.lstrip("+~").partition("=")[0] not in {f"task.{k}" for k in redundant}]
    results_dir = Path(str(given["results_dir"])).expanduser().absolute()
    seed = int(str(given["seed"]))
    return Cell(
        id=identifier,
        seed=seed,
        folder=_folder(results_dir, parts, identifier) / f"seed-{seed}",
        results_dir=results_dir,
        cache_dir=cache_dir,
        encoder=parts.encoder,
        strategy=parts.strategy,
        body=body,
        task=parts.task,
        optimizer=made(OptimizerConfig, sections["optimizer"]),
        schedule=made(ScheduleConfig, sections["schedule"]),
        trainer=trainer,
        logger=made(LoggerConfig, _section(given, "logger")),
        options=made(RunOptions, {key: given[key] for key in RunOptions.__dataclass_fields__}),
        variant=variant(resolved, parts, kept) | {f"trainer.{k}": v for k, v in hardware.items()},
        skip=reason,
        files=files.fingerprints,
        sources=files.signatures,
        resolved=resolved,
    )


def _checked(config: Mapping[str, object]) -> Section:
    """The configuration with known keys only, labels as text and absolute paths."""
    _need_groups(config)
    given = check(config)
    given["task"] = typed_labels(_section(given, "task"))
    refuse_booleans(given)
    given |= portable_sections(given)
    check_patience(_section(given, "trainer"))
    return given


def _redundant(task: TaskConfig, files: InputFiles, cache_dir: Path) -> Section:
    """Options of the task that decide nothing. A hub data set is not loaded to find them out."""
    return redundant_options(task, files.fingerprints["task"]) if task.files(cache_dir) else {}


def _parts(given: Mapping[str, object], task_config: TaskConfig, task: Task, *, folders: Folders) -> Parts:
    encoder = EncoderConfig.parse(_section(given, "encoder"))
    strategy = Strategy.parse(_section(given, "strategy"))
    if strategy.adapt is not None:
        strategy = replace(strategy, adapt=resolve_adapt(encoder, strategy.adapt))
    check_recipes(encoder, strategy, folders)
    encoder, strategy, task_config = with_bodies(encoder, strategy, task_config, folders)
    check_feature_body(task_config)
    recipe = recipe_of(encoder, strategy)
    features = strategy.features or encoder.table
    return Parts(
        encoder=_resolve_encoder(encoder, recipe, features=features),
        strategy=strategy,
        task=task_config,
        recipe=recipe,
        # an encoder that reads one text at a time needs a body that combines question and context
        over_features=features or (not encoder.joint and must_join(task_config)),
        truncate=task.truncate,
    )


def _resolve_encoder(
    encoder: EncoderConfig, recipe: Mapping[str, object], *, features: bool
) -> EncoderConfig:
    """Fill ``layers`` and ``pairs`` if they are open, and drop the options of the mix if there is none."""
    if encoder.layers == "auto":
        encoder = replace(encoder, layers=_recipe_layers(recipe))
    if encoder.pairs == "auto":
        encoder = replace(encoder, pairs="joint" if encoder.joint and not features else "separate")
    if encoder.pairs == "joint" and not encoder.joint:
        raise HarnessError(
            f"encoder.pairs=joint: {encoder.name} reads one text at a time; set encoder.pairs=separate"
        )
    return replace(encoder, mix=None) if encoder.layers == "top" else encoder


def _recipe_layers(recipe: Mapping[str, object]) -> str | tuple[int, ...]:
    from harness.encoders.config import check_layers

    layers = check_layers("encoder.layers", recipe.get("layers"))
    return layers if isinstance(layers, str) else tuple(layers)


def _component_sections(given: Mapping[str, object], parts: Parts) -> dict[str, Section]:
    """Return encoder, strategy and task as plain data, with their resolved fields."""
    encoder, strategy, task = parts.encoder, parts.strategy, parts.task
    apart = {"encoder": ("mix",), "strategy": ("adapt", "unfreeze"), "task": ()}
    out = {
        group: {k: v for k, v in _section(given, group).items() if k not in apart[group]} for group in apart
    }
    layers = encoder.layers if isinstance(encoder.layers, str) else list(encoder.layers)
    out["encoder"] |= {"name": encoder.name, "table": encoder.table, "layers": layers, "pairs": encoder.pairs}
    if encoder.mix is not None:
        out["encoder"]["mix"] = {k: v for k, v in asdict(encoder.mix).items() if v}
    rates = {key: getattr(strategy, key) for key in ("lr", "relative_lr", "layer_decay")}
    out["strategy"] |= {"name": strategy.name, **rates}
    if strategy.unfreeze is not None:
        out["strategy"]["unfreeze"] = strategy.unfreeze
    if strategy.adapt is not None:
        out["strategy"]["adapt"] = strategy.adapt.to_config()
    out["task"] |= {"name": task.name, "feature_body": task.feature_body}
    for group, recipe in (("encoder", encoder.recipe), ("strategy", strategy.recipe)):
        if recipe:
            out[group]["recipe"] = recipe
    # other recipes may name strategies that only this command can find
    out["encoder"] = _with_recipes(out["encoder"], (strategy.name, "full"))
    out["task"] |= {key: task.options[key] for key in ("train_size",) if key in task.options}
    return out


def _with_recipes(encoder: Mapping[str, object], names: Collection[str]) -> Section:
    """Return an encoder's section, and its members', with these recipes only."""
    out = dict(encoder)
    recipe, members = out.get("recipe"), out.get("members")
    if isinstance(recipe, Mapping):
        out["recipe"] = {k: v for k, v in recipe.items() if k in names}
    if isinstance(members, Mapping):
        out["members"] = {
            k: _with_recipes(v, names) if isinstance(v, Mapping) else v for k, v in members.items()
        }
    return out


def _folder(results_dir: Path, parts: Parts, identifier: str) -> Path:
    folder = results_dir
    for name in (parts.task.name, parts.encoder.name, parts.strategy.name, identifier):
        folder /= slug(name)
    return folder


def variant(resolved: Mapping[str, object], parts: Parts, overrides: Sequence[str]) -> Section:
    """Return the settings that differ from the default cell of the same encoder, strategy and task.

    Args:
        resolved: the configuration of the cell.
        parts: its parsed sections.
        overrides: command-line overrides.
    """
    default = parts.sections(_default_sections())
    out: Section = {}
    for group in DEFAULTS:
        values = _flat(identity(_section(resolved, group), group=group))
        defaults = _flat(identity(default[group], group=group))
        hidden = ("_target_", "result_version")
        differ = {k: v for k, v in values.items() if k not in hidden and defaults.get(k) != v}
        if values.get("name") == defaults.get("name"):
            differ |= {k: None for k in defaults if k not in values and k not in hidden}
        out |= {group if k == "name" else f"{group}.{k}": v for k, v in differ.items()}
    for override in overrides:
        key, _, value = override.lstrip("+~").partition("=")
        group, _, field = key.partition(".")
        if "@" in key:  # a member of a joint encoder, chosen by name
            out[key.partition("@")[2]] = value
        elif group in ("encoder", "strategy", "task") and field and field not in ("name", *PLACES):
            resolved_value = _dig(resolved, key, value)
            out[key] = value if _is_component(resolved_value) else resolved_value
    if out.get("task.train_size", 0) is None:  # all examples is the default
        del out["task.train_size"]
    return dict(sorted(out.items()))


@functools.cache
def _default_sections() -> dict[str, object]:
    groups: dict[str, object] = {group: load_option(group, name) for group, name in DEFAULTS.items()}
    return check(groups)


def _is_component(value: object) -> bool:
    """Whether a value is a body that was selected by name; the variant shows the name."""
    return isinstance(value, Mapping) and "_target_" in value


def _flat(value: Mapping[str, object], prefix: str = "") -> Section:
    out: Section = {}
    for key, item in value.items():
        out |= _flat(item, f"{prefix}{key}.") if isinstance(item, Mapping) else {f"{prefix}{key}": item}
    return out


def _dig(config: Mapping[str, object], dotted: str, default: object) -> object:
    value: object = config
    for part in dotted.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return default
        value = value[part]
    return value


def _section(config: Mapping[str, object], group: str) -> Section:
    section = config[group]
    assert isinstance(section, Mapping)
    return {str(k): v for k, v in section.items()}


def _text_or_none(value: object) -> str | None:
    return None if value is None else str(value)


def _need_groups(config: Mapping[str, object]) -> None:
    for group in GROUPS:
        section = config.get(group)
        if not isinstance(section, Mapping):
            raise HarnessError(f"{group}: no option is selected; add {group}=NAME (see `harness list`)")
        if group != "trainer" and section.get("name") in (None, "", "???"):
            raise HarnessError(f"{group}.name is missing: set {group}.name=NAME")
        if group in ("encoder", "task") and section.get("path") == "???":
            raise HarnessError(f"{group}.path is missing: set {group}.path=PATH")
