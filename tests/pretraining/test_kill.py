"""``harness pretrain`` killed and given again: the bytes of a run that was not, and nothing beside them."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.pretraining.checkpoint_files import CheckpointFiles
from tests.helpers.paths import ROOT
from tests.helpers.tiny_corpus import ALL, arguments, write

OFTEN = ("trainer.checkpoint_seconds=0", "budget.steps=null", "budget.epochs=6")
TOLD = ("pretrain.json", "curves.csv")
"""What holds times and the command."""
Fate = list[Any]


def job(family: str, folder: Path, name: str, *fates: Fate, more: tuple[str, ...] = OFTEN) -> dict[str, Any]:
    """What the runner is told: one command, and what becomes of it each time it is given."""
    output = folder / name
    told = arguments(family, *more, corpus=folder / "corpus.txt", output=output)
    return {"arguments": told, "fates": fates, "log": str(folder / f"{name}.log"), "output": str(output)}


def run(jobs: list[dict[str, Any]]) -> list[list[int]]:
    runner = ROOT / "tests" / "helpers" / "pretraining_runners.py"
    done = subprocess.run(
        [sys.executable, str(runner), json.dumps(jobs)],
        env={**os.environ, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout.splitlines()[-1]))


def made(output: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(output.iterdir()) if p.name not in TOLD}


def check(folder: Path, families: list[str]) -> None:
    """Both outputs of each family are the same bytes, and nothing lies beside them."""
    for family in families:
        whole, cut = (folder / f"{family}-{kind}" for kind in ("whole", "cut"))
        assert made(whole), family
        assert made(cut) == made(whole), family
        one, two = (json.loads((o / "pretrain.json").read_text())["seen"]["tokens"] for o in (whole, cut))
        assert one == two, family
    outputs = {f"{family}-{kind}" for family in families for kind in ("whole", "cut")}
    left = {p.name for p in folder.iterdir()} - outputs - {f"{o}.log" for o in outputs} - {"corpus.txt"}
    assert left == set()


def test_two_families_killed_while_a_state_is_written_end_with_the_same_bytes(tmp_path: Path) -> None:
    write(tmp_path)
    families = ["bert", "word2vec"]
    jobs = []
    for family in families:
        more = (OFTEN[0],) if family == "bert" else OFTEN
        jobs += [
            job(family, tmp_path, f"{family}-whole", more=more),
            job(family, tmp_path, f"{family}-cut", ["writing", 3, 0.5], ["publishing", True], more=more),
        ]
    assert run(jobs) == [[0], [-9, -9, 0]] * 2
    check(tmp_path, families)
    assert "continues from step-000000002.ckpt" in (tmp_path / "bert-cut.log").read_text()
    assert "already complete" in (tmp_path / "word2vec-cut.log").read_text()


def test_the_newest_state_that_is_whole_is_taken_and_the_damaged_ones_are_named(tmp_path: Path) -> None:
    """Of three files, one is intact, one is cut in half, one is empty."""
    kept, said = CheckpointFiles(tmp_path, stem="step", suffix=".ckpt"), []
    for number in (1, 2, 3):
        kept.write(number, lambda path, n=number: path.write_text(json.dumps([n] * 9)))  # type: ignore[misc]
    assert [p.name for p in kept.paths()] == ["step-000000002.ckpt", "step-000000003.ckpt"]
    kept.write(4, lambda path: path.write_text(""))
    newest = kept.paths()[0]
    first = CheckpointFiles(tmp_path / "first", stem="step", suffix=".ckpt")
    first.write(1, lambda path: path.write_text(json.dumps([1] * 9)))  # type: ignore[misc]
    for path in first.folder.iterdir():
        path.rename(tmp_path / path.name)
    newest.write_text(newest.read_text()[:5])
    with pytest.warns(UserWarning, match="is skipped") as caught:
        found = kept.newest(lambda path: json.loads(path.read_text()), report=said.append)
    assert found == (tmp_path / "step-000000001.ckpt", [1] * 9)
    assert [str(w.message) for w in caught] == said
    assert [name in told for name, told in zip(("000000004", "000000003"), said, strict=True)] == [True] * 2
    assert kept.last_number() == 1
    assert (
        CheckpointFiles(tmp_path / "none", stem="step", suffix=".ckpt").newest(
            Path.read_text, report=said.append
        )
        is None
    )


@pytest.mark.long
@pytest.mark.timeout(3000)
def test_every_family_killed_again_and_again_ends_with_the_same_bytes(tmp_path: Path) -> None:
    write(tmp_path)
    draw = random.Random(int(os.environ.get("HARNESS_SEED", "0")))
    jobs = []
    for family in ALL:
        fates: list[Fate] = [
            ["writing", draw.randint(1, 4), draw.random()],
            ["writing", draw.randint(1, 4), 1.0],
            *(["after", draw.uniform(0.1, 3.0)] for _ in range(4)),
            ["writing", draw.randint(1, 4), 0.0],
            ["publishing", False],
            ["writing", 1, 0.3],
            ["publishing", True],
        ]
        jobs += [job(family, tmp_path, f"{family}-whole"), job(family, tmp_path, f"{family}-cut", *fates)]
        jobs[-1]["anew"] = True
    told = run(jobs)
    print(dict(zip(ALL, told[1::2], strict=True)))
    assert all(codes[-1] == 0 for codes in told)
    assert all(set(codes) <= {0, -9} for codes in told)
    check(tmp_path, list(ALL))


@pytest.mark.long
@pytest.mark.timeout(1000)
def test_a_run_over_two_ranks_whose_head_is_killed_ends_with_the_same_bytes(tmp_path: Path) -> None:
    write(tmp_path)
    two = (*OFTEN[:2], "budget.epochs=60", "trainer.devices=2")
    fates: list[Fate] = [["after", 14.0], ["after", 17.0]]
    jobs = [
        job("ulmfit", tmp_path, f"ulmfit-{kind}", *its, more=two)
        for kind, its in (("whole", []), ("cut", fates))
    ]
    told = run(jobs)
    assert [codes[-1] for codes in told] == [0, 0]
    check(tmp_path, ["ulmfit"])


@pytest.mark.long
@pytest.mark.timeout(1000)
def test_an_output_that_is_replaced_is_whole_after_a_kill_between_its_renames(tmp_path: Path) -> None:
    write(tmp_path)
    new = (*OFTEN, "seed=1")
    jobs = [
        job("gpt", tmp_path, "gpt-whole", more=new),
        job("gpt", tmp_path, "gpt-cut"),
        job("gpt", tmp_path, "gpt-cut", ["renaming"], more=(*new, "overwrite=always")),
    ]
    assert run(jobs) == [[0], [0], [-9, 0]]
    check(tmp_path, ["gpt"])
