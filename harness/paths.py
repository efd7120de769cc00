"""Where the installed configuration lies; torch-free."""

from __future__ import annotations

from pathlib import Path

from harness.errors import HarnessError


def conf_dir() -> Path:
    """The ``conf`` folder: inside the package when installed from a wheel, beside it in an editable install.

    Raises:
        HarnessError: the installation has none.
    """
    package = Path(__file__).resolve().parent
    for folder in (package / "conf", package.parent / "conf"):
        if (folder / "config.yaml").is_file():
            return folder
    raise HarnessError(f"{package}: the installation has no conf folder; install transfer-harness again")
