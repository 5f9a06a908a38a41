"""The HTML report: one file, escaped, complete, and drawn by a real browser."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from cotenant.model import events as ev
from cotenant.model.cluster import Cluster
from cotenant.model.jobs import Job
from cotenant.model.plan import Reason
from cotenant.report.html import build_report
from cotenant.report.page import el, script_json

VOID = {"meta", "br", "link", "img", "input", "hr"}


class Checker(HTMLParser):
    """Counts tags, sees that they nest, and keeps what would be loaded from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.count: dict[str, int] = {}
        self.loads: list[str] = []
        self.text: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.count[tag] = self.count.get(tag, 0) + 1
        for name, value in attrs:
            if name in ("src", "srcset") or (name == "href" and not str(value).startswith("#")):
                self.loads.append(f"{tag} {name}={value}")
            assert not name.startswith("on"), name
            if name == "id":
                self.ids.append(value)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("script", "style"):
            self.text.append(data)


def checked(path: Path) -> Checker:
    checker = Checker()
    checker.feed(path.read_text(encoding="utf-8"))
    checker.close()
    assert checker.open == []
    assert len(set(checker.ids)) == len(checker.ids)
    return checker


REPORT = {
    "format": "native",
    "path": "<img src=x onerror=alert(1)>.csv",
    "rows_read": 12,
    "rows_kept": 8,
    "dropped": [{"reason": "no <b>name</b>", "rows": 4, "example_line": 3}],
}


@pytest.fixture
def report(make_runs) -> Path:
    directory = make_runs(
        {
            "fifo": {1: [100, 300, 0, 0, 50, 0, 0, 9], 2: [90, 310, 0, 0, 40, 0, 0, 9]},
            "<u>x": {1: [0] * 8, 2: [0] * 8},
        },
        assumptions=["Models are drawn from <table 1>."],
        data_report=REPORT,
        settings={"max_sharers": 2},
        inputs=[{"path": "jobs.csv", "sha256": "ab" * 32}],
    )
    return build_report(directory)


def test_one_file_that_loads_nothing(report):
    found = checked(report)
    assert found.loads == []
    assert found.count["script"] == 3  # data, library, our own
    assert report.stat().st_size < 3_000_000
    assert "default-src 'none'" in report.read_text(encoding="utf-8")


def test_hostile_text_stays_text(report):
    found = checked(report)
    page = report.read_text(encoding="utf-8")
    for tag in ("i", "b", "u", "img"):
        assert tag not in found.count, tag
    assert "<script>alert(1)" not in page
    text = " ".join(found.text)
    assert "<i>red</i>" in text  # a tenant
    assert "no <b>name</b>" in text
    assert "\x1b" not in page
    assert "\u202e" not in page
    specs = json.loads(re.search(r'id="specs">(.*?)</script>', page, re.DOTALL).group(1))
    drawn = json.dumps(specs)
    assert "<script>alert(1)</script>" in drawn
    assert "\\\\x1b[31mred" in drawn


def test_it_says_what_is_needed_to_trust_and_repeat_it(report):
    text = " ".join(checked(report).text)
    for part in (
        "cotenant simulate jobs.csv",
        "Models are drawn from <table 1>.",
        "12 rows read, 8 kept",
        "max_sharers",
        "sha256 " + "ab" * 32,
        "95 % interval",
        "baseline",
        "(better)",
    ):
        assert part in text, part


def test_every_table_has_headers_and_every_chart_a_description(report):
    page = re.sub(r"<script.*?</script>", "", report.read_text(encoding="utf-8"), flags=re.DOTALL)
    tables = re.findall(r"<table.*?</table>", page, re.DOTALL)
    assert tables
    for found in tables:
        assert "<caption>" in found
        assert 'scope="col"' in found
    for chart in re.findall(r'<div id="chart-[^>]*>', page):
        assert re.search(r'aria-label="[^"]{20,}"', chart), chart
        assert 'role="img"' in chart


def test_summary_tables_lie_beside_it(report):
    lines = (report.parent / "summary.csv").read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("policy,metric,mean,low_95,high_95")
    assert (report.parent / "summary.parquet").is_file()


