"""Hydra plugins of the sweep and of the local launcher, implemented in :mod:`harness.sweeps.launch`."""

from collections.abc import Sequence

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig


class GridSweeper(BasicSweeper):
    """Hydra's grid sweep, with ``hydra.sweeper.params`` read like the command line: a YAML list of a group's
    options is a sweep over them."""

    def _parse_config(self) -> list[str]:
        from harness.config.overrides import sweep_parameter

        return [sweep_parameter(str(key), value) for key, value in self.params.items()]


class LocalLauncher(Launcher):
    """Runs the cells of a sweep on the slots of this machine, each in its own process."""

    def __init__(self, slots: object = "auto", cells_per_device: int = 1) -> None:
        self.slots = slots
        self.cells_per_device = cells_per_device

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
            self.config,
            job_overrides,
            composer=self.composer,
            state=self.state,
            slots=self.slots,
            cells_per_device=self.cells_per_device,
        )
