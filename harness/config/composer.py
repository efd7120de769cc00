"""Compose each job of a sweep once, and once for all seeds.

Hydra needs about 0.1 s per composition. Its sweeper composes every job to validate it, the launcher would
compose it again, and jobs that differ only in the seed have the same configuration. Results are therefore
cached as plain data, keyed by the overrides without the seed, or with it if the configuration uses
``${seed}``.
"""

from __future__ import annotations

import copy
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from harness.config.groups import searched_folders
from harness.config.overrides import refuse_merged_options
from harness.config.schema import TOP_LEVEL
from harness.core.redaction import refuse_stored_secrets

if TYPE_CHECKING:
    from omegaconf import DictConfig

_SEED = re.compile(r"seed=(\d+)")
Job = tuple[dict[str, Any], list[str]]


class Composer:
    """Wraps the ``load_sweep_config`` of a config loader, so that the sweeper's check fills the cache of
    :meth:`job`."""

    def __init__(self, loader: Any) -> None:
        self._load = loader.load_sweep_config
        loader.load_sweep_config = self.check
        self._jobs: dict[tuple[str, ...], Job] = {}
        self._seeded: set[tuple[str, ...]] = set()

    def check(self, master_config: DictConfig, sweep_overrides: Sequence[str]) -> None:
        """Compose the job unless it is cached; errors of Hydra and OmegaConf pass through."""
        self._composed(master_config, list(sweep_overrides))

    def job(self, master: DictConfig, overrides: Sequence[str]) -> Job:
        """Return the job's configuration as plain data and its overrides, without those of Hydra's own
        groups."""
        config, applied = self._composed(master, list(overrides))
        seeds = [m[1] for m in map(_SEED.fullmatch, overrides) if m]
        if seeds:
            config = {**config, "seed": int(seeds[-1])}
            applied = [f"seed={seeds[-1]}" if _SEED.fullmatch(o) else o for o in applied]
        return copy.deepcopy(config), list(applied)

    def _composed(self, master: DictConfig, overrides: list[str]) -> Job:
        common, full = tuple(o for o in overrides if not _SEED.fullmatch(o)), tuple(overrides)
        key = full if common in self._seeded else common
        if key not in self._jobs:
            job, uses_seed = _plain(self._load(master, overrides))
            if uses_seed:
                self._seeded.add(common)
                key = full
            self._jobs[key] = job
        return self._jobs[key]


def _plain(composed: DictConfig) -> tuple[Job, bool]:
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import OmegaConf, open_dict

    with open_dict(composed):
        composed.hydra.job.id = composed.hydra.job.name
        composed.hydra.job.num = 0
    HydraConfig.instance().set_config(composed)
    uses_seed = "seed}" in str(OmegaConf.to_container(_without_hydra(composed), resolve=False))
    refuse_merged(composed)
    return (job_values(composed), given_overrides()), uses_seed


def job_values(config: DictConfig) -> dict[str, Any]:
    """Return a composed configuration as plain data, without Hydra's section and without top-level keys that
    exist only to be interpolated, such as ``passes`` in ``epochs: ${passes.trec}``.

    Raises:
        OmegaConfBaseException: a missing value, or an interpolation of a key that does not exist.
    """
    from omegaconf import OmegaConf

    own = _without_hydra(config)
    text = str(OmegaConf.to_container(own, resolve=False))
    job = OmegaConf.to_container(own, resolve=True, throw_on_missing=True)
    assert isinstance(job, dict)
    return {
        str(k): v
        for k, v in job.items()
        if k in TOP_LEVEL or not _is_interpolated(str(k), itertools.chain([text], _files()))
    }


def _files() -> Iterator[str]:
    """Yield the configuration files of the command: an override may have replaced an interpolation."""
    for folder in searched_folders():
        for path in folder.rglob("*.yaml"):
            yield path.read_text(encoding="utf-8", errors="replace")


def _is_interpolated(key: str, texts: Iterable[str]) -> bool:
    pattern = re.compile(rf"\$\{{{re.escape(key)}[.\[}}]")
    return any(pattern.search(text) for text in texts)


def _without_hydra(config: DictConfig) -> DictConfig:
    from omegaconf import OmegaConf

    return OmegaConf.masked_copy(config, [str(k) for k in config if k != "hydra"])


def refuse_merged(config: DictConfig) -> None:
    """Refuse a composed configuration in which Hydra has merged several options of a group.

    Raises:
        HarnessError: names the group.
    """
    from hydra.core.hydra_config import HydraConfig

    if HydraConfig.initialized() and HydraConfig.get().job.config_name == "config":
        choices = {str(k) for k in HydraConfig.get().runtime.choices}
        refuse_merged_options(choices, [str(k) for k in config])


def given_overrides() -> list[str]:
    """Return the overrides of the current job, without those of Hydra's own groups."""
    from hydra.core.hydra_config import HydraConfig

    return [str(o) for o in HydraConfig.get().overrides.task] if HydraConfig.initialized() else []


def refuse_unresolved(config: DictConfig) -> None:
    """Refuse secrets in a composed configuration and their interpolations, which are not resolved here.

    Raises:
        HarnessError: names the key, never the value.
    """
    from omegaconf import OmegaConf

    plain = OmegaConf.to_container(config, resolve=False)
    assert isinstance(plain, dict)
    own = {str(k): v for k, v in plain.items() if k != "hydra"}
    job = (plain.get("hydra") or {}).get("job") or {}
    refuse_stored_secrets({**own, "hydra": {"job": {"env_set": job.get("env_set")}}})
