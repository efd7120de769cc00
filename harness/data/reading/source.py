"""Where a task's examples come from: local files or a hub data set, and how missing splits are made."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict, TypeVar

from harness.data.reading.files import near
from harness.data.reading.locate import Paths, as_list, check_distinct, first_files, named_files
from harness.data.reading.log import ReadLog
from harness.data.reading.overlap import DUPLICATES, Keys, treat_duplicates
from harness.data.reading.tables import DataTable, ReadOptions
from harness.data.splits import Key, complete, join_groups
from harness.errors import HarnessError, did_you_mean

T = TypeVar("T")
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
    duplicates: str


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
        check_roles("task.hub.splits", value.get("splits"))
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
        duplicates: what happens with repeated texts, see
            :func:`harness.data.reading.overlap.treat_duplicates`.
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
    duplicates: str = "keep"

    def __post_init__(self) -> None:
        self.log()  # checks on_error
        if self.duplicates not in DUPLICATES:
            hint = did_you_mean(self.duplicates, DUPLICATES)
            raise HarnessError(f"task.duplicates={self.duplicates}: {hint}")

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
        check_roles("task.files", given.get("files"))
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
                located[role] = named_files(given, role)
            elif folder is not None and (paths := first_files(folder, self.files.get(role), role)):
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
        check_distinct(located)
        return located

    def load_hub(self, log: ReadLog) -> dict[str, DataTable]:
        """The hub data set's tables by role, without dev when it shall be left out."""
        assert self.hub is not None, "locate() is empty only with a hub data set"
        return {
            role: table for role, table in self.hub.load(log).items() if not is_none(self.named.get(role))
        }

    def complete(
        self,
        read: Mapping[str, Sequence[T]],
        log: ReadLog,
        *,
        stratify: Key[T] | None = None,
        keys: Keys[T] | None = None,
        group: Key[T] | None = None,
    ) -> dict[str, list[T]]:
        """All three splits, in which copies of a text are on the same side of a cut.

        Args:
            read: examples by role.
            log: receives notes on cuts and on examples left out.
            stratify: class of an example, see :func:`harness.data.splits.cut`.
            keys: text key and label of an example; repeated texts are then treated as ``duplicates`` says.
            group: further group of an example that a cut must not split; None = no group.
        """
        ordered = {role: read[role] for role in ROLES if role in read}
        if keys is not None:
            ordered = {**treat_duplicates(ordered, keys, self.duplicates, log)}
            if not ordered["train"]:
                raise HarnessError("task.duplicates=drop: every text of train is also in dev or test")
        together = _groups(ordered["train"], keys, group)
        return complete(
            ordered,
            group=None if together is None else lambda example: together[id(example)],
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


def check_roles(key: str, value: object) -> None:
    """Raise HarnessError for a split that does not exist in a setting by split."""
    for role in value if isinstance(value, Mapping) else ():
        if role not in ROLES:
            raise HarnessError(f"{key}.{role}: unknown split, {did_you_mean(str(role), ROLES)}")


_READ_KEYS = ("format", "encoding", "quoting", "delimiter", "columns")


def _groups(train: Sequence[T], keys: Keys[T] | None, group: Key[T] | None) -> dict[int, int] | None:
    """The group of each training example, by its identity; None when no two belong together."""
    columns: list[list[Hashable]] = []
    if keys is not None:
        texts = [keys(example)[0] for example in train]
        if len(set(texts)) > 1:  # copies of one text only cannot be kept together; make_card warns of them
            columns.append(texts)
    if group is not None:
        columns.append([group(example) for example in train])
    groups = join_groups(*columns) if columns else []
    if len(set(groups)) in (0, len(train)):
        return None
    return dict(zip(map(id, train), groups, strict=True))


def is_none(value: object) -> bool:
    """Whether a split's setting asks for no split at all."""
    return isinstance(value, str) and value.lower() == NONE
