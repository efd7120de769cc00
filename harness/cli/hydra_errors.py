"""Explain errors of Hydra in one sentence: the argument, the problem, and the closest valid value."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from harness.cli.main import COMMANDS
from harness.config.groups import option_names
from harness.config.overrides import is_component_group, split_values
from harness.core.paths import conf_dir
from harness.errors import did_you_mean

if TYPE_CHECKING:
    from hydra.errors import OverrideParseException
    from yaml import YAMLError

_GROUP = re.compile(r"Could not find '(?P<group>.+)/(?P<option>[^/']+)'")
_OVERRIDE = re.compile(
    r"Could not override '(?P<key>[^']+)'|Could not delete from config\. '(?P<gone>[^']+)'"
)
_AMBIGUOUS = re.compile(r"Ambiguous value for argument '(?P<argument>.*)'$", re.MULTILINE)
_APPEND = re.compile(r"Could not append to config\. An item is already at '(?P<key>[^']+)'")
_NO_GROUP = re.compile(r"config group '(?P<group>[^']+)' does not exist")
_FULL_KEY = re.compile(r"full_key: (?P<key>\S+)")


def explain(error: Exception, *, argv: list[str]) -> str:
    """Explain an error raised by Hydra or OmegaConf while composing the configuration of ``argv``."""
    from hydra.errors import MissingConfigException, OverrideParseException
    from omegaconf.errors import MissingMandatoryValue

    if isinstance(error, OverrideParseException):
        return _explain_parse_error(error)
    text = str(error)
    if isinstance(error, MissingMandatoryValue):
        key = _first_match(_FULL_KEY, text)
        return f"{key}: a value is required; give {key}=..."
    if isinstance(error, MissingConfigException):
        return _explain_unknown_option(text, argv=argv)
    return _explain_key(text, argv=argv) or _shorten(error)


def explain_yaml(error: YAMLError) -> str:
    """Explain a configuration file that is not YAML: its name, line and column."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    where = f"{mark.name}:{mark.line + 1}:{mark.column + 1}" if mark else "a configuration file"
    hint = "; indent with spaces, not tabs" if "'\\t'" in problem else ""
    return f"{where}: not valid YAML: {problem}{hint}"


def options_of(group: str, *, argv: list[str]) -> list[str]:
    """Options of a group in the installed configuration and in --config-dir."""
    return option_names(group, [conf_dir(), *_config_dirs(argv)])


def _explain_parse_error(error: OverrideParseException) -> str:
    override, lines = str(error.override), str(error).splitlines()
    reason = next((line for line in lines if "rror parsing" not in line), lines[0])
    if "=" not in override:
        return f"{override}: not key=value; {did_you_mean(override, [*_groups([]), *COMMANDS])}"
    key, _, value = override.partition("=")
    return (
        f"{override}: invalid value ({reason}); "
        f'to pass it as text, quote it for the shell and for Hydra: "{key}={value!r}"'
    )


def _explain_unknown_option(text: str, *, argv: list[str]) -> str:
    match = _GROUP.search(text)
    if match is None:
        return text.splitlines()[0]
    group, option = match["group"], match["option"]
    options = options_of(group, argv=argv)
    if group == "hydra/launcher":
        available = re.search(r"Available options in .*:\n((?:\t.*\n?)+)", text)
        options += available[1].split() if available else []
    all_options = f"; `harness list {group}s` lists all" if f"{group}s" in LISTED else ""
    return f"{group}={option}: there is no {group} {option}; {did_you_mean(option, options)}{all_options}"


LISTED = frozenset({"encoders", "tasks", "experiments"})
"""Groups with more options than a message can name."""


