"""Gandiva: where jobs go, fair turns, packing by measurement, moves, growth; all numbers by hand."""

from __future__ import annotations

import pytest

from cotenant.checks import check_policy
from cotenant.checks.scenarios import scenario
from cotenant.errors import ConfigError
from cotenant.model import events as ev
from cotenant.model.plan import Reason
from cotenant.model.quantities import GIB
from cotenant.model.records import JobRecord
from cotenant.model.settings import Settings
from cotenant.model.shape import host_fits
from cotenant.model.view import View
from cotenant.policies.gandiva import Gandiva
from cotenant.policies.published.affinity import Affinity
from cotenant.policies.queues.classwise import Offer
from cotenant.policies.queues.demands import Family
from cotenant.testing import FixedForecast, FixedTruth, Harness, HarnessRun

CHEAP = Settings(restore_s=0.5, state_bytes_per_s=1e9, slice_switch_s=0.6, gang_span="any")
"""With 1 GB of state a move costs 1 s of saving, 1 s of loading and 0.5 s of warming up: 2.5 s in all."""
TRUTH = FixedTruth(
    {
        ("light", ("light",)): 0.9,
        ("light", ("heavy",)): 0.5,
        ("heavy", ("light",)): 0.45,
        ("heavy", ("heavy",)): 0.4,
    }
)
TURN = 60.0 / 60.6
"""Part of the time that is not lost to switching, with turns of 60 s and 0.6 s to switch."""


def day(cluster: str, policy: Gandiva, settings: Settings = CHEAP, **options: object) -> Harness:
    return Harness(cluster, policy, settings=settings, memory_bytes=16 * GIB, **options)  # type: ignore[arg-type]


def submit(h: Harness, name: str, **fields: object) -> None:
    h.submit(name, **({"memory_bytes": 6 * GIB, "state_bytes": 10**9, "model": "light"} | fields))  # type: ignore[arg-type]


def rules_of(run: HarnessRun, kind: type) -> list[tuple[float, int, str]]:
    return [(e.t, e.id, e.why.rule) for e in run.events if isinstance(e, kind)]


# -- reactive mode ---------------------------------------------------------------------


def test_node_choice_in_the_published_order() -> None:
    h = day("3x4", Gandiva(max_residents=2, migration=False, packing=False))
    for name, gpus in (("a", 1), ("b", 2), ("c", 1), ("d", 4), ("e", 2), ("f", 2), ("g", 1), ("h", 2)):
        submit(h, name, gpus=gpus, runs_s=1000.0)
    for name in "ijk":
        submit(h, name, gpus=4, runs_s=1000.0)
    run = h.run()
    # a opens server 0, b server 1; c joins its like on 0; d opens server 2; e joins b. f finds no
    # server of its own with room, and takes what is left of server 0. Then turns: g beside a, h
    # beside b (lowest device of those with fewest), i beside d; j and k find d's devices full.
    assert [run.devices(n) for n in "abcdefghi"] == [
        (0,),
        (4, 5),
        (1,),
        (8, 9, 10, 11),
        (6, 7),
        (2, 3),
        (0,),
        (2, 3),
        (8, 9, 10, 11),
    ]
    assert [e.why.rule for e in run.events if isinstance(e, ev.Started)][:9] == [
        "unassigned-server",
        "unassigned-server",
        "same-affinity",
        "unassigned-server",
        "same-affinity",
        "any-server",
        "over-subscribed",
        "over-subscribed",
        "over-subscribed",
    ]
    assert run.reasons("j") == [Reason.NO_CAPACITY]


def test_jobs_of_unknown_memory_get_whole_devices() -> None:
    h = day("1x1", Gandiva())
    submit(h, "a", runs_s=100.0, memory_bytes=0)
    submit(h, "b", runs_s=10.0)
    run = h.run()
    assert run.of("a", ev.Started)[0].share is None
    assert run.start_s("b") == 100.0


class _Checked(Gandiva):
    """Compares every choice of free devices with one made by looking at every server."""

    def offer(self, view: View, family: Family, record: JobRecord) -> Offer | None:
        shape = record.shape
        if shape.gpus:
            found = view.index(Affinity).find(shape, whole=True)
            bays = []
            for bay in range(len(view.layout.bay_node)):
                first, size = view.layout.bay_first[bay], view.layout.bay_size[bay]
                on = sorted({j for d in range(first, first + size) for j in view.residents(d)})
                free = view.ledger.whole[bay].bit_count()
                if free >= shape.gpus and host_fits(view.ledger, shape, bay, shape.gpus):
                    affinity = view.records[on[0]].shape.gpus if on else 0
                    kind = view.layout.bay_type[bay]
                    order = shape.types.index(kind) if kind in shape.types else -1
                    bays.append((affinity, order, 1.0 - free / size if on else size, bay))
            for wanted in (shape.gpus, 0):
                of_affinity = sorted(b[1:] for b in bays if b[0] == wanted and b[1] >= 0)
                if of_affinity:
                    assert found is not None
                    assert view.layout.device_bay[found.devices[0]] == of_affinity[0][2]
                    break
            else:
                assert found is None or found.rule == "any-server"
        return super().offer(view, family, record)


