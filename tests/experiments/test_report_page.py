"""The page of a report in a browser: it loads, it can be pointed at and zoomed, it fits a phone."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("bokeh", reason="needs bokeh: pip install 'itersim[report]'")
pytest.importorskip("selenium", reason="needs selenium: pip install 'itersim[dev]'")

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from experiments.load import spec_of
from experiments.painter import Painter
from experiments.report.page import Choice, write_report
from experiments.results import Results
from experiments.run import run

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    BROWSER is None or DRIVER is None,
    reason="needs a browser: apt-get install chromium chromium-driver",
)
EVIL = "</script><script>window.hacked=1</script><img src=x onerror='window.hacked=1'>"
WIDE, NARROW = 1280, 390
PATIENCE_S = 60
CTRL = 2
SPEC: dict[str, Any] = {
    "name": "page",
    "description": "Three requests, two slots.",
    "workload": {
        "requests": [
            {"arrival_s": 0, "prompt_tokens": 4, "output_tokens": 2, "label": "one"},
            {"arrival_s": 0, "prompt_tokens": 5, "output_tokens": 8, "label": EVIL},
            {"arrival_s": 1, "prompt_tokens": 6, "output_tokens": 3, "label": "three"},
        ]
    },
    "step_time": {"kind": "constant", "step_s": 1},
    "server": {"slots": 2},
    "schedulers": {"static": {"kind": "static"}, "v0": {"kind": "prefill_first"}},
    "figures": [{"kind": "timeline"}],
}
WALK = """
const all = []
const walk = (node) => {
  for (const child of node.children ?? []) { all.push(child); walk(child) }
  if (node.shadowRoot) walk(node.shadowRoot)
}
walk(document.body)
"""


class Browser:
    """A headless browser with one page open."""

    def __init__(self, folder: Path) -> None:
        options = webdriver.ChromeOptions()
        options.binary_location = str(BROWSER)
        for word in (
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--hide-scrollbars",
            f"--user-data-dir={folder}",
        ):
            options.add_argument(word)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
        self.driver.set_script_timeout(PATIENCE_S)

    def open(self, page: Path, width: int) -> None:
        """Show *page* as wide as that, and wait until all of it is drawn."""
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500},
        )
        self.driver.get_log("browser"), self.driver.get_log("performance")  # of pages before
        self.driver.get(page.as_uri())
        self.wait("return window.Bokeh?.documents[0]?.is_idle && " + PLOTS + ".length > 0")

    def run(self, code: str, *values: Any) -> Any:
        return self.driver.execute_script(code, *values)

    def wait(self, code: str, *values: Any) -> Any:
        """What *code* returns, once that is true."""
        until = time.monotonic() + PATIENCE_S
        while not (found := self.run(code, *values)):
            assert time.monotonic() < until, f"never true: {code}"
            time.sleep(0.05)
        return found

    def painted(self) -> None:
        """Wait until what was asked for is on the screen."""
        twice = "requestAnimationFrame(() => requestAnimationFrame(arguments[0]))"
        self.driver.execute_async_script(twice)

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        self.driver.execute_cdp_cmd(
            "Input.dispatchMouseEvent", {"type": kind, "x": x, "y": y, **more}
        )

    def wheel(self, x: float, y: float, by: int, modifiers: int = 0) -> None:
        self.mouse("mouseWheel", x, y, deltaX=0, deltaY=by, modifiers=modifiers)
        self.painted()

    def place(self, plot: int, x: float, slot: int) -> tuple[float, float]:
        """Where a point of a plot is on the screen; it is scrolled to first."""
        self.run(PLOT + "view.el.scrollIntoView({block: 'center'})", plot)
        self.painted()
        code = PLOT + (
            "const box = view.el.getBoundingClientRect();"
            "return [box.x + view.frame.x_scale.compute(arguments[1]),"
            " box.y + view.frame.y_scale.compute(arguments[2])]"
        )
        left, top = self.run(code, plot, x, slot)
        return float(left), float(top)

    def told(self, plot: int, x: float, slot: int) -> list[str]:
        """The lines that show when one points there."""
        self.mouse("mouseMoved", *self.place(plot, x, slot))
        text: str = self.wait(
            WALK + "const tips = all.filter((e) => e.classList.contains('bk-tooltip-content')"
            "  && e.getClientRects().length);"
            "return tips.length == 1 && arguments[0] != tips[0].innerText && tips[0].innerText",
            getattr(self, "last", None),
        )
        self.last = text
        return [line for line in text.split("\n") if line.strip()]

    def range(self, plot: int) -> tuple[float, float]:
        """From where to where the x axis of a plot goes."""
        start, end = self.run(
            PLOT + "return [view.model.x_range.start, view.model.x_range.end]", plot
        )
        return float(start), float(end)

    def click(self, x: float, y: float) -> None:
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, x, y, button="left", clickCount=1)
        self.painted()

    def press(self, words: str) -> None:
        """Click on the button or tab that is called so."""
        spot = self.wait(
            WALK + "const found = all.find((e) => ((e.title || '').startsWith(arguments[0])"
            "  || (e.classList.contains('bk-tab') && e.innerText.trim() == arguments[0]))"
            "  && e.checkVisibility({visibilityProperty: true}));"
            "if (!found) return null;"
            "found.scrollIntoView({block: 'center'});"
            "const box = found.getBoundingClientRect();"
            "return [box.x + box.width / 2, box.y + box.height / 2]",
            words,
        )
        self.click(*spot)


PLOTS = (
    "[...Bokeh.index.all_views()].filter((v) => v.model.type == 'Figure'"
    " && v.el.checkVisibility({visibilityProperty: true}))"
)
PLOT = f"const view = {PLOTS}[arguments[0]];"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page") / "out"
    run(spec_of(SPEC), folder)
    return write_report(Results(folder), Painter(), Choice())


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    made = Browser(tmp_path_factory.mktemp("browser"))
    yield made
    made.driver.quit()


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_it_loads_without_an_error_and_asks_nobody(
    browser: Browser, page: Path, width: int
) -> None:
    browser.open(page, width)
    said = browser.driver.get_log("browser")
    assert [entry["message"] for entry in said if entry["level"] != "INFO"] == []
    sent = [
        json.loads(entry["message"])["message"] for entry in browser.driver.get_log("performance")
    ]
    urls = [
        entry["params"]["request"]["url"]
        for entry in sent
        if entry["method"] == "Network.requestWillBeSent"
    ]
    assert page.as_uri() in urls
    assert [url for url in urls if not url.startswith(("data:", page.as_uri(), "chrome:"))] == []
    assert browser.run("return window.hacked") is None


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_it_fits_the_screen_and_can_be_read(browser: Browser, page: Path, width: int) -> None:
    browser.open(page, width)
    assert browser.run("return document.documentElement.scrollWidth") == width
    sizes = browser.run(
        f"return {PLOTS}.map((v) => [v.frame.bbox.width, v.el.getBoundingClientRect().right])"
    )
    assert len(sizes) == 2
    for frame, right in sizes:
        assert frame > 0.7 * width
        assert right <= width
    small = browser.run(
        "return [...document.querySelectorAll('p, li, td, th, dt, dd, pre, figcaption')].filter("
        "(e) => parseFloat(getComputedStyle(e).fontSize) < 12).length"
    )
    assert small == 0
    # what is wider than the screen scrolls in a box of its own
    boxes = browser.run(
        "return [...document.querySelectorAll('table, pre, img')].map((e) => {"
        " const box = e.closest('.wide, pre').getBoundingClientRect();"
        " return [box.left, box.right] })"
    )
    assert boxes
    assert all(left >= 0 and right <= width for left, right in boxes)


def test_pointing_at_a_stretch_tells_whose_it_is_and_why(browser: Browser, page: Path) -> None:
    """Static: one and the evil one from 0 to 8, then three. V0: three's prompt runs alone at 2."""
    browser.open(page, WIDE)
    assert browser.told(0, 1.5, 1) == [
        "one 4 prompt + 2 output tokens",
        "slot 1, iteration 2: decode",
        "tokens so far: 1",
        "admitted at 0 s (iteration 1), at once",
        "finished: its batch ended, at 8 s",
    ]
    assert browser.told(0, 5.5, 1)[1:3] == [
        "slot 1, iteration 6: stranded (it has ended, its slot is still held)",
        "tokens so far: 2",
    ]
    evil = browser.told(0, 0.5, 2)
    assert evil[0] == f"{EVIL} 5 prompt + 8 output tokens"
    assert evil[1:3] == ["slot 2, iteration 1: prefill", "tokens so far: 0"]
    assert browser.told(0, 8.5, 1)[3:] == [
        "admitted at 8 s (iteration 9) after 7 s; until then the batch before had to end",
        "finished: all its tokens were made, at 11 s",
    ]
    assert browser.told(0, 9.5, 2) == ["nobody", "slot 2, iteration 10: empty"]
    assert browser.told(1, 2.5, 2)[1] == (
        "slot 2, iteration 3: paused (in its slot, not in this iteration)"
    )
    assert browser.told(1, 2.5, 1)[3] == (
        "admitted at 2 s (iteration 3) after 1 s; until then no slot was free"
    )
    assert browser.run("return window.hacked") is None


