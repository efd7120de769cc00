"""Building what a configuration names: ``_target_`` and ``_files_`` are dotted paths of callables."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from harness.errors import HarnessError, did_you_mean

META = (
    "_target_",
    "_files_",
    "recipe",
    "result_version",
    "about",
    "table",
    "joint",
    "feature_body",
    "feature_body_options",
    "layers",
    "mix",
    "pairs",
)
"""Keys of a group's YAML that speak to the engine and do not reach ``_target_``."""


def locate(path: str) -> Callable[..., Any]:
    """The callable behind ``package.module.name``.

    Raises:
        HarnessError: there is no such module or name.
    """
    module, _, name = path.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as e:
        raise HarnessError(f"{path}: cannot be imported ({e}); a dotted path of a callable is wanted") from e
    if not callable(found):
        raise HarnessError(f"{path}: is not callable")
    return found


def build(config: Mapping[str, Any], *args: Any, **extra: Any) -> Any:
    """Call ``config['_target_']`` with every key that is not the engine's, and ``extra``.

    Raises:
        HarnessError: a key that the callable does not know, with the nearest ones it does.
    """
    target = locate(config["_target_"])
    options = {k: v for k, v in config.items() if k not in META} | extra
    refuse_unknown(target, options, where=str(config.get("name", config["_target_"])))
    return target(*args, **options)


def refuse_unknown(target: Callable[..., Any], options: Mapping[str, Any], *, where: str) -> None:
    """Raise HarnessError for an option that ``target`` does not take."""
    parameters = inspect.signature(target).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return
    for key in options:
        if key not in parameters:
            raise HarnessError(f"{where}: unknown option {key}, {did_you_mean(key, parameters)}")
