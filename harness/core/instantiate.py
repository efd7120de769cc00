"""Build the components of a configuration: ``_target_`` and ``_files_`` are dotted paths of callables."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.core.validation import number, text
from harness.errors import HarnessError, did_you_mean

Callee = Callable[..., Any]
"""Any callable: its type is known only after its dotted path has been imported."""


@dataclass(frozen=True, slots=True)
class Component:
    """A part of a cell, described by a dotted path and keyword arguments.

    Attributes:
        name: as in the configuration.
        target: dotted path of the callable that builds it (``_target_``).
        options: its keyword arguments; the callable knows their types.
        files_function: dotted path of a function ``(arguments, cache_dir) -> {role: path}`` (``_files_``);
            "" if the part reads no files.
        about: notes for readers, such as ``size`` and ``where``; the files function may quote them.
        result_version: incremented when a fix changes results.
    """

    name: str
    target: str
    options: Mapping[str, object] = field(default_factory=dict)
    files_function: str = ""
    about: Mapping[str, object] = field(default_factory=dict)
    result_version: int = 1

    def files(self, cache_dir: Path) -> dict[str, Path]:
        """Return the files that determine what the part computes, by role.

        Raises:
            HarnessError: a file is missing.
        """
        if not self.files_function:
            return {}
        return dict(locate(self.files_function)(self.file_arguments(), cache_dir))

    def file_arguments(self) -> dict[str, object]:
        """Return the input of a files function: the arguments of the target, and ``about``."""
        return {**self.arguments(), "about": self.about}

    def arguments(self) -> dict[str, object]:
        """Return the keyword arguments of :attr:`target`."""
        return {"name": self.name, **self.options}


COMPONENT_KEYS = ("name", "_target_", "_files_", "about", "result_version")
"""Keys of a component's section that are read into fields other than :attr:`Component.options`."""


def component_values(config: Mapping[str, object], *, key: str) -> dict[str, object]:
    """Check the fields of a component except its options.

    Args:
        config: its section.
        key: dotted key of the section, for messages.

    Raises:
        HarnessError: a value of the wrong type.
    """
    name, about = config.get("name"), config.get("about")
    version = config.get("result_version")
    return {
        "name": "" if name is None else text(f"{key}.name", name),
        "target": str(config.get("_target_") or ""),
        "files_function": str(config.get("_files_") or ""),
        "about": dict(about) if isinstance(about, Mapping) else {},
        "result_version": number(low=0, whole=True)(
            f"{key}.result_version", 1 if version is None else version
        ),
    }


def locate(path: str) -> Callee:
    """Import the callable behind ``package.module.name``.

    Raises:
        HarnessError: the module or the name does not exist.
    """
    module, _, name = path.rpartition(".")
    try:
        target: object = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as e:
        raise HarnessError(f"{path}: cannot be imported ({e}); expected the dotted path of a callable") from e
    if not callable(target):
        raise HarnessError(f"{path}: is not callable")
    return target


def construct(target: str, options: Mapping[str, object], *args: object, where: str) -> Any:
    """Call the callable behind ``target`` with ``args`` and ``options``.

    Args:
        target: its dotted path.
        options: keyword arguments.
        args: positional arguments.
        where: the part's name, for messages.

    Raises:
        HarnessError: an option that the callable does not accept; names the closest valid ones.
    """
    function = locate(target)
    refuse_unknown(function, options, where=where)
    return function(*args, **options)


def refuse_unknown(target: Callee, options: Mapping[str, object], *, where: str) -> None:
    """Raise HarnessError for an option that ``target`` does not accept."""
    parameters = inspect.signature(target).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return
    for key in options:
        if key not in parameters:
            raise HarnessError(f"{where}: unknown option {key}, {did_you_mean(key, parameters)}")
