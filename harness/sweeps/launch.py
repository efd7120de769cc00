"""A Hydra job becomes a cell: identity, skip if done, isolation, failure.

A sweep is decided before it computes: every job is composed and resolved first, and a bad configuration or a
missing file in any of them refuses the whole (it is a slip in the command, not a failed cell). Then complete
cells are left alone, senseless ones recorded as skipped, and the rest run on slots (:mod:`harness.sweeps.pool`).
This module imports neither torch nor, before it is needed, Hydra.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.config import resolve
from harness.config.composer import Composer, given_overrides
from harness.errors import HarnessError
from harness.loggers import factory
from harness.processes.slots import Slot, cpu_share, make_slots
from harness.records.cell import Cell
from harness.records.record import Record
from harness.sweeps.checks import check_cells, check_writable, note_unsaved
from harness.sweeps.clusters.pool import ClusterPool, Engine
from harness.sweeps.plan import Plan, describe, make_plan
from harness.sweeps.pool import PRELOAD, Pool
from harness.sweeps.progress import Counts, PlainDisplay, SilentDisplay, make_display

if TYPE_CHECKING:
    from hydra.core.utils import JobReturn
    from omegaconf import DictConfig

RUNNER = "harness.training.run:run_cell"


class CellFailed(Exception):
    """A cell failed in a process that is not the driver's; the message is its title and reason."""


@dataclass(slots=True)
class Driver:
    """What the process at the terminal remembers over all batches of a command.

    Attributes:
        records: by folder.
        earlier: folders whose record was complete before.
        roots: results folders, in order.
        wanted: folders of all cells asked for.
        sweep_dir: Hydra's folder for this sweep.
        error: what stopped a single job before it ran.
        stopped: no further batch is to be run.
        interrupted: the user pressed Ctrl-C.
    """

    records: dict[str, Record] = field(default_factory=dict)
    earlier: set[str] = field(default_factory=set)
    roots: dict[Path, None] = field(default_factory=dict)
    wanted: set[str] = field(default_factory=set)
    sweep_dir: Path | None = None
    error: Exception | None = None
    stopped: bool = False
    interrupted: bool = False

    @property
    def failed(self) -> bool:
        return any(r.status in ("failed", "timeout") for r in self.records.values())


driver: Driver | None = None
"""Set by the command line; None where a cluster's launcher runs :func:`run_job` in a process of its own."""


def before_sweep(config: DictConfig) -> None:
    """Refuse what cannot work before Hydra makes the sweep's folder."""
    check_writable(str(config.results_dir))
    if driver is not None:
        driver.sweep_dir = Path(str(config.hydra.sweep.dir)).absolute()


def launch(
    config: DictConfig,
    job_overrides: Sequence[Sequence[str]],
    *,
    composer: Composer,
    slots: Any = "auto",
    cells_per_device: int = 1,
    connect: Callable[[Sequence[Cell]], Engine] | None = None,
) -> list[JobReturn]:
    """What our launchers do with a batch of jobs; one return each, the dev score or None as its value.

    Args:
        config, job_overrides: Hydra's.
        composer: composes the jobs.
        slots, cells_per_device: of this machine.
        connect: gives the cluster that the cells run on instead; called when all are known to be sound.

    Raises:
        HarnessError: a job's configuration is bad; no cell has been run.
        KeyboardInterrupt: the user stopped the sweep.
    """
    jobs = [composer.job(config, overrides) for overrides in job_overrides]
    cells = [_prepare(job, given=given, where=o) for (job, given), o in zip(jobs, job_overrides, strict=True)]
    local = connect is None
    places = _slots_for(cells, slots=slots, cells_per_device=cells_per_device) if local else [Slot(None, 1)]
    dry = _dry(cells)
    plan = make_plan({str(cell.folder): cell for cell in cells}, dry=dry)
    check_cells(plan.todo)
    note_unsaved(plan)
    if dry:
        _show(cells, plan, slots=len(places))
    if dry:
        records = plan.known
    elif connect is None or not plan.todo:
        records = execute(cells, plan, slots=places)
    else:
        with contextlib.closing(connect(plan.todo)) as engine:
            records = execute(cells, plan, slots=[Slot(None, 1)] * engine.width, engine=engine)
    return [
        _job_return(job, overrides=o, cell=cell, record=records.get(str(cell.folder)))
        for (job, _), o, cell in zip(jobs, job_overrides, cells, strict=True)
    ]


