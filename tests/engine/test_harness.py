"""The harness for tests of policies, where a test itself is wrong."""

from __future__ import annotations

import pytest

from cotenant.policies.fifo import Fifo
from cotenant.testing import Harness


def test_a_name_that_was_never_submitted_is_told_with_those_that_were() -> None:
    h = Harness("1x2", Fifo())
    h.submit("large", gpus=2)
    h.submit("small")
    run = h.run()
    assert run.start_s("large") == 0.0
    with pytest.raises(KeyError, match="no job 'larg' was submitted; there are: large, small"):
        run.start_s("larg")
    with pytest.raises(KeyError, match="no job 'larg'"):
        run.devices("larg")
