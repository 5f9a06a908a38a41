"""A run leaves the collector of cyclic garbage as it found it."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from cotenant.engine.collector import seldom_collected


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    threshold, on, frozen = gc.get_threshold(), gc.isenabled(), gc.get_freeze_count()
    gc.unfreeze()  # the suite has frozen what it collected
    yield
    gc.set_threshold(*threshold)
    gc.enable() if on else gc.disable()
    gc.unfreeze()
    if frozen:
        gc.freeze()


def test_it_is_rarer_within_and_as_before_after_an_error() -> None:
    gc.enable()
    gc.set_threshold(700, 10, 5)
    with pytest.raises(ZeroDivisionError), seldom_collected():
        assert gc.get_threshold() == (50_000, 10, 5)
        assert gc.get_freeze_count() > 0
        with seldom_collected():  # a run within a run
            assert gc.get_threshold() == (50_000, 10, 5)
        assert gc.get_freeze_count() > 0
        1 / 0  # noqa: B018
    assert gc.get_threshold() == (700, 10, 5)
    assert gc.get_freeze_count() == 0
    assert gc.isenabled()


@pytest.mark.parametrize("threshold", [0, 50_000, 90_000])
def test_what_the_user_chose_stays(threshold: int) -> None:
    gc.set_threshold(threshold, 10, 5)
    with seldom_collected():
        assert gc.get_threshold() == (threshold, 10, 5)
        assert gc.get_freeze_count() == 0


def test_off_stays_off_and_what_the_user_froze_stays_frozen() -> None:
    gc.disable()
    gc.set_threshold(700, 10, 5)
    with seldom_collected():
        assert (gc.isenabled(), gc.get_threshold()[0], gc.get_freeze_count()) == (False, 700, 0)
    gc.enable()
    gc.freeze()
    with seldom_collected():
        assert gc.get_threshold()[0] == 700
    assert gc.get_freeze_count() > 0
