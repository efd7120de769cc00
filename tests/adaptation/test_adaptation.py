"""strategy.adapt: the encoder's own objective on the texts of the training split, before the task."""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file

from harness.adaptation.adapter import Adapter
from harness.config.resolve import prepare
from harness.core.paths import mini_dir
from harness.data.text import Example, Text
from harness.encoders.config import EncoderConfig
from harness.errors import HarnessError
from harness.pretraining.budget import Recipe
from harness.records.cell import Cell
from harness.records.predictions import read_predictions
from harness.strategies.adapt import KEYS, Adapt, filled, parse_adapt, reason_against, resolve_adapt
from harness.strategies.strategy import Strategy
from harness.task import Splits
from harness.training.assemble import assemble
from harness.training.encoding import feature_key, load_transferred
from harness.training.run import run_cell
from tests.helpers.cells import composed
from tests.helpers.paths import ROOT
from tests.helpers.tiny_awd_lstm import awd_lstm_folder
from tests.helpers.tiny_elmo import elmo_folder
from tests.helpers.tiny_fasttext import fasttext_file

ENCODERS = {
    "mini_static": ["encoder=mini_static"],
    "mini_bert": ["encoder=mini_bert"],
    "mini_gpt": ["encoder=mini_gpt"],
    "mini_concat": ["encoder=concat", "encoder@encoder.members.second=mini_gpt", "encoder.name=mini_concat"],
    "tiny_elmo": ["encoder=elmo", f"encoder.path={elmo_folder()}"],
    "ulmfit": ["encoder=ulmfit", f"encoder.path={awd_lstm_folder()}"],
    "ulmfit_bi": ["encoder=ulmfit_bi", f"encoder.path={awd_lstm_folder(both=True)}"],
    "fasttext": ["encoder=fasttext", f"encoder.path={fasttext_file()}"],
}
QUICK = ["task=mini_topic", "limit=12", "trainer.epochs=1", "trainer.batch_size=8", "trainer.threads=1"]
ONCE = {"epochs": 1}


@functools.cache
def _composed(encoder: str, strategy: str, more: tuple[str, ...]) -> dict[str, Any]:
    return composed(*ENCODERS[encoder], f"strategy={strategy}", *QUICK, *more)


def cell_of(
    folder: Path, encoder: str, strategy: str, *more: str, adapt: Any = None, seed: int = 0, **options: Any
) -> Cell:
    """A cell with these options of the encoder; composed once for all that differ in nothing else."""
    config = copy.deepcopy(_composed(encoder, strategy, more))
    config["strategy"]["adapt"] = adapt or config["strategy"]["adapt"]
    config["encoder"] |= options
    places = {"results_dir": str(folder / "results"), "cache_dir": str(folder / "cache"), "seed": seed}
    return prepare(config | places, overrides=more)


def examples(*texts: str, split: str = "train") -> list[Example]:
    return [Example(f"{split}-{i}", (Text.from_string(t),), None) for i, t in enumerate(texts)]


TRAIN = examples(
    "the river runs to the bank",
    "what is the quick fox",
    "the fox runs , and the river runs",
    "zebra zebra !",
)


def adapter_of(cell: Cell, splits: Splits | None = None, *, random_init: bool = False) -> Adapter:
    adapt = cell.strategy.adapt
    assert adapt is not None
    trainer = {
        "accelerator": "cpu", "precision": "32-true", "devices": 1, "device": torch.device("cpu"),
    }  # fmt: skip
    return Adapter(
        cell,
        adapt,
        splits or Splits(TRAIN, [], []),
        trainer=trainer,
        progress=lambda event: None,
        random_init=random_init,
    )


def adapted(cell: Cell, splits: Splits | None = None, *, random_init: bool = False) -> tuple[Any, Adapter]:
    """The adapted encoder, and what adapted it."""
    adapter = adapter_of(cell, splits, random_init=random_init)
    strategy = replace(cell.strategy, transfer="encoder", unfreeze=None)
    return load_transferred(replace(cell, strategy=strategy), adapter), adapter


