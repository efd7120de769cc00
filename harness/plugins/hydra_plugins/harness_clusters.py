"""Hydra plugins of the cluster launchers; the implementation is in :mod:`harness.sweeps.clusters.pool`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.plugins.search_path_plugin import SearchPathPlugin
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

if TYPE_CHECKING:
    from harness.records.cell import Cell
    from harness.sweeps.clusters.pool import AnyEngine


class RemoveRayLauncherSchema(SearchPathPlugin):
    """Removes the schema ``hydra/launcher=ray`` of hydra-ray-launcher, if that is installed.

    Hydra would validate our configuration of the same name against it.
    """

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        group = ConfigStore.instance().repo.get("hydra", {}).get("launcher", {})
        group.pop("ray.yaml", None)


class _ClusterLauncher(Launcher):
    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        from harness.config.composer import Composer
        from harness.sweeps.launch import SweepTask, before_sweep

        self.composer = Composer(hydra_context.config_loader)
        self.config = config
        self.state = task_function.state if isinstance(task_function, SweepTask) else None
        before_sweep(config, self.state)

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        from harness.sweeps.launch import launch

        return launch(
            self.config, job_overrides, composer=self.composer, state=self.state, connect=self.connect
        )

    def connect(self, cells: Sequence[Cell]) -> AnyEngine:
        """Create the engine that runs these cells."""
        raise NotImplementedError


class RayLauncher(_ClusterLauncher):
    """Runs the cells of a sweep as Ray tasks."""

    def __init__(self, ray: DictConfig, wait_seconds: float = 0.0) -> None:
        self.ray: dict[str, Mapping[str, object] | None] = {
            str(key): dict(section) if section else None for key, section in (_plain(ray) or {}).items()
        }
        self.wait_seconds = wait_seconds

    def connect(self, cells: Sequence[Cell]) -> AnyEngine:
        from harness.sweeps.clusters.ray import RayEngine

        init, remote = self.ray.get("init") or {}, self.ray.get("remote") or {}
        return RayEngine(init=init, remote=remote, cells=cells, wait_seconds=float(self.wait_seconds))


class SubmititLauncher(_ClusterLauncher):
    """Runs the cells of a sweep as Slurm jobs, or as local jobs of submitit."""

    def __init__(self, cluster: str, submitit_folder: str | None = None, **parameters: object) -> None:
        self.cluster, self.submitit_folder = cluster, submitit_folder
        self.parameters = {k: _plain(v) for k, v in parameters.items()}

    def connect(self, cells: Sequence[Cell]) -> AnyEngine:
        from harness.sweeps.clusters.submitit import SubmititEngine

        folder = self.submitit_folder or Path(str(self.config.hydra.sweep.dir)) / ".submitit"
        return SubmititEngine(
            cluster=self.cluster,
            folder=Path(folder).absolute(),
            parameters=self.parameters,
            cells=cells,
        )


def _plain(value: object) -> Any:
    """OmegaConf containers as plain ones."""
    return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
