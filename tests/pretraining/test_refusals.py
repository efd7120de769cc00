"""What pretraining refuses, and what lies beside its output: options, outputs, states; nothing is lost."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import pytest

from harness.cli.pretrain import summary
from harness.errors import HarnessError
from harness.pretraining import checkpoint_files
from harness.pretraining.base import EvalResult
from harness.pretraining.config import work_folder
from harness.pretraining.factories import build_pretrainer
from harness.pretraining.job import RECORD, run_job
from harness.pretraining.text.corpus import read_corpus
from tests.helpers.tiny_corpus import config, go_away, write


def quiet(_: str) -> None:
    pass


@pytest.fixture
def corpus_file(tmp_path: Path) -> Path:
    return write(tmp_path)


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["budget=5"], "budget=5: expected settings by name"),
        (["trainer=null"], "trainer=None: expected settings by name"),
        (["encoder.recipe=5"], "encoder.recipe=5: expected settings by name"),
        (["encoder.recipe.betas=0.9"], "encoder.recipe.betas=0.9: expected two numbers"),
        (["encoder=elmo", "encoder.filters=5"], "encoder.filters=5: expected pairs of width and number"),
        (["encoder=elmo", "encoder.filters=[[1,2],3]"], "encoder.filters"),
        (["encoder=ulmfit", "encoder.dropouts=1"], "encoder.dropouts=1: expected settings by name"),
        (["encoder=glove", "encoder.lr=abc"], "encoder.lr='abc': expected a number"),
        (["encoder=glove", "encoder.x_max=0"], "encoder.x_max=0"),
        (["encoder=glove", "encoder.min_count=abc"], "encoder.min_count='abc': expected a whole number"),
        (["encoder=word2vec", "encoder.window=abc"], "encoder.window='abc'"),
        (["encoder=word2vec", "encoder.epochs=abc"], "encoder.epochs='abc'"),
        (["encoder=fasttext", "encoder.buckets=1.5"], "encoder.buckets=1.5: expected a whole number"),
        (["encoder=fasttext", "encoder.lower=5"], "encoder.lower=5: expected true or false"),
    ],
)
def test_an_option_of_another_kind_is_refused_by_its_name(more: list[str], said: str) -> None:
    from harness.pretraining.config import compose, validate_config

    first = [] if more[0].startswith("encoder=") else ["encoder=gpt"]
    with pytest.raises(HarnessError) as e:
        build_pretrainer(validate_config(compose([*first, "corpus=c", "output=o", *more]))["encoder"])
    assert str(e.value).startswith(said)


@pytest.mark.parametrize("family", ["gpt", "word2vec"])
def test_an_output_that_cannot_be_written_is_one_line(family: str, corpus_file: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    for output, said in (
        ("file/out", "cannot be written (Not a directory"),
        ("link", "broken symbolic link"),
    ):
        mine = config(family, corpus=corpus_file, output=tmp_path / output)
        with pytest.raises(HarnessError) as e:
            run_job(mine, report=quiet)
        assert str(e.value).startswith(f"output={tmp_path / output}: {said}")


def test_a_disk_that_fills_costs_no_more_than_what_was_not_kept(
    corpus_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    often = "trainer.checkpoint_seconds=0"
    mine, whole = (config("gpt", often, corpus=corpus_file, output=tmp_path / n) for n in ("out", "whole"))
    run_job(whole, report=quiet)
    original = checkpoint_files.CheckpointFiles.write

    def full(self: checkpoint_files.CheckpointFiles, step: int, *more: Any, **options: Any) -> Any:
        if step == 12:
            raise OSError(28, "No space left on device")
        return original(self, step, *more, **options)

    monkeypatch.setattr(checkpoint_files.CheckpointFiles, "write", full)
    with pytest.raises(HarnessError, match=r"cannot be written \(No space left on device\)"):
        run_job(mine, report=quiet)
    monkeypatch.undo()
    other = config("gpt", often, "seed=1", corpus=corpus_file, output=tmp_path / "out")
    with pytest.raises(HarnessError, match=r"unfinished run .* up to step-000000011\.ckpt"):
        run_job(other, report=quiet)
    told: list[str] = []
    run_job(mine, report=told.append)
    assert "continues from step-000000011.ckpt" in told
    assert weights(tmp_path / "out") == weights(tmp_path / "whole")


def test_a_state_whose_bytes_changed_is_set_aside(
    corpus_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole as a file, and readable, but not what was written."""
    often = "trainer.checkpoint_seconds=0"
    whole, cut = (config("gpt", often, corpus=corpus_file, output=tmp_path / n) for n in ("whole", "cut"))
    run_job(whole, report=quiet)
    go_away(monkeypatch, step=13)
    with pytest.raises(RuntimeError, match="went away"):
        run_job(cut, report=quiet)
    monkeypatch.undo()
    newest = work_folder(tmp_path / "cut") / "step-000000013.ckpt"
    data = bytearray(newest.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 200] = bytes(200)
    newest.write_bytes(bytes(data))
    with pytest.warns(UserWarning, match=r"step-000000013\.ckpt: .* digest does not match"):
        run_job(cut, report=quiet)
    assert weights(tmp_path / "cut") == weights(tmp_path / "whole")


