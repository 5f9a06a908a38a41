"""Jobs that end without running leave nothing behind in the world."""

from cotenant.engine.loop import Loop
from cotenant.executors.simulated import SimulatedExecutor
from cotenant.model import events as ev
from cotenant.model.plan import EMPTY, Plan, Reason, Reject
from cotenant.model.settings import Settings
from cotenant.model.view import View
from cotenant.policies.fifo import Fifo
from cotenant.testing import Harness


class _Refuser:
    """Turns every job away."""

    def decide(self, view: View) -> Plan:
        head = view.head()
        return EMPTY if head is None else Plan((Reject(head.id, Reason.NOT_WORTH_IT),), again=True)


def test_a_job_that_the_policy_rejects_does_not_leave_once_more() -> None:
    h = Harness("1x1", _Refuser())
    h.submit("a", runs_s=5.0, leave_s=30.0)
    run = h.run()
    assert [(e.t, e.reason) for e in run.of("a", ev.Rejected)] == [(0.0, "gain-below-price")]
    assert run.state.counts["rejected"] == 1


def test_the_world_forgets_jobs_that_lost_their_devices_once_too_often() -> None:
    h = Harness("1x1", Fifo())
    h.submit("a", runs_s=50.0)
    settings = Settings(retry_lost=0, checkpoint_s=1.0)
    world = SimulatedExecutor(
        h.workload(), h.cluster, settings=settings, incidents=[ev.NodeDown(10.0, 0), ev.NodeUp(20.0, 0)]
    )
    state = Loop(cluster=h.cluster, policy=Fifo(), executor=world, settings=settings).run()
    assert state.counts["lost"] == 1
    assert not world._left
