"""What a tenant's priority may be, and how much a damaged log says."""

from __future__ import annotations

import pytest

from cotenant.errors import DeniedError
from cotenant.live.doctor import log_problems
from cotenant.live.tenants import TenantRow, check_priority
from cotenant.live.views import Caller
from cotenant.profiles.measure.fleet import _inherited

VISION = Caller("vision", admin=False)


def test_a_tenant_goes_no_higher_than_its_owner_granted() -> None:
    row = TenantRow(name="vision", max_priority=3)
    check_priority(VISION, row, 3, "job")
    with pytest.raises(DeniedError, match=r'4 asked; tenant "vision" may have up to 3'):
        check_priority(VISION, row, 4, "job")
    with pytest.raises(DeniedError, match=r"may have up to 0"):
        check_priority(VISION, TenantRow(name="vision"), 1, "job")
    check_priority(VISION, None, -5, "job")
    check_priority(Caller("", admin=True), None, 100, "job")


def test_a_log_with_many_faults_is_summed_up() -> None:
    told = [f.text for f in log_problems([f"event {n} is missing" for n in range(1234)])]
    assert told[:10] == [f"event {n} is missing" for n in range(10)]
    assert told[10:] == ["and 1,224 more like these"]
    assert len(list(log_problems(["one"]))) == 1


def test_what_is_measured_does_not_write_where_the_scheduler_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COTENANT_STATUS", "COTENANT_STATE", "COTENANT_STEPS"):
        monkeypatch.setenv(name, "ours")
    monkeypatch.setenv("OTHER", "kept")
    found = _inherited()
    assert found["OTHER"] == "kept"
    assert not [name for name in found if name.startswith("COTENANT_ST")]
