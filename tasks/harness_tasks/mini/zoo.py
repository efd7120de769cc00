"""Pretrains the bundled encoders on the mini corpus: ``python -m harness_tasks.mini.zoo [FOLDER [NAME
...]]``.

Without a folder it makes the bundled ones anew; with names these alone, the others stay. Each is made by
one ``harness pretrain`` command, which ``manifest.json`` keeps beside seed, hashes (the corpus' is its
text's) and what was measured. Two commands run at a time, a thread each. On one machine and with the same
libraries the files come out the same byte for byte; elsewhere they may differ in the last bits.
"""

from __future__ import annotations

import argparse
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
class ZooMember:
    """One encoder of the zoo: the folder it gets, and what its command says."""

    name: str
    options: tuple[str, ...]

    def command(self, corpus: str, output: str) -> list[str]:
        """The command after ``harness``."""
        common = (
            f"corpus={corpus}",
            f"output={output}",
            f"seed={SEED}",
            "half_precision=true",
            "trainer.threads=1",
        )
        return ["pretrain", *self.options, *common, "trainer.accelerator=cpu", "trainer.logger=none"]


ZOO = (  # what takes longest first
    ZooMember("elmo", ("encoder=elmo",)),
    ZooMember("bert", ("encoder=bert",)),
    ZooMember("ulmfit/forward", ("encoder=ulmfit",)),
    ZooMember("ulmfit/backward", ("encoder=ulmfit", "encoder.backwards=true")),
    ZooMember("gpt", ("encoder=gpt",)),
    ZooMember("static", ("encoder=word2vec", "encoder.format=text.gz", "encoder.digits=4")),
)


def make(folder: Path, members: Sequence[ZooMember] = ZOO, *, corpus: Path = CORPUS) -> None:
    """Pretrain ``members`` into ``folder`` and write its manifest. What that has of others on the same corpus
    stays.

    Raises:
        subprocess.CalledProcessError: a command failed; its output is on the screen.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        entries = list(pool.map(lambda member: _make_one(member, folder, corpus), members))
    shutil.rmtree(folder / ".new", ignore_errors=True)
    made = dict(zip((m.name for m in members), entries, strict=True))
    told, digest = folder / "manifest.json", _text_digest(corpus)
    before = json.loads(told.read_text()) if told.is_file() else {}
    if before.get("corpus") == digest:
        made = {**before["encoders"], **made}
    told.write_text(json.dumps({"corpus": digest, "encoders": made}, indent=1) + "\n")


def _make_one(member: ZooMember, folder: Path, corpus: Path) -> dict[str, Any]:
    place, output = folder / member.name, folder / ".new" / member.name
    begin = time.monotonic()
    print(f"{member.name}: begins", flush=True)
    command = [*member.command(str(corpus), str(output)), "overwrite=always"]
    subprocess.run([sys.executable, "-m", "harness", *command], check=True)
    record = json.loads((output / "pretrain.json").read_text())
    for name in LEFT_OUT:
        (output / name).unlink(missing_ok=True)
    shutil.rmtree(place, ignore_errors=True)  # what was there stays until there is something better
    place.parent.mkdir(parents=True, exist_ok=True)
    output.rename(place)
    print(f"{member.name}: done in {time.monotonic() - begin:.0f} s", flush=True)
    return {
        "command": " ".join(["harness", *member.command(CORPUS.name, member.name)]),
        **{key: record[key] for key in KEPT},
        "versions": record["versions"],
        "files": {p.name: _digest(p) for p in sorted(place.iterdir())},
    }


def _text_digest(path: Path) -> str:
    data = path.read_bytes()
    return hashlib.sha256(gzip.decompress(data) if path.suffix == ".gz" else data).hexdigest()


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main(argv: list[str]) -> int:
    known = {member.name: member for member in ZOO}
    parser = argparse.ArgumentParser(
        prog="python -m harness_tasks.mini.zoo",
        description="Pretrains the bundled encoders on the mini corpus.",
    )
    parser.add_argument("folder", nargs="?", type=Path, default=HERE / "zoo")
    parser.add_argument("name", nargs="*", help=f"of {', '.join(known)}; default: all")
    given = parser.parse_args(argv)
    folder: Path = given.folder
    if unknown := [name for name in given.name if name not in known]:
        raise SystemExit(f"{unknown[0]}: no encoder of the zoo, valid: {', '.join(known)}")
    chosen = [known[name] for name in given.name] or ZOO
    begin = time.monotonic()
    try:
        make(folder, chosen)
    except OSError as e:
        raise SystemExit(f"{folder}: cannot be written ({e})") from None
    except subprocess.CalledProcessError as e:
        raise SystemExit(f"harness pretrain ended with {e.returncode}; what is told above is why") from None
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    took = (time.monotonic() - begin) / 60
    print(f"{len(chosen)} encoders were made in {folder} ({size / 1e6:.1f} MB), {took:.0f} minutes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
