"""The claims find the cells of their sweeps, and lines get the right verdict."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from benchmarks import claim_lines, claims
from harness.leaderboard.stats.bootstrap import Spread
from harness.leaderboard.stats.comparisons import Sample
from harness.records.record import Record, write_record
from tests.helpers.cells import make_cell


def jobs(overrides: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The overrides of each job of a sweep, without the experiment, whose launcher cannot be composed here.

    The number of epochs is set directly instead of by ``passes``; claims ignore it."""
    chosen = [o for o in overrides if not o.startswith(("experiment=", "passes."))]
    if len(chosen) < len(overrides):
        chosen += [f"task={','.join(claims.TASKS)}", "trainer.epochs=3"]
    parsed = OverridesParser.create().parse_overrides(chosen)
    choices = [
        [f"{o.get_key_element()}={value}" for value in o.sweep_string_iterator()]
        if o.is_sweep_override()
        else [str(o.input_line)]
        for o in parsed
    ]
    return itertools.product(*choices)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> claims.Results:
    """Results with one seed of every cell of the sweeps, without predictions."""
    root = tmp_path_factory.mktemp("claims")
    for name, overrides in claims.SWEEPS.items():
        for k, job in enumerate(jobs(overrides)):
            cell = make_cell(root / name, *job)
            task, encoder, strategy = (cell.task.name, cell.encoder.name, cell.strategy.name)
            record = Record("complete", task, encoder, strategy, f"c{k}", 0, variant=cell.variant)
            record.metric, record.dev, record.test = "accuracy", {"accuracy": 0.5}, {"accuracy": 0.5}
            write_record(root / name / task / encoder / strategy / f"c{k}" / "seed-0", record)
    return claims.Results(root, claims.SWEEPS)


@pytest.mark.parametrize("claim", claims.CLAIMS, ids=lambda c: c.__name__)
def test_every_line_has_its_cells(results: claims.Results, claim: claims.Callable[..., claims.Claim]) -> None:
    found = claim(results)
    assert found.lines
    for line in found.lines:
        assert "no example statistics" in line.why, (line.what, line.why)
    assert "no such cell" not in claims.markdown([claims.adjusted(found)])


def spread(mean: float, error: float) -> Spread:
    return Spread(mean, error**2, 0.0, np.inf, 5, both=True)


def test_verdicts_are_adjusted_over_the_lines_of_a_claim() -> None:
    lines = [
        claims.Line("a", "x", "y", s, p=s.p_value())
        for s in (spread(0.1, 0.01), spread(-0.1, 0.01), spread(0.021, 0.01), spread(0.0, 0.01))
    ]
    lines.append(claims.Line("a", "x", "y", None, "no such cell"))
    made = claims.adjusted(claims.Claim("It holds", "someone", lines, []))
    assert [line.verdict for line in made.lines] == [
        "seen", "contrary", "not seen", "not seen", "not measured (no such cell)",
    ]  # fmt: skip
    assert lines[2].p == pytest.approx(2 * spread(0.021, 0.01).p_value())
    text = claims.markdown([made])
    assert "Seen in 1 of 5." in text
    assert "| +0.100 | +0.080 to +0.120 | < 0.001 | seen |" in text


def test_a_gain_is_the_difference_seed_by_seed() -> None:
    def sample(scores: list[float], seeds: tuple[int, ...] = (0, 1)) -> Sample:
        given = np.array(scores)
        return Sample(given, np.stack([given, given + 0.1], axis=1), 10, "d", seeds, (0.0, 1.0))

    gain = claim_lines.gain(sample([0.5, 0.7]), sample([0.4, 0.5]))
    assert isinstance(gain, Sample)
    assert gain.scores == pytest.approx([0.1, 0.2])
    assert gain.replicates == pytest.approx(np.array([[0.1, 0.1], [0.2, 0.2]]))
    assert claim_lines.gain(sample([0.5, 0.7]), sample([0.4, 0.5], (0, 2))) == "different seeds or examples"
    assert claim_lines.gain("no such cell", gain) == "no such cell"
    line = claim_lines.compare_gains("more labels", (gain, "of 1000"), (sample([0.0, 0.1]), "of 100"))
    assert (line.a, line.b) == ("+0.150 of 1000", "+0.050 of 100")
    assert line.spread is not None
    assert line.spread.mean == pytest.approx(0.1)