def run_job(config: DictConfig) -> float | None:
    """The task function of a single run and of launchers that are not ours: the dev score, None without one.

    Raises:
        HarnessError: the configuration is bad (kept in :data:`driver` for a single run).
        CellFailed: the cell failed, outside the driver's process.
    """
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    from harness.core.resolvers import register

    register()
    try:
        job = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
        assert isinstance(job, dict)
        cell = _prepare({str(k): v for k, v in job.items()}, given=given_overrides(), where=())
        plan = make_plan({str(cell.folder): cell}, dry=_dry([cell]))
        check_cells(plan.todo)
    except (HarnessError, OmegaConfBaseException) as e:
        if driver is None or _is_multirun():
            raise
        driver.error = e
        return None
    if _dry([cell]):
        _show([cell], plan, slots=1)
        return None
    if driver is not None:
        first = _slots_for([cell], slots="auto", cells_per_device=1)[0]
        record = execute([cell], plan, slots=[Slot(first.devices, cpu_share(1))]).get(str(cell.folder))
    else:
        quiet = SilentDisplay(Counts(expect=1))
        record = execute([cell], plan, slots=[Slot(None, cpu_share(1))], display=quiet).get(str(cell.folder))
        if record is not None and record.status in ("failed", "timeout"):
            raise CellFailed(f"{cell.title}: {record.reason}")
    return dev_score(record)


def execute(
    cells: Sequence[Cell],
    plan: Plan,
    *,
    slots: Sequence[Slot],
    display: PlainDisplay | None = None,
    engine: Engine | None = None,
) -> dict[str, Record]:
    """Bring the cells to their records, by folder; cells of the same folder are one.

    Args:
        cells: all that were asked for.
        plan: what :func:`harness.sweeps.plan.make_plan` decided of them.
        slots, display: where they run, and who is told.
        engine: the cluster that runs them; this machine without one.

    Raises:
        KeyboardInterrupt: the user stopped it; what was running or waiting is left to be run again.
    """
    known, todo = plan.known, plan.todo
    earlier = {k for k, r in known.items() if r.status == "complete"}
    if driver is not None:
        driver.wanted |= {str(cell.folder) for cell in cells}
        driver.earlier |= earlier
        driver.roots |= {cell.folder.parents[4]: None for cell in cells}
        driver.records |= known
        if driver.stopped:
            return known
    if todo:
        counts = Counts(
            expect=len(todo), earlier=len(earlier), skipped=len(known) - len(earlier), slots=len(slots)
        )
        known |= _run(plan, slots=slots, display=display or make_display(counts), engine=engine)
    return known


def run_again(cells: Sequence[Cell]) -> None:
    """Run cells whatever is there of them, on the slots of this machine; skipped ones stay skipped.

    Raises:
        HarnessError: data that cannot be read, a folder that cannot be written; no cell has been run.
        KeyboardInterrupt: the user stopped it.
    """
    for root in {cell.folder.parents[4] for cell in cells}:
        check_writable(root)
    plan = make_plan({str(c.folder): replace(c, config={**c.config, "overwrite": "always"}) for c in cells})
    check_cells(plan.todo)
    execute(cells, plan, slots=_slots_for(cells, slots="auto", cells_per_device=1))


def dev_score(record: Record | None) -> float | None:
    """The primary metric on dev of a complete cell."""
    return record.dev.get(record.metric) if record is not None and record.status == "complete" else None