def folders(cell: Cell) -> list[Path]:
    place = cell.cache_dir / "adapted"
    return sorted(p for p in place.iterdir() if not p.name.startswith(".")) if place.is_dir() else []


# what is said


def test_without_adapt_a_cell_is_what_it_was(tmp_path: Path) -> None:
    plain = composed("encoder=mini_bert", "strategy=frozen", "task=mini_topic", f"cache_dir={tmp_path}")
    without = {**plain, "strategy": {k: v for k, v in plain["strategy"].items() if k != "adapt"}}
    ids = {prepare(plain).id, prepare(without).id}
    for value in (None, {}, {"epochs": 0, "lr": 1.0}, {"epochs": None}):
        ids.add(prepare({**plain, "strategy": {**plain["strategy"], "adapt": value}}).id)
    assert len(ids) == 1
    assert "adapt" not in prepare(plain).resolved["strategy"]  # type: ignore[operator]


def test_adapt_enters_the_cell_and_its_variant_and_defaults_are_no_other_cell(tmp_path: Path) -> None:
    plain = cell_of(tmp_path, "mini_bert", "full")
    once = cell_of(tmp_path, "mini_bert", "full", "strategy.adapt.epochs=2")
    assert once.strategy.adapt == Adapt(2, 1e-4, 32, 0)
    assert once.variant["strategy.adapt.epochs"] == 2
    same = cell_of(tmp_path, "mini_bert", "full", "+strategy.adapt.epochs=2.0", "strategy.adapt.lr=1e-4")
    whole = cell_of(tmp_path, "mini_bert", "full", "strategy.adapt={epochs: 2}")
    other = cell_of(tmp_path, "mini_bert", "full", "strategy.adapt.epochs=3")
    assert len({once.id, same.id, whole.id}) == 1
    assert len({plain.id, once.id, other.id}) == 3


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (2, "settings by name"),
        ({"epoch": 2}, "did you mean epochs"),
        ({"epochs": -1}, "strategy.adapt.epochs=-1"),
        ({"epochs": 1, "lr": 0}, "strategy.adapt.lr"),
        ({"epochs": 1, "seed": "own"}, "strategy.adapt.seed='own'"),
        ({"lr": 1e-3}, "epochs is missing"),
    ],
)
def test_what_cannot_be_meant_is_refused(value: Any, words: str) -> None:
    with pytest.raises(HarnessError, match=words):
        parse_adapt("strategy.adapt", value)


def test_every_strategy_of_the_installed_configuration_can_adapt() -> None:
    for path in sorted((ROOT / "conf" / "strategy").glob("*.yaml")):
        config = yaml.safe_load(path.read_text())
        assert set(config["adapt"]) == set(KEYS), path.stem
        assert set(config["adapt"].values()) == {None}
        assert Strategy.parse(config | {"adapt": ONCE}).adapt == Adapt(1)


def test_rates_are_the_familys_and_members_of_a_joint_encoder_have_their_own(tmp_path: Path) -> None:
    joint = cell_of(tmp_path, "mini_concat", "frozen", adapt=ONCE)
    assert joint.strategy.adapt == Adapt(1)
    rates = [filled(leaf, Adapt(1)).lr for _, leaf in joint.encoder.leaves()]
    assert rates == [0.025, 1e-4]
    both = cell_of(tmp_path, "ulmfit_bi", "ulmfit", adapt=ONCE).strategy.adapt
    assert both == Adapt(1, 4e-3, 64, 0), "Howard & Ruder 2018, section 4.1"
    static = EncoderConfig.parse(composed("encoder=mini_static")["encoder"])
    assert resolve_adapt(static, Adapt(1, batch_size=7)).batch_size is None


