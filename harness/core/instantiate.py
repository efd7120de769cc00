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

from harness.core.redaction import PLACES
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
    except SyntaxError as e:
        raise HarnessError(f"{path}: {e.filename}:{e.lineno}: not valid Python: {e.msg}") from e
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
        HarnessError: an option that the callable does not accept, or one that it requires is missing.
    """
    function = locate(target)
    refuse_unknown(function, options, where=where)
    try:
        inspect.signature(function).bind(*args, **options)
    except TypeError as e:
        raise HarnessError(f"{where}: {target}: {e}") from None
    return function(*args, **options)


def check_options(
    target: str, options: Mapping[str, object], *, key: str, reserved: Collection[str] = ()
) -> None:
    """Check a component from the source of the callable behind ``target``, without importing it: it exists,
    accepts the names of all ``options``, and lacks none. What cannot be determined is checked when it is
    called.

    Args:
        target: its dotted path.
        options: keyword arguments; ``name`` is always passed.
        key: dotted key of the section, for messages.
        reserved: arguments that the program passes itself.

    Raises:
        HarnessError: names the key, and the closest valid value or options.
    """
    if not target:
        raise HarnessError(f"{key}._target_ is missing: give the dotted path of a callable")
    try:
        parameters = parameters_of(target)
    except HarnessError as e:
        raise HarnessError(f"{key}._target_={e}") from None
    if parameters is None:
        return
    accepted = parameters.keys() - set(reserved)
    for name in options:
        if name not in accepted:
            raise HarnessError(f"{key}.{name}: unknown key, {did_you_mean(name, sorted(accepted))}")
    for name in sorted(accepted - {"name", *options}):
        if parameters[name]:
            raise HarnessError(f"{key}.{name} is missing: {target} requires it")


@functools.cache
def parameters_of(target: str) -> dict[str, bool] | None:
    """Return the keyword arguments of a callable and whether each is required, read from its source; None if
    it takes any, or if they cannot be determined.

    Raises:
        HarnessError: its module or its name does not exist, or the module is not valid Python.
    """
    module, _, name = target.rpartition(".")
    for _ in range(MAX_REEXPORTS):
        path = _source_of(module, target)
        if path is None:
            return None
        tree = _parsed(path)
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and node.name == name:
                return _keywords(node)
            if isinstance(node, ast.ClassDef) and node.name == name:
                methods = {n.name: n for n in node.body if isinstance(n, ast.FunctionDef)}
                return _keywords(methods["__init__"]) if "__init__" in methods else None
        origin = _imported_from(tree, name)
        if origin is None:
            _refuse_undefined(tree, name, f"{target}: {path} does not define {name}")
            return None
        module, name = origin
    return None


MAX_REEXPORTS = 5


def _parsed(path: Path) -> ast.Module:
    try:
        return ast.parse(path.read_bytes())
    except SyntaxError as e:
        raise HarnessError(f"{path}:{e.lineno}: not valid Python: {e.msg}") from None


def _source_of(module: str, target: str) -> Path | None:
    """Find the source of a module; None if it is compiled.

    Raises:
        HarnessError: there is no such module.
    """
    top, *rest = module.split(".")
    try:
        spec = importlib.util.find_spec(top) if top else None
    except (ImportError, ValueError):
        return None
    if spec is None:
        raise HarnessError(
            f"{target}: there is no module {top or target}; expected the dotted path of a callable in a "
            "package that is installed or in a folder of PYTHONPATH"
        )
    if not rest:
        return Path(spec.origin) if spec.origin and spec.origin.endswith(".py") else None
    bases = [Path(folder).joinpath(*rest) for folder in spec.submodule_search_locations or ()]
    for path in (p for base in bases for p in (base / "__init__.py", base.with_suffix(".py"))):
        if path.is_file():
            return path
    if any(base.is_dir() or list(base.parent.glob(f"{base.name}.*")) for base in bases):
        return None
    siblings = sorted(p.stem for base in bases for p in base.parent.glob("*.py") if p.stem != "__init__")
    raise HarnessError(f"{target}: there is no module {module}, {did_you_mean(rest[-1], siblings)}")


def _refuse_undefined(tree: ast.Module, name: str, problem: str) -> None:
    """Raise HarnessError if no statement of a module can define ``name``."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    defined = [node.name for node in ast.walk(tree) if isinstance(node, kinds)]
    used = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name)]  # also those that are assigned
    aliases = [
        a for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom) for a in node.names
    ]
    names = {*defined, *used, *(a.asname or a.name for a in aliases)}
    if not names & {name, "*", "__getattr__", "globals"}:
        public = [node.name for node in tree.body if isinstance(node, kinds) and node.name[0] != "_"]
        raise HarnessError(f"{problem}, {did_you_mean(name, sorted(public))}")


def _imported_from(tree: ast.AST, name: str) -> tuple[str, str] | None:
    """Module and name behind ``from module import original as name``, wherever it stands in the module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return node.module, alias.name
    return None


def _keywords(function: ast.FunctionDef) -> dict[str, bool] | None:
    """Keyword arguments, and whether each has no default."""
    arguments = function.args
    if arguments.kwarg is not None:
        return None
    positional = [*arguments.posonlyargs, *arguments.args]
    required = len(positional) - len(arguments.defaults)
    found = {a.arg: i < required for i, a in enumerate(positional)}
    found |= {a.arg: d is None for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)}
    found.pop("self", None)
    return found


def check_files(files_function: str, options: Mapping[str, object], *, key: str) -> None:
    """Check the files function of a component, without importing it.

    Raises:
        HarnessError: it does not exist; or there is none, and an option names a file, whose content would not
            be part of the cell id, as paths are not.
    """
    if files_function:
        try:
            parameters_of(files_function)
        except HarnessError as e:
            raise HarnessError(f"{key}._files_={e}") from None
    for place in () if files_function else PLACES:
        if options.get(place) not in (None, "none"):
            raise HarnessError(
                f"{key}.{place}={options[place]}: {key}._files_ is missing, so the file's content would not "
                "be part of the cell id; give the dotted path of a function that returns the files, such as "
                "harness.encoders.download.single_file for one file in path"
            )


def refuse_unknown(target: Callee, options: Mapping[str, object], *, where: str) -> None:
    """Raise HarnessError for an option that ``target`` does not accept."""
    parameters = inspect.signature(target).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return
    for key in options:
        if key not in parameters:
            raise HarnessError(f"{where}: unknown option {key}, {did_you_mean(key, parameters)}")