def _dry(cells: Sequence[Cell]) -> bool:
    return any(bool(cell.config.get("dry_run")) for cell in cells)


def _show(cells: Sequence[Cell], plan: Plan, *, slots: int) -> None:
    print("\n".join(describe(cells, plan, slots=slots)))


def _run(
    plan: Plan, *, slots: Sequence[Slot], display: PlainDisplay, engine: Engine | None
) -> dict[str, Record]:
    cells = plan.todo
    common: dict[str, Any] = {
        "display": display,
        "runner": RUNNER,
        "preload": (*PRELOAD, *_modules_of(cells)),
        "fail_fast": any(bool(cell.config.get("fail_fast")) for cell in cells),
        "again": plan.again,
    }
    pool: Pool | ClusterPool
    pool = Pool(slots=slots, **common) if engine is None else ClusterPool(engine=engine, **common)
    try:
        records = pool.run(cells)
        end_runs(records, cells, note=display.note)
    finally:
        display.close()
    if driver is not None:
        driver.records |= records
        driver.stopped |= pool.stopping
        driver.interrupted |= pool.interrupts > 0
    if pool.interrupts:
        raise KeyboardInterrupt
    return records


def end_runs(records: Mapping[str, Record], cells: Sequence[Cell], *, note: Callable[[str], None]) -> None:
    """End the wandb runs of cells that were killed, with the reason in their records."""
    folders = list(factory.unfinished(records, cells))
    if folders:
        from harness.loggers.wandb import end_all

        end_all(folders, note=note)


def _modules_of(cells: Sequence[Cell]) -> list[str]:
    """Modules that build the cells' parts: imported once by the server."""
    parts = [cell.config.get(group) or {} for cell in cells for group in ("encoder", "task", "body")]
    found = {str(part["_target_"]).rpartition(".")[0] for part in parts if part.get("_target_")}
    return sorted(found) + ["wandb"] * any(factory.uses_wandb(cell) for cell in cells)


def _prepare(job: dict[str, Any], *, given: Sequence[str], where: Sequence[str]) -> Cell:
    """``given`` are all overrides of the command, ``where`` those that tell the job from its neighbours."""
    check_writable(str(job.get("results_dir") or "results"))
    factory.settle(job, sweep=driver.sweep_dir.name if driver is not None and driver.sweep_dir else None)
    try:
        return resolve.prepare(job, overrides=given)
    except HarnessError as e:
        if not where:
            raise
        raise HarnessError(f"{e}\n(in the job {' '.join(where)}; nothing has been run)") from e


def _slots_for(cells: Sequence[Cell], *, slots: Any, cells_per_device: int) -> list[Slot]:
    from omegaconf import ListConfig, OmegaConf

    trainers = [cell.config.get("trainer") or {} for cell in cells]
    cpu = bool(trainers) and all(t.get("accelerator") == "cpu" for t in trainers)
    on_gpus = [t for t in trainers if cpu or t.get("accelerator") != "cpu"]
    devices = [t["devices"] for t in on_gpus if isinstance(t.get("devices"), int)]
    return make_slots(
        OmegaConf.to_container(slots) if isinstance(slots, ListConfig) else slots,
        cells_per_device=cells_per_device,
        accelerator="cpu" if cpu else "auto",
        devices=max([1, *devices]),
    )


def _job_return(
    job: dict[str, Any], *, overrides: Sequence[str], cell: Cell, record: Record | None
) -> JobReturn:
    from hydra.core.utils import JobReturn, JobStatus
    from omegaconf import OmegaConf

    returned = JobReturn(
        overrides=list(overrides),
        cfg=OmegaConf.create(job),
        working_dir=str(cell.folder),
        task_name="harness",
        status=JobStatus.COMPLETED,
    )
    # a failed cell is a record, not an exception: the sweeper must not end the sweep over it
    returned.return_value = dev_score(record)
    return returned


def _is_multirun() -> bool:
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    return HydraConfig.initialized() and HydraConfig.get().mode == RunMode.MULTIRUN
