"""Options of configuration groups (``conf/body/bilstm.yaml``): where they are found, and how they are read.

A command reads its options from the installed ``conf`` and from the user's folders (``--config-dir``,
``hydra.searchpath``). All code that looks up an option by name searches the same folders in Hydra's order, so
a name means the same file wherever it is written.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence
from pathlib import Path

from harness.core.paths import conf_dir
from harness.errors import HarnessError, did_you_mean

Section = dict[str, object]
Folders = Sequence[Path]


def searched_folders() -> tuple[Path, ...]:
    """Return the configuration folders of the current command in Hydra's order; outside of a command, the
    installed one."""
    from hydra.core.hydra_config import HydraConfig

    if not HydraConfig.initialized():
        return (conf_dir(),)
    sources = HydraConfig.get().runtime.config_sources
    return tuple(Path(s.path).absolute() for s in sources if s.schema == "file")


def option_names(group: str, folders: Folders) -> list[str]:
    """Return the names of a group's options, sorted."""
    return sorted({path.stem for folder in folders for path in (folder / group).glob("*.yaml")})


def load_option(group: str, name: str, folders: Folders = ()) -> Section:
    """Read an option as plain data, from the first folder that contains it.

    Its defaults list may name other options of the group, as in Hydra.

    Args:
        group: name of the group, such as ``body``.
        name: name of the option.
        folders: configuration folders in the order of search; () = the installed one.

    Raises:
        HarnessError: the option does not exist, or its YAML cannot be read.
    """
    return copy.deepcopy(_loaded(group, name, tuple(folders) or (conf_dir(),)))


@functools.cache
def _loaded(group: str, name: str, folders: tuple[Path, ...]) -> Section:
    paths = [path for folder in folders if (path := folder / group / f"{name}.yaml").is_file()]
    if not paths:
        raise HarnessError(
            f"{group}={name}: there is no such option, {did_you_mean(name, option_names(group, folders))}"
        )
    own = _read(paths[0])
    bases = own.pop("defaults", [])
    if not isinstance(bases, list) or not all(isinstance(base, str) and base != name for base in bases):
        raise HarnessError(f"{paths[0]}: defaults={bases!r}: expected names of other files in {group}/")
    merged: Section = {}
    for base in bases if "_self_" in bases else [*bases, "_self_"]:
        merged |= own if base == "_self_" else load_option(group, base, folders)
    return merged


def _read(path: Path) -> Section:
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    try:
        data = OmegaConf.to_container(OmegaConf.load(path), resolve=True)
    except (OSError, ValueError, YAMLError, OmegaConfBaseException) as e:
        raise HarnessError(f"{path}: cannot be read ({e})") from e
    if not isinstance(data, dict):
        raise HarnessError(f"{path}: expected a mapping of options")
    return {str(k): v for k, v in data.items()}
