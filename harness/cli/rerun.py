"""``harness rerun CELL...`` runs cells again from their stored configuration; a complete run is archived."""

from __future__ import annotations

from harness.cli.find_cells import ARCHIVE, cells_parser, find, is_running
from harness.errors import HarnessError


def main(argv: list[str]) -> int:
    """Exit code as of a sweep. Nothing runs when one of the cells cannot be found, read or is running."""
    parser = cells_parser(
        "rerun", about=__doc__, epilog="Start it where the sweep was started if its paths were relative."
    )
    args = parser.parse_args(argv)
    folders = [f for cell in args.cells for f in find(cell, results=args.results, groups=True)]
    for folder in folders:
        if ARCHIVE in folder.parts:
            raise HarnessError(f"{folder}: is archived; move it back to where it was first")
        if is_running(folder):
            raise HarnessError(f"{folder}: is running; stop its sweep first")
    from harness.config.stored import read_cell

    cells = list({str(f): read_cell(f) for f in folders}.values())
    from harness.cli.run import last_words
    from harness.sweeps import launch

    driver = launch.driver = launch.Driver()
    try:
        launch.run_again(cells)
    except KeyboardInterrupt:
        driver.interrupted = True
    finally:
        launch.driver = None
    return last_words(driver)
