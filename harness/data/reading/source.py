"""Where a task's examples come from: local files or a hub data set, and how missing splits are made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict, TypeVar

from harness.data.reading.files import near
from harness.data.reading.log import ReadLog
from harness.data.reading.tables import DataTable, ReadOptions
from harness.data.splits import Key, complete
from harness.errors import HarnessError, did_you_mean

T = TypeVar("T")
Paths = str | Path | Sequence[str | Path] | None
"""A file, a pattern such as ``data/train-*.parquet``, or a list of these."""

ROLES = ("train", "dev", "test")
NONE = "none"
"""Value of ``dev`` for no dev split at all; with null it is cut from train."""


class DataOptions(TypedDict, total=False):
    """Options of a task that describe its data, as in its YAML; see :class:`DataSource`."""

    train: Paths
    dev: Paths
    test: Paths
    path: str | None
    files: Mapping[str, Paths] | None
    hub: str | Mapping[str, object] | None
    dev_fraction: float
    test_fraction: float
    split_seed: int
    train_size: int | None
    format: str | None
    encoding: str
    quoting: bool | None
    delimiter: str | None
    columns: Sequence[str] | None
    on_error: str


@dataclass(frozen=True, slots=True)
class HubSource:
    """A data set of the Hugging Face hub.

    Attributes:
        id: ``owner/name``.
        config: its configuration, if it has several.
        revision: branch, tag or commit.
        splits: its own split for each role; None = the usual names.
        note: a sentence for the record.
        columns: the task's column names that apply to this data set.
    """

    id: str
    config: str | None = None
    revision: str | None = None
    splits: Mapping[str, str] | None = None
    note: str | None = None
    columns: Mapping[str, object] = field(default_factory=dict)

    @classmethod
    def of(cls, value: object, columns: Sequence[str]) -> HubSource | None:
        """From ``task.hub``: null, an id, or a mapping with the keys above and the task's ``columns``.

        Raises:
            HarnessError: an unknown key or a wrong type, or no id.
        """
        if not value:
            return None
        if isinstance(value, str):
            return cls(value)
        if not isinstance(value, Mapping):
            raise HarnessError(f"task.hub={value!r:.40}: give OWNER/NAME, or a mapping with the key id")
        own = ("id", "config", "revision", "splits", "note")
        for key in value:
            if key not in (*own, *columns):
                raise HarnessError(f"task.hub.{key}: unknown key, {did_you_mean(str(key), (*own, *columns))}")
        if not value.get("id"):
            raise HarnessError("task.hub.id is missing: give OWNER/NAME")
        return cls(
            **{key: value[key] for key in own if key in value},
            columns={key: value[key] for key in columns if key in value},
        )

    def load(self, log: ReadLog) -> dict[str, DataTable]:
        """Tables by role; ``log`` receives where they came from."""
        from harness.data.reading.hub import load_hub

        tables = load_hub(self.id, self.splits, config=self.config, revision=self.revision)
        log.note(f"data: hub data set {self.id}{f' at {self.revision}' if self.revision else ''}")
        if self.note:
            log.note(self.note)
        return tables


@dataclass(frozen=True, slots=True)
class DataSource:
    """Where the splits of a task lie and how missing ones are made.

    Attributes:
        named: files of ``train``, ``dev`` and ``test``; :data:`NONE` = no such split.
        path: folder that is searched for the splits that ``named`` leaves open.
        files: file names to look for in ``path``, by role; the first that exists is used.
        hub: used when there are no local files.
        read: how tables are read.
        dev_fraction, test_fraction, split_seed: of splits that are cut from train.
        train_size: training examples that are used, see :func:`harness.data.splits.smaller`; None = all.
        on_error: what happens with a row that cannot be read, see :class:`harness.data.reading.log.ReadLog`.
    """

    named: Mapping[str, Paths] = field(default_factory=dict)
    path: str | None = None
    files: Mapping[str, Paths] = field(default_factory=dict)
    hub: HubSource | None = None
    read: ReadOptions = field(default_factory=ReadOptions)
    dev_fraction: float = 0.1
    test_fraction: float = 0.1
    split_seed: int = 13
    train_size: int | None = None
    on_error: str = "raise"

    def __post_init__(self) -> None:
        self.log()  # checks on_error

    def log(self) -> ReadLog:
        """Return a fresh log for one reading of the data."""
        return ReadLog(on_error=self.on_error)

    @classmethod
    def of(
        cls, options: Mapping[str, object] | DataOptions, *, hub_columns: Sequence[str] = ()
    ) -> DataSource:
        """From a task's options.

        Args:
            options: see :class:`DataOptions`.
            hub_columns: keys of ``hub`` that name the task's columns.

        Raises:
            HarnessError: an unknown option, a wrong value, or ``none`` for train or test.
        """
        unknown = [key for key in options if key not in DataOptions.__annotations__]
        if unknown:
            hint = did_you_mean(unknown[0], list(DataOptions.__annotations__))
            raise HarnessError(f"task.{unknown[0]}: unknown option, {hint}")
        given = dict(options)
        named = {role: given.pop(role, None) for role in ROLES}
        for role in ("train", "test"):
            if is_none(named[role]):
                raise HarnessError(f"task.{role}=none: a cell needs a {role} split; only dev can be none")
        reading = {key: given.pop(key) for key in _READ_KEYS if key in given}
        return cls(
            named=named,  # type: ignore[arg-type]
            files=given.pop("files", None) or {},  # type: ignore[arg-type]
            hub=HubSource.of(given.pop("hub", None), hub_columns),
            read=ReadOptions(**reading),  # type: ignore[arg-type]
            **given,  # type: ignore[arg-type]
        )

    @classmethod
    def from_config(cls, config: Mapping[str, object], *, hub_columns: Sequence[str] = ()) -> DataSource:
        """As :meth:`of`, from a task's whole configuration."""
        options = {key: value for key, value in config.items() if key in DataOptions.__annotations__}
        return cls.of(options, hub_columns=hub_columns)

    @property
    def no_dev(self) -> bool:
        """Whether there shall be no dev split at all."""
        return is_none(self.named.get("dev"))

    def locate(self) -> dict[str, list[Path]]:
        """Local files by role; empty when the hub data set is to be read.

        Raises:
            HarnessError: a file is missing or serves as two splits, there is no training file, or there is no
            data at all.
        """
        located: dict[str, list[Path]] = {}
        folder = self._folder()
        for role in ROLES:
            given = self.named.get(role)
            if is_none(given):
                continue
            if given:
                located[role] = _given(given, role)
            elif folder is not None and (paths := _first(folder, self.files.get(role), role)):
                located[role] = paths
        if folder is not None and "train" not in located:
            tried = ", ".join(map(str, as_list(self.files.get("train")))) or "no file names are configured"
            raise HarnessError(
                f"task.path={folder}: contains no training file (looked for {tried}); name it with "
                "task.train=FILE"
            )
        if located and "train" not in located:
            raise HarnessError("task.train: no training data; give its file")
        if not located and self.hub is None:
            raise HarnessError("no data: give task.train=FILE, task.path=FOLDER or task.hub=OWNER/NAME")
        _check_distinct(located)
        return located

    def load_hub(self, log: ReadLog) -> dict[str, DataTable]:
        """The hub data set's tables by role, without dev when it shall be left out."""
        assert self.hub is not None, "locate() is empty only with a hub data set"
        return {
            role: table for role, table in self.hub.load(log).items() if not is_none(self.named.get(role))
        }

    def complete(
        self, read: Mapping[str, Sequence[T]], log: ReadLog, *, stratify: Key[T] | None = None
    ) -> dict[str, list[T]]:
        """All three splits; see :func:`harness.data.splits.complete`."""
        return complete(
            read,
            no_dev=self.no_dev,
            fractions={"dev": self.dev_fraction, "test": self.test_fraction},
            seed=self.split_seed,
            notes=log.notes,
            stratify=stratify,
            train_size=self.train_size,
        )

    def _folder(self) -> Path | None:
        if not self.path:
            return None
        folder = Path(self.path).expanduser()
        if not folder.is_dir():
            what = "is a file; give its folder, or task.train=FILE" if folder.exists() else "no such folder"
            raise HarnessError(f"task.path={folder}: {what}{'' if folder.exists() else near(folder)}")
        return folder


