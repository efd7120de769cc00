"""From Hydra jobs to cells: resolve, skip complete ones, run the rest, and record failures.

A sweep is decided before anything is computed: every job is composed and resolved first, and a bad
configuration or a missing file in any of them rejects the whole command (it is a mistake in the command, not
a failed cell). Then complete cells are left unchanged, cells that make no sense are recorded as skipped, and
the others run on slots (:mod:`harness.sweeps.pool`). This module imports Hydra only when needed, never torch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from harness.config.composer import Composer, given_overrides, job_values, refuse_merged, refuse_unresolved
from harness.core.redaction import printable
from harness.errors import HarnessError
from harness.loggers import factory
from harness.processes.slots import DeviceSlot, cpu_share, make_slots
from harness.records.cell import Cell
from harness.records.record import Record
from harness.sweeps.base_pool import BasePool, Display
from harness.sweeps.checks import check_cells, check_writable, warn_of_missing_outputs
from harness.sweeps.clusters.pool import AnyEngine, ClusterPool
from harness.sweeps.jobs import prepare, prepare_all, sweep_name
from harness.sweeps.nodes import check_one_node, join_nodes
from harness.sweeps.plan import SweepPlan, describe, make_plan
from harness.sweeps.pool import PRELOAD, LocalPool
from harness.sweeps.progress import PlainDisplay, SilentDisplay, SweepCounts, make_display
from harness.sweeps.state import SweepState

if TYPE_CHECKING:
    from hydra.core.utils import JobReturn
    from omegaconf import DictConfig

RUNNER = "harness.training.run:run_cell"
Connect = Callable[[Sequence[Cell]], AnyEngine]
"""Connects to a cluster that runs these cells."""


SWEEPS = ".sweeps"
"""Folder of Hydra's own files in a results folder."""


class CellFailed(Exception):
    """A cell failed in a process other than the driver's; the message is its title and the reason."""


@dataclass(eq=False)
class SweepTask:
    """Hydra's task function: runs one job, and hands the command's state to the launcher plugins.

    Attributes:
        state: None in a process that another launcher has started.
    """

    state: SweepState | None = None

    def __call__(self, config: DictConfig) -> float | None:
        return run_job(config, state=self.state)

    def __reduce__(self) -> tuple[type[SweepTask], tuple[()]]:
        """Pickle without the state: it belongs to the process at the terminal."""
        return SweepTask, ()


def before_sweep(config: DictConfig, state: SweepState | None) -> None:
    """Reject an unusable results folder before Hydra creates the folder of the sweep."""
    root = check_writable(str(config.results_dir))
    if (root / SWEEPS).is_symlink():
        raise HarnessError(f"{root / SWEEPS}: a link; remove it")
    refuse_unresolved(config)
    if state is not None:
        state.sweep_dir = Path(str(config.hydra.sweep.dir)).absolute()
        state.sweep_name = sweep_name(config)


def launch(
    config: DictConfig,
    job_overrides: Sequence[Sequence[str]],
    *,
    composer: Composer,
    state: SweepState | None,
    slots: object = "auto",
    cells_per_device: int = 1,
    connect: Connect | None = None,
) -> list[JobReturn]:
    """Run a batch of jobs; used by our launcher plugins.

    Args:
        config, job_overrides: as Hydra passes them.
        composer: composes the jobs.
        state: is updated.
        slots, cells_per_device: slots of this machine.
        connect: connects to the cluster that runs the cells instead; called after all checks have passed.

    Returns:
        one JobReturn per job, with the dev score (or None) as its value.

    Raises:
        HarnessError: the configuration of a job is invalid; no cell has been run.
        KeyboardInterrupt: the user stopped the sweep.
    """
    jobs = [composer.job(config, overrides) for overrides in job_overrides]
    cells = prepare_all(jobs, job_overrides, state=state)
    check_one_node(cells)
    dry = _is_dry_run(cells)
    plan = make_plan({str(cell.folder): cell for cell in cells}, dry=dry)
    check_cells(plan.to_run, local=connect is None)
    free = [DeviceSlot(None, 1)]
    if connect is None:
        free = _slots_for(cells, slots=slots, cells_per_device=cells_per_device)
    warn_of_missing_outputs(plan)
    if dry:
        _print_plan(cells, plan, slots=len(free))
        records = plan.settled
    elif connect is None or not plan.to_run:
        records = execute(cells, plan, slots=free, state=state)
    else:
        with contextlib.closing(connect(plan.to_run)) as engine:
            cluster = [DeviceSlot(None, 1)] * engine.width
            records = execute(cells, plan, slots=cluster, engine=engine, state=state)
    return [
        _job_return(job, overrides=o, cell=cell, record=records.get(str(cell.folder)))
        for (job, _), o, cell in zip(jobs, job_overrides, cells, strict=True)
    ]