def test_both_plots_have_one_axis_which_zooms_moves_and_comes_back(
    browser: Browser, page: Path
) -> None:
    browser.open(page, WIDE)
    whole = browser.range(0)
    assert whole == browser.range(1) == (0, 11)
    spot = browser.place(0, 5, 1)
    browser.wheel(*spot, -240, CTRL)
    start, end = browser.range(0)
    assert 0 < start < 5 < end < 11
    assert browser.range(1) == (start, end)
    assert browser.told(1, 4.5, 2)[1] == "slot 2, iteration 5: decode"
    x, y = browser.place(1, 5, 1)
    browser.mouse("mousePressed", x, y, button="left", clickCount=1)
    for step in range(1, 6):
        browser.mouse("mouseMoved", x + 10 * step, y, button="left", buttons=1)
    browser.mouse("mouseReleased", x + 50, y, button="left", clickCount=1)
    browser.painted()
    moved = browser.range(0)
    assert moved[0] < start
    assert moved[1] - moved[0] == pytest.approx(end - start)
    assert browser.range(1) == moved
    browser.press("Reset")
    assert browser.range(0) == browser.range(1) == whole
    for _ in range(4):
        browser.press("Zoom In")
    nearer = browser.range(0)
    assert nearer[1] - nearer[0] < 11
    for _ in range(9):
        browser.press("Zoom Out")
    assert browser.range(1) == whole  # there is nothing beyond