def test_a_complete_output_without_its_files_is_not_complete(corpus_file: Path, tmp_path: Path) -> None:
    mine = config("gpt", "budget.steps=1", corpus=corpus_file, output=tmp_path / "out")
    run_job(mine, report=quiet)
    assert (tmp_path / "out" / "model.safetensors").stat().st_mode & 0o777 == 0o666 & ~_umask()
    (tmp_path / "out" / "model.safetensors").unlink()
    with pytest.raises(HarnessError, match=r"model\.safetensors is missing or has changed"):
        run_job(mine, report=quiet)
    assert run_job({**mine, "overwrite": "always"}, report=quiet)["seen"]["steps"] == 1


def _umask() -> int:
    now = os.umask(0)
    os.umask(now)
    return now


def test_an_output_that_is_a_link_is_written_where_it_leads(corpus_file: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there")
    mine = config("gpt", "budget.steps=1", corpus=corpus_file, output=tmp_path / "link")
    for _ in range(2):
        run_job({**mine, "overwrite": "always"}, report=quiet)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "there" / RECORD).is_file()
    assert sorted(p.name for p in tmp_path.iterdir()) == [corpus_file.name, "link", "there"]


def test_a_held_out_text_that_is_trained_on_is_said(corpus_file: Path, tmp_path: Path) -> None:
    mine = config(
        "gpt", "budget.steps=1", f"held_out={corpus_file}", corpus=corpus_file, output=tmp_path / "o"
    )
    told: list[str] = []
    record = run_job(mine, report=told.append)
    n = record["corpus"]["held_out_documents"]
    said = f"held_out={corpus_file}: {n} of {n} documents are in the training text as well"
    assert said in told
    assert said in record["notes"]


def test_what_makes_no_encoder_is_refused(corpus_file: Path, tmp_path: Path) -> None:
    for more, said in {
        ("ulmfit", "encoder.max_vocabulary=3"): "no word of the corpus is left",
        ("gpt", "trainer.precision=16-mixed"): "not available on a CPU",
    }.items():
        with pytest.raises(HarnessError, match=said):
            run_job(config(*more, corpus=corpus_file, output=tmp_path / "o"), report=quiet)
    with pytest.raises(HarnessError, match=r"corpus=no/such: no such file or folder here"):
        read_corpus("no/such")


def test_a_perplexity_beyond_any_number_is_none_and_says_why(
    corpus_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EvalResult, "word_perplexity", math.inf)
    record = run_job(config("gpt", "budget.steps=1", corpus=corpus_file, output=tmp_path / "o"), report=quiet)
    assert record["held_out"]["perplexity_per_word"] is None
    assert "training diverged" in record["held_out"]["undefined"]
    assert "training diverged" in summary(record)