def test_the_index_of_affinities_answers_as_a_look_at_every_server() -> None:
    seen = 0
    for number in range(25):
        run = scenario(number, _Checked).run()
        seen += sum(isinstance(e, ev.Started) for e in run.events)
    assert seen > 200


# -- turns -------------------------------------------------------------------------------


def test_six_jobs_on_four_devices_get_equal_shares_and_lose_two_per_cent_at_most() -> None:
    # 6 jobs of 4800 s on 4 devices: 7200 s with equal shares of 4/6 and no loss.
    h = day("1x4", Gandiva(period_s=60.0, packing=False))
    for i in range(6):
        submit(h, f"j{i}", runs_s=4800.0)
    run = h.run()
    shares = [4800.0 / (run.end_s(f"j{i}") or 0.0) for i in range(6)]
    assert max(shares) / min(shares) - 1.0 <= 0.05
    assert sum(4800.0 for _ in shares) / (4 * max(run.end_s(f"j{i}") or 0.0 for i in range(6))) >= 0.98
    assert {rule for _, _, rule in rules_of(run, ev.Moved)} >= {"fair-turns"}
    assert not run.refusals()


def test_without_moves_who_came_first_keeps_a_device_to_itself() -> None:
    # The same day without migration: e and f are alone all the time, a to d have half each.
    h = day("1x4", Gandiva(migration=False, packing=False))
    for i in range(6):
        submit(h, f"j{i}", runs_s=4800.0)
    run = h.run()
    assert [run.end_s(f"j{i}") for i in (2, 3)] == [4800.0, 4800.0]
    assert run.end_s("j0") == pytest.approx(2 * 4800.0 / TURN)


# -- packing -----------------------------------------------------------------------------


def packed_day(**options: object) -> HarnessRun:
    h = day("1x2", Gandiva(), truth=TRUTH, **options)
    for i, model in enumerate(("light", "heavy", "light", "heavy")):
        submit(h, f"j{i}", runs_s=2000.0, model=model)
    return h.run()


def test_a_pair_is_kept_if_its_speeds_add_up_and_undone_if_not() -> None:
    run = packed_day()
    resized = [(t, job, rule) for t, job, rule in rules_of(run, ev.Resized) if rule]
    # Light jobs are on device 0, heavy ones on 1. At the first look both pairs are put on trial;
    # a minute later 0.9 + 0.9 is kept, 0.4 + 0.4 undone.
    assert resized == [
        (300.0, 3, "pack"),
        (300.0, 1, "pack"),
        (300.0, 2, "pack"),
        (300.0, 0, "pack"),
        (360.0, 1, "unpack"),
    ]
    undone = next(e for e in run.events if isinstance(e, ev.Resized) and e.why.rule == "unpack")
    assert undone.why.facts["sum_of_speeds"] == pytest.approx(0.8)
    # 300 s in turns, then at 0.9.
    assert run.end_s("j0") == pytest.approx(300.0 + (2000.0 - 300.0 * TURN / 2) / 0.9)
    memo = [e.memo for e in run.events if isinstance(e, ev.MemoSaved)][-1]
    assert memo == {
        "alone": {"1 gpu": {"heavy": 1.0, "light": 1.0}},
        "bad": {"1 gpu": {"heavy with heavy": 0.8}},
    }
    assert not run.refusals()


def test_the_forecast_is_not_asked_what_a_pair_is_worth() -> None:
    wrong = FixedForecast({("heavy", ("heavy",)): 1.0, ("light", ("light",)): 0.1}, default=0.5)
    told, untold = packed_day(forecast=wrong), packed_day()
    kinds = (ev.Resized, ev.Started, ev.Moved, ev.Ended)
    assert [e for e in told.events if isinstance(e, kinds)] == [
        e for e in untold.events if isinstance(e, kinds)
    ]


