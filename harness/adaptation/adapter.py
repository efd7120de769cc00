"""The adapted encoder of a cell: looked up in the cache, made when it is not there, and loaded.

One folder of ``cache_dir/adapted`` holds an adapted encoder, or a member of a joint one. Its key is what it
depends on: the encoder's files and options, what ``adapt`` says, the texts, the seed, the precision and the
version of this code. Cells that agree in these share it: by default all seeds and all strategies. A failure
is that of the cell; nothing half made is left.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.adaptation.job import Job, Texts, Told, need_texts
from harness.config.cell_id import ADAPT_VERSION, identity
from harness.config.resolve import verify
from harness.core.cache import Store
from harness.core.events import Progress
from harness.core.fingerprint import data_fingerprint, files_fingerprint
from harness.core.instantiate import META, locate
from harness.errors import HarnessError
from harness.records.cell import Cell
from harness.strategies.adapt import OWN_SEED, Adapt, Place, family, files_of, filled, members
from harness.task import Splits

TOLD = "adapted.json"
FEW_GB = 1.0
"""The least that the cache may hold; the encoder in use stays in any case."""
Config = Mapping[str, Any]


@dataclass(slots=True)
class Adapted:
    """What adapting took; as it stands here, nothing was adapted.

    Attributes:
        seconds: the price when it was done.
        spent: seconds of this run for it, or for waiting for another cell that did it.
        notes: for the record.
    """

    seconds: float = 0.0
    spent: float = 0.0
    notes: list[str] = field(default_factory=list)

    def write(self, folder: Path) -> None:
        """Keep it beside what was made with the encoder."""
        (folder / TOLD).write_text(json.dumps([self.seconds, self.notes]), encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> Adapted:
        """What :meth:`write` kept; of folders without it, nothing was adapted."""
        if not (folder / TOLD).is_file():
            return cls()
        seconds, notes = json.loads((folder / TOLD).read_text(encoding="utf-8"))
        return cls(seconds, notes=notes)


@dataclass(frozen=True, slots=True)
class Member:
    """An encoder that is adapted by itself: where it stands in the configuration, and its cache's key."""

    place: Place
    config: Config
    options: Adapt
    key: str


