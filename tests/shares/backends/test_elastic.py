"""The elastic controller, on a device that does what it is told, or not quite."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.shares.backends.elastic import EVERY_S, ElasticController, water_fill


class World:
    """Jobs that want something, and a mechanism that lets through ``leak`` times what is allowed."""

    def __init__(self, leak: float = 1.0) -> None:
        self.controller = ElasticController()
        self.wants: dict[int, float] = {}
        self.leak = leak

    def come(self, who: int, guaranteed: float, limit: float, want: float) -> None:
        self.controller.join(who, guaranteed, limit)
        self.wants[who] = want

    def step(self) -> dict[int, float]:
        allowed = self.controller.allowed()
        asked = {who: min(want, allowed[who] * self.leak) for who, want in self.wants.items()}
        scale = min(1.0, 1000.0 / max(sum(asked.values()), 1.0))
        used = {who: amount * scale for who, amount in asked.items()}
        self.controller.look(used)
        return used

    def run(self, steps: int) -> dict[int, float]:
        for _ in range(steps):
            used = self.step()
        return used


def test_idle_time_is_lent_and_taken_back_within_two_looks() -> None:
    world = World()
    world.come(1, 300, 1000, 1000)
    assert world.run(1)[1] == 1000, "alone it may use all"
    world.come(2, 500, 500, 1000)
    used = world.run(2)
    assert used[1] == pytest.approx(500, abs=30) and used[2] == pytest.approx(500, abs=30)
    world.wants[2] = 0.0
    assert world.run(round(3.0 / EVERY_S))[1] > 940, "what is not used is lent"
    world.wants[2] = 1000.0
    used = world.run(3)
    assert used[2] == pytest.approx(500, abs=50), "its owner has it back at once"


@pytest.mark.parametrize("leak", [0.95, 1.0, 1.2])
def test_the_integral_part_makes_up_for_a_mechanism_that_is_not_exact(leak: float) -> None:
    world = World(leak)
    world.come(1, 200, 1000, 1000)
    world.come(2, 300, 300, 1000)
    world.come(3, 400, 400, 1000)
    used = world.run(round(8.0 / EVERY_S))
    targets = {1: 300.0, 2: 300.0, 3: 400.0}
    assert used == {who: pytest.approx(target, abs=25) for who, target in targets.items()}


def test_a_limit_is_a_ceiling_even_on_an_idle_device() -> None:
    world = World()
    world.come(1, 300, 450, 1000)
    world.come(2, 300, 1000, 0)
    assert world.run(40)[1] <= 460


def test_a_share_that_changes_holds_from_the_next_look_on() -> None:
    world = World()
    world.come(1, 500, 500, 1000)
    world.come(2, 500, 500, 1000)
    world.run(10)
    world.controller.join(1, 200, 200)
    world.controller.join(2, 800, 800)
    used = world.run(2)
    assert used[1] == pytest.approx(200, abs=20) and used[2] == pytest.approx(800, abs=30)


def test_one_with_long_steps_is_believed_that_it_was_held_back() -> None:
    controller = ElasticController()
    controller.join(1, 300, 1000)
    controller.join(2, 500, 500)
    for step in range(24):
        # Steps of 600 ms: between most looks nothing ends, then a whole step does.
        controller.look(
            {1: 2400.0 if step % 5 == 0 else 0.0, 2: 2400.0 if step % 5 == 2 else 0.0}, {1: True, 2: True}
        )
        assert controller.allowed() == {1: 500, 2: 500}


def test_one_that_cannot_be_measured_keeps_what_it_has() -> None:
    controller = ElasticController()
    controller.join(1, 400, 400)
    controller.join(2, 400, 1000)
    controller.look({2: 400.0})
    assert controller.allowed()[1] == 400


def test_one_that_leaves_leaves_its_part() -> None:
    world = World()
    world.come(1, 300, 1000, 1000)
    world.come(2, 500, 500, 1000)
    world.run(5)
    world.controller.leave(2)
    del world.wants[2]
    assert world.controller.allowed() == {1: 1000}


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 240), st.integers(0, 1000), st.floats(0, 1000)), min_size=1, max_size=4
    ),
    st.integers(1, 30),
)
def test_guarantees_are_always_allowed_and_limits_never_passed(
    jobs: list[tuple[int, int, float]], steps: int
) -> None:
    world = World()
    for who, (guaranteed, more, wanted) in enumerate(jobs):
        world.come(who, guaranteed, min(guaranteed + more, 1000), wanted)
    for _ in range(steps):
        world.step()
        allowed = world.controller.allowed()
        for who, (guaranteed, more, _wanted) in enumerate(jobs):
            # 150: what the integral part may add where the mechanism lets too little through, or take.
            assert guaranteed * 0.2 - 1 <= allowed[who] <= min(guaranteed + more, 1000) + 150


@settings(max_examples=100, deadline=None)
@given(
    st.floats(0, 1000),
    st.dictionaries(st.integers(0, 9), st.tuples(st.floats(1, 100), st.floats(0, 500)), max_size=6),
)
def test_water_filling_gives_out_all_or_what_is_claimed(
    room: float, claims: dict[int, tuple[float, float]]
) -> None:
    given_out = water_fill(room, claims)
    assert all(-1e-6 <= given_out[who] <= claim + 1e-6 for who, (_, claim) in claims.items())
    assert sum(given_out.values()) == pytest.approx(min(room, sum(c for _, c in claims.values())), abs=1e-4)
