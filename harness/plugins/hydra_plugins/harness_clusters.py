"""Hydra's doors to the cluster launchers; what these do is in :mod:`harness.sweeps.clusters.pool`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.plugins.search_path_plugin import SearchPathPlugin
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf


class OwnNames(SearchPathPlugin):
    """hydra-ray-launcher, where it is installed, has a schema called ``hydra/launcher=ray``, too, and Hydra
    would check ours against it."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        group = ConfigStore.instance().repo.get("hydra", {}).get("launcher", {})
        group.pop("ray.yaml", None)


class _ClusterLauncher(Launcher):
    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        from harness.config.composer import Composer
        from harness.sweeps.launch import before_sweep

        self.composer = Composer(hydra_context.config_loader)
        self.config = config
        before_sweep(config)

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        from harness.sweeps.launch import launch

        return launch(self.config, job_overrides, composer=self.composer, connect=self.connect)

    def connect(self, cells: Sequence[Any]) -> Any:
        """The engine for these cells."""
        raise RuntimeError("this is for its subclasses")


class RayLauncher(_ClusterLauncher):
    """Runs a sweep's cells as Ray tasks."""

    def __init__(self, ray: DictConfig, wait_seconds: float = 0.0) -> None:
        self.ray: Any = OmegaConf.to_container(ray, resolve=True)
        self.wait_seconds = wait_seconds

    def connect(self, cells: Sequence[Any]) -> Any:
        from harness.sweeps.clusters.ray import RayEngine

        init, remote = self.ray.get("init") or {}, self.ray.get("remote") or {}
        return RayEngine(init=init, remote=remote, cells=cells, wait_seconds=float(self.wait_seconds))


class SubmititLauncher(_ClusterLauncher):
    """Runs a sweep's cells as Slurm jobs, or as submitit's local ones."""

    def __init__(self, cluster: str, submitit_folder: Any = None, **parameters: Any) -> None:
        self.cluster, self.submitit_folder = cluster, submitit_folder
        self.parameters = {
            k: OmegaConf.to_container(v, resolve=True) if OmegaConf.is_config(v) else v
            for k, v in parameters.items()
        }

    def connect(self, cells: Sequence[Any]) -> Any:
        from harness.sweeps.clusters.submitit import SubmititEngine

        folder = Path(
            str(self.submitit_folder or Path(str(self.config.hydra.sweep.dir)) / ".submitit")
        ).absolute()
        return SubmititEngine(cluster=self.cluster, folder=folder, parameters=self.parameters, cells=cells)
