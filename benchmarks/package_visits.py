"""Count the visits of a cell's run to the packages of the code: ``python -m benchmarks.package_visits``.

Runs one small cell in this process and follows every call from ``run_cell`` to the record. A visit begins
when a function of another package is called. It is a return if that package has been visited before. Steps of
training repeat the same visits, so each edge (the calling and the called package) counts once, in the order
of its first call. ``--modules`` counts modules instead of packages, for checkouts whose modules are in one
folder.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType

OVERRIDES = (
    "encoder=mini_bert", "strategy=full", "task=mini_topic", "limit=16",
    "trainer.epochs=1", "trainer.threads=1", "trainer.accelerator=cpu",
)  # fmt: skip


class Visits:
    """A profile function for :func:`sys.setprofile`.

    Attributes:
        edges: (caller, callee) of the calls between packages, in the order of the first call.
    """

    def __init__(self, *, modules: bool) -> None:
        self.modules = modules
        self.edges: dict[tuple[str, str], None] = {}

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if event != "call":
            return
        callee = self._unit(frame)
        if callee is None:
            return
        caller, above = None, frame.f_back
        while above is not None and caller is None:  # over frames of libraries
            caller, above = self._unit(above), above.f_back
        if caller is not None and caller != callee:
            self.edges.setdefault((caller, callee))

    def _unit(self, frame: FrameType) -> str | None:
        """The package (or module) that the frame's code belongs to; None = not the harness's."""
        top, _, rest = str(frame.f_globals.get("__name__")).partition(".")
        if top != "harness" or not rest:
            return None
        return rest if self.modules else rest.partition(".")[0]

    def summary(self) -> dict[str, object]:
        """Number of packages, of edges, and of edges that lead back to a package visited before."""
        seen: set[str] = set()
        returns = 0
        for caller, callee in self.edges:
            seen.add(caller)
            returns += callee in seen
            seen.add(callee)
        return {"visited": len(seen), "edges": len(self.edges), "returns": returns, "names": sorted(seen)}


def prepared(folder: Path, resolve: Callable[..., object]) -> object:
    """A small cell, as the command line composes and resolves it."""
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf

    import harness

    root = Path(harness.__file__).resolve().parent
    with initialize_config_dir(str(root.parent / "conf"), version_base="1.3"):
        places = [f"results_dir={folder}/results", f"cache_dir={folder}/cache", "hydra/launcher=basic"]
        config = OmegaConf.to_container(compose("config", [*OVERRIDES, *places]), resolve=True)
    return resolve(config)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--modules", action="store_true", help="count modules instead of packages")
    parser.add_argument("--edges", action="store_true", help="print the edges as well")
    arguments = parser.parse_args()
    try:
        from harness.config.resolve import prepare
        from harness.core.resolvers import register
        from harness.training.run import run_cell
    except ImportError:  # modules in one folder
        from harness.cell import run_cell  # type: ignore[no-redef]
        from harness.resolve import prepare  # type: ignore[no-redef]
        from harness.resolvers import register  # type: ignore[no-redef]

    register()
    visits = Visits(modules=arguments.modules)
    with tempfile.TemporaryDirectory() as folder:
        cell = prepared(Path(folder), prepare)
        sys.setprofile(visits)
        try:
            run_cell(cell)  # type: ignore[arg-type]
        finally:
            sys.setprofile(None)
    summary = visits.summary()
    print(json.dumps({**summary, "edge_list": list(visits.edges)} if arguments.edges else summary))


if __name__ == "__main__":
    main()
