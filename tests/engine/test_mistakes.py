"""Mistakes of policies end with a message for their authors, never in silence or for ever."""

from collections.abc import Callable
from typing import Any

import pytest

from cotenant.errors import PolicyError
from cotenant.model.plan import EMPTY, Hold, Plan, Reason, Start, Stop, Why
from cotenant.model.view import View
from cotenant.testing import Harness


def run(decide: Callable[[View], Any], **job: Any) -> Any:
    policy = type("Mine", (), {"decide": lambda self, view: decide(view)})()
    h = Harness("1x2", policy)
    h.submit("a", runs_s=10.0, **job)
    return h.run()


def swap(view: View) -> Plan:
    """Starts and stops the same job for ever."""
    record = next(iter(view.records.values()), None)
    if record is None:
        return EMPTY
    step = Stop(record.id) if record.place else Start(record.id, (0,))
    return Plan((step,), again=True)


def on_head(answer: Callable[[int], Any]) -> Callable[[View], Any]:
    return lambda view: answer(view.head().id) if view.head() else EMPTY  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("decide", "words"),
    [
        (lambda view: None, r"Mine\.decide\(\) must return a Plan, found NoneType"),
        (lambda view: [], r"must return a Plan, found list"),
        (lambda view: Plan([]), r"decisions are a list, not a tuple"),  # type: ignore[arg-type]
        (lambda view: Plan(("go",)), r"'go', which is none of: Start, Stop"),  # type: ignore[arg-type]
        (on_head(lambda job: Plan((Start(job, [0]),))), r"devices must be a tuple"),  # type: ignore[arg-type]
        (on_head(lambda job: Plan((Hold(job, "because"),))), r"'because'; a Reason is needed: Reason\.NEVER"),  # type: ignore[arg-type]
        (on_head(lambda job: Plan((Start(job, (0,), why=Why("x", {"o": object()})),))), r"not plain JSON"),
        (swap, r"kept deciding at t=0 without coming to an end"),
        (lambda view: Plan(wake_at_s=view.now + 60.0), r"woken 10,000 times in a row and decided nothing"),
        # Their memo, or what they say of the job, is another one each time: no job is better off for it.
        (
            lambda view: Plan(memo=(view.memo or 0) + 1, wake_at_s=view.now + 60.0),
            r"decided nothing that lets a job run or end \(memos.*1 jobs waiting and nothing else to come",
        ),
        (
            lambda view: Plan(
                (Hold(0, Reason.NO_CAPACITY if view.now % 2 else Reason.HOST),), wake_at_s=view.now + 1
            ),
            r"Mine was woken 10,000 times in a row",
        ),
    ],
)
def test_a_wrong_answer_is_named(decide: Callable[[View], Any], words: str) -> None:
    with pytest.raises(PolicyError, match=words):
        run(decide)


def test_a_round_policy_that_always_asks_to_be_woken_comes_to_an_end() -> None:
    def rounds(view: View) -> Plan:
        head = view.head()
        starts = () if head is None else (Start(head.id, (0,)),)
        return Plan(starts, wake_at_s=view.now + 60.0)

    done = run(rounds)
    assert done.end_s("a") == 10.0
    # The wake at 60 finds nobody left.
    assert done.state.now <= 60.0


def test_a_policy_may_save_memos_for_long_while_jobs_run_and_end() -> None:
    def counting(view: View) -> Plan:
        head, count = view.head(), (view.memo or 0) + 1
        starts = () if head is None else (Start(head.id, (0,)),)
        return Plan(starts, memo=count, wake_at_s=view.now + 0.0005)

    # 20,000 wakes while the job runs.
    done = run(counting)
    assert done.end_s("a") == 10.0
    assert done.state.memo >= 20_000


def test_find_answers_none_for_a_job_that_needs_no_device() -> None:
    seen = []

    def look(view: View) -> Plan:
        head = view.head()
        if head is None:
            return EMPTY
        seen.append(view.find(head))
        return Plan((Start(head.id, (), node=view.find_node(head)),))

    assert run(look, gpus=0, cpu_milli=500).end_s("a") == 10.0
    assert seen == [None]


def test_a_reason_to_hold_is_logged_as_its_value() -> None:
    def wait_then_start(view: View) -> Plan:
        head = view.head()
        if head is None:
            return EMPTY
        if view.now < 5.0:
            return Plan((Hold(head.id, Reason.NOT_WORTH_IT),), wake_at_s=5.0)
        return Plan((Start(head.id, (0,)),))

    done = run(wait_then_start)
    assert done.reasons("a") == [Reason.NOT_WORTH_IT]
    assert done.start_s("a") == 5.0
