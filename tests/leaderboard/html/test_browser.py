"""The HTML report in headless Chromium: sorting, filtering, tasks, comparisons, and no network requests.

Screenshots go to the folder that ``HARNESS_SCREENSHOTS`` names, else to a temporary one.
"""

from __future__ import annotations

import base64
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.leaderboard.command import main
from tests.helpers.boards import HOSTILE, grid, labels

CHROMIUM = next(
    (p for n in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(n))), None
)
READ = ("text", "soft", "accent", "bad", "good")
COLOR = "return getComputedStyle(document.documentElement).getPropertyValue(arguments[0])"
DRIVER = shutil.which("chromedriver")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    grid(folder / "results")
    out = folder / "report.html"
    options = ["--papers", "--intervals", "50", "--output", str(out)]
    assert main([str(folder / "results"), *options]) == 0
    return out


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("no chromium with its driver: apt-get install chromium chromium-driver")
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture
def report(browser: Any, page: Path) -> Iterator[Any]:
    """Open the page; afterwards check that the console is empty and only the page itself was requested."""
    view(browser, page)
    yield browser
    assert [line for line in browser.get_log("browser") if line["level"] != "INFO"] == []
    sent = [
        line["message"] for line in browser.get_log("performance") if "requestWillBeSent" in line["message"]
    ]
    outside = [m for m in sent if '"url":"file:' not in m and '"url":"data:' not in m]
    assert outside == []


def view(browser: Any, page: Path, *, width: int = 1280, dark: bool = False) -> None:
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get("about:blank")
    browser.get_log("performance")
    browser.get(page.as_uri())


def find(browser: Any, css: str) -> list[Any]:
    elements = browser.find_elements("css selector", css)
    assert isinstance(elements, list)
    return elements


def texts(browser: Any, css: str) -> list[str]:
    return [e.text for e in find(browser, css)]


def task(browser: Any, name: str) -> None:
    next(b for b in find(browser, "nav button") if b.text == name).click()


def means(browser: Any) -> list[float]:
    return [float(t.split()[0]) for t in texts(browser, "tr.row td.score") if t[:1].isdigit()]


def test_best_row_is_first(report: Any) -> None:
    assert means(report) == sorted(means(report), reverse=True)
    assert len(find(report, "tr.row")) == 8
    assert "has the best mean" in texts(report, ".lead")[0]
    assert texts(report, "nav button")[:2] == ["qa", "tags"]