def test_a_plain_wheel_scrolls_the_page(browser: Browser, page: Path) -> None:
    browser.open(page, WIDE)
    spot = browser.place(0, 5, 1)
    before, whole = browser.run("return scrollY"), browser.range(0)
    browser.wheel(*spot, 120)
    browser.wait("return scrollY != arguments[0]", before)
    assert browser.range(0) == whole


def test_the_other_tab_shows_iterations(browser: Browser, page: Path) -> None:
    browser.open(page, WIDE)
    browser.press("over iterations")
    browser.wait(f"return {PLOTS}.length == 2 && {PLOTS}[0].model.x_range.start == 0.5")
    assert browser.range(0) == browser.range(1) == (0.5, 11.5)
    assert browser.told(0, 3, 2)[1:3] == ["slot 2, iteration 3: decode", "tokens so far: 2"]
    assert browser.told(0, 3, 1)[1].startswith("slot 1, iteration 3: stranded")


def test_it_can_be_pointed_at_and_zoomed_on_a_phone(browser: Browser, page: Path) -> None:
    browser.open(page, NARROW)
    told = browser.told(0, 1.5, 1)
    assert told[1] == "slot 1, iteration 2: decode"
    browser.press("Zoom In")
    start, end = browser.range(1)
    assert 0 <= start < end <= 11
    assert end - start < 11
