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


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sampler": tdata.DistributedSampler(_data(8), 3, 0)}, "deals out to 3 processes, the run has 2"),
        ({"sampler": tdata.WeightedRandomSampler([1.0] * 8, 8)}, "WeightedRandomSampler cannot be kept"),
        ({"batch_size": None}, "batches of its own"),
        ({"num_workers": 1, "persistent_workers": True}, "persistent_workers=True cannot be kept"),
    ],
)
def test_what_would_be_lost_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        adopt(tdata.DataLoader(_data(8), **options), 2, 0)