def _explain_key(text: str, *, argv: list[str]) -> str | None:
    ambiguous = _AMBIGUOUS.search(text)
    if ambiguous and is_component_group(ambiguous["argument"].partition("=")[0]):
        return f"{ambiguous['argument']}: several options require a sweep; add -m"
    if ambiguous:
        return (
            f"{ambiguous['argument']}: several values require a sweep; add -m, or write a list as key=[a,b], "
            "or text with a comma as \"key='a,b'\""
        )
    append = _APPEND.search(text)
    if append:
        return f"+{append['key']}: the key exists already; write it without the +"
    group = _NO_GROUP.search(text)
    if group:
        return f"{group['group']}: unknown group; {did_you_mean(group['group'], _groups(argv))}"
    match = _OVERRIDE.search(text)
    if match is None:
        return None
    key = match["key"] or match["gone"]
    # Hydra's own keys are suggested only for a key of Hydra
    own = [k for k in valid_keys(argv) if k.startswith("hydra.") == key.startswith("hydra.")]
    return f"{key}: unknown key; {nearest_key(key, own)}"


def nearest_key(key: str, valid: list[str]) -> str:
    """Suggest valid dotted keys: with the same last part as ``key``, or spelled similarly."""
    last = key.rpartition(".")[2]
    # shallow keys first: a setting itself before the same setting in a recipe
    same = sorted((k for k in valid if k.rpartition(".")[2] == last), key=lambda k: k.count("."))
    if same:
        return f"did you mean {' or '.join(same[:3])}?"
    near = difflib.get_close_matches(key, valid, n=3, cutoff=0.6)
    if not near:
        by_last = {k.rpartition(".")[2]: k for k in valid}
        near = [by_last[n] for n in difflib.get_close_matches(last, by_last, n=3, cutoff=0.6)]
    if near:
        return f"did you mean {' or '.join(near)}?"
    below = [k for k in valid if k.startswith(key.rpartition(".")[0] + ".")]
    return did_you_mean(key, below or [k for k in valid if "." not in k])


def valid_keys(argv: list[str]) -> list[str]:
    """All dotted keys of the configuration that the valid arguments compose; [] if composing fails."""
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from omegaconf import OmegaConf

    from harness.core.resolvers import register

    extra = ",".join(f"file://{d}" for d in _config_dirs(argv))
    search = [f"hydra.searchpath=[{extra}]"] if extra else []
    groups = [a for a in argv if "=" in a and "." not in a.partition("=")[0] and a[0] not in "-+~"]
    single = [a for a in groups if len(split_values(a.partition("=")[2])) == 1]
    register()
    for overrides in (single, [a for a in single if _names_option(a, argv=argv)], []):
        GlobalHydra.instance().clear()
        try:
            with initialize_config_dir(config_dir=str(conf_dir()), version_base="1.3"):
                composed = compose("config", overrides=[*search, *overrides], return_hydra_config=True)
            return sorted(_dotted(OmegaConf.to_container(composed, resolve=False)))
        except Exception:
            # the keys are only a suggestion: the original error is more important than this one
            continue
    return []


def _names_option(argument: str, *, argv: list[str]) -> bool:
    group, _, option = argument.partition("=")
    return option.strip("'\"") in options_of(group, argv=argv)


def _groups(argv: list[str]) -> list[str]:
    return sorted({p.name for f in [conf_dir(), *_config_dirs(argv)] for p in f.iterdir() if p.is_dir()})


def _config_dirs(argv: list[str]) -> Iterator[Path]:
    for n, argument in enumerate(argv):
        value = argument.partition("=")[2]
        if argument in ("--config-dir", "-cd") and n + 1 < len(argv):
            value = argv[n + 1]
        elif not argument.startswith("--config-dir="):
            continue
        if Path(value).is_dir():
            yield Path(value).absolute()


def _dotted(node: object, prefix: str = "") -> Iterator[str]:
    if isinstance(node, Mapping):
        for key, value in node.items():
            yield f"{prefix}{key}"
            yield from _dotted(value, f"{prefix}{key}.")


def _first_match(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.search(text)
    return match["key"] if match else text.splitlines()[0]


def _shorten(error: Exception) -> str:
    """The message without Hydra's search path and its advice on stack traces, and the cause."""
    messages = [str(error).split("Config search path:")[0].strip()]
    if error.__cause__ is not None and str(error.__cause__) not in messages[0]:
        messages.append(str(error.__cause__).strip())
    return "\n".join(messages)