def run_job(config: DictConfig, *, state: SweepState | None = None) -> float | None:
    """Run a single job; also used by launchers other than ours. Returns the dev score, or None.

    Args:
        config: composed by Hydra.
        state: of the command; None in a process that another launcher has started.

    Raises:
        HarnessError: the configuration is invalid (for a single run it is stored in ``state.error`` instead).
        CellFailed: the cell failed, without a ``state`` to report it to.
    """
    from omegaconf.errors import OmegaConfBaseException

    from harness.core.resolvers import register

    register()
    try:
        refuse_unresolved(config)
        refuse_merged(config)
        cell = prepare(job_values(config), given=given_overrides(), state=state)
        launched = join_nodes(cell, runner=RUNNER)
        if launched is not None and launched.rank > 0:
            return None
        plan = make_plan({str(cell.folder): cell}, dry=_is_dry_run([cell]))
        check_cells(plan.to_run)
        warn_of_missing_outputs(plan)
        if launched is not None:
            launched.decide(run=bool(plan.to_run) and not _is_dry_run([cell]))
    except (HarnessError, OmegaConfBaseException) as e:
        if state is None or _is_multirun():
            raise
        state.error = e
        return None
    if _is_dry_run([cell]):
        _print_plan([cell], plan, slots=1)
        return None
    if state is not None:
        first = _slots_for([cell], slots="auto", cells_per_device=1)[0]
        slot = DeviceSlot(first.devices, cpu_share(1))
        record = execute([cell], plan, slots=[slot], state=state).get(str(cell.folder))
        if launched is not None:
            launched.finish()
        return dev_score(record)
    silent, slot = SilentDisplay(SweepCounts(total=1)), DeviceSlot(None, cpu_share(1))
    record = execute([cell], plan, slots=[slot], display=silent).get(str(cell.folder))
    if record is not None and record.status in ("failed", "timeout"):
        raise CellFailed(f"{cell.title}: {record.reason}")
    return dev_score(record)


def execute(
    cells: Sequence[Cell],
    plan: SweepPlan,
    *,
    slots: Sequence[DeviceSlot],
    state: SweepState | None = None,
    display: PlainDisplay | None = None,
    engine: AnyEngine | None = None,
) -> dict[str, Record]:
    """Run the cells of a plan and return all records by folder; cells with the same folder are one cell.

    Args:
        cells: all requested cells.
        plan: from :func:`harness.sweeps.plan.make_plan`.
        slots: where the cells run.
        state: is updated.
        display: default: chosen by whether standard error is a terminal.
        engine: the cluster that runs the cells; None = this machine.

    Raises:
        KeyboardInterrupt: the user stopped the sweep; running and waiting cells can be run again.
    """
    records, to_run = plan.settled, plan.to_run
    already_complete = {k for k, r in records.items() if r.status == "complete"}
    if state is not None:
        state.requested |= {str(cell.folder) for cell in cells}
        state.already_complete |= already_complete
        state.results_dirs |= {cell.results_dir: None for cell in cells}
        state.records |= records
        if state.stopped:
            return records
    if to_run:
        counts = SweepCounts(
            total=len(to_run),
            already_complete=len(already_complete),
            skipped=len(records) - len(already_complete),
            slots=len(slots),
        )
        display = display or make_display(counts)
        records |= _run(plan, slots=slots, display=display, engine=engine, state=state)
    return records