class Adapter:
    """What :func:`harness.training.assemble.assemble` asks for an encoder when the strategy adapts.

    Args:
        cell: see :class:`harness.records.cell.Cell`; its strategy has ``adapt``.
        adapt: the strategy's field.
        splits: only the texts of train and dev are looked at, and of dev only to measure.
        trainer: ``accelerator``, ``precision``, ``devices`` of Lightning, and the ``device`` they mean.
        progress: gets events of the phase ``adapt``.
        random_init: start from random weights.

    Attributes:
        told: of each member, once :meth:`load` was called.
        spent: see :class:`Adapted`; ``last`` of this the last :meth:`load`.
    """

    def __init__(
        self,
        cell: Cell,
        adapt: Adapt,
        splits: Splits,
        *,
        trainer: Mapping[str, Any],
        progress: Progress,
        random_init: bool,
    ) -> None:
        self.cell, self.trainer, self.progress, self.random_init = cell, trainer, progress, random_init
        self.texts = Texts.of(splits.train, splits.dev)
        need_texts(self.texts)
        seed = cell.seed if adapt.seed == OWN_SEED else int(adapt.seed)
        self.options = replace(adapt, seed=seed)
        fingerprint = self.texts.fingerprint()
        self.members = [
            self._member(place, config, fingerprint) for place, config in members(cell.config["encoder"])
        ]
        limit = max(FEW_GB, float(cell.config["feature_cache_gb"]))
        self.store = Store(cell.cache_dir / "adapted", max_bytes=int(limit * 1e9))
        self.told: list[Told] = []
        self.spent = self.last = self._loading = 0.0

    def _member(self, place: Place, config: Config, texts: str) -> Member:
        options = filled(config, self.options)
        its = family(config)
        if its is None:
            raise HarnessError(f"strategy.adapt: {config.get('name')} cannot be adapted; leave it out")
        files = files_of(config, self.cell.cache_dir)
        parts = {
            "encoder": {
                k: v for k, v in identity(config, group="encoder").items() if k not in (*META, "name")
            },
            "target": config["_target_"],
            "weights": files_fingerprint(files),
            "adapt": options.to_config(),
            "texts": texts,
            "precision": self.trainer["precision"],
            "random": self.random_init,
            "version": ADAPT_VERSION,
        }
        return Member(place, config, options, data_fingerprint(parts)[:32])

    @property
    def key(self) -> str:
        """Hex digest of what the adapted encoder depends on."""
        return data_fingerprint([member.key for member in self.members])

    @property
    def adapted(self) -> Adapted:
        """What the last :meth:`load` tells."""
        notes = [note for told in self.told for note in told.notes]
        return Adapted(sum(told.seconds for told in self.told), self.spent, notes)

    def load(self, make: Callable[[Config], Any]) -> Any:
        """``make(config)`` of the encoder's configuration with adapted files in the place of its own.

        Raises:
            HarnessError: see :meth:`_make`; or the cache cannot be written.
        """
        begin = time.perf_counter()
        self.told = []
        try:
            encoder = self._with(self.members, self.cell.config["encoder"], make)
        except OSError as e:
            raise HarnessError(
                f"cache_dir={self.cell.cache_dir}: the adapted encoder cannot be kept there "
                f"({e.strerror or e}); choose another with cache_dir=DIR"
            ) from e
        self.last = time.perf_counter() - begin - self._loading
        self.spent += self.last
        return encoder

    def _with(self, rest: list[Member], config: Config, make: Callable[[Config], Any]) -> Any:
        """Inside the reading of one folder the next is read: none is gone when the encoder is made."""
        if not rest:
            begin = time.perf_counter()
            encoder = make(config)
            self._loading = time.perf_counter() - begin
            return encoder
        member = rest[0]
        done = len(self.told)

        def read(folder: Path) -> Any:
            del self.told[done:]  # of an attempt whose folder was gone
            self.told.append(Told(**json.loads((folder / TOLD).read_text(encoding="utf-8"))))
            module = self._module(member)
            changed = _changed(config, member.place, lambda own: module("placed")(own, folder), member.config)
            try:
                return self._with(rest[1:], changed, make)
            except Exception as e:
                self._refuse(e, member, folder)
                raise OSError(f"{folder}: was evicted") from e

        return self.store.read(member.key, lambda folder: self._make(member, folder), read)[0]

    def _refuse(self, error: Exception, member: Member, folder: Path) -> None:
        """Raise what is wrong with an encoder whose folder is whole: to adapt it again would not mend it."""
        if not self.store.whole(member.key):
            return
        if isinstance(error, HarnessError):
            raise error
        raise HarnessError(
            f"{folder}: the adapted encoder cannot be loaded ({type(error).__name__}: {error})"
        ) from error

    def _module(self, member: Member) -> Callable[[str], Callable[..., Any]]:
        its = family(member.config)
        assert its is not None
        return lambda name: locate(f"{its.module}.{name}")

    def _make(self, member: Member, folder: Path) -> None:
        """Adapt a member.

        Raises:
            HarnessError: files that do not do, or training that diverged.
        """
        import torch

        begin = time.perf_counter()
        self.progress({"phase": "adapt", "message": "loading the encoder"})
        job = Job(
            encoder=member.config,
            options=member.options,
            random_init=self.random_init,
            texts=self.texts,
            folder=folder,
            cache_dir=self.cell.cache_dir,
            trainer=self.trainer,
            progress=self.progress,
        )
        torch.manual_seed(job.seed)
        told: Told = self._module(member)("adapt")(job)
        verify(self.cell)
        told.seconds = time.perf_counter() - begin
        told.notes = [_said(member, self.texts, told), *told.notes]
        (folder / TOLD).write_text(json.dumps(told.to_json()), encoding="utf-8")


def _changed(config: Config, place: Place, change: Callable[[Config], Config], own: Config) -> Config:
    """``config`` with the configuration at ``place`` replaced by ``change(own)``."""
    if not place:
        return change(own)
    head, *rest = place
    return {**config, head: _changed(config[head], tuple(rest), change, own)}


def _said(member: Member, texts: Texts, told: Told) -> str:
    its, o = family(member.config), member.options
    name = f"{'/'.join(member.place[1::2])}: " if member.place else ""
    measures = [
        f"{what} on {len(texts.dev)} texts of dev: {told.before[what]:.4g}, then {told.after[what]:.4g}"
        for what in told.before
        if what in told.after
    ]
    said = [
        f"{name}adapted to {len(texts.train)} texts of train in {o.epochs:g} passes "
        f"({its.objective if its else ''}, rate {o.lr:g}, seed {o.seed})",
        *measures,
    ]
    return "; ".join(said)