def test_what_cannot_be_continued_is_skipped_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        json.dumps({"model_type": "electra", "architectures": ["ElectraForPreTraining"]})
    )
    for name in ("model.safetensors", "vocab.txt"):
        (tmp_path / name).write_bytes(b"")
    electra = cell_of(tmp_path, "mini_bert", "full", adapt=ONCE, path=str(tmp_path))
    assert electra.skip is not None
    assert "replaced tokens" in electra.skip
    (tmp_path / "config.json").write_text(
        json.dumps({"model_type": "electra", "architectures": ["ElectraForMaskedLM"]})
    )
    assert reason_against(electra.encoder) is None, "a generator is a masked language model"
    fasttext = composed("encoder=fasttext", "encoder.path=a.ftz")["encoder"]
    assert "compressed" in str(reason_against(EncoderConfig.parse(fasttext)))
    own = reason_against(EncoderConfig("mine", "mine.load"))
    assert own is not None
    assert "mine" in own


# what is done


@pytest.mark.parametrize("encoder", [name for name in ENCODERS if name != "fasttext"])
def test_an_adapted_cell_runs_and_seeds_share_the_adaptation(tmp_path: Path, encoder: str) -> None:
    events: list[dict[str, Any]] = []
    first = run_cell(cell_of(tmp_path, encoder, "frozen", adapt=ONCE), events.append)
    assert first.status == "complete"
    assert any(e.get("phase") == "adapt" and e.get("epochs") == 1 for e in events)
    count = 2 if encoder in ("mini_concat", "ulmfit_bi") else 1
    cell = cell_of(tmp_path, encoder, "frozen", adapt=ONCE, seed=1)
    assert len(folders(cell)) == count
    assert sum("adapted to" in note for note in first.notes) == count
    assert first.costs.adapt_seconds > 0
    events.clear()
    second = run_cell(cell, events.append)
    assert not [e for e in events if e.get("phase") == "adapt"], "found in the cache"
    assert second.costs.adapt_seconds == pytest.approx(first.costs.adapt_seconds), "the full price"
    assert [n for n in second.notes if "adapted" in n] == [n for n in first.notes if "adapted" in n]
    costs = first.costs
    parts = (costs.adapt_seconds, costs.load_seconds, costs.train_seconds, costs.eval_seconds)
    rest = costs.total_seconds - sum(parts) - costs.overhead_seconds
    assert rest >= -1e-6, "adapting is no overhead"


@pytest.mark.parametrize(
    "strategy", ["embedding_init", "slow_embedding", "full", "ulmfit", "lp_ft", "scratch"]
)
def test_every_strategy_gets_the_adapted_encoder(tmp_path: Path, strategy: str) -> None:
    weights = []
    for adapt in (None, ONCE | {"lr": 1e-2}):
        cell = cell_of(tmp_path, "mini_gpt", strategy, adapt=adapt)
        encoder = assemble(cell, lambda event: None).encoding.encoder
        weights.append(torch.cat([p.detach().flatten() for p in encoder.parameters()]))
    assert weights[0].shape == weights[1].shape
    assert float((weights[0] - weights[1]).abs().max()) > 1e-3


def test_cached_or_made_the_predictions_are_the_same(tmp_path: Path) -> None:
    scores = []
    for place in ("a", "b"):
        for run in range(2):  # the second finds what the first has left
            cell = cell_of(tmp_path / place, "mini_bert", "full", adapt=ONCE)
            run_cell(replace(cell, folder=tmp_path / place / str(run)))
            scores.append(read_predictions(tmp_path / place / str(run)))
    assert all(s == scores[0] for s in scores)


def test_adapted_features_are_other_features(tmp_path: Path) -> None:
    plain, cell = (cell_of(tmp_path, "mini_gpt", "frozen", adapt=a) for a in (None, ONCE))
    from harness.records.inputs import read_data
    from harness.training.sequences import Sequences

    task, splits = read_data(cell)
    sequences = Sequences.of(splits.train, joint=False)
    keys = {feature_key(c, task, sequences, adapter_of(cell, splits)) for c in (plain, cell)}
    assert len(keys) == 1, "of the encoder, not of the strategy"
    assert feature_key(plain, task, sequences) not in keys


