"""Build the components of a configuration: ``_target_`` and ``_files_`` are dotted paths of callables."""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import inspect
from collections.abc import Callable, Collection, Mapping
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
        check_function: dotted path of a torch-free function ``(arguments, cache_dir) -> facts`` (``_check_``)
            that reads those files and refuses what could not be loaded; "" if there is none.
        about: notes for readers, such as ``size`` and ``where``; the files function may quote them.
        result_version: incremented when a fix changes results.
    """

    name: str
    target: str
    options: Mapping[str, object] = field(default_factory=dict)
    files_function: str = ""
    check_function: str = ""
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


COMPONENT_KEYS = ("name", "_target_", "_files_", "_check_", "about", "result_version")
"""Keys of a component's section that are read into fields other than :attr:`Component.options`."""


ABOUT_KEYS = ("family", "unit", "objective", "size", "source", "where")
"""Notes on a component; ``harness list`` and messages quote them."""


def component_values(config: Mapping[str, object], *, key: str) -> dict[str, object]:
    """Check the fields of a component except its options.

    Args:
        config: its section.
        key: dotted key of the section, for messages.

    Raises:
        HarnessError: a value of the wrong type, or an unknown note.
    """
    name, about = config.get("name"), config.get("about")
    version = config.get("result_version")
    for note in about if isinstance(about, Mapping) else ():
        if note not in ABOUT_KEYS:
            raise HarnessError(f"{key}.about.{note}: unknown key, {did_you_mean(str(note), ABOUT_KEYS)}")
    return {
        "name": "" if name is None else text(f"{key}.name", name),
        "target": str(config.get("_target_") or ""),
        "files_function": str(config.get("_files_") or ""),
        "check_function": str(config.get("_check_") or ""),
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


def check_options(
    target: str, options: Mapping[str, object], *, key: str, reserved: Collection[str] = ()
) -> None:
    """Check, from the source of the callable behind ``target`` and without importing it, that it accepts the
    names of all ``options``; what cannot be determined is checked when it is called.

    Args:
        target: its dotted path.
        options: keyword arguments.
        key: dotted key of the section, for messages.
        reserved: arguments that the program passes itself.

    Raises:
        HarnessError: names the closest valid options.
    """
    accepted = accepted_options(target)
    if accepted is None:
        return
    for name in options:
        if name not in accepted or name in reserved:
            raise HarnessError(
                f"{key}.{name}: unknown key, {did_you_mean(name, sorted(accepted - set(reserved)))}"
            )


@functools.cache
def accepted_options(target: str) -> frozenset[str] | None:
    """Return the names of the keyword arguments of a callable, read from its source; None if it takes any, or
    if they cannot be determined."""
    module, _, name = target.rpartition(".")
    for _ in range(MAX_REEXPORTS):
        path = _source_of(module)
        if path is None:
            return None
        tree = ast.parse(path.read_bytes())
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and node.name == name:
                return _keywords(node)
            if isinstance(node, ast.ClassDef) and node.name == name:
                methods = {n.name: n for n in node.body if isinstance(n, ast.FunctionDef)}
                return _keywords(methods["__init__"]) if "__init__" in methods else None
        origin = _imported_from(tree, name)
        if origin is None:
            return None
        module, name = origin
    return None


MAX_REEXPORTS = 5


def _source_of(module: str) -> Path | None:
    top, *rest = module.split(".")
    try:
        spec = importlib.util.find_spec(top) if top else None
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    if not rest and spec.origin:
        return Path(spec.origin) if spec.origin.endswith(".py") else None
    for folder in spec.submodule_search_locations or ():
        base = Path(folder).joinpath(*rest)
        for path in (base / "__init__.py", base.with_suffix(".py")):
            if path.is_file():
                return path
    return None


def _imported_from(tree: ast.AST, name: str) -> tuple[str, str] | None:
    """Module and name behind ``from module import original as name``, wherever it stands in the module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return node.module, alias.name
    return None


def _keywords(function: ast.FunctionDef) -> frozenset[str] | None:
    if function.args.kwarg is not None:
        return None
    arguments = (*function.args.args, *function.args.kwonlyargs)
    return frozenset(a.arg for a in arguments if a.arg != "self")


def refuse_unknown(target: Callee, options: Mapping[str, object], *, where: str) -> None:
    """Raise HarnessError for an option that ``target`` does not accept."""
    parameters = inspect.signature(target).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return
    for key in options:
        if key not in parameters:
            raise HarnessError(f"{where}: unknown option {key}, {did_you_mean(key, parameters)}")
