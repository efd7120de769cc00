"""Objectives trained by gradient: they learn, load, repeat, resume, and see what they may see."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import harness
from harness.errors import HarnessError
from harness.pretraining.base import TrainingBatch
from harness.pretraining.config import work_folder
from harness.pretraining.factories import build_pretrainer
from harness.pretraining.job import RECORD, run_job
from harness.pretraining.objectives import masked_lm, word_lm
from harness.pretraining.objectives.next_sentence import sentence_pairs
from harness.pretraining.text.corpus import Corpus, read_corpus
from harness.pretraining.text.packing import TokenSequence, count_word_starts, pack
from tests.helpers.tiny_corpus import TINY, config, go_away, write

FAMILIES = tuple(TINY)


def quiet(_: str) -> None:
    pass


@pytest.fixture
def corpus_file(tmp_path: Path) -> Path:
    return write(tmp_path)


@pytest.fixture
def corpus(corpus_file: Path) -> Corpus:
    return read_corpus(corpus_file, held_out=0.1)


def prepared(family: str, corpus: Corpus, *more: str) -> Any:
    objective: Any = build_pretrainer(config(family, *more, corpus=Path("x"), output=Path("y"))["encoder"])
    objective.prepare(corpus, seed=0)
    torch.manual_seed(0)
    return objective


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("family", "more"), [*((f, ()) for f in FAMILIES), ("ulmfit", ("encoder.backwards=true",)),
                         ("bert", ("encoder.next_sentence=true",)), ("gpt", ("encoder.block=bert",))]
)  # fmt: skip
def test_it_learns_and_loads_and_repeats_bit_for_bit(
    family: str, more: tuple[str, ...], corpus_file: Path, tmp_path: Path
) -> None:
    rate = f"encoder.recipe.lr={0.05 if family == 'ulmfit' else 0.01}"
    runs = [config(family, rate, *more, corpus=corpus_file, output=tmp_path / n) for n in ("a", "b")]
    record = run_job(runs[0], report=quiet)
    assert record["loss"] < 0.9 * math.log(record["vocabulary"])
    assert record["seen"]["steps"] == 20
    encoder = harness.load_encoder(family, tmp_path / "a")
    states = encoder.encode(["Ana sees Kiev .", ""])
    assert states[0].shape == (4, encoder.hidden_size)
    assert np.isfinite(states[0]).all()
    assert encoder.has_pooler == ("encoder.next_sentence=true" in more)
    assert sum(p.numel() for p in encoder.parameters()) >= record["encoder_parameters"]
    torch.manual_seed(99)
    run_job(runs[1], report=quiet)
    assert weights(tmp_path / "a") == weights(tmp_path / "b")
    assert not work_folder(tmp_path / "a").exists()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_run_that_was_cut_off_ends_like_one_that_was_not(
    family: str, corpus_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    often = "trainer.checkpoint_seconds=0"
    whole, cut = (config(family, often, corpus=corpus_file, output=tmp_path / n) for n in ("whole", "cut"))
    run_job(whole, report=quiet)
    go_away(monkeypatch, step=13)
    with pytest.raises(RuntimeError, match="went away"):
        run_job(cut, report=quiet)
    monkeypatch.undo()
    work = work_folder(tmp_path / "cut")
    newest = work / "step-000000013.ckpt"
    newest.write_bytes(newest.read_bytes()[:1000])
    told: list[str] = []
    with pytest.warns(UserWarning, match=r"step-000000013\.ckpt: cannot be read"):
        record = run_job(cut, report=told.append)
    assert "continues from step-000000012.ckpt" in told
    assert record["seen"]["steps"] == 20
    assert weights(tmp_path / "cut") == weights(tmp_path / "whole")


@pytest.mark.parametrize("family", FAMILIES)
def test_no_steps_are_the_weights_as_drawn(family: str, corpus_file: Path, tmp_path: Path) -> None:
    none, some = (
        config(family, f"budget.steps={n}", corpus=corpus_file, output=tmp_path / n) for n in ("0", "1")
    )
    record = run_job(none, report=quiet)
    assert record["seen"] == {"tokens": 0, "words": 0, "steps": 0, "seconds": 0.0, "epochs": 0.0}
    assert record["loss"] is None
    held = record["held_out"]
    assert held["unigram_nll"] < held["nll"], "drawn weights are worse than the tokens' frequencies"
    assert held["nll"] > 0.5 * math.log(record["vocabulary"]) * held["tokens"]
    one = run_job(some, report=quiet)
    assert {k: one[k] for k in ("parameters", "vocabulary")} == {
        k: record[k] for k in ("parameters", "vocabulary")
    }
    assert weights(tmp_path / "0") != weights(tmp_path / "1")
    drawn, moved = (
        harness.load_encoder(family, tmp_path / n).encode(["Ana sees Kiev ."])[0] for n in ("0", "1")
    )
    assert drawn.shape == moved.shape
    assert 0 < np.abs(drawn - moved).max() < 0.5 * np.abs(drawn).max()  # the same draw, one step apart


@pytest.mark.parametrize("family", [*FAMILIES, "elmo"])
def test_the_units_own_frequencies_are_those_of_what_is_predicted(family: str, corpus: Corpus) -> None:
    objective = prepared(family, corpus)
    held = objective.evaluate(objective.build().eval())
    tokens = {"elmo": lambda line: objective.classes[line]}.get(family, lambda line: line.ids)
    train, asked = (
        Counter(int(i) for d in part for line in (d if isinstance(d, list) else [d]) for i in tokens(line))
        for part in (objective.train, objective.test)
    )
    assert asked.total() == held.predicted
    seen = [n + 1 for n in (train[i] for i in range(objective.vocabulary_size()))]
    seen = seen[5:] if family == "bert" else seen  # its special pieces are never asked
    nats = sum(n * math.log(sum(seen) / (train[i] + 1)) for i, n in asked.items())
    assert held.unigram_nll == pytest.approx(nats)


def test_of_a_long_held_out_text_every_nth_row_is_measured(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    objective = prepared("bert", corpus, "encoder.pseudo_lines=0")
    model = objective.build().eval()
    whole = objective.evaluate(model)
    assert objective.notes == []
    rows = objective.single_rows(objective.test, np.zeros(len(objective.test), bool))
    monkeypatch.setattr(masked_lm, "EVAL_PIECES", sum(len(r.ids) for r in rows) / 3)
    part = objective.evaluate(model)
    assert objective.notes == [f"the held-out loss is measured on one in 3 of {len(rows)} held-out rows"]
    assert part.predicted == sum(int((r.ids >= 5).sum()) for r in rows[::3]) < whole.predicted
    assert part.unigram_nll / part.predicted == pytest.approx(whole.unigram_nll / whole.predicted, rel=0.2)


def test_a_finished_output_is_kept(corpus_file: Path, tmp_path: Path) -> None:
    mine = config("gpt", "budget.steps=2", corpus=corpus_file, output=tmp_path / "out")
    run_job(mine, report=quiet)
    stamp = (tmp_path / "out" / RECORD).stat().st_mtime_ns
    told: list[str] = []
    assert run_job(mine, report=told.append)["seen"]["steps"] == 2
    assert "already complete" in told[0]
    assert (tmp_path / "out" / RECORD).stat().st_mtime_ns == stamp
    other = config("gpt", "budget.steps=3", corpus=corpus_file, output=tmp_path / "out")
    with pytest.raises(HarnessError, match="overwrite=always"):
        run_job(other, report=quiet)
    assert run_job({**other, "overwrite": "always"}, report=quiet)["seen"]["steps"] == 3
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("dear")
    with pytest.raises(HarnessError, match="not made by harness pretrain"):
        run_job({**other, "output": str(tmp_path / "mine"), "overwrite": "always"}, report=quiet)


def test_the_record_says_what_was_consumed(corpus_file: Path, tmp_path: Path) -> None:
    epochs = ["budget.steps=null", "budget.epochs=2"]
    record = run_job(config("gpt", *epochs, corpus=corpus_file, output=tmp_path / "out"), report=quiet)
    assert record["seen"]["words"] == 2 * record["corpus"]["words"]
    assert record["seen"]["epochs"] == pytest.approx(2.0)
    assert json.loads((tmp_path / "out" / RECORD).read_text())["held_out"] == record["held_out"]
    held = record["held_out"]
    assert held["words"] == record["corpus"]["held_out_words"]
    assert held["perplexity_per_word"] == pytest.approx(math.exp(held["nll"] / held["words"]))


@pytest.mark.parametrize("family", FAMILIES)
def test_one_pass_reads_every_word_once(family: str, corpus: Corpus) -> None:
    objective = prepared(family, corpus)
    batches: list[TrainingBatch] = list(objective.batches(seed=0, epoch=0))
    words, tokens = sum(b.words for b in batches), sum(b.tokens for b in batches)
    # an AWD-LSTM's parallel streams leave out what does not fill all of them
    least = 1.0 if family != "ulmfit" else 0.95
    assert least * corpus.words() <= words <= corpus.words()
    assert least * objective.tokens_per_epoch <= tokens <= objective.tokens_per_epoch
    again, other = (list(objective.batches(seed=0, epoch=e)) for e in (0, 1))
    key = "input_ids"
    assert all(torch.equal(a.tensors[key], b.tensors[key]) for a, b in zip(batches, again, strict=True))
    assert not all(a.tensors[key].equal(b.tensors[key]) for a, b in zip(batches, other, strict=False))


def test_masking_has_its_shares() -> None:
    rng = np.random.default_rng(0)
    ids = rng.integers(len(masked_lm.SPECIAL), 1000, (400, 100))
    ids[:, 0], ids[:, -1], ids[::2, 60:] = masked_lm.CLS, masked_lm.SEP, masked_lm.PAD
    shown, labels = masked_lm.mask(ids, vocabulary_size=1000, rng=rng)
    chosen = labels != masked_lm.IGNORE_INDEX
    text = ids >= len(masked_lm.SPECIAL)
    assert not (chosen & ~text).any()
    assert (np.abs(chosen.sum(1) - 0.15 * text.sum(1)) <= 0.5).all()
    assert (labels[chosen] == ids[chosen]).all()
    assert (shown[~chosen] == ids[~chosen]).all()
    shares = [(shown == masked_lm.MASK)[chosen].mean(), (shown == ids)[chosen].mean()]
    assert shares == pytest.approx([0.8, 0.1], abs=0.02)
    assert not np.isin(shown[chosen & (shown != masked_lm.MASK)], range(len(masked_lm.SPECIAL))).any()


def test_a_row_of_one_piece_is_masked_too() -> None:
    shown, labels = masked_lm.mask(np.array([[2, 9, 3]]), vocabulary_size=10, rng=np.random.default_rng(0))
    assert labels.tolist() == [[masked_lm.IGNORE_INDEX, 9, masked_lm.IGNORE_INDEX]]
    assert shown[0, 0] == 2


def test_held_out_masking_takes_every_piece_once() -> None:
    ids = torch.tensor([[2, *range(5, 25), 3], [2, 5, 6, 3, *[0] * 18]])
    seen = torch.zeros_like(ids)
    for offset in range(masked_lm.ROUNDS):
        shown, labels = masked_lm.mask_every(ids, offset)
        seen += labels != masked_lm.IGNORE_INDEX
        assert ((shown == masked_lm.MASK) == (labels != masked_lm.IGNORE_INDEX)).all()
    assert torch.equal(seen, (ids >= len(masked_lm.SPECIAL)).long())


def letters(tokenizer: Any, ids: Any) -> str:
    """The text of pieces without its blanks."""
    pieces = tokenizer.convert_ids_to_tokens(ids, skip_special_tokens=True)
    return "".join(p.removeprefix("##").removeprefix("\u0120") for p in pieces)


def test_rows_of_a_line_come_first_and_long_ones_after_some_passes(corpus: Corpus) -> None:
    objective = prepared("bert", corpus, "encoder.packing=line", "encoder.long_rows_after_epoch=1")
    lines = {tuple(line.ids.tolist()) for document in objective.train for line in document}

    def rows(epoch: int) -> list[tuple[int, ...]]:
        found = objective.epoch_rows(np.random.default_rng(epoch), epoch=epoch)
        return [tuple(r.ids[1:-1].tolist()) for r in found]

    assert set(rows(0)) <= lines
    later = [row for epoch in range(1, 9) for row in rows(epoch)]
    assert any(row in lines for row in later)
    assert max(map(len, later)) > max(map(len, lines))


def test_next_sentence_pairs(corpus: Corpus) -> None:
    objective = prepared("bert", corpus, "encoder.next_sentence=true")
    rows = [r for e in range(40) for r in sentence_pairs(objective.train, 21, np.random.default_rng(e))]
    assert np.mean([r.is_random for r in rows]) == pytest.approx(0.5, abs=0.15)
    texts = ["".join(d).replace(" ", "") for d in corpus.train]
    for row in rows[:200]:
        assert len(row.ids) <= 24
        assert (row.ids == masked_lm.SEP).sum() == 2
        first = row.ids[row.segments == 0]
        assert first[0] == masked_lm.CLS
        assert first[-1] == masked_lm.SEP
        if not row.is_random:
            whole = letters(objective.tokenizer, row.ids)
            assert any(whole in text for text in texts)


@pytest.mark.parametrize("block", ["gpt2", "bert"])
def test_gpt_never_sees_what_is_to_come(block: str, corpus: Corpus) -> None:
    objective = prepared("gpt", corpus, f"encoder.block={block}")
    model = objective.build().eval()
    ids = next(objective.batches(seed=0, epoch=0)).tensors["input_ids"][:2]
    changed = ids.clone()
    changed[:, 10:] = (changed[:, 10:] + 1) % objective.vocabulary_size()
    with torch.no_grad():
        one, two = model(input_ids=ids).logits, model(input_ids=changed).logits
    assert torch.equal(one[:, :10], two[:, :10])
    assert not torch.equal(one[:, 10:], two[:, 10:])


def test_gpt_predicts_the_next_unit_and_documents_end(corpus: Corpus) -> None:
    objective = prepared("gpt", corpus)
    batch = next(objective.batches(seed=0, epoch=0))
    shown, labels = batch.tensors["input_ids"], batch.tensors["labels"]
    assert torch.equal(shown[:, 1:], labels[:, :-1])
    assert (labels == objective.end).any()


def test_gpt_windows_predict_every_unit_once_with_the_most_context(corpus: Corpus) -> None:
    objective = prepared("gpt", corpus)
    ids = np.arange(100, 161)
    predicted: list[int] = []
    for shown, labels in objective.windows(ids):
        at = labels != -100
        assert len(shown) == len(labels) <= 24
        assert (shown[1:] == [objective.end, *ids][shown_at(ids, shown) + 1 :][: len(shown) - 1]).all()
        predicted += labels[at].tolist()
    assert predicted == ids.tolist()


def shown_at(ids: np.ndarray, shown: np.ndarray) -> int:
    """Where a window starts in the document with its end of text in front."""
    return 0 if shown[0] < ids[0] else int(shown[0] - ids[0] + 1)


@pytest.mark.parametrize("backwards", [False, True])
def test_awd_lstm_reads_on_from_batch_to_batch(backwards: bool, corpus: Corpus) -> None:
    objective = prepared("ulmfit", corpus, f"encoder.backwards={str(backwards).lower()}")
    batches = list(objective.batches(seed=0, epoch=0))
    assert [b.resets_carry for b in batches] == [True, *[False] * (len(batches) - 1)]
    rows = torch.cat([b.tensors["input_ids"] for b in batches], 1)
    gold = torch.cat([b.tensors["labels"] for b in batches], 1)
    assert torch.equal(rows[:, 1:], gold[:, :-1])
    text = [objective.words[i] for i in rows[0].tolist()]
    end = text.index(word_lm.BOS, 1)
    document = text[1:end][:: -1 if backwards else 1]
    texts = [word_lm.document_tokens(d)[0] for d in corpus.train]
    assert document in texts


@pytest.mark.parametrize("family", ["gpt", "ulmfit"])
def test_held_out_likelihood_by_hand(family: str, corpus: Corpus) -> None:
    objective = prepared(family, corpus)
    model = objective.build().eval()
    held = objective.evaluate(model)
    nll, tokens = 0.0, 0
    start = objective.end if family == "gpt" else word_lm.MARKERS.index(word_lm.BOS)
    for document in (d.ids.tolist() for d in objective.test):
        assert len(document) <= 72
        for at, token in enumerate(document):
            if family == "gpt" and len(document) > 24:
                continue
            with torch.no_grad():
                logits = scores(model, torch.tensor([[start, *document[:at]]]))
            nll, tokens = nll - float(logits.log_softmax(-1)[token]), tokens + 1
    if tokens == held.predicted:
        assert held.nll == pytest.approx(nll, rel=1e-4)
    else:
        assert family == "gpt"
        assert held.predicted == sum(map(len, objective.test))
    assert held.words == corpus.words(held_out=True)


def scores(model: Any, ids: torch.Tensor) -> torch.Tensor:
    out = model(ids)
    return out.logits[0, -1]


def test_vocabularies_do_not_depend_on_the_process(corpus: Corpus) -> None:
    lines = [line for d in corpus.train for line in d]
    from harness.pretraining.text.tokenizers import byte_pair_tokenizer, word_piece_tokenizer

    for make in (
        lambda: word_piece_tokenizer(lines, size=90, lower=False, positions=24),
        lambda: byte_pair_tokenizer(lines, size=300, positions=24),
    ):
        one, two = make(), make()
        assert one.get_vocab() == two.get_vocab()
        ids = one("Ana sees Kiev .", add_special_tokens=False).input_ids
        assert letters(one, ids) == "AnaseesKiev."
    with pytest.raises(HarnessError, match=r"encoder\.vocabulary=20"):
        word_piece_tokenizer(lines, size=20, lower=False, positions=24)


def test_words_are_counted_where_they_begin() -> None:
    assert count_word_starts("ab c, de", [1, 2, 4, 5, 8]).tolist() == [1, 0, 1, 1, 1]
    assert count_word_starts("", []).tolist() == []


def test_packing_breaks_only_lines_that_are_too_long() -> None:
    def lines(*lengths: int) -> Iterator[TokenSequence]:
        for n in lengths:
            yield TokenSequence(np.full(n, n), np.ones(n, dtype=np.int64))

    rows = [r.ids.tolist() for r in pack(list(lines(2, 3, 4, 12)), 5)]
    assert rows == [[2, 2, 3, 3, 3], [4] * 4, [12] * 5, [12] * 5, [12] * 2]


def test_a_loss_that_is_no_number_is_refused(corpus_file: Path, tmp_path: Path) -> None:
    wild = config(
        "gpt", "encoder.recipe.lr=1e30", "encoder.recipe.max_grad_norm=null",
        corpus=corpus_file, output=tmp_path / "out",
    )  # fmt: skip
    with pytest.raises(HarnessError, match="diverged"):
        run_job(wild, report=quiet)
    assert not (tmp_path / "out").exists()


def test_another_command_starts_anew_when_it_may(
    corpus_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    often = "trainer.checkpoint_seconds=0"
    mine = config("gpt", often, corpus=corpus_file, output=tmp_path / "out")
    monkeypatch.setattr(build_pretrainer(mine["encoder"]).__class__, "save", None)
    with pytest.raises(TypeError):
        run_job(mine, report=quiet)
    monkeypatch.undo()
    with pytest.raises(HarnessError, match="holds an unfinished run"):
        run_job({**mine, "seed": 1}, report=quiet)
    told: list[str] = []
    run_job({**mine, "seed": 1, "overwrite": "always"}, report=told.append)
    assert not [line for line in told if "continues" in line]


def test_the_command_prints_and_refuses(
    corpus_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from harness.cli.main import main

    out = tmp_path / "out"
    tiny = [*TINY["gpt"], "budget.steps=2", "trainer.accelerator=cpu", "trainer.threads=1"]
    assert main(["pretrain", "encoder=gpt", *tiny, f"corpus={corpus_file}", f"output={out}"]) == 0
    said = capsys.readouterr().out
    assert "perplexity" in said
    # small models do not train at the published learning rates
    assert f"encoder=gpt encoder.path={out} optimizer.lr=1e-3" in said
    assert (out / "curves.csv").is_file()
    assert main(["pretrain", "encoder=gpt", "corpus=nowhere.txt", f"output={out}2"]) == 2
    assert "nowhere.txt: no such file" in capsys.readouterr().err
    assert main(["pretrain", "--help"]) == 0


def test_what_is_said_last_suits_the_model() -> None:
    from harness.cli.pretrain import next_command

    base = {"loads_as": "bert", "encoder_parameters": 110_000_000}
    assert next_command(base, name="bert", output="a b") == "harness encoder=bert encoder.path='a b'"
    table = {"loads_as": "static", "encoder_parameters": 100_000}
    assert next_command(table, name="glove", output="o") == "harness encoder=static encoder.path=o"
