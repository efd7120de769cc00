"""Pretrains the bundled encoders on the mini corpus: ``python -m tasks.mini.zoo [FOLDER]``.

Without a folder it makes the bundled ones anew. Each is made by one ``harness pretrain`` command, which
``manifest.json`` keeps beside seed, hashes (the corpus' is its text's) and what was measured. Two commands
run at a time, a thread each. On one machine and with the same libraries the files come out the same byte for
byte; elsewhere they may differ in the last bits.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
CORPUS = HERE / "world" / "data" / "corpus.txt.gz"
SEED = 0
AT_ONCE = 2
KEPT = ("family", "size", "seen", "parameters", "encoder_parameters", "vocabulary", "held_out", "options")
"""What the manifest takes over from the record of a pretraining."""
LEFT_OUT = ("pretrain.json", "curves.csv", "softmax.safetensors", "generation_config.json")
"""Files that no encoder reads; the first names the machine."""


@dataclass(frozen=True, slots=True)
class Member:
    """One encoder of the zoo: the folder it gets, and what its command says."""

    name: str
    options: tuple[str, ...]

    def command(self, corpus: str, output: str) -> list[str]:
        """The command after ``harness``."""
        common = (f"corpus={corpus}", f"output={output}", f"seed={SEED}", "half=true", "trainer.threads=1")
        return ["pretrain", *self.options, *common, "trainer.accelerator=cpu", "trainer.logger=none"]


ZOO = (  # what takes longest first
    Member("elmo", ("encoder=elmo",)),
    Member("bert", ("encoder=bert",)),
    Member("ulmfit/forward", ("encoder=ulmfit",)),
    Member("ulmfit/backward", ("encoder=ulmfit", "encoder.backwards=true")),
    Member("gpt", ("encoder=gpt",)),
    Member("static", ("encoder=word2vec", "encoder.format=text.gz", "encoder.digits=4")),
)


def make(folder: Path, members: Sequence[Member] = ZOO, *, corpus: Path = CORPUS) -> None:
    """Pretrain ``members`` into ``folder`` and write its manifest.

    Raises:
        subprocess.CalledProcessError: a command failed; its output is on the screen.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        entries = list(pool.map(lambda member: _make_one(member, folder, corpus), members))
    manifest = {
        "corpus": _text_digest(corpus),
        "encoders": dict(zip((m.name for m in members), entries, strict=True)),
    }
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")


def _make_one(member: Member, folder: Path, corpus: Path) -> dict[str, Any]:
    output = folder / member.name
    begin = time.monotonic()
    print(f"{member.name}: begins", flush=True)
    command = [*member.command(str(corpus), str(output)), "overwrite=always"]
    subprocess.run([sys.executable, "-m", "harness", *command], check=True)
    record = json.loads((output / "pretrain.json").read_text())
    for name in LEFT_OUT:
        (output / name).unlink(missing_ok=True)
    print(f"{member.name}: done in {time.monotonic() - begin:.0f} s", flush=True)
    return {
        "command": " ".join(["harness", *member.command(CORPUS.name, member.name)]),
        **{key: record[key] for key in KEPT},
        "versions": record["versions"],
        "files": {p.name: _digest(p) for p in sorted(output.iterdir())},
    }


def _text_digest(path: Path) -> str:
    data = path.read_bytes()
    return hashlib.sha256(gzip.decompress(data) if path.suffix == ".gz" else data).hexdigest()


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main(argv: list[str]) -> int:
    folder = Path(argv[0]) if argv else HERE / "zoo"
    begin = time.monotonic()
    make(folder)
    for left in folder.glob(".*.unfinished"):
        shutil.rmtree(left)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    took = (time.monotonic() - begin) / 60
    print(f"{len(ZOO)} encoders are in {folder} ({size / 1e6:.1f} MB), {took:.0f} minutes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
