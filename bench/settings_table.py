"""What each setting does to one and the same trace: the tables of ``docs/settings.md``.

::

    python bench/settings_table.py ../shared/data/traces/common/common-n2000-g64.csv.gz

runs the trace under each change and pastes the tables between the markers of the page.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

import cotenant
from cotenant.model import events as ev
from cotenant.model.cluster import Cluster, DeviceType, Node
from cotenant.model.quantities import GIB
from cotenant.model.settings import Settings
from cotenant.model.workload import Workload

PAGE = Path(__file__).resolve().parent.parent / "docs" / "settings.md"
HOUR = 3600.0
V100 = DeviceType(name="V100", memory_bytes=32 * GIB)


class Row(msgspec.Struct):
    """One run: what differs from the first row of its table."""

    change: str
    policy: str = "fifo"
    settings: dict[str, Any] = {}
    cluster: Cluster = Cluster.uniform(64, gpu_type=V100)
    models: bool = False
    """Whether jobs have models, hence memory and speeds beside each other."""
    incidents: tuple[ev.Event, ...] = ()
    runtime: str = "perfect"


def mixed(memory_gib: int = 32) -> Cluster:
    """Four nodes of 8 slow devices, four of 8 fast ones; the slow ones listed first."""
    slow = DeviceType(name="slow", memory_bytes=memory_gib * GIB, speed=0.5)
    fast = DeviceType(name="fast", memory_bytes=32 * GIB, speed=1.0)
    nodes = tuple(Node(name=f"n{i}", gpus=(("slow" if i < 4 else "fast", 8),)) for i in range(8))
    return Cluster(nodes=nodes, types=(slow, fast))


def failures() -> tuple[ev.Event, ...]:
    """Every 12 hours one node, in turn, is down for an hour."""
    found: list[ev.Event] = []
    for i in range(14):
        at = 6 * HOUR + 12 * HOUR * i
        found += [ev.NodeDown(at, i % 8, "power"), ev.NodeUp(at + HOUR, i % 8)]
    return tuple(found)


def vary(first: Row, changes: Sequence[tuple[str, dict[str, Any]]]) -> list[Row]:
    """The first row, and one row for each changed setting."""
    rows = [first]
    for change, fields in changes:
        settings = {**first.settings, **fields.pop("settings", {})}
        rows.append(msgspec.structs.replace(first, change=change, settings=settings, **fields))
    return rows


def settings_only(*changes: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Rows that change settings alone, named by them."""
    return [
        (
            ", ".join(f"`{k}={v:g}`" if isinstance(v, (int, float)) else f"`{k}={v}`" for k, v in c.items()),
            {"settings": c},
        )
        for c in changes
    ]