def test_seeds_that_change_nothing_count_as_one_run(make_runs):
    page = build_report(make_runs({"a": {1: [5.0], 2: [5.0]}, "b": {1: [0.0], 2: [0.0]}}))
    text = " ".join(checked(page).text)
    assert "all seeds gave the same result" in text
    assert "one seed, so no interval" in text
    assert "n = 1" in text


def test_building_twice_gives_the_same_bytes(report):
    before = report.read_bytes()
    assert build_report(report.parent).read_bytes() == before


@pytest.mark.parametrize(
    "extra",
    [
        [],
        [ev.Submitted(0.0, Job(0, "a", 0.0)), ev.Rejected(0.0, 0, "never-fits")],
        [ev.Submitted(0.0, Job(0, "a", 0.0)), ev.PriorityChanged(5.0, 0, 1)],
        [ev.Submitted(0.0, Job(0, "a", 0.0)), ev.Started(0.0, 0, 1, (0,)), ev.Ended(5.0, 0, 1, "done", 5.0)],
    ],
    ids=["no jobs", "rejected", "nothing started", "one job"],
)
def test_empty_runs_say_n_a(tmp_path, extra):
    folder = tmp_path / "runs" / "fifo" / "seed-1"
    folder.mkdir(parents=True)
    opened = ev.Opened(0.0, ev.SCHEMA, "0", 1, "fifo", {}, {}, Cluster.uniform(2), {}, {}, {})
    (folder / "events.jsonl").write_bytes(b"".join(ev.encode_event(e) + b"\n" for e in [opened, *extra]))
    text = " ".join(checked(build_report(tmp_path)).text)
    assert "n/a" in text
    assert "NaN" not in text
    assert "nan" not in re.findall(r"\b\w+\b", text)
    assert "Incomplete logs" in text


def test_elements_escape_text_and_attributes():
    assert el("td", "<&>", title='"') == '<td title="&quot;">&lt;&amp;&gt;</td>'
    assert "</script" not in script_json({"a": "</script><!--"})
    assert json.loads(script_json({"a": "</script>\u2028"})) == {"a": "</script>\u2028"}


@pytest.mark.browser
@pytest.mark.parametrize("width", [1400, 390])
def test_a_browser_draws_every_chart(report, in_browser, width):
    dom = in_browser(report, width)
    page = dom
    boxes = re.findall(r'<div id="chart-[^"]*"', page)
    assert len(boxes) == 11  # 4 common ones, 4 for each of two policies, less one: nobody waits under <u>x
    assert page.count("<svg") + page.count("<canvas") >= len(boxes)
    assert ">This chart could not be drawn" not in page
    assert "alert(1)" in page  # as text
    assert "<script>alert(1)" not in page


def test_the_detail_picture_never_shows_a_busy_device_as_idle(monkeypatch):
    import polars as pl

    from cotenant.report import devicecharts

    monkeypatch.setattr(devicecharts, "GANTT_SEGMENTS", 2)
    stays = pl.DataFrame(
        {"device": [0, 1, 0], "id": [0, 1, 2], "from_s": [0.0, 0.0, 10.0], "to_s": [5.0, 99.0, 20.0]}
    )
    # The third stay begins at 10 s and is not shown, so nothing is shown beyond 10 s.
    assert devicecharts._first_stays(stays)["to_s"].to_list() == [5.0, 10.0]


def test_refused_decisions_and_jobs_that_never_started_are_a_warning(tmp_path):
    folder = tmp_path / "runs" / "p" / "seed-1"
    folder.mkdir(parents=True)
    events = [
        ev.Opened(0.0, ev.SCHEMA, "0", 1, "p", {}, {}, Cluster.uniform(2), {}, {}, {}),
        ev.Submitted(0.0, Job(0, "a", 0.0)),
        ev.Refused(0.0, 0, "start", Reason.MEMORY),
        ev.Closed(5.0, 4, 1, 0, waiting=1),
    ]
    (folder / "events.jsonl").write_bytes(b"".join(ev.encode_event(e) + b"\n" for e in events))
    page = build_report(tmp_path).read_text()
    assert "p: 1 of 1 jobs never started; 1 decision refused: memory (1)." in page