_READ_KEYS = ("format", "encoding", "quoting", "delimiter", "columns")


def is_none(value: object) -> bool:
    """Whether a split's setting asks for no split at all."""
    return isinstance(value, str) and value.lower() == NONE


def by_role(located: Mapping[str, Sequence[Path]]) -> dict[str, Path]:
    """One path per role, as ``_files_`` functions return them; further files of a split are ``train-1``,
    ..."""
    return {
        role if i == 0 else f"{role}-{i}": path
        for role, paths in located.items()
        for i, path in enumerate(paths)
    }


def as_list(value: Paths) -> list[str]:
    """A setting that may be one name or a list of names, as a list."""
    if value is None:
        return []
    return [str(value)] if isinstance(value, str | Path) else [str(v) for v in value]


def _given(given: Paths, role: str) -> list[Path]:
    paths: list[Path] = []
    for one in as_list(given):
        path = Path(one).expanduser()
        if path.is_file():
            paths.append(path)
        elif path.is_dir():
            raise HarnessError(f"task.{role}={one}: is a folder; name a file or a pattern in it")
        else:
            matches = _glob(path)
            if not matches:
                raise HarnessError(f"task.{role}={one}: no such file{near(path)}")
            paths += matches
    return paths


def _check_distinct(located: Mapping[str, Sequence[Path]]) -> None:
    """Refuse a file that is given for two splits, or twice for one."""
    seen: dict[Path, str] = {}
    for role, paths in located.items():
        for path in paths:
            other = seen.setdefault(path.resolve(), role)
            if other != role or list(paths).count(path) > 1:
                twice = f"task.{role} twice" if other == role else f"task.{other} and as task.{role}"
                raise HarnessError(
                    f"{path}: given as {twice}; scores on training data mean nothing. Give each split its "
                    "own file, or leave a split out so that it is cut from train"
                )


def _first(folder: Path, candidates: Paths, role: str) -> list[Path]:
    """Files of the first candidate that exists in the folder."""
    for name in as_list(candidates):
        matches = _glob(folder / name)
        if len({tuple(p.suffixes) for p in matches}) > 1:
            names = ", ".join(p.name for p in matches)
            raise HarnessError(f"{folder}: which is {role}: {names}? Name it with task.{role}=FILE")
        if matches:
            return matches
    return []


def _glob(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    base = Path(path.anchor or ".")
    pattern = str(path.relative_to(path.anchor)) if path.anchor else str(path)
    if not any(c in pattern for c in "*?["):
        return []
    return sorted(p for p in base.glob(pattern) if p.is_file())
