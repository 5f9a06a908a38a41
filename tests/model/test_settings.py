"""Settings out of range: which, and what was found."""

from __future__ import annotations

import pytest

from cotenant.errors import ConfigError
from cotenant.model.settings import Settings


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"max_sharers": 0}, "setting max_sharers must be positive, found 0"),
        ({"slice_s": 0.0}, "setting slice_s must be positive, found 0.0"),
        ({"state_bytes_per_s": 0.0}, "setting state_bytes_per_s must be positive, found 0.0"),
        ({"span_speed": 1.5}, r"setting span_speed must lie in \(0, 1\], found 1.5"),
        ({"restore_s": -1.0}, "setting restore_s must be zero or more and finite, found -1.0"),
    ],
)
def test_a_setting_out_of_range_is_named_with_what_was_found(values: dict[str, float], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Settings(**values).check()  # type: ignore[arg-type]
