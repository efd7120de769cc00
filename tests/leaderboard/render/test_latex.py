"""The board as LaTeX: all names are escaped, and the output compiles (skipped without LaTeX)."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from harness.leaderboard.command import main
from harness.leaderboard.render.latex import escape, latex_views
from harness.leaderboard.views.view import View
from harness.records.record import Record, write_record
from tests.helpers.boards import labels

NAMES = (
    "a_b%c&d#e", "[red]e[/red]", "*star", "--", "b--c``d''e\"f?`", "x^y~z{u}\\v$w$", "naïve ß Ł ő",
    "a<b>c=d|e", "‘q’ “r” – — … ≤ × ± €", "i\u0301 no\u200bspace\u00a0space", "\\input{x}", "^^M",
)  # fmt: skip
DOCUMENT = r"""\documentclass{article}
\usepackage{booktabs}
\usepackage{graphicx}
\usepackage[T1]{fontenc}
\begin{document}
\input{board.tex}
\end{document}
"""


def test_special_characters_are_escaped() -> None:
    assert escape(r"a\b_{c}%$&#~^") == (
        r"a\textbackslash{}b\_\{c\}\%\$\&\#\textasciitilde{}\textasciicircum{}"
    )
    assert escape("[x]*") == "{[}x{]}{*}"  # unbraced, they would be read as arguments of the preceding \\
    assert escape("a---b ?`c") == "a-{}-{}-b ?{}`c"
    assert escape("e\u0301\u200b\u00a0±") == "é~$\\pm$"


def made(root: Path, out: Path, *options: str) -> str:
    assert main([str(root), "--output", str(out / "board.tex"), *options]) == 0
    return (out / "board.tex").read_text(encoding="utf-8")


def test_comments_list_the_required_packages(tmp_path: Path) -> None:
    for encoder, expected in (
        ("plain", ["booktabs", "graphicx"]),
        ("naïve", ["booktabs", "graphicx", "[T1]"]),
        ("한국어", ["booktabs", "graphicx", "[T1]", "LuaLaTeX"]),
    ):
        labels(tmp_path / encoder, 0.5, encoder=encoder)
        text = made(tmp_path / encoder, tmp_path)
        needs = [line for line in text.splitlines() if line.startswith("%")]
        assert len(needs) == len(expected)
        assert all(word in line for word, line in zip(expected, needs, strict=True))


def test_view_without_rows_has_no_table() -> None:
    text = latex_views([View("across", "Over 2 tasks", [], ["nothing is ranked: a_b"])])
    assert "tabular" not in text
    assert r"nothing is ranked: a\_b." in text


def test_floats_are_flushed_regularly(tmp_path: Path) -> None:
    for k in range(40):
        labels(tmp_path / "r", 0.5, n=6, task=f"t{k}")
    text = made(tmp_path / "r", tmp_path)
    between = text.split(r"\clearpage")
    assert len(between) == 3
    assert all(part.count(r"\begin{table}") <= 16 for part in between)


@pytest.mark.parametrize(
    "options", [[], ["--cost", "--by-slice", "--across", "--budget", "train_seconds=60"], ["--papers"]]
)
def test_output_compiles(tmp_path: Path, options: list[str]) -> None:
    if shutil.which("pdflatex") is None or shutil.which("kpsewhich") is None:
        pytest.skip("no LaTeX: apt-get install texlive-latex-base texlive-latex-recommended")
    if not subprocess.run(["kpsewhich", "booktabs.sty"], capture_output=True, check=False).stdout:
        pytest.skip("LaTeX has no booktabs: apt-get install texlive-latex-recommended")
    for k, name in enumerate(NAMES):
        labels(tmp_path / "r", 0.5, encoder=name, cell=f"c{k}", task="t_1%", draw=k, n=30)
    for k in range(90):
        labels(
            tmp_path / "r", 0.5, encoder=f"a_rather_long_name_of_an_encoder_{k}", cell=f"d{k}", task="long"
        )
    for k in range(55):
        labels(tmp_path / "r", 0.5, task=f"task{k}", n=6)
    skipped = Record("skipped", "t_1%", "e_%", "full", "s", 0, reason="equals\n\\another {")
    write_record(tmp_path / "r" / "t_1%" / "e" / "full" / "s" / "seed-0", skipped)
    made(tmp_path / "r", tmp_path, *options)
    (tmp_path / "main.tex").write_text(DOCUMENT)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "main.tex"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False, timeout=240)
    log = run.stdout.decode("utf-8", "replace")
    assert run.returncode == 0, re.findall(r"(?m)^!.*\n.*", log)
    assert not re.findall(r"Overfull|Float too large", log)
    assert (tmp_path / "main.pdf").stat().st_size > 10_000
