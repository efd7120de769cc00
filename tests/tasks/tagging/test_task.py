"""The tagging task: reading, labels, targets, scores, configuration."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.data.text import Example
from harness.data.tokens import TokenizedWindow
from harness.errors import HarnessError
from harness.task import Prediction, Splits, Task
from harness_tasks.tagging.task import Tagging, files
from tests.helpers.data_files import copied
from tests.helpers.paths import ROOT

TRAIN = "Bea B-PER\nsat O\n\nBea B-PER\nRoy I-PER\nran O\n"


def write(folder: Path, **texts: str) -> dict[str, str]:
    out = {}
    for role, text in texts.items():
        (folder / f"{role}.conll").write_text(text, encoding="utf-8")
        out[role] = str(folder / f"{role}.conll")
    return out


def read(folder: Path, *, limit: int | None = None, **options: Any) -> tuple[Tagging, Splits]:
    task = Tagging(
        name="t", path=str(folder), files={r: f"{r}.conll" for r in ("train", "dev", "test")}, **options
    )
    return task, task.splits(limit=limit)


def row(word_to_token: list[int]) -> TokenizedWindow:
    n = len(word_to_token)
    zeros = np.zeros(n, dtype=np.int64)
    return TokenizedWindow({}, zeros, np.zeros((n, 2), dtype=np.int64), zeros, np.array(word_to_token))


def test_it_is_a_task() -> None:
    assert isinstance(Tagging(name="t"), Task)


def test_reads_splits_and_says_so(tmp_path: Path) -> None:
    write(tmp_path, train=TRAIN, dev="Ana B-PER\n", test=TRAIN)
    task, splits = read(tmp_path)
    assert [len(part) for _, part in splits.items()] == [2, 1, 2]
    assert splits.train[0].texts[0].words == ["Bea", "sat"]
    assert (splits.train[0].id, splits.test[1].id) == ("train-0", "test-1")
    assert task.labels == ["O", "B-PER", "I-PER"]
    assert "label scheme iob2 (recognised), scored as IOB2" in splits.notes
    assert any("span_f1" in n and "conlleval" in n for n in splits.notes)
    json.dumps([e.gold for e in splits.train])


def test_scheme_is_recognised_over_all_splits_and_normalised(tmp_path: Path) -> None:
    write(tmp_path, train="a B-X\nb O\n", dev="a B-X\nb E-X\n", test="c S-X\n")
    task, splits = read(tmp_path)
    assert task.scheme == "bioes"
    assert splits.dev[0].gold == ["B-X", "I-X"]
    assert splits.test[0].gold == ["B-X"]
    assert splits.report["ill_formed_labels"] == 1


def test_labels_absent_from_train_stay_gold_and_are_reported(tmp_path: Path) -> None:
    train = "Bea B-PER\nsat O\n"
    write(tmp_path, train=train, dev=train, test="Bea B-PER\nsat O\n\nRome B-LOC\nsat O\n")
    task, splits = read(tmp_path)
    assert "B-LOC is absent from train (1 entity in test): counted as missed" in splits.notes
    assert splits.report["labels_absent_from_train"] == 1
    predicted = {"test-0": Prediction(["B-PER", "O"]), "test-1": Prediction(["O", "O"])}
    scores = task.score(predicted, splits.test)
    assert (scores["span_precision"], scores["span_recall"]) == (1.0, 0.5)
    assert scores["span_f1"] == pytest.approx(0.6667, abs=1e-4)
    assert task.row_targets(splits.test[1], [row([0, 1])])[0]["labels"].tolist() == [-100, 0]


def test_missing_splits_are_cut_with_a_seed(tmp_path: Path) -> None:
    text = "\n".join(f"w{i} B-X\nz O\n" for i in range(50))
    write(tmp_path, train=text)
    _, splits = read(tmp_path, dev_fraction=0.2, test_fraction=0.2)
    assert [len(part) for _, part in splits.items()] == [32, 8, 10]
    ids = {e.id for _, part in splits.items() for e in part}
    assert ids == {f"train-{i}" for i in range(50)}
    assert "test: 20 % (10) cut from train with seed 13" in splits.notes
    assert read(tmp_path, dev_fraction=0.2, test_fraction=0.2)[1] == splits


def test_no_dev_and_limit(tmp_path: Path) -> None:
    write(tmp_path, train=TRAIN, dev=TRAIN, test=TRAIN)
    _, splits = read(tmp_path, dev="none", limit=1)
    assert [len(part) for _, part in splits.items()] == [1, 0, 1]
    assert "dev: none, as requested" in splits.notes
    with pytest.raises(HarnessError, match=r"task\.test=none"):
        read(tmp_path, test="none")


def test_targets_follow_ownership(tmp_path: Path) -> None:
    write(tmp_path, train=TRAIN)
    write(tmp_path, dev=TRAIN, test=TRAIN)
    task, splits = read(tmp_path)
    targets = task.row_targets(splits.train[1], [row([1, -1, -1]), row([-1, 1, 2])])
    assert [t["labels"].tolist() for t in targets] == [[1, -100, -100], [-100, 2, 0]]


def test_slices(tmp_path: Path) -> None:
    long = "\n".join(["x O"] * 41)
    write(tmp_path, train=TRAIN, dev=TRAIN, test=f"Bea B-PER\n\nCy B-PER\n\n{long}\n")
    _, splits = read(tmp_path)
    assert [e.tags for e in splits.test] == [
        ("length:short", "seen-entity"),
        ("length:short", "unseen-entity"),
        ("length:long", "no-entity"),
    ]


def test_plain_labels_are_scored_by_accuracy(tmp_path: Path) -> None:
    text = "the DET\ncat NOUN\na DET\n"
    write(tmp_path, train=text, dev=text, test=text)
    task, splits = read(tmp_path)
    assert (task.metric, task.labels) == ("token_accuracy", ["DET", "NOUN"])
    assert splits.test[0].gold == ["DET", "NOUN", "DET"]
    scores = task.score({"test-0": Prediction(["DET", "NOUN", "NOUN"])}, splits.test)
    assert scores == {"token_accuracy": pytest.approx(2 / 3)}
    assert Tagging(name="t", scheme="none").metric == "token_accuracy"


def test_a_missing_or_short_prediction_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, train=TRAIN, dev=TRAIN, test=TRAIN)
    task, splits = read(tmp_path)
    with pytest.raises(HarnessError, match="1 of 2 examples have no prediction, first 'test-1'"):
        task.score({"test-0": Prediction(["O", "O"])}, splits.test)
    with pytest.raises(HarnessError, match="'test-1' has 3 words, its prediction 1"):
        task.score({"test-0": Prediction(["O", "O"]), "test-1": Prediction(["O"])}, splits.test)


def test_tables_with_names_and_numbers(tmp_path: Path) -> None:
    rows = [{"tokens": ["Bea", "sat"], "ner_tags": [1, 0]}, {"tokens": [], "ner_tags": []}]
    path = tmp_path / "train.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    options = {"name": "t", "train": str(path), "dev": "none", "test": str(copied(path))}
    splits = Tagging(**options, label_names=["O", "B-PER"]).splits()
    assert splits.train[0].gold == ["B-PER", "O"]
    assert splits.report["empty_sentences"] == 2
    with pytest.raises(HarnessError, match="label 1 has no name"):
        Tagging(**options).splits()
    with pytest.raises(HarnessError, match="no column 'tags'"):
        Tagging(**options, labels_column="tags").splits()
    rows[0]["ner_tags"] = [1]
    path.write_text(json.dumps(rows[0]))
    with pytest.raises(HarnessError, match="line 1: 2 words but 1 labels"):
        Tagging(**options, label_names=["O", "B-PER"]).splits()


def test_parquet_as_the_hub_exports_it(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    table = pa.table({"id": ["0"], "tokens": [["Bea", "sat"]], "ner_tags": [[1, 0]]})
    (tmp_path / "data").mkdir()
    for split in ("train", "validation", "test"):
        pq.write_table(table, tmp_path / "data" / f"{split}-00000-of-00001.parquet")
    task = Tagging(
        name="t",
        path=str(tmp_path),
        files={
            r: f"data/{s}-*.parquet" for r, s in (("train", "train"), ("dev", "validation"), ("test", "test"))
        },
        hub={"id": "owner/name", "labels": "ner_tags", "label_names": ["O", "B-PER"]},
    )
    splits = task.splits()
    assert [part[0].gold for _, part in splits.items()] == [["B-PER", "O"]] * 3


def test_class_names_of_lists_come_from_the_data(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    from harness.data.reading.tables import of_dataset

    features = datasets.Features(
        {
            "tokens": datasets.Sequence(datasets.Value("string")),
            "ner_tags": datasets.Sequence(datasets.ClassLabel(names=["O", "B-PER"])),
        }
    )
    data = datasets.Dataset.from_dict({"tokens": [["Bea", "sat"]], "ner_tags": [[1, 0]]}, features=features)
    data.to_parquet(str(tmp_path / "train.parquet"))
    path = str(tmp_path / "train.parquet")
    assert Tagging(name="t", train=path, dev=copied(path, "dev"), test=copied(path)).splits().test[
        0
    ].gold == ["B-PER", "O"]
    assert of_dataset(data, "x").names == {"ner_tags": ["O", "B-PER"]}


def test_hub_data_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    from harness.data.reading import hub as hub_data
    from harness.data.reading.tables import DataTable

    def load(dataset: str, splits: Any, **options: Any) -> dict[str, DataTable]:
        assert (dataset, options) == ("owner/name", {"config": None, "revision": "v1"})
        rows = [{"tokens": ["Bea", "sat"], "ner_tags": [1, 0]}]
        return {
            role: DataTable.of_rows(f"{dataset} ({role})", ["tokens", "ner_tags"], rows, [1], unit="row")
            for role in splits
        }

    monkeypatch.setattr(hub_data, "load_hub", load)
    hub = {
        "id": "owner/name",
        "revision": "v1",
        "splits": {"train": "train", "dev": "validation", "test": "test"},
        "label_names": ["O", "B-PER"],
        "note": "made up",
    }
    splits = Tagging(name="t", hub=hub).splits()
    assert splits.dev[0].gold == ["B-PER", "O"]
    assert {"data: hub data set owner/name at v1", "made up"} <= set(splits.notes)
    assert Tagging(name="t", hub=hub, dev="none").splits().dev == []


def test_files_by_role(tmp_path: Path) -> None:
    paths = write(tmp_path, train=TRAIN, test=TRAIN)
    config = {"name": "t", **paths, "dev": "none"}
    assert files(config, tmp_path) == {role: Path(p) for role, p in paths.items()}
    assert files({"name": "t", "hub": "owner/name"}, tmp_path) == {}
    with pytest.raises(HarnessError, match="no data"):
        files({"name": "t"}, tmp_path)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"word_pooling": "last"}, "task.word_pooling=last"),
        ({"metric": "span_f2"}, "did you mean span_f1"),
        ({"hub": {"id": "a/b", "spits": {}}}, "task.hub.spits: unknown key, did you mean splits"),
        ({"hub": {"splits": {}, "id": None}}, "task.hub.id is missing"),
    ],
)
def test_bad_options(option: dict[str, Any], message: str) -> None:
    with pytest.raises(HarnessError, match=message):
        Tagging(name="t", **option)


@pytest.mark.parametrize("name", ["ner", "wnut17", "conll2003"])
def test_configurations_build(name: str) -> None:
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf

    folder = ROOT / "conf" / "task"
    with initialize_config_dir(str(folder), version_base=None):
        config = OmegaConf.to_container(compose(name), resolve=True)
    assert isinstance(config, dict)
    assert (config["name"], config["kind"]) == (name, "ner")
    not_options = ("_target_", "_files_", "feature_body", "result_version", "about")
    task = Tagging(**{str(k): v for k, v in config.items() if k not in not_options})
    assert task.metric == "span_f1"


def test_real_wnut17() -> None:
    root = os.environ.get("HARNESS_TEST_DATA")
    if not root:
        pytest.skip("HARNESS_TEST_DATA names no folder of real data")
    task, splits = read(Path(root) / "data" / "wnut17")
    assert [len(part) for _, part in splits.items()] == [3394, 1009, 1287]
    assert len(task.labels) == 13
    assert task.scheme == "iob2"
    assert len({x[2:] for x in task.labels if x != "O"}) == 6
    perfect = task.score({e.id: Prediction(e.gold) for e in splits.test}, splits.test)
    assert {perfect[m] for m in ("span_f1", "strict_span_f1", "surface_f1", "token_accuracy")} == {1.0}
    tags = [t for e in splits.test for t in e.tags]
    assert tags.count("seen-entity") == 0  # the test set was made so


def test_real_klue() -> None:
    root = os.environ.get("HARNESS_TEST_DATA")
    if not root:
        pytest.skip("HARNESS_TEST_DATA names no folder of real data")
    path = Path(root) / "data" / "klue_ner_dev" / "klue-ner-v1.1_dev.tsv"
    splits = Tagging(name="klue", train=str(path)).splits()
    examples: list[Example] = [e for _, part in splits.items() for e in part]
    assert len(examples) == 5000
    assert all(len(e.gold) == len(e.texts[0]) for e in examples)