def test_sorting_by_mouse_and_keyboard(report: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    button = find(report, "button[data-sort=mean]")[0]
    button.click()
    assert means(report) == sorted(means(report), reverse=True)
    button.send_keys(Keys.ENTER)
    assert means(report) == sorted(means(report))
    assert find(report, "th[aria-sort]")[0].get_attribute("aria-sort") == "ascending"
    # what has no score stays last either way
    assert "unscored" in find(report, "tr.row")[-1].get_attribute("class")
    find(report, "button[data-sort=encoder]")[0].click()
    names = texts(report, "tr.row td:nth-child(2)")
    assert names == sorted(names)


def test_filtering(report: Any) -> None:
    find(report, "input[type=search]")[0].send_keys("frozen elmo")
    assert len(find(report, "tr.row")) == 1
    assert "1 of 8 rows" in texts(report, ".bar [role=status]")
    find(report, "input[type=search]")[0].clear()


def test_switching_tasks_shows_disagreements(report: Any) -> None:
    assert "only the first is right" in find(report, "[aria-label='Where two rows disagree']")[0].text
    cards = find(report, ".card")
    assert 1 <= len(cards) <= 20
    assert "gold" in cards[0].text
    task(report, "tags")
    assert texts(report, "h2") == ["tags"]
    assert find(report, ".card table.tags td.off")
    assert "#task=tags" in report.current_url
    report.refresh()
    assert texts(report, "h2") == ["tags"]


def test_another_pair_can_be_chosen(report: Any) -> None:
    from selenium.webdriver.support.ui import Select

    first, second = find(report, "[aria-label='Where two rows disagree'] select")
    before = find(report, ".cards")[0].text
    Select(second).select_by_index(3)
    assert find(report, ".cards")[0].text != before
    Select(first).select_by_index(3)
    assert "two different rows" in find(report, "[aria-label='Where two rows disagree']")[0].text


def test_rows_that_agree_have_a_note_and_are_not_shown_first(browser: Any, tmp_path: Path) -> None:
    for encoder, level, draw in (("a", 0.9, 1), ("b", 0.9, 1), ("c", 0.5, 2)):
        labels(tmp_path / "r", level, encoder=encoder, draw=draw)
    assert main([str(tmp_path / "r"), "--output", str(tmp_path / "r.html")]) == 0
    view(browser, tmp_path / "r.html")
    assert "only the first is right" in find(browser, "[aria-label='Where two rows disagree']")[0].text
    second = find(browser, "[aria-label='Where two rows disagree'] select")[1]
    names = [o.text for o in second.find_elements("css selector", "option")]
    second.send_keys("b/full")
    assert names == ["a/full", "b/full", "c/full"]
    assert "the same for every example" in find(browser, "[aria-label='Where two rows disagree']")[0].text


def test_rows_are_compared_when_ticked(report: Any) -> None:
    assert len(find(report, ".compared tbody tr")) == 3
    find(report, "input[data-compare='3']")[0].click()
    assert len(find(report, ".compared tbody tr")) == 6
    assert "over the 6 pairs" in find(report, ".compared")[0].text
    for box in find(report, "input[data-compare]:checked"):
        box.click()
    assert "Select two or more rows" in find(report, ".compared")[0].text


def test_details_of_a_row(report: Any) -> None:
    find(report, "td.tools button")[0].click()
    details = find(report, "tr.detail")[0].text
    assert "Seeds" in details
    assert "parameters" in details
    find(report, "td.tools button")[0].click()
    assert find(report, "tr.detail") == []


def test_text_of_the_data_is_never_parsed_as_html(report: Any) -> None:
    task(report, "tags")
    assert report.execute_script("return window.broken === undefined && document.scripts.length") == 2
    assert HOSTILE in find(report, "body")[0].text
    assert find(report, "b.hostile") == []


def test_costs_curves_and_layers_are_drawn(report: Any) -> None:
    from selenium.webdriver.support.ui import Select

    task(report, "topics")
    box = find(report, "[aria-label='Score against cost'] select")[0]
    Select(box).select_by_value("parameters")
    assert find(report, "[aria-label='Score against cost'] svg path.point")
    assert find(report, "[aria-label='Learning curves'] svg path.line")
    assert find(report, "table.mix td.heated")
    report.execute_script(
        "document.querySelector('svg path.point').dispatchEvent(new MouseEvent('mouseenter'))"
    )
    assert "accuracy" in find(report, "body")[0].text
    assert find(report, "#tip")[0].is_displayed()


def test_theme_follows_the_system_until_chosen(browser: Any, page: Path) -> None:
    view(browser, page, dark=True)
    color = "return getComputedStyle(document.body).backgroundColor"
    assert browser.execute_script(color) == "rgb(18, 22, 28)"
    find(browser, "#theme")[0].click()
    assert browser.execute_script(color) == "rgb(255, 255, 255)"
    view(browser, page, dark=True)
    assert browser.execute_script(color) == "rgb(255, 255, 255)"
    browser.execute_script("localStorage.clear()")


def test_text_has_contrast_in_both_themes(browser: Any, page: Path) -> None:
    """WCAG 2, 1.4.3: the contrast of text with the page must be at least 4.5 to 1."""
    for dark in (False, True):
        view(browser, page, dark=dark)
        colors = {name: browser.execute_script(COLOR, f"--{name}") for name in ("bg", *READ)}
        for name in READ:
            assert contrast(colors[name], colors["bg"]) >= 4.5, (dark, name)


def contrast(one: str, other: str) -> float:
    def light(color: str) -> float:
        parts = [int(color.strip()[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("name", ["light", "dark", "phone"])
def test_page_is_not_wider_than_the_screen(
    browser: Any, page: Path, tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    where = os.environ.get("HARNESS_SCREENSHOTS")
    folder = Path(where) if where else tmp_path_factory.mktemp("screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    width = 375 if name == "phone" else 1280
    view(browser, page, width=width, dark=name == "dark")
    for chosen in ("qa", "tags", "topics"):
        task(browser, chosen)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        height = browser.execute_script("return document.documentElement.scrollHeight")
        clip = {"x": 0, "y": 0, "width": width, "height": min(height, 4000), "scale": 1}
        shot = browser.execute_cdp_cmd(
            "Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip}
        )
        (folder / f"report-{chosen}-{name}.png").write_bytes(base64.b64decode(shot["data"]))


def test_a_full_board_fits_with_a_readable_note(browser: Any, tmp_path: Path) -> None:
    """With variants, a baseline and tried counts, columns that are also in the details are dropped."""
    for k, encoder in enumerate(("mini_static", "mini_ulmfit_bi")):
        for strategy in ("frozen", "slow_embedding"):
            for seed in range(2):
                given: dict[str, Any] = {"variant": {"optimizer.lr": 0.001, f"trainer.epochs{k}": 1}}
                given |= {"degenerate": "predicts nothing but a" if seed else "", "encoder": encoder}
                labels(tmp_path / "r", 0.6, draw=k, seed=seed, strategy=strategy, **given)
    options = ["--baseline", "mini_static/frozen", "--select", "dev", "--output", str(tmp_path / "p.html")]
    assert main([str(tmp_path / "r"), *options]) == 0
    columns = {}
    for width in (1000, 1300, 1700):
        view(browser, tmp_path / "p.html", width=width)
        box, note = find(browser, ".scroll")[0], find(browser, "tr.row td.note")[0]
        assert note.text == "1 degenerate seed"
        assert note.size["width"] >= 130
        assert note.size["height"] <= 70
        columns[width] = [name.split("\n")[0] for name in texts(browser, "table.board thead th") if name]
        assert {"encoder", "strategy", "variant", "accuracy", "n", "note"} <= set(columns[width])
        if width > 1000:
            assert browser.execute_script("return arguments[0].scrollWidth <= arguments[0].clientWidth", box)
    assert len(columns[1000]) <= len(columns[1300]) < len(columns[1700])
    find(browser, "td.tools button")[0].click()
    facts = set(texts(browser, "tr.detail dt"))
    assert {"trained parameters", "training time (s)", "dev", "tried", "95 % CI"} <= facts


def test_print_view_contains_every_task(browser: Any, page: Path) -> None:
    view(browser, page)
    browser.execute_script("dispatchEvent(new Event('beforeprint'))")
    assert texts(browser, "h2") == ["qa", "tags", "topics"]
    browser.execute_script("dispatchEvent(new Event('afterprint'))")
    assert texts(browser, "h2") == ["qa"]
    assert len(base64.b64decode(browser.print_page())) > 10_000
