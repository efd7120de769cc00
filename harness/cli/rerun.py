"""``harness rerun CELL...``: run cells again from their stored configuration; complete runs are archived."""

from __future__ import annotations

from harness.cli.find_cells import cells_parser, find, is_running
from harness.errors import HarnessError
from harness.records import trust
from harness.records.lifecycle import ARCHIVE

ABOUT = "Run cells again from their stored configuration; complete runs are archived first."


def main(argv: list[str]) -> int:
    """Run the command; exit codes as for a sweep. Nothing runs if a cell is not found or is running."""
    parser = cells_parser(
        "rerun",
        about=ABOUT,
        epilog="If the sweep used relative paths, run this in the directory of the sweep.",
    )
    trust.add_options(parser)
    args = parser.parse_args(argv)
    trusted = trust.from_options(args)
    folders = [f for cell in args.cells for f in find(cell, results=args.results, groups=True)]
    for folder in folders:
        if ARCHIVE in folder.parts:
            raise HarnessError(f"{folder}: is archived; move it back to its original folder first")
        if is_running(folder):
            raise HarnessError(f"{folder}: is running; stop its sweep first")
    from harness.config.stored import read_cell

    cells = list({str(f): read_cell(f, trusted) for f in folders}.values())
    from harness.cli.run import print_summary
    from harness.sweeps.launch import rerun
    from harness.sweeps.state import SweepState

    state = SweepState()
    try:
        rerun(cells, state)
    except KeyboardInterrupt:
        state.interrupted = True
    return print_summary(state)
