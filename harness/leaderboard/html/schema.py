"""The JSON that the report's script reads: every key of the page's data, with its type.

``[i]`` in the descriptions is the index of a row in ``TableData.rows``. Numbers are rounded, and NaN becomes
null, when the page is written.
"""

from __future__ import annotations

from typing import NamedTuple, TypedDict

from harness.leaderboard.stats.across_tasks import SystemScores
from harness.leaderboard.views.comparisons import CurvePoint
from harness.leaderboard.views.published import FigureRow


class SeedData(TypedDict):
    """One seed of a row; ``degenerate`` says which single answer it predicts, or is empty."""

    seed: int
    status: str
    test: float | None
    dev: float | None
    epoch: int | None
    epochs: int | None
    degenerate: str


class RowData(TypedDict):
    """A row of a table. ``shown`` and ``short`` are labels and name without the settings of all rows;
    ``front`` lists the costs for which the row is on the Pareto front."""

    name: str
    short: str
    labels: dict[str, str]
    shown: dict[str, str]
    state: str
    text: str
    mean: float | None
    std: float | None
    ci: tuple[float, float] | None
    ci_kind: str
    no_interval: str
    tied: bool | None
    n: int
    dev: float | None
    tried: int | None
    degenerate: int
    failed_or_skipped: int
    error_reduction: float | None
    p: float | None
    costs: dict[str, float | None]
    device: str
    n_train: int | None
    front: list[str]
    cell: str
    seeds: list[SeedData]
    notes: list[str]


class HeatCell(NamedTuple):
    """Indices into ``encoders`` and ``strategies``, the row [i] shown (None: no dev score), variants."""

    encoder: int
    strategy: int
    row: int | None
    variants: int


class HeatMap(TypedDict):
    """Encoders by strategies; ``size`` is the training-set size if there are several."""

    encoders: list[str]
    strategies: list[str]
    size: int | None
    cells: list[HeatCell]


class LayerMix(TypedDict):
    """Learned weights of a scalar mix: mean over seeds and per seed, by layer; ``gamma`` per seed."""

    row: int
    where: str
    layers: list[int]
    mean: list[float]
    seeds: list[list[float]]
    gamma: list[float]


class SliceRow(TypedDict):
    """Scores on the ``n`` examples of one tag: [mean, low, high] by row [i] (as text)."""

    slice: str
    n: int
    cells: dict[str, tuple[float, float | None, float | None]]


class SliceTable(TypedDict):
    """Rows [i] (the columns) and the slices."""

    rows: list[int]
    slices: list[SliceRow]


class PairTest(NamedTuple):
    """Paired test of rows a and b [i]; ``p`` is not adjusted."""

    a: int
    b: int
    effect: float
    low: float
    high: float
    p: float


class PairTests(TypedDict):
    """All tests among ``rows`` [i]; how seeds were treated; number of examples."""

    rows: list[int]
    tests: list[PairTest]
    seeds: str
    examples: int


class DisagreeingPair(TypedDict):
    """Rows a and b [i]: number of different predictions, and of those that only one row gets right (for
    numbers: is closer to); ``shown`` are keys of ``examples``."""

    a: int
    b: int
    differ: int
    a_right: int
    b_right: int
    shown: list[int]


class ExampleData(TypedDict):
    """A test example with the predictions of all rows [i] (as text)."""

    id: str
    gold: str | list[str]
    tags: list[str]
    predictions: dict[str, str | list[str]]
    right: dict[str, bool]


class Disagreements(TypedDict):
    """Examples on which rows [i] disagree; ``numeric`` predictions are closer rather than right."""

    rows: list[int]
    seeds: dict[str, int]
    numeric: bool
    pairs: list[DisagreeingPair]
    examples: dict[str, ExampleData]


class CardData(TypedDict):
    """How a data set was read, as lines, and the number of cells that read it so."""

    lines: list[str]
    cells: int


class TableData(TypedDict):
    """One table with its charts. ``common`` are settings of all rows, ``selected`` rows [i] of --compare."""

    title: str
    task: str
    metric: str
    maximize: bool
    partial: bool
    part: dict[str, str]
    notes: list[str]
    labels: list[str]
    rows: list[RowData]
    common: str
    heat: HeatMap | None
    curves: list[CurvePoint]
    mixes: list[LayerMix]
    slices: SliceTable | None
    pairs: PairTests | None
    selected: list[int]
    disagreements: Disagreements | None
    run_notes: list[tuple[str, int]]
    cards: list[CardData]


class AcrossData(TypedDict):
    """Systems over all tasks."""

    title: str
    rows: list[SystemScores]
    notes: list[str]


class BudgetData(TypedDict):
    """Recommendations within a budget."""

    title: str
    lines: list[str]


class ReportData(TypedDict):
    """The whole report. ``more`` counts failed and skipped cells beyond those listed."""

    folder: str
    written: str
    cells: dict[str, int]
    tables: list[TableData]
    across: AcrossData | None
    failed: list[tuple[str, str]]
    skipped: list[tuple[str, str]]
    more: tuple[int, int]
    damaged: list[str]
    notes: list[str]
    provenance: list[tuple[str, str]]
    papers: list[FigureRow] | None
    budget: BudgetData | None