class Forbidden(list[Example]):
    """Examples that nobody may look at."""

    def __iter__(self) -> Iterator[Example]:
        raise AssertionError("somebody looks at test")

    def __getitem__(self, at: Any) -> Any:
        raise AssertionError("somebody looks at test")


class Unlabelled:
    """An example whose label nobody may look at."""

    def __init__(self, example: Example) -> None:
        self.texts = example.texts

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"somebody looks at {name}")


@pytest.mark.parametrize("encoder", ["mini_bert", "mini_static", "ulmfit", "tiny_elmo"])
def test_nothing_but_the_training_texts_decides_the_weights(tmp_path: Path, encoder: str) -> None:
    hidden: list[Any] = [Unlabelled(e) for e in TRAIN]
    found = []
    for n, dev in enumerate(([], examples("another text , of dev", split="dev"))):
        cell = cell_of(tmp_path / str(n), encoder, "frozen", adapt=ONCE)
        _, adapter = adapted(cell, Splits(hidden, dev, Forbidden()))
        folder = folders(cell)[0]
        found.append(
            {p.name: p.read_bytes() for p in folder.iterdir() if p.suffix in (".safetensors", ".f32")}
        )
        if encoder == "tiny_elmo":
            from harness.encoders.elmo.files import read_options
            from harness.encoders.elmo.weights import read_weights

            weights = read_weights(folder / "weights.hdf5", read_options(folder / "options.json"))
            found[-1] = {k: v.tobytes() for k, v in weights.items()}
        assert bool(adapter.results[0].before) == (bool(dev) and encoder != "mini_static"), "measured on dev"
    assert found[0]
    assert found[0] == found[1]


def test_one_adaptation_a_seed_when_asked(tmp_path: Path) -> None:
    keys = {}
    for how in (0, "cell", 5):
        for seed in (0, 5):
            cell = cell_of(tmp_path, "mini_bert", "frozen", adapt=ONCE | {"seed": how}, seed=seed)
            keys[how, seed] = adapter_of(cell).key
    assert keys[0, 0] == keys[0, 5] == keys["cell", 0]
    assert keys["cell", 5] == keys[5, 0] != keys[0, 0]


def test_training_texts_raise_what_they_are_given(tmp_path: Path) -> None:
    """A language model that is adapted long enough to some sentences finds them likelier."""
    cell = cell_of(tmp_path, "mini_gpt", "frozen", adapt={"epochs": 20, "lr": 3e-3})
    _, adapter = adapted(cell, Splits(TRAIN, TRAIN, []))
    told = adapter.results[0]
    assert told.after["perplexity per word"] < 0.5 * told.before["perplexity per word"]


def test_divergence_fails_with_one_error_and_leaves_nothing(tmp_path: Path) -> None:
    cell = cell_of(tmp_path, "mini_gpt", "frozen", adapt={"epochs": 4, "lr": 1000})
    with pytest.raises(HarnessError, match=r"diverged.*lower strategy.adapt.lr"):
        adapted(cell, Splits(examples(*["the river runs" + " the" * i for i in range(40)]), [], []))
    assert folders(cell) == []


def test_a_cache_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    cell = cell_of(tmp_path, "mini_static", "frozen", adapt=ONCE)
    cell.cache_dir.mkdir(parents=True, exist_ok=True)
    (cell.cache_dir / "adapted").write_text("in the way")
    with pytest.raises(HarnessError, match=r"cache_dir=.*cannot be stored"):
        adapted(cell)


def test_texts_without_words_are_refused(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match="no text of the training split"):
        adapter_of(cell_of(tmp_path, "mini_bert", "frozen", adapt=ONCE), Splits(examples("", " "), [], []))


# by family


