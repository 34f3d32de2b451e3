"""Runs in memory, and the batch table that notebooks step through."""

import re
import shutil
from html.parser import HTMLParser
from typing import Any

import pytest

from experiments.load import spec_of
from experiments.show import (
    analyses,
    batch_table,
    batches,
    iterations,
    requests,
    shipped,
    summaries,
)
from experiments.show.steps import MOST, walks_of
from sim import Cell, membership

EVIL = "</script><script>window.hacked=1</script>"


def spec(outputs: list[int], slots: int = 2, **more: Any) -> Any:
    work = [
        {"arrival_s": 0, "prompt_tokens": 1, "output_tokens": tokens, "label": label}
        for tokens, label in zip(outputs, more.pop("labels", [None] * len(outputs)), strict=True)
    ]
    return spec_of(
        {
            "name": "shown",
            "workload": {"requests": [{k: v for k, v in w.items() if v is not None} for w in work]},
            "step_time": {"kind": "constant", "step_s": 1},
            "server": {"slots": slots, **more},
            "schedulers": {"static": {"kind": "static"}, "continuous": {"kind": "chunked"}},
        }
    )


SIX = """\
continuous
iteration  1     2     3     4     5     6     7     8  9  10
slot 1     R1 P  R1 2  R1 3  R1 4  R1 5  R1 6  ·
slot 2     R2 P  R2 2  R5 P  R5 2  R5 3  R5 4  ·
slot 3     R3 P  R3 2  R3 3  R3 4  R3 5  ·     ·
slot 4     R4 P  R4 2  R4 3  R6 P  R6 2  R6 3  R6 4
"""
THIRD = """\
iteration 3
  release R2 (finished)
  admit   R5; waiting: R6
  compose prefill: R5; decode: R1 R3 R4; idle slots: 0 of 4
  step    one forward pass, from 2 s to 3 s
  append  R1 3 of 6, R5 1 of 4, R3 3 of 5, R4 3 of 3
"""


def test_the_six_requests_are_told_as_worked_out_by_hand():
    text = str(batch_table(analyses(shipped("six_requests"))))
    assert SIX in text
    assert THIRD in text


def of_every_kind() -> Any:
    """Short of memory, impatient, urgent: whatever can happen to a request does."""
    requests = [
        {
            "arrival_s": 0.7 * i,
            "prompt_tokens": 5 + i % 3,
            "output_tokens": 3 + i % 9,
            "priority": i % 3,
            **({"cancel_s": 0.7 * i + 2} if i % 4 == 0 else {}),
            **({"timeout_s": 4} if i % 5 == 0 else {}),
        }
        for i in range(14)
    ]
    retained = {"order": "priority", "displace": True, "preemption": "retain"}
    schedulers = {
        "async": {"kind": "chunked", "scheduling": "asynchronous", "stop": "eos"},
        "swap": {"kind": "mixed", "preemption": "swap", "swap": {"block_s": 0.1}},
        "displace": {"kind": "chunked", "max_batched_tokens": 4, **retained},
        "prefill_first": {"kind": "prefill_first"},
        "static": {"kind": "static"},
    }
    return spec_of(
        {
            "name": "every-kind",
            "workload": {"requests": requests},
            "step_time": {"kind": "constant", "step_s": 1},
            "server": {"slots": 3, "kv_blocks": 9, "block_size": 4},
            "schedulers": schedulers,
        }
    )


@pytest.mark.parametrize("name", ["six_requests", "sparse_batch", "long_prompt_blocks", None])
def test_every_step_says_what_the_membership_says(name):
    runs = analyses(of_every_kind() if name is None else shipped(name))
    for walk in walks_of(runs):
        analysis = runs[walk.name]
        whole = membership(analysis.run, analysis.timeline, 1, analysis.timeline.iterations)
        for step in walk.steps:
            for at in range(step.first, min(step.last, whole.cell.shape[1]) + 1):
                for slot, square in enumerate(step.squares):
                    assert square.cell == whole.cell[slot, at - 1]
                    who = -1 if square.request is None else square.request
                    assert who == whole.request[slot, at - 1]
                    assert (square.text == "·") == (square.cell == Cell.EMPTY)


def test_long_runs_are_told_in_steps_in_which_nothing_changes():
    (static, continuous) = walks_of(analyses(shipped("eight_requests")))
    assert [step.span for step in static.steps] == ["1", "2–32", "33–512"]
    assert [step.span for step in continuous.steps] == ["1", "2–32", "33–512"]
    assert static.steps[1].squares[0].text == "R1 32"
    assert static.steps[2].squares[0].text == "R1 ×"
    assert continuous.steps[2].squares[0].text == "·"


def test_what_is_left_out_is_counted():
    runs = analyses(spec([1 + i % 7 for i in range(400)]))
    for walk in walks_of(runs):
        assert len(walk.steps) == MOST
        whole = max(one.timeline.iterations for one in runs.values())
        assert walk.steps[-1].last + walk.left_out == whole
    assert "more iterations are not shown" in str(batch_table(runs))
    first = batch_table(runs, last=3)
    assert [step.span for step in first.walks[0].steps] == ["1", "2", "3"]
    assert "not shown" not in str(first)


