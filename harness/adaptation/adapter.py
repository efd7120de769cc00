"""The adapted encoder of a cell: read from the cache, or adapted and stored there.

A folder of ``cache_dir/adapted`` holds one adapted encoder, or one member of a joint encoder. Its key covers
everything that it depends on: the encoder's files and options, the options of ``adapt``, the texts, the seed,
the precision and the version of this code. Cells that agree in these share the folder; by default these are
all seeds and strategies. If adaptation fails, the cell fails and nothing is stored.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast

from harness.adaptation.job import (
    AdaptationJob,
    AdaptationResult,
    AdaptationTexts,
    AdaptFunction,
    ConfigFunction,
    require_texts,
)
from harness.core.cache import Store
from harness.core.events import Progress
from harness.core.fingerprint import data_fingerprint, files_fingerprint
from harness.core.instantiate import locate
from harness.encoders.config import EncoderConfig, MemberPath
from harness.errors import HarnessError
from harness.pretraining.base import TrainerOptions
from harness.processes.devices import arithmetic
from harness.records.cell import Cell
from harness.records.inputs import verify
from harness.strategies.adapt import ADAPT_VERSION, OWN_SEED, Adapt, files_of, filled, support
from harness.task import Splits

if TYPE_CHECKING:
    from harness.encoders.base import Encoder

RESULT = "adapted.json"
MIN_CACHE_GB = 1.0
"""Lower limit of the cache's size; the encoder in use is never evicted."""
MakeEncoder: TypeAlias = "Callable[[EncoderConfig], Encoder]"


