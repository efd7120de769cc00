"""From a composed configuration to a cell: what exactly will run, under which identity, and whether at all.

Torch-free throughout: the driver of a sweep resolves hundreds of cells before anything heavy is loaded.
"""

from __future__ import annotations

import copy
import functools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.build import build, locate
from harness.data.files import fingerprint as text_fingerprint
from harness.errors import HarnessError, did_you_mean
from harness.fingerprint import files_fingerprint
from harness.identity import GROUPS, PLACES, cell_id, identity, slug
from harness.settings import typed
from harness.strategies.base import Strategy
from harness.task import Splits

RECIPE = {
    "lr": "optimizer",
    "weight_decay": "optimizer",
    "betas": "optimizer",
    "epochs": "trainer",
    "batch_size": "trainer",
    "dropout": "trainer",
    "patience": "trainer",
    "warmup": "schedule",
}
FALLBACK = {
    "lr": 1e-3, "weight_decay": 0.0, "betas": [0.9, 0.999], "epochs": 10, "batch_size": 32, "dropout": 0.1,
    "patience": None, "warmup": 0.0, "schedule": "constant",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell ready to run (or to be skipped). Plain data: it travels to the child that runs it.

    Attributes:
        id: 12 hex digits over everything that can change the result, the seed apart.
        seed: the seed.
        folder: where its record goes, absolute.
        config: the resolved configuration, every recipe filled in; JSON-able.
        variant: resolved settings that differ from what this encoder, strategy and task give by default.
        skip: the reason to skip it, or None.
        cache_dir: features, tables and downloads, absolute.
        files: fingerprint of the content of the encoder's and of the task's files.
    """

    id: str
    seed: int
    folder: Path
    config: dict[str, Any]
    variant: dict[str, Any]
    skip: str | None
    cache_dir: Path
    files: dict[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """``task/encoder/strategy/id/seed-n``, as every message names it."""
        return "/".join(self.folder.parts[-5:])


def prepare(config: Mapping[str, Any], *, overrides: Sequence[str] = ()) -> Cell:
    """Resolve one configuration.

    Args:
        config: the composed configuration as plain data.
        overrides: what was given on the command line (``key=value``), for the variant's name.

    Raises:
        HarnessError: names the key, the value and the mend; nothing has been read or written by then.
    """
    given = typed(config)
    _need_groups(given)
    task = _build_task(given["task"])
    resolved = resolve(given)
    _check_windows(resolved["trainer"], truncate=task.truncate)
    reason = reason_to_skip(resolved, n_texts=task.n_texts)
    cache_dir = cache_folder(given["cache_dir"])
    files = {} if reason else _files(resolved, cache_dir)
    cell = cell_id(resolved, files)
    folder = Path(given["results_dir"]).expanduser().absolute()
    for part in (resolved["task"]["name"], resolved["encoder"]["name"], resolved["strategy"]["name"], cell):
        folder /= slug(str(part))
    return Cell(
        id=cell,
        seed=given["seed"],
        folder=folder / f"seed-{given['seed']}",
        config=resolved,
        variant=variant(given, resolved, overrides, truncate=task.truncate),
        skip=reason,
        cache_dir=cache_dir,
        files=files,
    )


def _build_task(config: Mapping[str, Any]) -> Any:
    try:
        return build(config)
    except (TypeError, ValueError, AttributeError) as e:  # an option of a type the task never thought of
        raise HarnessError(f"task {config['name']}: an option has a value of the wrong kind ({e})") from e


def _check_windows(trainer: dict[str, Any], *, truncate: bool) -> None:
    if truncate:
        trainer["overlap"] = 0  # texts are cut: there are no windows to overlap
    elif trainer["max_units"] is not None and trainer["overlap"] >= trainer["max_units"]:
        raise HarnessError(
            f"trainer.overlap={trainer['overlap']}: must be below trainer.max_units={trainer['max_units']}"
        )


def read_data(cell: Cell) -> tuple[Any, Splits]:
    """The cell's task and its splits, checked: nothing that training would stumble over.

    Raises:
        HarnessError: data that cannot be read, an empty split, or no dev split to choose the epoch on.
    """
    task = _build_task(cell.config["task"])
    splits = task.splits(limit=cell.config["limit"])
    for name, examples in splits.items():
        if not examples and name != "dev":
            raise HarnessError(f"task {task.name}: the {name} split has no examples")
    if not splits.dev and cell.config["trainer"]["select"] == "best":
        raise HarnessError(
            f"task {task.name} has no dev split to choose the epoch on: give one, or trainer.select=last"
        )
    return task, splits


def resolve(given: Mapping[str, Any]) -> dict[str, Any]:
    """Fill what was left open: explicit values stay, then the encoder's recipe for the strategy, then the
    strategy's own, then the engine's defaults."""
    out: dict[str, Any] = {k: dict(v) if isinstance(v, Mapping) else v for k, v in given.items()}
    strategy = Strategy.from_config(out["strategy"])
    rates = {k: getattr(strategy, k) for k in ("lr", "relative_lr", "layer_decay")}
    out["strategy"] |= rates  # as numbers, a factor of one left out
    if out["strategy"].pop("thaw", None) is not None and strategy.thaw is not None:
        out["strategy"]["thaw"] = strategy.thaw
    recipe = _recipe(out["encoder"], out["strategy"])
    for key, section in RECIPE.items():
        # patience: null is an answer (never stop early)
        if out[section][key] == "auto" or (out[section][key] is None and key != "patience"):
            out[section][key] = recipe.get(key, FALLBACK[key])
    if out["schedule"]["name"] == "auto":
        out["schedule"]["name"] = recipe.get("schedule", FALLBACK["schedule"])
    out = typed(out)
    out["encoder"]["table"] = is_table(out["encoder"])
    features = strategy.features or out["encoder"]["table"]
    can_join = bool(out["encoder"].get("joint"))
    # an encoder that reads one text at a time needs a body where question and context meet
    apart = not can_join and out["task"].get("feature_body") == "attention_flow"
    out["body"] = _body(out["body"], recipe, features=features or apart, task=out["task"])
    if out["encoder"].get("pairs", "auto") == "auto":
        out["encoder"]["pairs"] = "joint" if can_join and not features else "separate"
    if out["encoder"]["pairs"] == "joint" and not can_join:
        raise HarnessError(
            f"encoder.pairs=joint: {out['encoder']['name']} reads one text at a time, valid: separate"
        )
    _choose_layers(out["encoder"], recipe)
    return out


def _choose_layers(encoder: dict[str, Any], recipe: Mapping[str, Any]) -> None:
    """Layers left open are the recipe's, else the top one; what a mix does counts only where there is one."""
    if encoder.get("layers", "auto") == "auto":
        encoder["layers"] = recipe.get("layers", "top")
    options = encoder.pop("mix", None)
    if options and encoder["layers"] != "top":
        encoder["mix"] = options


def is_table(encoder: Mapping[str, Any]) -> bool:
    """Whether an encoder is nothing but an embedding table, or joins nothing but such."""
    members = [m for m in (encoder.get("members") or {}).values() if isinstance(m, Mapping)]
    return bool(encoder.get("table")) or (bool(members) and all(is_table(m) for m in members))


def has_table(encoder: Mapping[str, Any]) -> bool:
    """Whether an encoder is or has as a member a table: the cell's seed draws its unknown word."""
    members = [m for m in (encoder.get("members") or {}).values() if isinstance(m, Mapping)]
    return bool(encoder.get("table")) or any(has_table(m) for m in members)


def _recipe(encoder: Mapping[str, Any], strategy: Mapping[str, Any]) -> dict[str, Any]:
    recipes = _mapping(encoder.get("recipe"), where="encoder.recipe")
    own = _mapping(recipes.get(strategy["name"]), where=f"encoder.recipe.{strategy['name']}")
    merged = {**_mapping(strategy.get("recipe"), where="strategy.recipe"), **own}
    known = {*RECIPE, "schedule", "body", "layers", "source"}
    for key in merged:
        if key not in known:
            where = f"encoder {encoder['name']}, recipe.{strategy['name']}.{key}"
            raise HarnessError(f"{where}: a recipe cannot set this, {did_you_mean(key, known)}")
    return {k: v for k, v in merged.items() if v is not None}


def _mapping(value: Any, *, where: str) -> dict[str, Any]:
    if value is not None and not isinstance(value, Mapping):
        raise HarnessError(
            f"{where}={value!r}: settings by name are wanted, such as {{lr: 1.0e-3, epochs: 5}}"
        )
    return dict(value or {})


def _body(
    body: Mapping[str, Any], recipe: Mapping[str, Any], *, features: bool, task: Mapping[str, Any]
) -> dict[str, Any]:
    if body["name"] != "auto":
        return _plain_body(body)
    chosen = recipe.get("body") or (task.get("feature_body", "bilstm") if features else "none")
    return _plain_body(chosen if isinstance(chosen, Mapping) else load_group("body", str(chosen)))


def _plain_body(body: Mapping[str, Any]) -> dict[str, Any]:
    """Without what a body does anyway, so that asking for it makes no other cell."""
    return {k: v for k, v in body.items() if (k, v) != ("features", "before")}


def load_group(group: str, name: str) -> dict[str, Any]:
    """An option of a configuration group as plain data, from the installed configuration.

    Raises:
        HarnessError: there is no such option.
    """
    return copy.deepcopy(_loaded(group, name))


@functools.cache
def _loaded(group: str, name: str) -> dict[str, Any]:
    from omegaconf import OmegaConf

    from harness.paths import conf_dir

    path = conf_dir() / group / f"{name}.yaml"
    if not path.is_file():
        names = [p.stem for p in path.parent.glob("*.yaml")]
        raise HarnessError(f"{group}={name}: there is none of that name, {did_you_mean(name, names)}")
    data = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
    return {str(k): v for k, v in data.items()} if isinstance(data, dict) else {}


def reason_to_skip(resolved: Mapping[str, Any], *, n_texts: int) -> str | None:
    """Why the cell makes no sense or equals another one; None when it should run."""
    encoder, strategy, body = (
        resolved["encoder"],
        Strategy.from_config(resolved["strategy"]),
        resolved["body"],
    )
    name, layers = encoder["name"], encoder["layers"]
    if encoder.get("table") and strategy.carry == "encoder" and not strategy.frozen:
        return (
            f"{name} is an embedding table: strategy={strategy.name} would be the same cell as embedding_init"
        )
    if layers != "top" and (encoder.get("table") or strategy.carry == "embeddings"):
        return f"encoder.layers={layers}: an embedding table has no layers to choose from"
    if strategy.layer_decay is not None and (encoder.get("table") or strategy.features):
        return f"strategy.layer_decay={strategy.layer_decay}: no layers are fine-tuned here"
    if body.get("features") == "after" and not _has_embeddings(encoder, strategy):
        return f"body.features=after reads the embedding layer: encoder.layers=mix, not {layers}"
    if body["name"] == "attention_flow" and n_texts == 1:
        return "body=attention_flow joins two texts, the task has one"
    if body["name"] == "attention_flow" and encoder["pairs"] == "joint":
        return "body=attention_flow needs the texts apart: encoder.pairs=separate"
    if (
        resolved["task"].get("feature_body") == "attention_flow"
        and encoder["pairs"] == "separate"
        and body["name"] != "attention_flow"
    ):
        return f"body={body['name']} over separate texts: the question would never meet the context"
    return None


def _has_embeddings(encoder: Mapping[str, Any], strategy: Strategy) -> bool:
    """Whether layer 0 is among what the body gets."""
    layers = encoder["layers"]
    table = encoder.get("table") or strategy.carry == "embeddings"
    return bool(table) or layers == "mix" or (layers != "top" and layers[0] == 0)


def _files(resolved: Mapping[str, Any], cache_dir: Path) -> dict[str, str]:
    """Fingerprints of the encoder's and the task's files; of texts, line ends do not count."""
    out = {}
    for group, of in (("encoder", None), ("task", text_fingerprint)):
        find = resolved[group].get("_files_")
        files = locate(find)(resolved[group], cache_dir) if find else {}
        if group == "task":  # how a file is read may follow its ending
            files = {f"{role}{_ending(path)}": path for role, path in files.items()}
        out[group] = files_fingerprint(files, of=of)
    return out


def variant(
    given: Mapping[str, Any], resolved: Mapping[str, Any], overrides: Sequence[str], *, truncate: bool
) -> dict[str, Any]:
    """Settings that tell this cell from the default one of the same encoder, strategy and task."""
    plain = resolve({**given, **_default_sections()})
    _check_windows(plain["trainer"], truncate=truncate)
    out: dict[str, Any] = {}
    for group in ("body", "optimizer", "schedule", "trainer"):
        mine = _flat(identity(resolved[group], group=group))
        theirs = _flat(identity(plain[group], group=group))
        skip = ("_target_", "result_version")
        differ = {k: v for k, v in mine.items() if k not in skip and theirs.get(k) != v}
        if mine.get("name") == theirs.get("name"):
            differ |= {k: None for k in theirs if k not in mine and k not in skip}
        out |= {group if k == "name" else f"{group}.{k}": v for k, v in differ.items()}
    for override in overrides:
        key, _, value = override.lstrip("+~").partition("=")
        group, _, field = key.partition(".")
        if "@" in key:  # a member of a joint encoder, chosen by name
            out[key.partition("@")[2]] = value
        elif group in ("encoder", "strategy", "task") and field and field not in ("name", *PLACES):
            out[key] = _dig(resolved, key, value)
    return dict(sorted(out.items()))


def _default_sections() -> dict[str, Any]:
    names = {"body": "auto", "optimizer": "adamw", "schedule": "auto", "trainer": "default"}
    return {group: load_group(group, name) for group, name in names.items()}


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, item in value.items():
        out |= _flat(item, f"{prefix}{key}.") if isinstance(item, Mapping) else {f"{prefix}{key}": item}
    return out


def _ending(path: Path) -> str:
    return Path(path.name.removesuffix(".gz")).suffix.lower()


def _dig(config: Mapping[str, Any], dotted: str, default: Any) -> Any:
    value: Any = config
    for part in dotted.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return default
        value = value[part]
    return value


def _need_groups(config: Mapping[str, Any]) -> None:
    for group in GROUPS:
        if not isinstance(config.get(group), Mapping):
            raise HarnessError(f"{group}: nothing is chosen; add {group}=NAME (see `harness list`)")
        if group != "trainer" and config[group].get("name") in (None, "", "???"):
            raise HarnessError(f"{group}.name is missing: give {group}.name=NAME")
    for group in ("encoder", "task"):
        if config[group].get("path") == "???":
            raise HarnessError(f"{group}.path is missing: give {group}.path=PATH")


def cache_folder(given: str | None) -> Path:
    """Where features, tables and downloads are kept: as given, else $HARNESS_CACHE, else the user's cache."""
    place = given or os.environ.get("HARNESS_CACHE") or "~/.cache/transfer-harness"
    return Path(place).expanduser().absolute()