def test_a_preempted_request_is_told_where_it_left_and_waits_again():
    work = spec([8, 8, 8], slots=3, kv_blocks=5, block_size=4)
    text = str(batch_table({"chunked": analyses(work)["continuous"]}))
    assert "  preempt R3 (there was no free KV block)" in text
    assert "waiting: R3" in text


class Reader(HTMLParser):
    """Counts tags and collects what texts hold."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: dict[str, int] = {}
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.opened[tag] = self.opened.get(tag, 0) + 1

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_the_page_has_all_steps_without_scripts_and_asks_the_network_for_nothing():
    runs = analyses(shipped("six_requests"))
    page = batch_table(runs)._repr_html_()
    reader = Reader()
    reader.feed(page)
    assert reader.opened["td"] == 3 * 4 * 10
    assert reader.opened["li"] == 3 * 10
    assert reader.opened["script"] == 1
    assert not re.search(r"https?:|src=|@import|url\(", page)
    assert "R6 4" in reader.texts
    ids = [re.search(r'id="([^"]+)"', batch_table(runs)._repr_html_()) for _ in range(2)]
    assert ids[0] is not None and ids[1] is not None
    assert ids[0][1] != ids[1][1]  # one cell run twice is two tables


def test_names_of_requests_are_text_and_never_markup():
    table = batch_table(analyses(spec([2, 3], labels=[EVIL, "two"])))
    reader = Reader()
    reader.feed(table._repr_html_())
    assert reader.opened["script"] == 1
    assert EVIL in str(table)


def test_nothing_to_show_is_an_empty_table():
    table = batch_table({})
    assert str(table) == ""
    assert "itersim-steps" in table._repr_html_()


def test_pictures_are_pngs():
    runs = analyses(shipped("six_requests"))
    for picture in (batches(runs, 1, 20), requests(runs), iterations(runs, 3)):
        assert picture._repr_png_().startswith(b"\x89PNG")


def test_summaries_are_the_metrics_of_every_point_scheduler_and_seed():
    table = summaries(shipped("lab", "horizon_s=20"), seeds=[1, 2])
    assert len(table) == 2 * 2 * 2
    assert set(table.point) == {"equal", "mixed"}
    equal = table[table.point == "equal"]
    assert (equal.idle_share == 0).all()
    runs = analyses(shipped("lab", "horizon_s=20"), seed=2, point="mixed")
    made = {name: int(one.rows.generated.sum()) for name, one in runs.items()}
    rows = table[(table.point == "mixed") & (table.seed == 2)].set_index("scheduler")
    assert rows.output_tokens.to_dict() == made
    some = summaries(shipped("lab", "horizon_s=20"), seeds=[2], schedulers=["static"])
    there = table[(table.scheduler == "static") & (table.seed == 2)].reset_index(drop=True)
    assert some.equals(there)


def test_what_is_not_there_is_told_with_what_is():
    with pytest.raises(FileNotFoundError, match=r"suite/knee"):
        shipped("labb")
    with pytest.raises(ValueError, match=r"no point 'odd'; it has equal, mixed"):
        analyses(shipped("lab"), point="odd")
    with pytest.raises(ValueError, match=r"no scheduler is called statik; there are static, cont"):
        summaries(shipped("lab"), schedulers=["statik"])


BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)


@pytest.mark.skipif(
    BROWSER is None or shutil.which("chromedriver") is None,
    reason="needs a browser: apt-get install chromium chromium-driver",
)
def test_buttons_keys_and_slider_go_through_the_steps(tmp_path):
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium")
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.common.keys import Keys

    page = tmp_path / "page.html"
    table = batch_table(analyses(spec([2, 3, 4], labels=[EVIL, "two", "three"])))
    html = f"<!doctype html><meta charset=utf-8>{table._repr_html_()}"
    page.write_text(html, encoding="utf-8")
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for flag in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage"):
        options.add_argument(flag)
    with webdriver.Chrome(options, Service(shutil.which("chromedriver"))) as browser:
        browser.get(page.as_uri())

        def at() -> str:
            return browser.find_element("css selector", "output").text

        def press(what: str) -> Any:
            button = browser.find_element("css selector", f'[data-do="{what}"]')
            button.click()
            return button

        assert at() == "step 1 of 7"
        step = press("step")
        step.send_keys(Keys.ARROW_RIGHT)
        assert at() == "step 3 of 7"
        press("back")
        slider = browser.find_element("css selector", "input")
        slider.send_keys(Keys.END)
        assert at() == "step 7 of 7"
        play = press("play")  # at the end it begins anew
        assert at() == "step 1 of 7"
        assert play.text == "pause"
        press("play")
        hidden = browser.find_elements("css selector", "td.later")
        assert len(hidden) == 2 * 2 * 6
        assert browser.execute_script("return window.hacked") is None
        assert not browser.get_log("browser")