def test_the_next_partner_is_tried_when_the_first_does_not_suit() -> None:
    # One device, a heavy and two light ones, in three turns. The heavy one needs least memory, so it
    # is tried first, with the first light one: 0.45 + 0.5. Undone, the light ones pair up.
    h = day("1x1", Gandiva(migration=False), truth=TRUTH)
    submit(h, "a", runs_s=1e5, model="heavy", memory_bytes=4 * GIB)
    submit(h, "b", runs_s=1e5)
    submit(h, "c", runs_s=1e5)
    for job in range(3):
        h.happen(ev.CancelRequested(2000.0, job))
    run = h.run()
    assert [x for x in rules_of(run, ev.Resized) if x[2]] == [
        (300.0, 1, "pack"),
        (300.0, 0, "pack"),
        (360.0, 0, "unpack"),
        (600.0, 2, "pack"),
        (600.0, 1, "pack"),
    ]
    # Two turns are left: 0.9 in one of them.
    last = [e for e in run.events if isinstance(e, ev.Rated) and e.id == 2 and e.t < 2000.0][-1]
    assert last.rate == pytest.approx(0.9 * TURN / 2)


def test_nothing_is_packed_while_requests_fit_or_nothing_is_measured() -> None:
    for settings, jobs in ((CHEAP, 2), (Settings(rate_events=False), 4)):
        h = day("1x2", Gandiva(), settings, truth=TRUTH)
        for i in range(jobs):
            submit(h, f"j{i}", runs_s=2000.0)
        assert not [e for e in h.run().events if isinstance(e, ev.Resized)]


def test_pairs_whose_memory_does_not_fit_together_are_not_tried() -> None:
    h = day("1x1", Gandiva(), truth=TRUTH)
    submit(h, "a", runs_s=2000.0, memory_bytes=9 * GIB)
    submit(h, "b", runs_s=2000.0, memory_bytes=9 * GIB)
    run = h.run()
    assert not run.of("a", ev.Resized)
    assert not run.refusals()


def test_a_guest_from_another_device_moves_over_once_the_pair_is_known() -> None:
    # Devices 0 and 1 hold a heavy and a light job each, in turns. Heavy with light is tried where they
    # are and undone (0.95). At the next look heavy with heavy is tried, for which one comes over at
    # the price of 2.5 s; a minute after it works there the pair is undone, too (0.8).
    h = day("1x2", Gandiva(), truth=TRUTH)
    for i, model in enumerate(("heavy", "heavy", "light", "light")):
        submit(h, f"j{i}", runs_s=9000.0, model=model, memory_bytes=4 * GIB if model == "heavy" else 6 * GIB)
    run = h.run()
    first = next(e for e in run.events if isinstance(e, ev.Moved))
    assert (first.t, first.id, first.devices, first.why.rule) == (600.0, 0, (1,), "pack")
    undone = [x for x in rules_of(run, ev.Resized) if x[2] == "unpack"]
    assert undone == [(360.0, 0, "unpack"), (360.0, 1, "unpack"), (662.5, 0, "unpack")]
    memo = [e.memo for e in run.events if isinstance(e, ev.MemoSaved)][-1]
    assert memo["bad"] == {"1 gpu": {"heavy with light": 0.95, "heavy with heavy": 0.8}}
    # The light ones find each other at last, and stay.
    last = {
        e.id: e.share.turn
        for e in run.events
        if isinstance(e, ev.Moved | ev.Resized) and e.id > 1 and e.t < 3000.0
    }
    assert last[2] == last[3] >= 0
    assert not run.refusals()


# -- moves ---------------------------------------------------------------------------------


def test_scattered_gangs_are_united_when_room_appears() -> None:
    # 11 servers of 2: a job of 8 on servers 0 to 3, twelve single jobs on 4 to 9, of which every second
    # ends at 10 s. Four pairs come at 20 s: one finds server 10, three lie across two servers at
    # 0.8 of their speed. At 1000 s the large job ends and frees 8 devices: all three move.
    h = day("11x2", Gandiva())
    submit(h, "large", gpus=8, runs_s=1000.0)
    for i in range(12):
        submit(h, f"s{i:02}", runs_s=10.0 if i % 2 else 1e4)
    for i in range(4):
        submit(h, f"pair{i}", at_s=20.0, gpus=2, runs_s=2000.0)
    run = h.run()
    assert run.end_s("large") == 1000.0
    spread = [
        n for n in ("pair0", "pair1", "pair2", "pair3") if run.devices(n)[0] // 2 != run.devices(n)[1] // 2
    ]
    assert len(spread) == 3
    for name in spread:
        (moved,) = run.of(name, ev.Moved)
        assert (moved.t, moved.why.rule) == (1000.0, "locality")
        assert moved.devices[0] // 2 == moved.devices[1] // 2
        assert moved.why.facts == {"speed_before": 0.8, "nodes_before": 2, "nodes_after": 1}
        # 980 s at 0.8, 2.5 s of moving, the rest at full speed.
        assert run.end_s(name) == pytest.approx(1002.5 + 2000.0 - 980.0 * 0.8)
    assert not run.refusals()