def bert_without_decoder(folder: Path) -> Path:
    """The bundled BERT as many are published: a pooler and no decoder."""
    from transformers import AutoModel

    source = mini_dir() / "zoo" / "bert"
    model = AutoModel.from_pretrained(source, add_pooling_layer=True)
    torch.nn.init.normal_(model.pooler.dense.weight)
    model.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((source / name).read_bytes())
    return folder


def test_a_checkpoint_without_decoder_gets_one_and_keeps_its_pooler(tmp_path: Path) -> None:
    path = bert_without_decoder(tmp_path / "bert")
    cell = cell_of(tmp_path, "mini_bert", "full", adapt=ONCE | {"lr": 1e-3}, path=str(path))
    encoder, adapter = adapted(cell)
    assert any("no decoder" in note for note in adapter.adapted.notes)
    assert encoder.has_pooler
    before, after = load_file(path / "model.safetensors"), encoder.model.state_dict()
    assert torch.equal(before["pooler.dense.weight"], after["pooler.dense.weight"])
    word = "embeddings.word_embeddings.weight"
    assert not torch.equal(before[word], after[word])


def test_the_slanted_triangle_is_the_papers() -> None:
    """Howard & Ruder 2018, equation 3, with cut_frac 0.1 and ratio 32."""
    recipe = Recipe(lr=1.0, warmup=0.1, schedule="slanted")
    total, cut = 1000, 100
    for t in (0, 1, 50, 99, 100, 101, 500, 999):
        p = t / cut if t < cut else 1 - (t - cut) / (cut * (1 / 0.1 - 1))
        assert recipe.lr_factor(t / total) == pytest.approx((1 + p * 31) / 32)


@pytest.mark.parametrize("backwards", [False, True])
def test_awd_lstm_moves_lower_layers_less_and_names_new_words(tmp_path: Path, backwards: bool) -> None:
    from harness.adaptation.awd_lstm import ContinuedWordLM
    from harness.adaptation.job import AdaptationJob, AdaptationTexts

    cell = cell_of(tmp_path, "ulmfit", "ulmfit", adapt=ONCE, backwards=backwards)
    encoder, adapter = adapted(cell)
    words = encoder.vocabulary.words
    assert "zebra" in words, "twice in the texts"
    assert "xxnew" not in words
    assert encoder.backwards == backwards
    assert "1 tokens" in " ".join(adapter.adapted.notes)
    job = AdaptationJob(
        cell.encoder, filled(cell.encoder, Adapt(1)), False, AdaptationTexts.of(TRAIN, []),
        tmp_path, cell.cache_dir, {}, lambda event: None,
    )  # fmt: skip
    objective = ContinuedWordLM(job)
    model = objective.build()
    speeds = objective.param_groups(model)
    assert [round(f * 2.6**2, 6) for _, f in speeds] == [6.76, 1.0, 2.6, 6.76]
    assert sum(p.numel() for ps, _ in speeds for p in ps) == sum(p.numel() for p in model.parameters())
    ids = objective.train[0].ids
    first = objective.word_ids["the"]
    assert (ids[-1] if backwards else ids[0]) == first or first in ids


def test_awd_lstm_with_its_own_vocabulary_gets_no_word(tmp_path: Path) -> None:
    cell = cell_of(tmp_path, "ulmfit", "full", adapt=ONCE, vocabulary="pretrained")
    encoder, adapter = adapted(cell)
    assert "zebra" not in encoder.vocabulary.words
    assert len(adapter.adapted.notes) == 1


