"""What a stored cell may name. Nothing is imported or called because a file of a results folder names it.

A stored configuration names callables (``_target_``, ``_files_``, ``_check_``, ``adapt.module``), and a
record names the metric that computes its scores. Such a name is used only if a part names it, in the
installed configuration or in a folder given on the current command line (``--config-dir``), or
with ``--trust``.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.core.instantiate import locate
from harness.core.paths import conf_dir
from harness.data.statistics import MetricFromStats, load_metric
from harness.errors import HarnessError
from harness.records.stored_files import parse_yaml, read_bytes

GROUPS = ("encoder", "strategy", "task", "body", "logger")
"""Groups whose parts name callables."""
CALLABLES = ("_target_", "_files_", "_check_")
IN_ADAPT = ("module", "refuse")
"""Keys of ``adapt``, see :class:`harness.encoders.config.AdaptationSupport`."""
Named = tuple[str, str, str]
"""Key as written in messages, kind of key, and the dotted path that it names."""


@dataclass(frozen=True, slots=True)
class Trust:
    """The folders whose parts a stored cell may name.

    Attributes:
        folders: the user's configuration folders, in addition to the installed one.
        everything: accept every name (``--trust``).
    """

    folders: tuple[Path, ...] = ()
    everything: bool = False

    @property
    def search(self) -> tuple[Path, ...]:
        """All configuration folders in the order of search; the installed one is the first."""
        return (conf_dir(), *self.folders)

    def check(self, config: Mapping[str, object], *, source: Path) -> None:
        """Check the callables that a stored configuration names.

        Args:
            config: the configuration.
            source: its file, for messages.

        Raises:
            HarnessError: one is not that of an installed part or of one of :attr:`folders`.
        """
        if self.everything:
            return
        known = callables(self.search)
        for group in GROUPS:
            for key, kind, path in _named(config.get(group), group):
                if path not in known.get(kind, ()):
                    raise HarnessError(
                        f"{source}: {key}: {path[:200]!r} is not that of an installed part; add "
                        f"--config-dir DIR if it is your own, or --trust to run whatever the file names"
                    )

    def metric(self, path: str) -> MetricFromStats:
        """Return the metric that a record names.

        Raises:
            HarnessError: it is not that of an installed task or of a task in one of :attr:`folders`, or it
                cannot be imported.
        """
        if not self.everything and path not in _metrics(self.search):
            raise HarnessError(
                f"{path[:200]!r} is not the metric of an installed task; add --config-dir DIR if it is your "
                "own, or --trust to import it"
            )
        return load_metric(path)


INSTALLED = Trust()
"""Only installed parts."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--config-dir DIR`` and ``--trust`` to a command that reads stored cells."""
    parser.add_argument(
        "--config-dir",
        type=Path,
        action="append",
        default=[],
        metavar="DIR",
        help="a folder with your own encoder/, task/, ... files, which stored cells may name",
    )
    parser.add_argument(
        "--trust",
        action="store_true",
        help="import and run whatever the stored cells name; only for results of people whom you trust",
    )


def from_options(options: argparse.Namespace) -> Trust:
    """Return the trust that the options of :func:`add_options` give.

    Raises:
        HarnessError: a folder does not exist.
    """
    for folder in options.config_dir:
        if not folder.is_dir():
            raise HarnessError(f"--config-dir {folder}: no such folder")
    return Trust(tuple(folder.absolute() for folder in options.config_dir), options.trust)


@functools.cache
def callables(folders: tuple[Path, ...], groups: tuple[str, ...] = GROUPS) -> dict[str, frozenset[str]]:
    """Return the dotted paths that the parts of these groups name, by kind of key.

    Raises:
        HarnessError: a file cannot be read.
    """
    out: dict[str, set[str]] = {}
    for path in (p for folder in folders for group in groups for p in (folder / group).glob("*.yaml")):
        try:
            config = parse_yaml(read_bytes(path).decode("utf-8"))
        except (OSError, ValueError) as e:
            raise HarnessError(f"{path}: cannot be read ({e})") from e
        for _, kind, dotted in _named(config, ""):
            out.setdefault(kind, set()).add(dotted)
    return {kind: frozenset(paths) for kind, paths in out.items()}


@functools.cache
def _metrics(folders: tuple[Path, ...]) -> frozenset[str]:
    """The metrics of the tasks in these folders."""
    out = set()
    for target in callables(folders, ("task",)).get("_target_", ()):
        try:
            out.add(getattr(locate(target), "metric_from_stats", None))
        except HarnessError:  # its package is not installed
            continue
    return frozenset(path for path in out if isinstance(path, str))


def _named(value: object, key: str, *, in_adapt: bool = False) -> Iterator[Named]:
    """Yield everything below a section that names a callable."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            kind = f"adapt.{name}" if in_adapt and name in IN_ADAPT else str(name)
            if (kind in CALLABLES or kind != name) and item not in (None, ""):
                yield f"{key}.{name}", kind, item if isinstance(item, str) else repr(item)
            else:
                yield from _named(item, f"{key}.{name}", in_adapt=name == "adapt")
    elif isinstance(value, list):
        for item in value:
            yield from _named(item, key, in_adapt=in_adapt)
