"""``python -m harness``: the same as the console script, from any directory."""

import os
import sys

# -m puts the current directory first on the path: a yaml.py there would shadow the library
if not sys.flags.safe_path and sys.path and os.path.realpath(sys.path[0] or ".") == os.path.realpath("."):
    del sys.path[0]

from harness.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
