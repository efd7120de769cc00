"""Named classification data sets: their configurations, local copies, hub columns, and the real data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.data.text import Example
from harness.errors import HarnessError
from harness.task import Splits
from harness_tasks.classification.task import TextClassification, files
from tests.helpers.task_configs import task_config

torch.set_num_threads(1)

ENGINE_KEYS = ("_target_", "_files_", "about", "feature_body", "feature_body_options", "result_version")
BASE = "text,label\n" + "".join(f"text {i},{'ab'[i % 2]}\n" for i in range(20))


def write(path: Path, content: str | bytes) -> str:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def build(config: Mapping[str, Any]) -> Any:
    module, _, attribute = config["_target_"].rpartition(".")
    factory = getattr(import_module(module), attribute)
    return factory(**{k: v for k, v in config.items() if k not in ENGINE_KEYS})


def labels(examples: list[Example]) -> list[Any]:
    return [e.gold for e in examples]


def sizes(splits: Splits) -> tuple[int, ...]:
    return tuple(len(examples) for _, examples in splits.items())


def test_no_data_is_said_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match="no data"):
        files(task_config("text_classification"), tmp_path)
    assert files(task_config("ag_news"), tmp_path) == {}


@pytest.mark.parametrize("name", ["text_classification", "trec", "trec_fine", "sst2", "ag_news", "imdb"])
def test_configurations_build(name: str) -> None:
    config = task_config(name)
    assert config["name"] == name
    assert config["kind"] == "text_classification"
    assert config["about"]
    assert config["result_version"] >= 1
    assert build(config).metric == "accuracy"


def test_ag_news_reads_the_original_csv_and_one_with_a_header(tmp_path: Path) -> None:
    rows = '"3","A title","Some text, more"\n"1","B","C"\n'
    for name, head in (("plain", ""), ("headed", "Class Index,Title,Description\n")):
        folder = tmp_path / name
        folder.mkdir()
        for split in ("train", "test"):
            write(folder / f"{split}.csv", head + rows)
        test = build(task_config("ag_news", f"path={folder}", "dev=none")).splits().test
        assert [(e.texts[0].text, e.gold) for e in test] == [("A title Some text, more", "3"), ("B C", "1")]


def fake_hub(monkeypatch: pytest.MonkeyPatch, data: dict[str, Any]) -> list[tuple[Any, ...]]:
    import datasets

    calls: list[tuple[Any, ...]] = []

    def load(path: str, name: str | None = None, revision: str | None = None) -> Any:
        calls.append((path, name, revision))
        if path == "stanfordnlp/imdb" and revision is None:
            raise RuntimeError("Dataset scripts are no longer supported, but found imdb.py")
        return datasets.DatasetDict(data)

    monkeypatch.setattr(datasets, "load_dataset", load)
    return calls


def hub_split(rows: list[dict[str, Any]], names: list[str] | None = None) -> Any:
    import datasets

    data = datasets.Dataset.from_list(rows)
    return data.cast_column("label", datasets.ClassLabel(names=names)) if names else data


def test_hub_trec(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        {"text": f"q{i}", "label": i % 4, "label_coarse_text": "ab"[i % 2], "label_fine_text": "stuv"[i % 4]}
        for i in range(40)
    ]
    calls = fake_hub(monkeypatch, {"train": hub_split(rows), "test": hub_split(rows[:4])})
    coarse, fine = build(task_config("trec")), build(task_config("trec_fine"))
    splits = coarse.splits()
    assert sizes(splits) == (36, 4, 4)
    assert coarse.labels == ["a", "b"]
    assert "hub data set SetFit/TREC-QC" in splits.notes[0]
    fine.splits()
    assert fine.labels == ["s", "t", "u", "v"]
    assert calls[0] == ("SetFit/TREC-QC", None, None)


def test_a_local_copy_of_the_hub_files_has_the_hub_columns(tmp_path: Path) -> None:
    row = '{{"text": "q", "label": {0}, "label_coarse_text": "c{1}", "label_original": "f{0}"}}\n'
    for name in ("train.jsonl", "test.jsonl"):
        write(tmp_path / name, "".join(row.format(i % 4, i % 2) for i in range(12)))
    for name, classes in (("trec", ["c0", "c1"]), ("trec_fine", ["f0", "f1", "f2", "f3"])):
        task = build(task_config(name, f"path={tmp_path}", "dev=none"))
        task.splits()
        assert task.labels == classes


def test_two_files_that_could_be_a_split_are_a_question(tmp_path: Path) -> None:
    for name in ("train.jsonl", "train.csv", "test.csv"):
        write(tmp_path / name, BASE)
    with pytest.raises(HarnessError, match=r"which is train: train\.csv, train\.jsonl\?"):
        files(task_config("trec", f"path={tmp_path}"), tmp_path)


def test_hub_sst2_tests_on_validation_since_its_test_labels_are_hidden(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = ["negative", "positive"]
    rows = [{"sentence": f"s{i}", "label": i % 2} for i in range(20)]
    hidden = hub_split([{"sentence": "?", "label": -1}])
    fake_hub(
        monkeypatch,
        {"train": hub_split(rows, names), "validation": hub_split(rows[:6], names), "test": hidden},
    )
    task = build(task_config("sst2"))
    splits = task.splits()
    assert sizes(splits) == (18, 2, 6)
    assert labels(splits.test)[:2] == names
    assert any("validation split serves as test" in note for note in [*splits.notes, *splits.warnings])


def test_hub_hidden_labels_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["negative", "positive"]
    rows = [{"sentence": f"s{i}", "label": i % 2} for i in range(4)]
    bad = hub_split([row | {"label": -1} for row in rows], names)
    fake_hub(monkeypatch, {"train": hub_split(rows, names), "test": bad})
    with pytest.raises(HarnessError, match=r"label -1 is none of the 2 classes \(hidden\)"):
        TextClassification(hub="owner/name", dev="none").splits()


def test_hub_ag_news_and_imdb_script_fallback(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"text": f"t{i}", "label": i % 2} for i in range(20)]
    data = {"train": hub_split(rows, ["neg", "pos"]), "test": hub_split(rows, ["neg", "pos"])}
    data["unsupervised"] = hub_split([{"text": "u", "label": -1}])
    calls = fake_hub(monkeypatch, data)
    for name in ("ag_news", "imdb"):
        task = build(task_config(name))
        assert sizes(task.splits()) == (18, 2, 20)
        assert task.labels == ["neg", "pos"]
    assert calls[-1] == ("stanfordnlp/imdb", None, "refs/convert/parquet")


def test_hub_offline_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    def load(*args: Any, **kwargs: Any) -> Any:
        raise ConnectionError("Couldn't reach the Hub\nmore lines")

    monkeypatch.setattr(datasets, "load_dataset", load)
    with pytest.raises(HarnessError, match=r"SetFit/TREC-QC could not be loaded .*task\.path=FOLDER"):
        build(task_config("trec")).splits()


def test_hub_without_the_split(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_hub(monkeypatch, {"train": hub_split([{"text": "a", "label": 1}])})
    with pytest.raises(HarnessError, match="has no split 'test'"):
        build(task_config("ag_news")).splits()


@pytest.fixture
def data(shared_data: Path) -> Path:
    return shared_data / "data"


@pytest.mark.parametrize(("name", "classes", "dev_size"), [("trec", 6, 545), ("trec_fine", 50, 544)])
def test_real_trec(data: Path, name: str, classes: int, dev_size: int) -> None:
    task = build(task_config(name, f"path={data / 'trec'}"))
    splits = task.splits()
    assert sizes(splits) == (5452 - dev_size, dev_size, 500)
    assert len(task.labels) == classes
    assert any("TREC.train is not UTF-8" in note for note in [*splits.notes, *splits.warnings])
    all_train = Counter(labels(splits.train) + labels(splits.dev))
    assert sum(all_train.values()) == 5452
    if classes == 6:
        assert all_train["ENTY"] == 1250
        dev = Counter(labels(splits.dev))
        assert all(abs(dev[c] - 0.1 * n) < 1 for c, n in all_train.items())


def test_real_sst2(data: Path) -> None:
    config = task_config("sst2", f"path={data / 'sst2'}")
    splits = build(config).splits()
    assert sizes(splits) == (6920, 872, 1821)
    assert Counter(labels(splits.test)) == {"negative": 912, "positive": 909}
    assert sorted(files(config, data)) == ["dev", "test", "train"]


def test_real_pairs(data: Path) -> None:
    sick = {
        s: str(data / "sick" / f"{f}.tsv")
        for s, f in (("train", "train"), ("dev", "trial"), ("test", "test"))
    }
    task = TextClassification(
        **sick, text="sentence_A", text_b="sentence_B", label="entailment_judgment", id="pair_ID"
    )
    splits = task.splits()
    assert sizes(splits) == (4500, 500, 4927)
    assert task.labels == ["CONTRADICTION", "ENTAILMENT", "NEUTRAL"]
    assert splits.train[0].id == "1"
    nli = {s: str(data / "kornli_xnli" / f"{f}.tsv") for s, f in (("train", "dev"), ("test", "test"))}
    korean = TextClassification(**nli, dev="none", text="sentence1", text_b="sentence2", label="gold_label")
    assert sizes(korean.splits()) == (2490, 0, 5010)
