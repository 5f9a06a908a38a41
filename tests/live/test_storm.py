"""A storm of kill -9 on the scheduler under load: each job finishes exactly once.

Small in every run; ``COTENANT_STORM=200`` is the whole: 200 kills, 1,000 jobs.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from cotenant.live.store import open_store
from cotenant.model import events as ev

KILLS = int(os.environ.get("COTENANT_STORM", "5"))
JOBS = 1000 if KILLS >= 200 else 12 * KILLS
PATIENCE_S = 240.0 + 6.0 * KILLS


def submit_all(scheduler: Any, line: str, ended: threading.Event) -> None:
    """Submit job after job, each with a key of its own, again and again until it is answered."""
    for number in range(JOBS):
        job = {"name": f"storm-{number}", "command": ["/bin/sh", "-c", line.format(number=number)], "gpus": 0}
        while not ended.is_set():
            try:
                answer = scheduler.ask("POST", "/v1/jobs", {"jobs": [{"key": f"storm-{number}", "job": job}]})
                if answer.status_code == 201 and "id" in answer.json()["jobs"][0]:
                    break
            except httpx.HTTPError:
                time.sleep(0.02)


@pytest.mark.slow
def test_of_many_kills_no_job_is_lost_and_none_runs_twice(
    make_scheduler: Callable[..., Any], tmp_path: Path
) -> None:
    scheduler = make_scheduler("--policy", "fifo")
    scheduler.start()
    marks, drawn, ended = tmp_path / "marks", random.Random(7), threading.Event()
    # One write of one line: what two runs of one job would show as two lines.
    line = f"sleep 0.$(({{number}} % 7)); echo {{number}} >> {marks}"
    client = threading.Thread(target=submit_all, args=(scheduler, line, ended), daemon=True)
    client.start()
    try:
        for _ in range(KILLS):
            time.sleep(drawn.uniform(0.0, 0.8))
            scheduler.kill()
            scheduler.start()
        client.join(PATIENCE_S)
        assert not client.is_alive(), scheduler.said()

        def all_done() -> bool:
            counts = scheduler.ask("GET", "/v1/status").json()["counts"]
            return bool(counts["done"] == JOBS)

        scheduler.until(
            all_done, lambda: f"{scheduler.ask('GET', '/v1/status').json()['counts']}", patience_s=PATIENCE_S
        )
    finally:
        ended.set()
    written = Counter(marks.read_text().split())
    assert written == Counter(str(number) for number in range(JOBS))
    scheduler.stop()
    check_log(scheduler.state)


def check_log(state: Path) -> None:
    """Every job ended once, done, in its first attempt; and the log has one leader after the other."""
    ends, attempts, epochs = Counter[int](), Counter[int](), list[int]()
    store = open_store(state / "cotenant.db", create=False)
    for _, event in store.read():
        if isinstance(event, ev.Ended):
            assert event.outcome == "done"
            ends[event.id] += 1
        elif isinstance(event, ev.Started):
            attempts[event.id] += 1
        elif isinstance(event, ev.Restarted):
            epochs.append(event.epoch)
    store.close()
    assert ends == Counter(range(JOBS))
    assert attempts == Counter(range(JOBS))
    assert epochs == sorted(set(epochs))
    assert len(epochs) >= KILLS