@dataclass(slots=True)
class Adapted:
    """Cost of an adaptation; by default nothing was adapted.

    Attributes:
        seconds: full cost, also if the result came from the cache.
        spent: seconds that this run spent on it, or on waiting for another cell's.
        notes: for the record.
    """

    seconds: float = 0.0
    spent: float = 0.0
    notes: list[str] = field(default_factory=list)

    def write(self, folder: Path) -> None:
        """Store the cost beside features that were computed with the encoder."""
        (folder / RESULT).write_text(json.dumps([self.seconds, self.notes]), encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> Adapted:
        """Read what :meth:`write` stored; without it, nothing was adapted."""
        if not (folder / RESULT).is_file():
            return cls()
        seconds, notes = json.loads((folder / RESULT).read_text(encoding="utf-8"))
        return cls(seconds, notes=notes)


@dataclass(frozen=True, slots=True)
class AdaptedMember:
    """An encoder that is adapted on its own.

    Attributes:
        place: names of members that lead to it in the joint encoder; () = the encoder itself.
        config: its configuration.
        options: how it is adapted, with all values set.
        key: of its folder in the cache.
    """

    place: MemberPath
    config: EncoderConfig
    options: Adapt
    key: str

    @property
    def module(self) -> str:
        """The family's module in :mod:`harness.adaptation`."""
        return support(self.config).module


class Adapter:
    """Provides the adapted encoder to :func:`harness.training.assemble.assemble`.

    Args:
        cell: see :class:`harness.records.cell.Cell`; its strategy has ``adapt``.
        adapt: the strategy's field.
        splits: only the texts of train and dev are read, dev only for evaluation.
        trainer: ``accelerator``, ``precision``, ``devices`` of Lightning, and the resulting ``device``.
        progress: receives events of the phase ``adapt``.
        random_init: start from random weights.

    Attributes:
        results: of each member, after :meth:`load`.
        spent: see :class:`Adapted`; ``last`` is the part of the last :meth:`load`.
    """

    def __init__(
        self,
        cell: Cell,
        adapt: Adapt,
        splits: Splits,
        *,
        trainer: TrainerOptions,
        progress: Progress,
        random_init: bool,
    ) -> None:
        self.cell, self.trainer, self.progress, self.random_init = cell, trainer, progress, random_init
        self.texts = AdaptationTexts.of(splits.train, splits.dev)
        require_texts(self.texts)
        seed = cell.seed if adapt.seed == OWN_SEED else int(adapt.seed)
        self.options = replace(adapt, seed=seed)
        fingerprint = self.texts.fingerprint()
        self.members = [self._member(place, config, fingerprint) for place, config in cell.encoder.leaves()]
        max_gb = max(MIN_CACHE_GB, cell.options.feature_cache_gb)
        self.store = Store(cell.cache_dir / "adapted", max_bytes=int(max_gb * 1e9))
        self.results: list[AdaptationResult] = []
        self.spent = self.last = self._loading = 0.0

    def _member(self, place: MemberPath, config: EncoderConfig, texts: str) -> AdaptedMember:
        options = filled(config, self.options)
        method = support(config)
        files = files_of(config, self.cell.cache_dir)
        parts = {
            "encoder": config.content(),
            "method": method.decisive(),
            "weights": files_fingerprint(files),
            "adapt": options.to_config(),
            "texts": texts,
            "precision": self.trainer["precision"],
            "arithmetic": arithmetic(self.trainer["device"]),
            "random": self.random_init,
            "version": ADAPT_VERSION,
        }
        return AdaptedMember(place, config, options, data_fingerprint(parts)[:32])

    @property
    def key(self) -> str:
        """Hex digest of everything that the adapted encoder depends on."""
        return data_fingerprint([member.key for member in self.members])

    @property
    def adapted(self) -> Adapted:
        """Cost of the last :meth:`load`."""
        notes = [note for result in self.results for note in result.notes]
        return Adapted(sum(result.seconds for result in self.results), self.spent, notes)

    def load(self, make: MakeEncoder) -> Encoder:
        """Call ``make`` with the encoder's configuration in which adapted files replace its own.

        Raises:
            HarnessError: see :meth:`_adapt`; or the cache cannot be written.
        """
        begin = time.perf_counter()
        self.results = []
        try:
            encoder = self._load(self.members, self.cell.encoder, make)
        except OSError as e:
            raise HarnessError(
                f"cache_dir={self.cell.cache_dir}: the adapted encoder cannot be stored there "
                f"({e.strerror or e}); choose another folder with cache_dir=DIR"
            ) from e
        self.last = time.perf_counter() - begin - self._loading
        self.spent += self.last
        return encoder

    def _load(self, remaining: list[AdaptedMember], config: EncoderConfig, make: MakeEncoder) -> Encoder:
        """Load the members recursively.

        Each folder is read within the reading of the previous one, so that none is evicted before ``make``
        has read them all.
        """
        if not remaining:
            begin = time.perf_counter()
            encoder = make(config)
            self._loading = time.perf_counter() - begin
            return encoder
        member = remaining[0]
        done = len(self.results)
        adapted_config = cast(ConfigFunction, locate(f"{member.module}.adapted_config"))

        def read(folder: Path) -> Encoder:
            del self.results[done:]  # of an attempt whose folder was evicted
            self.results.append(AdaptationResult(**json.loads((folder / RESULT).read_text(encoding="utf-8"))))
            member_config = adapted_config(member.config, folder)
            try:
                return self._load(remaining[1:], config.replaced(member.place, member_config), make)
            except Exception as e:
                self._raise_if_intact(e, member, folder)
                raise OSError(f"{folder}: was evicted") from e

        return self.store.read(member.key, lambda folder: self._adapt(member, folder), read)[0]

    def _raise_if_intact(self, error: Exception, member: AdaptedMember, folder: Path) -> None:
        """Raise the error if the encoder's folder is intact: adapting it again would not help."""
        if not self.store.is_complete(member.key):
            return
        if isinstance(error, HarnessError):
            raise error
        raise HarnessError(
            f"{folder}: the adapted encoder cannot be loaded ({type(error).__name__}: {error})"
        ) from error

    def _adapt(self, member: AdaptedMember, folder: Path) -> None:
        """Adapt a member and write its files and result to ``folder``.

        Raises:
            HarnessError: unusable files, or training diverged.
        """
        import torch

        begin = time.perf_counter()
        self.progress({"phase": "adapt", "message": "loading the encoder"})
        job = AdaptationJob(
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
        adapt = cast(AdaptFunction, locate(f"{member.module}.adapt"))
        result = adapt(job)
        verify(self.cell)
        result.seconds = time.perf_counter() - begin
        result.notes = [_summary(member, self.texts, result), *result.notes]
        (folder / RESULT).write_text(json.dumps(result.to_json()), encoding="utf-8")


def _summary(member: AdaptedMember, texts: AdaptationTexts, result: AdaptationResult) -> str:
    options, objective = member.options, support(member.config).objective
    name = f"{'/'.join(member.place)}: " if member.place else ""
    measures = [
        f"{what} on {len(texts.dev)} texts of dev: {result.before[what]:.4g}, then {result.after[what]:.4g}"
        for what in result.before
        if what in result.after
    ]
    training = (
        f"{name}adapted to {len(texts.train)} texts of train in {options.epochs:g} epochs "
        f"({objective}, learning rate {options.lr:g}, seed {options.seed})"
    )
    return "; ".join([training, *measures])
