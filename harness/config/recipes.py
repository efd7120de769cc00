"""Filling in what a configuration leaves open: given values, then recipes, then the engine's defaults."""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping
from typing import Any

from harness.config.schema import typed
from harness.config.skips import is_table
from harness.errors import HarnessError, did_you_mean
from harness.strategies.adapt import resolved
from harness.strategies.strategy import Strategy

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


def resolve(given: Mapping[str, Any]) -> dict[str, Any]:
    """Fill what was left open: explicit values stay, then the encoder's recipe for the strategy, then the
    strategy's own, then the engine's defaults."""
    out: dict[str, Any] = {k: dict(v) if isinstance(v, Mapping) else v for k, v in given.items()}
    strategy = Strategy.from_config(out["strategy"])
    rates = {k: getattr(strategy, k) for k in ("lr", "relative_lr", "layer_decay")}
    out["strategy"] |= rates  # as numbers, a factor of one left out
    if out["strategy"].pop("unfreeze", None) is not None and strategy.unfreeze is not None:
        out["strategy"]["unfreeze"] = strategy.unfreeze
    if out["strategy"].pop("adapt", None) is not None and strategy.adapt is not None:
        out["strategy"]["adapt"] = resolved(out["encoder"], strategy.adapt)
    recipe = _recipe(out["encoder"], out["strategy"])
    for key, section in RECIPE.items():
        # patience: null is an answer (never stop early)
        if out[section][key] == "auto" or (out[section][key] is None and key != "patience"):
            out[section][key] = recipe.get(key, FALLBACK[key])
    if out["schedule"]["name"] == "auto":
        out["schedule"]["name"] = recipe.get("schedule", FALLBACK["schedule"])
    out = typed(out)
    if out["trainer"]["select"] == "last":
        out["trainer"]["patience"] = None  # the last epoch is the last one planned
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
    if chosen := recipe.get("body"):
        return _plain_body(chosen if isinstance(chosen, Mapping) else load_group("body", str(chosen)))
    if not features:
        return load_group("body", "none")
    own = _mapping(task.get("feature_body_options"), where="task.feature_body_options")
    return _plain_body(load_group("body", str(task.get("feature_body", "bilstm"))) | dict(own))


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

    from harness.core.paths import conf_dir

    path = conf_dir() / group / f"{name}.yaml"
    if not path.is_file():
        names = [p.stem for p in path.parent.glob("*.yaml")]
        raise HarnessError(f"{group}={name}: there is none of that name, {did_you_mean(name, names)}")
    data = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
    return {str(k): v for k, v in data.items()} if isinstance(data, dict) else {}
