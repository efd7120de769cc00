"""The contract of encoders, strategies, bodies and tasks; add new components to the lists."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from harness.data.text import Example, Text
from harness.data.tokenizer import WindowOptions
from harness.data.tokens import TokenBatch, owned_word_states
from harness.encoders.base import Encoder
from harness.records.predictions import read_predictions
from harness.strategies.strategy import Strategy
from harness.training.assemble import Assembly, assemble, build_model
from harness.training.dataloader import collate, make_items, split_by_tokens
from harness.training.encoding import load_transferred
from harness.training.optim import check_partition, parameter_groups
from harness.training.run import restore, run_cell
from harness.training.sequences import Sequences
from harness.training.trainer import fit, make_trainer, predict
from tests.helpers.cells import make_cell
from tests.helpers.tiny_awd_lstm import awd_lstm_folder
from tests.helpers.tiny_elmo import elmo_folder
from tests.helpers.tiny_fasttext import fasttext_file

CONCAT = ["encoder=concat", "encoder@encoder.members.second=mini_bert", "encoder.name=mini_concat"]
ENCODERS = {
    "mini_static": ["encoder=mini_static"],
    "mini_bert": ["encoder=mini_bert"],
    "mini_gpt": ["encoder=mini_gpt"],
    "mini_concat": CONCAT,
    "tiny_elmo": ["encoder=elmo", "encoder.name=tiny_elmo", f"encoder.path={elmo_folder()}"],
    "fasttext": ["encoder=fasttext", f"encoder.path={fasttext_file()}"],
    "ulmfit": ["encoder=ulmfit", f"encoder.path={awd_lstm_folder()}"],
    "ulmfit_bi": ["encoder=ulmfit_bi", f"encoder.path={awd_lstm_folder(both=True)}"],
}
TABLES = ("mini_static", "fasttext")
STRATEGIES = ["scratch", "frozen", "embedding_init", "slow_embedding", "full"]
TASKS = ["mini_topic", "mini_ner", "mini_qa"]
QUICK = ["limit=16", "trainer.epochs=1", "trainer.batch_size=8", "trainer.threads=1"]
TEXTS = [
    "The quick brown fox",
    "",
    "서울에서 왔다. 🚀🚀 café e\u0301te",
    "a\u200bb  double  blanks\n\tand\u00a0more",
    "word " * 40,
    "𝒳𝒴 ﬁne ½ İstanbul ẞ",
]


def cell_of(folder: Path, encoder: str, strategy: str, task: str, *more: str) -> Any:
    torch.manual_seed(0)
    return make_cell(folder, *ENCODERS[encoder], f"strategy={strategy}", f"task={task}", *QUICK, *more)


def assembled(folder: Path, encoder: str, strategy: str, task: str, *more: str) -> Assembly:
    cell = cell_of(folder, encoder, strategy, task, *more)
    if cell.skip:
        pytest.skip(cell.skip)
    torch.manual_seed(cell.seed)
    return assemble(cell, lambda event: None)


@pytest.fixture(params=list(ENCODERS))
def encoder(request: pytest.FixtureRequest, tmp_path: Path) -> Encoder:
    return assembled(tmp_path, request.param, "slow_embedding", "mini_topic").encoding.encoder.eval()


@pytest.fixture(params=list(ENCODERS))
def whole(request: pytest.FixtureRequest, tmp_path: Path) -> Encoder:
    """The full encoder, loaded for fine-tuning (an embedding table unchanged)."""
    strategy = "embedding_init" if request.param in TABLES else "full"
    return assembled(tmp_path, request.param, strategy, "mini_topic").encoding.encoder.eval()


def test_tokens_are_aligned_with_words_and_characters(whole: Encoder) -> None:
    texts = [Text.from_string(t) for t in TEXTS] + [Text.from_words(["Ana", "\u200b", "runs"])]
    for text, windows in zip(
        texts, whole.tokenizer.tokenize(texts, WindowOptions(max_length=24, stride=6)), strict=True
    ):
        assert windows
        owners = np.stack([w.word_to_token >= 0 for w in windows])
        assert (owners.sum(0) <= 1).all(), "each word belongs to one window"
        for row in windows:
            assert len(row) <= 24
            real = row.sequence_ids >= 0
            assert (row.word_ids[real] < len(text)).all()
            for (start, end), word in zip(row.offsets[real], row.word_ids[real], strict=True):
                assert 0 <= start <= end <= len(text.text)
                if start == end:  # a token of whitespace only
                    assert word == -1
                else:
                    assert not text.text[start].isspace()
            for word, token in enumerate(row.word_to_token):
                if token >= 0:
                    assert row.offsets[token][0] < text.spans[word][1]
                    assert row.offsets[token][1] > text.spans[word][0]


def test_windows_of_a_long_text_cover_every_word(whole: Encoder) -> None:
    text = Text.from_string(" ".join(f"word{i} river" for i in range(60)))
    windows = whole.tokenizer.tokenize([text], WindowOptions(max_length=20, stride=5))[0]
    assert len(windows) > 1
    assert (np.stack([w.word_to_token >= 0 for w in windows]).sum(0) == 1).all()


def test_states_do_not_depend_on_the_batch(whole: Encoder) -> None:
    texts = [Text.from_string(t) for t in TEXTS]
    rows = [r for ws in whole.tokenizer.tokenize(texts, WindowOptions(max_length=32, stride=8)) for r in ws]
    with torch.inference_mode():
        together = whole(TokenBatch.collate(rows, pad=whole.tokenizer.pad), all_layers=True)
        assert together.hidden_states is not None
        assert together.hidden_states.shape == (whole.num_layers + 1, *together.last_hidden_state.shape)
        assert together.last_hidden_state.shape[-1] == whole.hidden_size
        for i, row in enumerate(rows):
            alone = whole(TokenBatch.collate([row], pad=whole.tokenizer.pad)).last_hidden_state[0]
            assert torch.allclose(alone[: len(row)], together.last_hidden_state[i, : len(row)], atol=1e-5)


def test_layer_groups_partition_the_encoder(whole: Encoder) -> None:
    groups = whole.layer_groups()
    param_ids = [id(p) for _, ps in groups for p in ps]
    assert sorted(param_ids) == sorted({id(p) for p in whole.parameters()})
    optimizer_groups = parameter_groups(
        whole, [], strategy=Strategy("full", "encoder"), lr=1.0, weight_decay=0.1
    )
    check_partition(optimizer_groups, whole)


def test_embedding_encoder_is_context_free(encoder: Encoder) -> None:
    assert encoder.num_layers == 0
    texts = [Text.from_string("river bank"), Text.from_string("bank")]
    one, two = (rows[0] for rows in encoder.tokenizer.tokenize(texts, WindowOptions()))
    with torch.inference_mode():
        a = encoder(TokenBatch.collate([one], pad=encoder.tokenizer.pad)).last_hidden_state[
            0, int(one.word_to_token[1])
        ]
        b = encoder(TokenBatch.collate([two], pad=encoder.tokenizer.pad)).last_hidden_state[
            0, int(two.word_to_token[0])
        ]
    if "gpt" not in encoder.name:  # byte pairs differ with and without a leading space
        assert torch.allclose(a, b)


def test_fingerprint_is_stable(whole: Encoder) -> None:
    assert whole.fingerprint() == whole.fingerprint()
    assert len(whole.fingerprint()) >= 12


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("encoder_name", list(ENCODERS))
def test_exactly_the_parameters_of_the_strategy_are_trained(
    tmp_path: Path, encoder_name: str, strategy: str, task: str
) -> None:
    built = assembled(tmp_path, encoder_name, strategy, task, "optimizer.weight_decay=0")
    model = built.model.train()
    assert model.encoder.training != (strategy == "frozen")
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    buffers = {n: b.clone() for n, b in model.encoder.named_buffers()}
    (optimizer,), _ = model.configure_optimizers()
    items = built.items["train"]
    for _ in range(2):
        batch = collate(items, range(len(items)), built.encoding.pad)
        loss, n = model.head.loss(model(batch), batch)
        (loss / n).backward()
        optimizer.step()
    changed = {n for n, p in model.named_parameters() if not torch.equal(p, before[n])}
    encoder_changed = {n for n in changed if n.startswith("encoder.")}
    assert bool(encoder_changed) == (strategy != "frozen")
    assert any(n.startswith("head.") for n in changed)
    assert changed <= {n for n, p in model.named_parameters() if p.requires_grad}
    assert all(torch.equal(b, buffers[n]) for n, b in model.encoder.named_buffers())
    unchanged = {n for n, p in before.items() if p.requires_grad and n not in changed and p.numel() > 1}
    # allowed to stay unchanged: the extra tokens of joint pairs and the pooler, if the task does not use
    # them
    assert all(".added" in n or "pooler" in n or "null" in n for n in unchanged), unchanged


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("encoder_name", list(ENCODERS))
def test_outputs_do_not_depend_on_batch_size_and_padding(
    tmp_path: Path, encoder_name: str, task: str
) -> None:
    strategy = "embedding_init" if encoder_name in TABLES else "full"
    built = assembled(tmp_path, encoder_name, strategy, task)
    model, items = built.model.eval(), built.items["test"]
    with torch.inference_mode():
        batch = collate(items, range(len(items)), built.encoding.pad)
        together = dict(model.predict_batch(batch))
        for i in range(len(items)):
            ((name, alone),) = model.predict_batch(collate(items, [i], built.encoding.pad))
            assert together[name].value == alone.value
            assert np.allclose(together[name].scores, alone.scores, atol=1e-5)


@pytest.mark.parametrize("layers", ["mix", "[0,2]"])
def test_mixed_layers_agree_between_cache_and_encoder(tmp_path: Path, layers: str) -> None:
    both = []
    for cache in (0, 20):
        more = [f"feature_cache_gb={cache}", f"encoder.layers={layers}"]
        built = assembled(tmp_path, "mini_bert", "frozen", "mini_ner", *more)
        model = built.model.eval()
        assert model.mix is not None
        assert len(model.mix.scalars) == (3 if layers == "mix" else 2)
        with torch.inference_mode():
            batch = collate(built.items["test"], range(4), built.encoding.pad)
            both.append(dict(model.predict_batch(batch)))
    for name, prediction in both[0].items():
        assert np.array_equal(prediction.scores, both[1][name].scores)


def test_dropout_is_active_in_the_head_but_not_in_a_frozen_encoder(tmp_path: Path) -> None:
    """A frozen encoder is in eval mode while the head is training."""
    cell = cell_of(tmp_path, "mini_bert", "frozen", "mini_topic")
    built = assemble(cell, lambda event: None)
    encoder = load_transferred(cell)
    model = build_model(cell, built.task, encoder, n_train=16)
    assert (model.encoder.training, model.head.training) == (False, True)
    assert not any(m.training for m in model.encoder.modules())
    texts = [e.texts[0] for e in built.splits.train[:4]]
    rows = [w for ws in encoder.tokenizer.tokenize(texts, WindowOptions(max_length=64, stride=8)) for w in ws]
    tokens = TokenBatch.collate(rows, pad=encoder.tokenizer.pad)
    first, second = model.encode(tokens).last_hidden_state, model.encode(tokens).last_hidden_state
    assert torch.equal(first, second)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize(
    ("encoder_name", "strategy"), [("mini_bert", "full"), ("mini_static", "embedding_init")]
)
def test_saved_weights_give_equal_predictions(
    tmp_path: Path, encoder_name: str, strategy: str, task: str
) -> None:
    cell = cell_of(tmp_path, encoder_name, strategy, task, "trainer.save=true")
    run_cell(cell)
    built = restore(cell)
    trainer = make_trainer(cell, built, [])
    again = predict(trainer, built, "test")
    stored = read_predictions(cell.folder)
    assert [r["prediction"] for r in stored] == [again[r["id"]].value for r in stored]
    for row in stored:
        assert np.allclose(row["scores"], again[row["id"]].scores, atol=1e-6)


@pytest.mark.parametrize("encoder_name", ["mini_bert", "mini_gpt", "mini_static"])
def test_same_seed_gives_the_same_bits(tmp_path: Path, encoder_name: str) -> None:
    strategy = "embedding_init" if encoder_name in TABLES else "full"
    rows = []
    for run in ("one", "two"):
        cell = cell_of(tmp_path / run, encoder_name, strategy, "mini_topic")
        record = run_cell(cell)
        rows.append((read_predictions(cell.folder), record.test, record.dev_history))
    assert rows[0] == rows[1]


def test_first_and_cached_run_give_the_same_bits(tmp_path: Path) -> None:
    rows = []
    for _ in range(2):
        cell = cell_of(tmp_path, "mini_bert", "frozen", "mini_topic")
        record = run_cell(cell)
        rows.append((read_predictions(cell.folder), record.test))
    assert record.costs.encode_cached
    assert rows[0] == rows[1]


def test_micro_batches_do_not_change_a_step(tmp_path: Path) -> None:
    states = []
    for budget in ("null", "40"):
        more = [f"trainer.max_tokens_per_batch={budget}", "trainer.dropout=0", "body=none"]
        more += ["optimizer.eps=1e-3"]  # else Adam turns rounding errors in zero gradients into full steps
        folder = tmp_path / budget
        cell = cell_of(folder, "mini_bert", "full", "mini_ner", *more)
        torch.manual_seed(cell.seed)
        built = assemble(cell, lambda event: None)
        for module in built.model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        fit(make_trainer(cell, built, []), built)
        states.append({k: v.clone() for k, v in built.model.state_dict().items()})
    assert len(split_by_tokens(built.items["train"], range(8), max_length=40)) > 1
    for name, value in states[0].items():
        assert torch.allclose(value, states[1][name], atol=2e-5), name


@pytest.mark.parametrize("task", TASKS)
def test_results_do_not_depend_on_the_size_of_the_cache(tmp_path: Path, task: str) -> None:
    """Scores and predictions are the same bits with cached features and without a cache."""
    rows, records = [], []
    for cache in (20, 0):
        cell = cell_of(tmp_path / str(cache), "mini_bert", "frozen", task, f"feature_cache_gb={cache}")
        records.append(run_cell(cell))
        rows.append(read_predictions(cell.folder))
    assert rows[0] == rows[1]
    assert (records[0].dev, records[0].test) == (records[1].dev, records[1].test)


def test_tagging_a_long_text_uses_one_state_per_word(tmp_path: Path) -> None:
    built = assembled(tmp_path, "mini_static", "frozen", "mini_ner")
    text = Text.from_words(["word"] * 1500)
    example = Example("long", (text,), ["O"] * 1500)
    sequences = Sequences.of([example], joint=False)
    windows = sequences.tokenize(built.encoding.encoder.tokenizer, WindowOptions(max_length=64, stride=16))
    items = make_items([example], sequences, windows, task=built.task)
    batch = collate(items, [0], built.encoding.pad)
    states = torch.zeros(*batch.tokens[0].mask.shape, 8)
    rows, words, vectors = owned_word_states(states, batch.tokens[0])
    assert len(batch.tokens[0]) > 25
    assert vectors.shape == (1500, 8)
    assert sorted(words.tolist()) == list(range(1500))
    assert len(rows) == 1500


def test_context_of_many_questions_is_encoded_once(tmp_path: Path) -> None:
    built = assembled(tmp_path, "mini_bert", "frozen", "mini_qa")
    examples = built.splits.train
    sequences = Sequences.of(examples, joint=False)
    contexts = {e.texts[1] for e in examples}
    questions = {e.texts[0] for e in examples}
    assert len(sequences.items) == len(contexts | questions)
    items = make_items(examples, sequences, [[r] for r in _rows(sequences)], task=None)
    assert all(len(pair) == 2 for item in items for pair in item.rows)


def _rows(sequences: Sequences) -> list[Any]:
    from harness.data.tokens import TokenizedWindow

    out = []
    for item in sequences.items:
        n = len(item[0])
        ids = np.arange(n)
        out.append(
            TokenizedWindow({"x": ids}, ids, np.array(item[0].spans).reshape(n, 2), np.zeros(n, int), ids)
        )
    return out