def test_elmo_continues_with_the_softmax_beside_its_weights(tmp_path: Path) -> None:
    from harness.encoders.elmo.encoder import load
    from harness.pretraining.objectives.bilm import BiLMObjective
    from harness.pretraining.objectives.bilm_model import MARKERS, BiLM

    place = tmp_path / "elmo"
    encoder = load(name="elmo", path=elmo_folder(), cache_dir=tmp_path)
    objective = BiLMObjective(
        encoder.options, Recipe(lr=1.0), max_vocabulary=9, min_frequency=1, softmax="full", row_words=9,
        batch_words=9,
    )  # fmt: skip
    objective.words = [*MARKERS, "the", "river", "fox"]
    objective.save(BiLM(encoder, 6, adaptive=False), place)
    cell = cell_of(tmp_path, "tiny_elmo", "frozen", adapt=ONCE, path=str(place))
    _, adapter = adapted(cell)
    assert len(adapter.adapted.notes) == 1, "none is made"
    key = adapter.key
    plain = cell_of(tmp_path, "tiny_elmo", "frozen", path=str(place))
    (place / "softmax.safetensors").unlink()
    assert adapter_of(cell).key != key
    assert cell_of(tmp_path, "tiny_elmo", "frozen", adapt=ONCE, path=str(place)).id != cell.id
    assert cell_of(tmp_path, "tiny_elmo", "frozen", path=str(place)).id == plain.id, "reads none of it"
    (place / "softmax.safetensors").write_bytes(b"nothing")
    with pytest.raises(HarnessError, match=r"softmax\.safetensors: cannot be read"):
        adapted(cell)


def test_word_vectors_move_where_the_texts_have_them_and_new_words_get_some(tmp_path: Path) -> None:
    from harness.adaptation.word_vectors import load
    from harness.encoders.static.encoder import load as load_file_of_vectors

    path = tmp_path / "vectors.txt"
    draw = np.random.default_rng(0)
    words = ["the", "river", "bank", "fox", "elsewhere"]
    path.write_text(
        "".join(f"{w} " + " ".join(f"{x:.4f}" for x in draw.normal(size=8)) + "\n" for w in words)
    )
    cell = cell_of(tmp_path, "mini_static", "embedding_init", adapt={"epochs": 60}, path=str(path))
    encoder, adapter = adapted(cell, Splits([*TRAIN, *examples("The river")], [], []))
    before = load_file_of_vectors(name="x", path=path, cache_dir=tmp_path)
    old, new = before.tokenizer._table, encoder.tokenizer._table
    assert "zebra" in new
    assert "quick" not in new, "there once: it stays unknown"
    moved = [w for w in words if not np.array_equal(old.matrix[old.lookup([w])], new.matrix[new.lookup([w])])]
    assert moved == words[:4]
    assert isinstance(
        encoder, type(load(name="x", path=str(new.folder), random_init=False, cache_dir=tmp_path))
    )
    assert "words of the training texts were added" in " ".join(adapter.adapted.notes)


def test_fasttext_models_go_on_and_others_are_refused(tmp_path: Path) -> None:
    models = pytest.importorskip("gensim.models")
    from gensim.models.fasttext import save_facebook_model

    made = models.FastText(
        [t.texts[0].words for t in TRAIN] * 3,
        vector_size=6,
        min_count=1,
        bucket=50,
        workers=1,
        seed=1,
        epochs=1,
    )
    save_facebook_model(made, str(tmp_path / "model.bin"))
    cell = cell_of(tmp_path, "fasttext", "frozen", adapt={"epochs": 3}, path=str(tmp_path / "model.bin"))
    splits = Splits([*TRAIN, *examples("yak yak ran")], [], [])
    encoder, adapter = adapted(cell, splits)
    assert "1 words" in " ".join(adapter.adapted.notes)
    table = encoder.tokenizer._table
    assert "yak" in table
    assert not np.allclose(table.matrix[table.lookup(["river"])[0]], made.wv["river"])
    lacking = cell_of(tmp_path, "fasttext", "frozen", adapt=ONCE)
    with pytest.raises(HarnessError, match="cannot be trained further"):
        adapted(lacking, splits)


@pytest.mark.long
def test_ranks_find_what_the_first_has_adapted(tmp_path: Path) -> None:
    cell = cell_of(tmp_path, "mini_gpt", "full", "trainer.devices=2", "trainer.accelerator=cpu", adapt=ONCE)
    record = run_cell(cell)
    assert record.costs.devices == 2
    assert record.costs.adapt_seconds > 0
    assert len(folders(cell)) == 1
