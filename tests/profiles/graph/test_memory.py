"""Liveness, the allocator's arithmetic, optimisers, and whether a job fits."""

from __future__ import annotations

from itertools import pairwise, permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.errors import UnknownNameError
from cotenant.model.quantities import GIB, MIB, parse_bytes
from cotenant.profiles.graph.contexts import context_of, frameworks
from cotenant.profiles.graph.ir import Graph, Op, Options, Storage, Tensor
from cotenant.profiles.graph.liveness import CachingAllocator, peak_of, reserved_bytes
from cotenant.profiles.graph.memory import MemoryForecast, MemoryPart, fit_on, fits, forecast_memory
from cotenant.profiles.graph.optimisers import find_optimiser, known


def graph(*, optimiser: str = "sgd", device: str = "gpu", scale: int = 1) -> Graph:
    """Weight 100 -> activation 50 (kept) -> temporary 70 -> loss 4 | gradient of it 50, of the weight 100."""
    rows: list[tuple[int, Any, int, int, bool]] = [
        (100, "parameter", -1, 4, False),
        (30, "input", -1, 4, False),
        (50, "activation", 0, 3, True),
        (70, "activation", 1, 2, False),
        (4, "activation", 2, 4, False),
        (50, "activation", 2, 3, False),
        (100, "gradient", 3, 4, False),
    ]
    storages = tuple(
        Storage(size_bytes=size * scale, role=role, born=born, dies=dies, saved=saved)
        for size, role, born, dies, saved in rows
    )
    phases: tuple[Any, ...] = ("forward", "forward", "backward", "backward")
    return Graph(
        name="tiny",
        source="test",
        options=Options(optimiser=optimiser, device=device),  # type: ignore[arg-type]
        ops=tuple(Op(name=f"op{n}", kind="matmul", phase=p, moved_bytes=1) for n, p in enumerate(phases)),
        tensors=tuple(
            Tensor(shape=(s.size_bytes,), dtype="uint8", storage=n) for n, s in enumerate(storages)
        ),
        storages=storages,
        parameters=25 * scale,
        trained=25 * scale,
        trained_sizes=(20 * scale, 5 * scale),
    )


def test_the_peak_is_what_lives_at_once_and_not_a_sum() -> None:
    # After each operator: 180, 250, 304, 334, then 234 outlive the step.
    peak = peak_of(graph())
    assert (peak.total_bytes, peak.at) == (334, 3)
    assert (peak.weight_bytes, peak.input_bytes, peak.gradient_bytes) == (100, 30, 100)
    assert (peak.activation_bytes, peak.temporary_bytes, peak.optimiser_bytes) == (50, 54, 0)


def test_an_optimisers_state_is_there_all_the_time_and_its_moment_can_be_the_peak() -> None:
    # Adam updates all weights together on a GPU: one more copy for a moment, 234 + 100 = the peak before.
    peak = peak_of(graph(optimiser="adam"))
    assert peak.optimiser_bytes == 200
    assert peak.total_bytes == 334 + 200
    # One by one on a CPU: twice the weight at hand, or that before and twice the next: 160.
    alone = peak_of(graph(optimiser="adam", device="cpu"))
    assert (alone.total_bytes, alone.at) == (200 + 234 + 160, 4)


def test_optimisers_know_their_state_and_unknown_ones_get_the_nearest() -> None:
    assert [find_optimiser(n).state for n in ("sgd", "momentum", "adam", "adamw", "adagrad")] == [
        0,
        1,
        2,
        2,
        1,
    ]
    assert "adamw" in known()
    with pytest.raises(UnknownNameError, match='did you mean "adam"'):
        find_optimiser("adamm")


def test_the_allocator_rounds_to_segments() -> None:
    allocator = CachingAllocator()
    allocator.allocate(100)
    assert allocator.reserved_bytes == 2 * MIB
    allocator.allocate(MIB)
    assert allocator.reserved_bytes == 2 * MIB  # out of the same segment
    allocator.allocate(MIB + 1)
    assert allocator.reserved_bytes == 22 * MIB
    allocator.allocate(30 * MIB + 1)
    assert allocator.reserved_bytes == 54 * MIB


def test_freed_blocks_are_joined_and_used_again() -> None:
    allocator = CachingAllocator()
    held = [allocator.allocate(5 * MIB) for _ in range(4)]
    assert allocator.reserved_bytes == 20 * MIB
    for address in held:
        allocator.free(address)
    allocator.allocate(20 * MIB)
    assert allocator.reserved_bytes == 20 * MIB


@given(st.lists(st.tuples(st.integers(1, 40 * MIB), st.booleans()), max_size=60))
@settings(max_examples=80, deadline=None)
def test_blocks_in_use_never_overlap_and_never_exceed_what_is_reserved(steps: list[tuple[int, bool]]) -> None:
    allocator = CachingAllocator()
    held: list[tuple[int, int]] = []
    for size, free_first in steps:
        if free_first and held:
            allocator.free(held.pop(0)[0])
        held.append((allocator.allocate(size), size))
        spans = sorted(held)
        assert all(a + size <= b for (a, size), (b, _) in pairwise(spans))
    assert sum(size for _, size in held) <= allocator.reserved_bytes


