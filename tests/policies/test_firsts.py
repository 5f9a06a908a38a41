"""Jobs of which only the first matters, against a sorted list."""

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.model.records import order_key
from cotenant.policies.queues.firsts import Firsts


@dataclass(eq=False)
class Fake:
    """As much of a record as a queue looks at."""

    id: int
    key: int
    status: int = 0


@given(st.lists(st.tuples(st.sampled_from("nnnsslprr"), st.integers(0, 9)), max_size=80))
@settings(max_examples=200, deadline=None)
def test_the_head_is_always_the_first_of_the_living(steps: list[tuple[str, int]]) -> None:
    line, waiting, away, made = Firsts(), [], [], 0
    for what, number in steps:
        if what == "n":  # a new job, now and then one of higher priority
            waiting.append(Fake(made, order_key(made, number // 8)))
            line.push(waiting[-1])
            made += 1
        elif what == "r" and away:  # a job returns
            job = away.pop(number % len(away))
            job.status = 0
            waiting.append(job)
            line.push(job)
        elif waiting:
            waiting.sort(key=lambda job: job.key)
            job = waiting.pop(0 if what == "s" else number % len(waiting))
            if what == "p":  # its priority changes while it waits
                line.left(job)
                job.key = order_key(job.id, 5 - number)
                waiting.append(job)
                line.push(job)
            else:  # it starts or is cancelled
                job.status = 1
                first = line.head is job
                assert line.left(job) == first
                away.append(job)
        assert line.count == len(waiting)
        assert line.head is min(waiting, key=lambda job: job.key, default=None)


def test_jobs_that_left_from_the_middle_are_swept() -> None:
    line = Firsts()
    first = Fake(0, (0, 0))
    line.push(first)
    for i in range(1, 5000):
        job = Fake(i, (0, i))
        line.push(job)
        job.status = 1
        line.left(job)
    # The head alone lives; at most 2 x 1 + 64 entries may lie behind it, and the one just added.
    assert len(line._line) + len(line._late) <= 2 * 2 + 64 + 1
    assert line.head is first