def test_a_freed_device_takes_a_job_that_had_to_share() -> None:
    # a and c take turns on device 0 until b leaves device 1 at 500 s; c moves there at once (2.5 s), and a
    # is alone when c's state is saved, after 1 s.
    h = day("1x2", Gandiva(packing=False, most_loss=0.001))
    submit(h, "a", runs_s=5000.0)
    submit(h, "b", runs_s=500.0)
    submit(h, "c", runs_s=5000.0)
    run = h.run()
    (moved,) = [e for e in run.of("c", ev.Moved) if e.t == 500.0]
    assert moved.why.rule == "height-drops"
    assert moved.why.facts == {"speed_before": TURN / 2, "residents_before": 2, "residents_after": 1}
    assert run.end_s("c") == pytest.approx(502.5 + 5000.0 - 500.0 * TURN / 2)
    assert run.end_s("a") == pytest.approx(501.0 + 5000.0 - 501.0 * TURN / 2)


def test_nobody_moves_who_would_lose_more_than_it_can_win_back() -> None:
    # Moving costs 2002.5 s here; at 500 s nobody has run long enough to be worth it.
    dear = Settings(restore_s=2000.5, state_bytes_per_s=1e9, slice_switch_s=0.6)
    h = day("1x2", Gandiva(packing=False), dear)
    submit(h, "a", runs_s=250.0)
    submit(h, "b", runs_s=900.0)
    submit(h, "c", runs_s=900.0)
    run = h.run()
    assert not [e for e in run.events if isinstance(e, ev.Moved)]


def test_fragments_are_closed_by_moving_into_fuller_servers() -> None:
    # Servers of 4. Singles fill 0 and 1; at 10 s three of server 0's and one of server 1's end. At
    # the next look after it has run long enough (2.5 s are 2 % of 125 s) server 0's last one moves.
    h = day("2x4", Gandiva())
    for i in range(8):
        submit(h, f"j{i}", runs_s=10.0 if i in (1, 2, 3, 7) else 2000.0)
    run = h.run()
    where = {e.id: e.devices for e in run.events if isinstance(e, ev.Started)}
    moves = [(e.t, e.why.rule, where[e.id], e.devices) for e in run.events if isinstance(e, ev.Moved)]
    assert len(moves) == 1
    t, rule, old, new = moves[0]
    assert (t, rule) == (300.0, "defragment")
    assert old[0] // 4 != new[0] // 4


# -- growth --------------------------------------------------------------------------------


def test_an_elastic_job_grows_after_idleness_and_shrinks_at_once() -> None:
    # Seen idle at 0 s, still so at 300 s: 4 devices, four times the speed after 2.5 s. At 1000 s
    # somebody asks for three: back to one at once.
    h = day("1x4", Gandiva())
    submit(h, "elastic", runs_s=1e4, gpus=1, min_gpus=1, max_gpus=4)
    submit(h, "other", at_s=1000.0, runs_s=1e5, gpus=3)
    run = h.run()
    resized = [(e.t, len(e.devices), e.why.rule) for e in run.of("elastic", ev.Resized)]
    assert resized == [(300.0, 4, "grow"), (1000.0, 1, "shrink-on-demand")]
    assert run.start_s("other") == 1000.0
    # 300 + 697.5 * 4 done when it shrinks; the rest at speed 1 after 2.5 s.
    assert run.end_s("elastic") == pytest.approx(1002.5 + 1e4 - 300.0 - 697.5 * 4)
    assert not run.refusals()


def test_no_job_grows_that_does_not_declare_it_or_when_told_not_to() -> None:
    for policy, most in ((Gandiva(), 0), (Gandiva(growth=False), 4)):
        h = day("1x4", policy)
        submit(h, "a", runs_s=3000.0, gpus=1, min_gpus=min(most, 1), max_gpus=most)
        assert h.run().end_s("a") == 3000.0


# -- contract --------------------------------------------------------------------------------


def test_the_contract_with_everything_happening_often() -> None:
    check_policy(
        lambda: Gandiva(period_s=20.0, trial_s=5.0, idle_s=20.0, most_loss=0.9), first=300, scenarios=25
    )


def test_all_at_once_and_all_end() -> None:
    h = day("2x4", Gandiva(period_s=60.0), truth=TRUTH)
    for i in range(120):
        submit(
            h,
            f"j{i:03}",
            gpus=(1, 1, 2, 4)[i % 4],
            runs_s=50.0 + 7.0 * i,
            model="light" if i % 3 else "heavy",
        )
    run = h.run()
    assert run.state.counts["done"] == 120
    assert not run.refusals()


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_residents": 0},
        {"trial_s": 0.0},
        {"period_s": -1.0},
        {"most_loss": 0.0},
        {"least_sum": 0.9},
        {"idle_s": -1.0},
    ],
)
def test_parameters_out_of_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Gandiva(**wrong)  # type: ignore[arg-type]