def tables() -> dict[str, Callable[[], list[Row]]]:
    """Tables by name of their markers."""
    one_node = {"cluster": Cluster.uniform(64, gpus_per_node=64, gpu_type=V100)}
    return {
        "order": lambda: vary(
            Row("8 nodes of 8, strict order"),
            [
                ("one node of 64, strict order", one_node),
                ("8 nodes of 8, `head_of_line=false`", {"policy": "fifo:head_of_line=false"}),
                ("one node of 64, `head_of_line=false`", {**one_node, "policy": "fifo:head_of_line=false"}),
                ("8 nodes of 8, `backfill` with exact running times", {"policy": "backfill"}),
            ],
        ),
        "gangs": lambda: vary(
            Row("`gang_span=larger-than-node` (default)"),
            settings_only(
                {"gang_span": "never"},
                {"gang_span": "any", "span_speed": 0.8},
                {"gang_span": "any", "span_speed": 1.0},
                {"gang_span": "any", "span_speed": 0.5},
            ),
        ),
        "time": lambda: vary(
            Row("decide at every event, no delays (default)", policy="fifo:head_of_line=false"),
            settings_only(
                {"round_s": 60.0},
                {"round_s": 300.0},
                {"round_s": 360.0, "starts_per_event": 1},
                {"starts_per_event": 1},
                {"decision_latency_s": 10.0},
                {"start_s": 30.0},
                {"start_s": 120.0},
            ),
        ),
        "suspend": lambda: vary(
            Row("defaults: `restore_s=10`, `state_bytes_per_s=1e9`", policy="srtf", models=True),
            settings_only(
                {"restore_s": 0.0, "state_fraction": 1e-9},
                {"restore_s": 60.0},
                {"restore_s": 300.0},
                {"state_bytes_per_s": 1e8},
                {"state_fraction": 0.3},
                {"min_quantum_s": 600.0},
                {"min_quantum_s": 3600.0},
            ),
        ),
        "sharing": lambda: vary(
            Row("`colocate`, `max_sharers=4` (default)", policy="colocate", models=True),
            [
                *settings_only({"max_sharers": 2}, {"max_sharers": 1}),
                ("`time-slice`, `slice_s=60`, `slice_switch_s=0.6` (default)", {"policy": "time-slice"}),
                ("`time-slice`, `slice_s=10`", {"policy": "time-slice", "settings": {"slice_s": 10.0}}),
                (
                    "`time-slice`, `slice_switch_s=6`",
                    {"policy": "time-slice", "settings": {"slice_switch_s": 6.0}},
                ),
            ],
        ),
        "failures": lambda: vary(
            Row("no failures", policy="fifo:head_of_line=false"),
            [
                ("a node down for 1 h every 12 h, `checkpoint_s=0` (default)", {"incidents": failures()}),
                (
                    "the same, `checkpoint_s=600`",
                    {"incidents": failures(), "settings": {"checkpoint_s": 600.0}},
                ),
                ("the same, `retry_lost=0`", {"incidents": failures(), "settings": {"retry_lost": 0}}),
            ],
        ),
        "samples": lambda: vary(
            Row("no samples, lengths of jobs that ended (`--runtime history`)", "srtf", runtime="history"),
            [
                *settings_only({"sample_s": 30.0}, {"sample_s": 300.0}, {"sample_s": 1800.0}),
                *settings_only(
                    {"sample_s": 30.0, "sample_noise": 0.0}, {"sample_s": 30.0, "sample_noise": 0.3}
                ),
                ("no samples, exact running times (`--runtime perfect`)", {"runtime": "perfect"}),
            ],
        ),
        "types": lambda: vary(
            Row("`type_order=fastest` (default)", policy="fifo:head_of_line=false", cluster=mixed()),
            [
                *settings_only({"type_order": "slowest"}, {"type_order": "declared"}),
                (
                    "`type_order=largest-memory`, the slow devices with 80 GiB",
                    {"cluster": mixed(80), "settings": {"type_order": "largest-memory"}},
                ),
            ],
        ),
    }


def run(row: Row, plain: Workload, with_models: Workload) -> str:
    """One line of a table."""
    summary = cotenant.simulate(
        with_models if row.models else plain,
        row.cluster,
        row.policy,
        settings=Settings(**row.settings),
        runtime=row.runtime,
        incidents=row.incidents,
    ).summary
    cells = [f"{summary[k]:,.1f}" for k in ("jct_s_mean", "wait_s_mean", "makespan_s")]
    counts = [f"{summary[k]:,}" for k in ("jobs_finished", "preemptions")]
    return f"| {row.policy} | {row.change} | " + " | ".join([*cells, *counts]) + " |"


def table(rows: Sequence[Row], plain: Workload, with_models: Workload) -> str:
    """A Markdown table."""
    head = "| policy | setting | mean JCT (s) | mean wait (s) | makespan (s) | finished | preemptions |\n"
    head += "| --- | --- | ---: | ---: | ---: | ---: | ---: |\n"
    return head + "".join(run(row, plain, with_models) + "\n" for row in rows)


def paste(page: str, name: str, text: str) -> str:
    """The page with the text between the markers of this name."""
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"
    before, found, rest = page.partition(begin)
    old, closed, after = rest.partition(end)
    if not found or not closed:
        raise SystemExit(f"{PAGE.name} lacks the markers of table {name!r}")
    del old
    return before + begin + "\n" + text + "\n" + end + after


def main() -> None:
    """Run all and paste."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--only", nargs="*", default=list(tables()), help="names of tables")
    args = parser.parse_args()
    trace = args.trace
    plain, with_models = cotenant.load(trace, models="none"), cotenant.load(trace)
    page = PAGE.read_text(encoding="utf-8")
    for name in args.only:
        rows = tables()[name]
        page = paste(page, name, table(rows(), plain, with_models))
        print(f"{name}: done")
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