def test_what_is_reserved_is_at_least_what_lives() -> None:
    large = graph(scale=MIB, optimiser="adam")
    assert reserved_bytes(large) >= peak_of(large).total_bytes


def test_parts_add_up_and_the_high_value_is_never_below_the_middle() -> None:
    for device in ("gpu", "cpu"):
        found = forecast_memory(graph(device=device, scale=MIB))
        names = [part.name for part in found.parts]
        assert names == [
            *("weights", "gradients", "optimiser", "inputs", "activations", "temporary"),
            *("workspace", "reserve", "context"),
        ]
        assert all(part.p95_bytes >= part.p50_bytes >= 0 for part in found.parts)
        assert found.p50_bytes == sum(part.p50_bytes for part in found.parts)
        assert found.p50_bytes > found.live_bytes == 334 * MIB


def test_contexts_have_sources_and_unknown_frameworks_are_refused() -> None:
    assert all(context_of("A100", name).source for name in frameworks())
    assert context_of("H100").blas_bytes == 32 * MIB
    assert context_of("V100").blas_bytes == 8_519_680
    with pytest.raises(UnknownNameError, match="framework"):
        context_of("A100", "torch")


def needs(size: int, doubt: int = 0, context: int = 0) -> MemoryForecast:
    parts = (
        MemoryPart(name="weights", p50_bytes=size - context, p95_bytes=size - context + doubt, why=""),
        MemoryPart(name="context", p50_bytes=context, p95_bytes=context, why=""),
    )
    return MemoryForecast(name="job", device_type="", parts=parts, live_bytes=size - context)


def test_a_verdict_is_sure_only_where_it_can_be() -> None:
    job = needs(10 * GIB, doubt=GIB, context=400 * MIB)
    assert fits(job, 11 * GIB).verdict == "fits"
    assert fits(job, 11 * GIB - 1).verdict == "too close to call"
    assert fits(job, 10 * GIB - 200 * MIB).verdict == "too close to call"
    assert fits(job, 10 * GIB - 200 * MIB - 1).verdict == "does not fit"


@pytest.mark.parametrize("order", sorted(set(permutations(range(3)))))
def test_three_halves_on_one_card(order: tuple[int, ...]) -> None:
    """Case C15: of three jobs of 12 GiB two fit a card of 24, whatever their order."""
    capacity, held, verdicts = 24_576 * MIB, 0, []
    for _ in order:
        found = fits(needs(12_288 * MIB), capacity, held_bytes=held)
        verdicts.append(found.verdict)
        held += 12_288 * MIB if found.verdict == "fits" else 0
    assert verdicts == ["fits", "fits", "does not fit"]
    assert "needs 12,288 MiB (P50)" in found.reason
    assert "0 MiB free" in found.reason


def test_headroom_for_each_process_lets_one_half_run() -> None:
    """Case C15, with a context of 512 MiB a process."""
    job = needs(12_288 * MIB + 512 * MIB, context=512 * MIB)
    assert fits(job, 24_576 * MIB).verdict == "fits"
    assert fits(job, 24_576 * MIB, held_bytes=job.p50_bytes).verdict == "does not fit"


@pytest.mark.parametrize(
    ("asked", "verdict"),
    [
        ("80GiB", "does not fit"),
        ("80GB", "fits"),
        ("79.6GiB", "fits"),
        ("81559MiB", "fits"),
        ("80g", "does not fit"),
    ],
)
def test_eighty_gigabytes_are_not_eighty_gibibytes(asked: str, verdict: str) -> None:
    """Case C16: a card sold as 80 GB has 81,559 MiB."""
    found = fits(needs(parse_bytes(asked)), 81_559 * MIB)
    assert found.verdict == verdict
    assert "81,559 MiB free" in found.reason


def test_two_different_cards_in_one_node() -> None:
    """Case C19: memory is booked card by card, never added up."""
    free = {"A": 46_068 * MIB, "B": 15_360 * MIB}
    placed = []
    for size in (20_000, 16_000, 15_000, 15_000):
        where = [card for card in sorted(free) if fits(needs(size * MIB), free[card]).verdict == "fits"]
        placed.append(where[0] if where else None)
        if where:
            free[where[0]] -= size * MIB
    assert placed == ["A", "A", "B", None]
    assert free["A"] == 10_068 * MIB


def test_each_device_type_gets_its_verdict() -> None:
    rows = fit_on(graph(scale=40 * MIB), ["K80", "A100", "H100"])
    assert [(name, fit.verdict) for name, _, fit in rows] == [
        ("K80", "does not fit"),
        ("A100", "fits"),
        ("H100", "fits"),
    ]
    with pytest.raises(UnknownNameError, match="device type"):
        fit_on(graph(), ["H1000"])


def test_what_the_c_library_keeps_on_a_cpu() -> None:
    # Blocks of 4 to 8 MiB hold 5, 12, 17 and 10 MB one after the other; the one of 0.4 MB is of another class.
    # At the peak, where the weight's gradient is made, smaller blocks hold 10.4 MB of at most 17.4 MB.
    forecast = forecast_memory(graph(device="cpu", scale=100_000))
    reserve = next(part for part in forecast.parts if part.name == "reserve")
    assert reserve.p50_bytes == 17_000_000 + round(0.4 * 7_000_000)
    assert reserve.p95_bytes == reserve.p50_bytes + 60 * MIB + 8_500_000
