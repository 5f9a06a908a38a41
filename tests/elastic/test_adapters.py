"""An existing DataLoader is dealt out as DistributedSampler of N processes does, or refused with the reason."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.errors import InputError

torch = pytest.importorskip("torch")
from torch.utils import data as tdata  # noqa: E402

from cotenant.elastic.adopt import adopt  # noqa: E402


def _data(size: int) -> Any:
    return tdata.TensorDataset(torch.arange(size))


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), st.integers(1, 4), st.integers(1, 5), st.booleans(), st.booleans(), st.booleans())
def test_each_worker_reads_what_the_process_of_its_number_would(
    size: int, batch: int, workers: int, shuffle: bool, drop_samples: bool, drop_batch: bool
) -> None:
    def one(rank: int) -> Any:
        sampler: Any = tdata.DistributedSampler(
            _data(size), workers, rank, shuffle=shuffle, seed=5, drop_last=drop_samples
        )
        sampler.set_epoch(2)
        return tdata.DataLoader(_data(size), batch_size=batch, sampler=sampler, drop_last=drop_batch)

    if drop_samples and size < workers:
        return  # DistributedSampler itself fails
    expected = [list(one(rank).batch_sampler) for rank in range(workers)]
    if not expected[0]:
        with pytest.raises(InputError, match="gives no step"):
            adopt(one(0), workers, 0)
        return
    loader = adopt(one(0), workers, 0, random_data=False)
    assert [list(loader.keys(2, 0, [rank])) for rank in range(workers)] == expected


def test_samplers_of_another_kind_are_dealt_out_alike() -> None:
    def read(**options: Any) -> list[list[int]]:
        loader = adopt(tdata.DataLoader(_data(8), **options), 2, 0, random_data=False)
        return [key for worker in range(2) for key in loader.keys(1, 0, [worker])]

    order = tdata.Subset(_data(8), [5, 0, 3]).indices
    assert read(sampler=order, batch_size=1) == [[5], [3], [0], [5]]  # filled up: two for each
    assert read(sampler=order, batch_size=1, drop_last=True) == [[5], [0]]
    assert read(batch_sampler=[[1], [2, 3], [4]]) == [[1], [4], [2, 3], [1]]
    weighted = tdata.WeightedRandomSampler([0.0, 1.0, *[0.0] * 6], 4)
    assert read(sampler=weighted, batch_size=2) == [[1, 1], [1, 1]]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sampler": tdata.DistributedSampler(_data(8), 3, 0)}, "deals out to 3 processes, the run has 2"),
        ({"batch_size": None}, "loader without batches"),
        ({"num_workers": 1, "persistent_workers": True}, "persistent_workers=True cannot be kept"),
    ],
)
def test_what_would_be_lost_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        adopt(tdata.DataLoader(_data(8), **options), 2, 0)
