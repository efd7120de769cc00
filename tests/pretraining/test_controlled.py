"""Pretraining that differs in nothing but the objective: vocabularies, rows, sizes; and pseudo-perplexity."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import harness
from harness.errors import HarnessError
from harness.pretraining import trainer
from harness.pretraining.config import compose, validate_config
from harness.pretraining.factories import build_pretrainer
from harness.pretraining.job import run_identity, run_job
from harness.pretraining.objectives import masked_lm
from harness.pretraining.objectives.pseudo_perplexity import spread_lines
from harness.pretraining.text.corpus import read_corpus
from harness.pretraining.text.tokenizers import END, SPECIAL
from tests.helpers.tiny_corpus import config, write

PAIR = (
    "experiment=controlled_pretraining",
    "encoder.positions=24",
    "encoder.batch_rows=4",
    "budget.tokens=3000",
)
LINE = "Ana sees Kiev ."


def quiet(_: str) -> None:
    pass


def made(family: str, folder: Path, name: str, *more: str) -> tuple[Path, dict[str, Any]]:
    write(folder)
    given = config(family, *more, corpus=folder / "corpus.txt", output=folder / name)
    return folder / name, run_job(given, report=quiet)


def controlled(family: str, folder: Path, name: str, *more: str) -> tuple[Path, dict[str, Any]]:
    return made(family, folder, name, *PAIR, "budget.steps=null", *more)


def shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    return {k: tuple(v.shape) for k, v in load_file(folder / "model.safetensors").items()}


def prepared(family: str, folder: Path, *more: str) -> Any:
    given = config(family, *more, corpus=Path("x"), output=Path("y"))
    objective: Any = build_pretrainer(given["encoder"])
    objective.prepare(read_corpus(folder / "corpus.txt", held_out=0.05), seed=0)
    return objective


@pytest.mark.parametrize("pieces", ["words", "bytes"])
def test_a_pair_has_the_same_parameters_rows_and_steps(pieces: str, tmp_path: Path) -> None:
    start: tuple[str, ...] = ()
    if pieces == "bytes":
        folder, _ = made("gpt", tmp_path, "bytes", "budget.steps=1")
        start = (f"encoder.tokenizer={folder}",)
    first, one = controlled("bert", tmp_path, "first", *start)
    shared = ("encoder.block=bert", f"encoder.tokenizer={first}")
    second, two = controlled("gpt", tmp_path, "second", *shared)
    assert shapes(first) == shapes(second)
    assert one["vocabulary"] == two["vocabulary"]
    assert one["parameters"] == two["parameters"]
    assert {k: one["seen"][k] for k in ("tokens", "words", "steps")} == {
        k: two["seen"][k] for k in ("tokens", "words", "steps")
    }
    theirs = prepared("bert", tmp_path, *PAIR, *start), prepared("gpt", tmp_path, *PAIR, *shared)
    for epoch in (0, 10):
        for masked, causal in zip(*(o.batches(seed=3, epoch=epoch) for o in theirs), strict=True):
            assert (masked.tokens, masked.words) == (causal.tokens, causal.words)
            labels = masked.tensors["labels"]
            true = torch.where(labels == masked_lm.IGNORE_INDEX, masked.tensors["input_ids"], labels)[:, 1:]
            shown = causal.tensors["input_ids"][:, 1:]
            text = masked.tensors["attention_mask"][:, 1:].bool() & (true != masked_lm.SEP)
            assert torch.equal(true[text], shown[:, : true.shape[1]][text[:, : shown.shape[1]]])
    models = []
    for objective in theirs:
        torch.manual_seed(trainer.step_seed(0, -1))
        models.append(dict(objective.build().named_parameters()))
    for name, weight in models[0].items():
        rows = slice(1, None) if "word_embeddings" in name else slice(None)  # the padding's row is BERT's own
        assert torch.equal(weight[rows], models[1][name][rows]), name


def test_the_published_pair_of_commands_composes() -> None:
    wanted: dict[str, Any] = {}
    for family, more in (("bert", []), ("gpt", ["encoder.block=bert", "encoder.tokenizer=A"])):
        arguments = ["experiment=controlled_pretraining", f"encoder={family}", *more, "corpus=c", "output=o"]
        got = validate_config(compose(arguments))
        keys = ("layers", "width", "heads", "feed_forward", "positions", "activation", "dropout", "packing",
                "long_rows_after_epoch", "batch_rows", "recipe")  # fmt: skip
        told = {k: v for k, v in got["encoder"].items() if k in keys}
        told["recipe"] = {k: v for k, v in told["recipe"].items() if k != "epochs"}
        assert got["budget"]["tokens"] == 2_000_000
        wanted = wanted or told
        assert told == wanted


def test_byte_pairs_serve_bert_and_word_pieces_gpt(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    pairs, _ = made("gpt", tmp_path, "pairs", "budget.steps=1")
    masked, record = made(
        "bert", tmp_path, "masked", f"encoder.tokenizer={pairs}", "encoder.packing=document"
    )
    own, taken = AutoTokenizer.from_pretrained(pairs), AutoTokenizer.from_pretrained(masked)
    assert record["vocabulary"] == len(own) + len(SPECIAL)
    ids = taken(LINE).input_ids
    assert taken.convert_ids_to_tokens(ids)[1:-1] == own.tokenize(LINE)
    assert [ids[0], ids[-1], taken.mask_token_id] == [masked_lm.CLS, masked_lm.SEP, masked_lm.MASK]
    assert taken.convert_ids_to_tokens(range(6)) == [*SPECIAL, END]
    causal, record = made("gpt", tmp_path, "causal", f"encoder.tokenizer={masked / 'tokenizer.json'}")
    assert record["vocabulary"] == len(taken)
    again = AutoTokenizer.from_pretrained(causal)
    assert again.convert_ids_to_tokens(again(LINE).input_ids) == own.tokenize(LINE)
    for family, folder in (("bert", masked), ("gpt", causal)):
        (states,) = harness.load_encoder(family, folder).encode([LINE])
        assert states.shape == (4, 16)
        assert np.isfinite(states).all()
    assert all("unknown" not in note for note in record["notes"])


def test_the_content_of_a_shared_vocabulary_and_not_its_place_decides(tmp_path: Path) -> None:
    folder, _ = made("bert", tmp_path, "one", "budget.steps=1")
    corpus = read_corpus(tmp_path / "corpus.txt", held_out=0.05)

    def identity(where: Path | None) -> str:
        more = [] if where is None else [f"encoder.tokenizer={where}"]
        return run_identity(config("gpt", *more, corpus=Path("x"), output=Path("y")), corpus)

    shutil.copytree(folder, tmp_path / "two")
    assert identity(folder) == identity(tmp_path / "two" / "tokenizer.json") != identity(None)
    file = tmp_path / "two" / "tokenizer.json"
    file.write_text(file.read_text().replace('"Ana"', '"Ina"'))
    assert identity(folder) != identity(file)
    with pytest.raises(HarnessError, match=r"encoder\.tokenizer=.*nowhere: no tokenizer\.json"):
        identity(tmp_path / "nowhere")
    data = json.loads(file.read_text())
    for told, said in (
        ({**data, "model": {"type": "Unigram", "vocab": []}}, "of kind Unigram"),
        ([], "not a tokenizer"),
    ):
        file.write_text(json.dumps(told))
        with pytest.raises(HarnessError, match=said):
            prepared("gpt", tmp_path, f"encoder.tokenizer={file}")
    with pytest.raises(HarnessError, match=r"encoder\.packing=lines"):
        prepared("gpt", tmp_path, "encoder.packing=lines")


def test_pseudo_perplexity_is_that_of_pieces_masked_one_by_one(tmp_path: Path) -> None:
    folder, record = made("bert", tmp_path, "out", "encoder.pseudo_lines=3", "held_out=0.2")
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    tokenizer, model = (
        AutoTokenizer.from_pretrained(folder),
        AutoModelForMaskedLM.from_pretrained(folder).eval(),
    )
    lines = [x for d in read_corpus(tmp_path / "corpus.txt", held_out=0.2).held_out for x in d]
    chosen = [lines[i] for i in spread_lines([len(line) for line in lines], 3)]
    nll, pieces = 0.0, 0
    for line in chosen:
        ids = tokenizer(line).input_ids
        for at in range(1, len(ids) - 1):
            shown = torch.tensor([[*ids[:at], masked_lm.MASK, *ids[at + 1 :]]])
            with torch.no_grad():
                nll -= float(model(input_ids=shown).logits[0, at].log_softmax(-1)[ids[at]])
            pieces += 1
    held = record["held_out"]
    assert (held["pseudo_lines"], held["pseudo_pieces"]) == (3, pieces)
    assert held["pseudo_perplexity"] == pytest.approx(math.exp(nll / pieces), rel=1e-4)
    assert held["perplexity_per_word"] is None
    assert any("not comparable" in note for note in record["notes"])
    assert spread_lines([1] * 5, 9) == [0, 1, 2, 3, 4]
    assert spread_lines([1] * 10, 3) == [0, 3, 6]
    assert spread_lines([1] * 10, 0) == []
    assert spread_lines([200] * 10, 6) == [0, 5], "40,000 tokens a line"
    assert spread_lines([1000] * 10, 6) == [0]
    _, without = made("bert", tmp_path, "none", "encoder.pseudo_lines=0", "budget.steps=1")
    assert not [k for k in without["held_out"] if k.startswith("pseudo")]


def test_gpt_rows_hold_every_word_once_a_pass(tmp_path: Path) -> None:
    write(tmp_path)
    corpus = read_corpus(tmp_path / "corpus.txt", held_out=0.05)
    for rows in ("line", "document", "mixed"):
        objective = prepared("gpt", tmp_path, f"encoder.packing={rows}")
        batches = list(objective.batches(seed=0, epoch=0))
        assert sum(b.words for b in batches) == corpus.words()
        assert sum(b.tokens for b in batches) == objective.tokens_per_epoch
        for batch in batches:
            assert (batch.tensors["input_ids"][:, 0] == objective.end).all()
            assert batch.tensors["input_ids"].shape[1] <= 24