def rerun(cells: Sequence[Cell], state: SweepState) -> None:
    """Run cells again, even complete ones, on the slots of this machine; skipped cells stay skipped.

    Raises:
        HarnessError: unreadable data or a folder that cannot be written; no cell has been run.
        KeyboardInterrupt: the user stopped it.
    """
    for root in {cell.results_dir for cell in cells}:
        check_writable(root)
    plan = make_plan(
        {str(c.folder): replace(c, options=replace(c.options, overwrite="always")) for c in cells}
    )
    check_cells(plan.to_run)
    execute(cells, plan, slots=_slots_for(cells, slots="auto", cells_per_device=1), state=state)


def dev_score(record: Record | None) -> float | None:
    """The primary metric on dev of a complete cell."""
    return record.dev.get(record.metric) if record is not None and record.status == "complete" else None


def _is_dry_run(cells: Sequence[Cell]) -> bool:
    return any(cell.options.dry_run for cell in cells)


def _print_plan(cells: Sequence[Cell], plan: SweepPlan, *, slots: int) -> None:
    print(printable("\n".join(describe(cells, plan, slots=slots))))


class _PoolOptions(TypedDict):
    display: Display
    runner: str
    preload: Sequence[str]
    fail_fast: bool
    force_rerun: set[str]


def _run(
    plan: SweepPlan,
    *,
    slots: Sequence[DeviceSlot],
    display: PlainDisplay,
    engine: AnyEngine | None,
    state: SweepState | None,
) -> dict[str, Record]:
    cells = plan.to_run
    common: _PoolOptions = {
        "display": display,
        "runner": RUNNER,
        "preload": (*PRELOAD, *_modules_of(cells)),
        "fail_fast": any(cell.options.fail_fast for cell in cells),
        "force_rerun": plan.force_rerun,
    }
    pool: BasePool
    pool = LocalPool(slots=slots, **common) if engine is None else ClusterPool(engine=engine, **common)
    try:
        records = pool.run(cells)
        factory.end_killed_runs(records, cells, note=display.note)
    finally:
        display.close()
    if state is not None:
        state.records |= records
        state.stopped |= pool.stopping
        state.interrupted |= pool.interrupts > 0
    if pool.interrupts:
        raise KeyboardInterrupt
    return records


def _modules_of(cells: Sequence[Cell]) -> list[str]:
    """Modules of the cells' components and loggers, to be imported once by the fork server."""
    parts = [part for cell in cells for part in (cell.encoder, cell.task, cell.body)]
    modules = {part.target.rpartition(".")[0] for part in parts if part.target}
    return sorted(modules) + factory.packages(cells)


def _slots_for(cells: Sequence[Cell], *, slots: object, cells_per_device: int) -> list[DeviceSlot]:
    from omegaconf import ListConfig, OmegaConf

    trainers = [cell.trainer for cell in cells]
    cpu = bool(trainers) and all(t.accelerator == "cpu" for t in trainers)
    devices = [t.devices for t in trainers if cpu or t.accelerator != "cpu"]
    return make_slots(
        OmegaConf.to_container(slots) if isinstance(slots, ListConfig) else slots,
        cells_per_device=cells_per_device,
        accelerator="cpu" if cpu else "auto",
        devices=max([1, *devices]),
    )


def _job_return(
    job: Mapping[str, object], *, overrides: Sequence[str], cell: Cell, record: Record | None
) -> JobReturn:
    from hydra.core.utils import JobReturn, JobStatus
    from omegaconf import OmegaConf

    returned = JobReturn(
        overrides=list(overrides),
        cfg=OmegaConf.create(dict(job)),
        working_dir=str(cell.folder),
        task_name="harness",
        status=JobStatus.COMPLETED,
    )
    # a failed cell is a record, not an exception, which would make the sweeper end the sweep
    returned.return_value = dev_score(record)
    return returned


def _is_multirun() -> bool:
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    return HydraConfig.initialized() and HydraConfig.get().mode == RunMode.MULTIRUN
