"""Published scores have a source and a value on our scale, and are shown next to our rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.errors import HarnessError
from harness.leaderboard.command import main
from harness.leaderboard.views.published import bundled
from tests.helpers.boards import labels

FIGURES = bundled()["figures"]


@pytest.fixture
def results(tmp_path: Path) -> Path:
    for encoder, strategy, level in (("ulmfit_wt103", "ulmfit", 0.9), ("glove", "frozen", 0.7)):
        for seed in range(3):
            labels(tmp_path / "r", level, task="trec", encoder=encoder, strategy=strategy, seed=seed)
    labels(tmp_path / "r", 0.5, task="trec_fine", encoder="ulmfit_wt103", strategy="ulmfit")
    return tmp_path / "r"


def test_every_published_score_has_a_source() -> None:
    works = bundled()["works"]
    assert len(FIGURES) > 40
    for figure in FIGURES:
        work = works[figure["work"]]
        assert work["cite"]
        assert work["url"].startswith("https://")
        assert work["read"]
        assert figure["table"].startswith("table ")
        assert figure["tasks"]


@pytest.mark.parametrize("figure", FIGURES, ids=lambda f: f"{f['work']}-{f['dataset']}-{f['system']}")
def test_value_on_our_scale_equals_the_printed_value(figure: dict[str, object]) -> None:
    printed, ours = figure["value"], figure["our_value"]
    assert isinstance(printed, float)
    assert isinstance(ours, float)
    expected = {"error %": 1 - printed / 100, "perplexity": printed}.get(str(figure["metric"]), printed / 100)
    assert ours == pytest.approx(expected, abs=1e-6)


def test_published_scores_are_next_to_rows_of_the_same_data_and_kind(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(results), "--papers", "--format", "json"]) == 0
    result = json.loads(capsys.readouterr().out)
    (line,) = result["papers"]
    assert (line["task"], line["printed"], line["on_our_scale"]) == ("trec", "error % 3.6", 0.964)
    (ours,) = line["ours"]
    assert ours.startswith("ulmfit_wt103/ulmfit ")
    assert "n = 3" in ours
    assert "Howard and Ruder 2018" in line["source"]
    # the board itself is what it is without them
    main([str(results), "--format", "json"])
    assert result["rows"] == json.loads(capsys.readouterr().out)["rows"]


@pytest.mark.parametrize("form", ["terminal", "md", "latex", "html"])
def test_every_format_shows_board_and_figures(
    results: Path, form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(results), "--papers", "--format", form]) == 0
    out = capsys.readouterr().out
    assert "glove" in out
    assert "Howard and Ruder 2018" in out
    main([str(results), "--format", form])
    assert "Howard" not in capsys.readouterr().out


def test_csv_rejects_published_scores(results: Path) -> None:
    with pytest.raises(HarnessError, match="--papers"):
        main([str(results), "--papers", "--format", "csv"])


def test_tasks_without_published_scores_have_a_note(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels(tmp_path / "r", 0.5, task="mine")
    main([str(tmp_path / "r"), "--papers"])
    assert "no published figures for these tasks; available for" in capsys.readouterr().out
