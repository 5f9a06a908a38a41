"""What the service accepts, refuses and shows, without a daemon."""

from __future__ import annotations

import stat
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from cotenant.errors import (
    ConfigError,
    ConflictError,
    DeniedError,
    InfeasibleError,
    InputError,
    NotFoundError,
)
from cotenant.live.admission import job_from, memory_of_model
from cotenant.live.machine import LiveDevice, cluster_of, discover, numbered
from cotenant.live.picture import Picture
from cotenant.live.service import LiveService
from cotenant.live.store import open_store
from cotenant.live.tenants import ADMIN, TenantRow, Tenants, sha256_of_token
from cotenant.live.views import Caller
from cotenant.live.wishes import Wishes
from cotenant.model import events as ev
from cotenant.model.liveports import Accepted, Progress, Request
from cotenant.model.placement import Share
from cotenant.model.plan import Reason
from cotenant.report.reasons import meaning

GIB = 1 << 30


class Clock:
    def now(self) -> float:
        return 10.0

    def wall(self, t: float) -> float:
        return 1000.0 + t


def core(number: int) -> LiveDevice:
    return LiveDevice(
        device=number, name=f"cpu:{number}", uuid=f"cpu:{number}", index=number, kind="cpu",
        device_type="core x1", memory_bytes=4 * GIB, cores=(number,),
    )  # fmt: skip


class Standing:
    def __init__(self, picture: Picture) -> None:
        self.picture, self.woken = picture, 0

    def wake(self) -> None:
        self.woken += 1

    def doctor(self) -> dict[str, Any]:
        return {"healthy": True}


class Scene:
    """A service on a real store, two tenants, and a log that the test writes."""

    def __init__(self, state: Path) -> None:
        state.mkdir(mode=0o700)
        self.tenants = Tenants(state)
        self.tenants.add(TenantRow(name="ada", limit_gpus=1, isolation="same-owner"))
        self.tenants.add(TenantRow(name="sole", isolation="exclusive"))
        self.store = open_store(state / "cotenant.db")
        self.lease = self.store.acquire("test", 60.0)
        self.cluster = cluster_of([core(0), core(1)], self.tenants.cluster_tenants())
        self.picture = Picture(Clock(), ["cpu:0", "cpu:1"], ["core x1"] * 2)
        self.standing = Standing(self.picture)
        self.service = LiveService(
            store=self.store, picture=self.picture, clock=Clock(), tenants=self.tenants,
            cluster=self.cluster, state=state, standing=self.standing,  # type: ignore[arg-type]
        )  # fmt: skip

    def with_wishes(self) -> Wishes:
        """From now on the service waits for the loop's answers to resizes."""
        self.service._wishes = found = Wishes()
        return found

    def submit(self, caller: Caller = ADMIN, key: str = "k", **body: Any) -> Accepted | Exception:
        request = Request(
            key=key, tenant=caller.tenant, kind="submit", body={"name": "a", "command": ["x"], **body}
        )
        return self.service.submit(caller, [request])[0]

    def happen(self, *events: ev.Event) -> None:
        assert self.lease is not None
        self.store.append(
            self.lease, events, self.store.done_seq() + len(self.store.waiting(self.store.done_seq()))
        )
        self.picture.see(events)

    def take_up(self) -> None:
        """As the loop does: what was accepted is submitted."""
        waiting = self.store.waiting(self.store.done_seq())
        self.happen(*(ev.Submitted(w.t, job_from(w)) for w in waiting if w.request.kind == "submit"))


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    found = Scene(tmp_path / "state")
    yield found
    found.store.close()


ADA, SOLE = Caller("ada"), Caller("sole")


def test_what_is_accepted_is_on_disk_shown_and_wakes_the_loop(scene: Scene) -> None:
    answer = scene.submit(ADA, name="train")
    assert isinstance(answer, Accepted)
    assert (answer.job_id, answer.request.tenant, scene.standing.woken) == (0, "ada", 1)
    (view,) = scene.service.jobs(ADA)
    assert (view.status, view.reason) == ("waiting", "accepted; the scheduler is about to take it up")
    assert scene.service.find(ADA, "train").id == scene.service.find(ADA, "0").id == 0
    scene.take_up()
    (view,) = scene.service.jobs(ADA)
    assert view.reason == "its turn is next"


@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        ({"command": []}, ConfigError, "needs a command"),
        ({"gpus": 3}, InfeasibleError, "never fits: 3 devices asked, 2 of 2"),
        ({"gpu_memory": "5GiB"}, InfeasibleError, "5,120 MiB of memory asked .* the largest device has 4,096 MiB"),
        ({"gpus": 1.5}, ConfigError, "above one is a whole number"),
        ({"gpu_compute": "50%", "gpu_compute_limit": "10%"}, ConfigError, "ceiling of 10% is below the 50%"),
        ({"comand": ["x"]}, ConfigError, "did you mean 'command'"),
        ({"tenant": "ghost"}, InputError, 'no tenant "ghost"; known: ada, sole'),
        ({"after": [7]}, InputError, "there is no job 7 to wait for"),
        ({"cpus": 1e5}, InfeasibleError, "cores asked"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_with_what_to_write(scene: Scene, body: Any, kind: Any, words: str) -> None:
    answer = scene.submit(**body)
    assert isinstance(answer, kind), answer
    with pytest.raises(kind, match=words):
        raise answer
    assert scene.store.waiting(0) == []


def test_a_tenant_keeps_to_its_limit_and_its_isolation(scene: Scene) -> None:
    with pytest.raises(InfeasibleError, match=r"2 devices asked; tenant .ada. may hold 1"):
        raise scene.submit(ADA, gpus=2)  # type: ignore[misc]
    with pytest.raises(DeniedError, match='keeps at least "same-owner"'):
        raise scene.submit(ADA, sharing="any")  # type: ignore[misc]
    with pytest.raises(DeniedError, match='cannot submit for "sole"'):
        raise scene.submit(ADA, tenant="sole")  # type: ignore[misc]
    answer = scene.submit(SOLE, key="alone")
    assert isinstance(answer, Accepted)
    assert job_from(answer).sharing == "exclusive"


def test_memory_of_a_known_model_is_predicted_and_a_fraction_is_a_share(scene: Scene) -> None:
    answer = scene.submit(model="convolution/b8", gpus=0.4)
    assert isinstance(answer, Accepted)
    job = job_from(answer)
    assert job.memory_bytes == memory_of_model("convolution/b8") > 256 << 20
    assert (job.gpus, job.compute_milli) == (1, 400)


def test_jobs_of_others_are_denied_and_their_events_not_told(scene: Scene) -> None:
    scene.happen(ev.Opened(0.0, 1, "0", 0, "fifo", {}, {}, scene.cluster, {}, {}, {}))
    scene.submit(ADA, key="1")
    scene.submit(SOLE, key="2")
    scene.take_up()
    with pytest.raises(DeniedError):
        scene.service.job(ADA, 1)
    with pytest.raises(NotFoundError, match="there is no job 9"):
        scene.service.job(ADA, 9)
    kinds = [line[6:16] for line in scene.service.events(ADA)]
    assert len(kinds) == 2
    assert len(list(scene.service.events(ADMIN))) == 3
    with pytest.raises(DeniedError):
        scene.service.doctor(ADA)


def test_asking_again_after_a_job_has_ended_gets_the_same_answer(scene: Scene) -> None:
    scene.submit(ADA)
    scene.take_up()
    cancel = Request(key="c", tenant="", kind="cancel", body={"id": 0})
    first = scene.service.command(ADMIN, cancel)
    scene.happen(ev.CancelRequested(11.0, 0), ev.Rejected(11.0, 0, "cancelled"))
    again = scene.service.command(ADMIN, cancel)
    assert (again.seq, again.again) == (first.seq, True)
    with pytest.raises(ConflictError, match=r"has ended .cancelled."):
        scene.service.command(ADA, Request(key="d", tenant="ada", kind="cancel", body={"id": 0}))


@pytest.mark.parametrize(
    ("kind", "body", "error", "words"),
    [
        ("dance", {"id": 0}, InputError, "unknown request 'dance'"),
        ("cancel", {}, InputError, "id must be a whole number"),
        ("priority", {"id": 0, "priority": 10**9}, InputError, "a million"),
        ("resize", {"id": 0}, InputError, "nothing to change"),
        ("resize", {"id": 0, "gpus": 5}, InfeasibleError, "5 devices asked, there are 2"),
        ("resize", {"id": 0, "compute_milli": 500, "compute_limit_milli": 100}, ConflictError, "below"),
        ("resize", {"id": 0, "memory_bytes": "9GiB"}, InfeasibleError, "the largest has 4,096 MiB"),
        ("drain", {"node": 1}, InputError, "no node 1"),
    ],
)  # fmt: skip
def test_commands_are_checked_before_they_are_kept(
    scene: Scene, kind: str, body: Any, error: Any, words: str
) -> None:
    scene.submit(ADA, suspendable=False)
    scene.take_up()
    with pytest.raises(error, match=words):
        scene.service.command(ADMIN, Request(key="q", tenant="", kind=kind, body=body))
    with pytest.raises(DeniedError, match="whoever runs the scheduler"):
        scene.service.command(ADA, Request(key="q", tenant="ada", kind="drain", body={}))


def test_a_wish_that_contradicts_itself_is_refused_at_once(scene: Scene) -> None:
    scene.submit(ADMIN, gpu_compute="40%", gpu_memory="1GiB")
    scene.submit(ADMIN, key="k2")
    scene.take_up()

    def wish(job: int, **body: int) -> None:
        body = {"id": job, **body}
        scene.service.command(ADMIN, Request(key=f"w{body}", tenant="", kind="resize", body=body))

    with pytest.raises(ConflictError, match=r"the ceiling \(30%\) lies below what is guaranteed \(40%\)"):
        wish(0, compute_limit_milli=300)
    wish(0, compute_milli=200, compute_limit_milli=300)
    with pytest.raises(
        ConflictError, match=r"job 1 is not elastic .* the 1 device that it was submitted for"
    ):
        wish(1, gpus=2)
    scene.happen(ev.Started(12.0, 0, 1, (0,), Share("spatial", 1 << 30, 400)), ev.Started(12.0, 1, 1, (1,)))
    with pytest.raises(ConflictError, match=r"job 0 is not elastic .* keeps its devices \(1\)"):
        wish(0, gpus=2)
    with pytest.raises(ConflictError, match=r"nobody knows how much memory job 1 needs"):
        wish(1, compute_milli=500)
    wish(1, compute_milli=500, memory_bytes=1 << 30)


RANGE = {"min_gpus": 1, "max_gpus": 2}


def test_a_resize_that_cannot_be_is_refused_at_once_with_its_reason(scene: Scene) -> None:
    scene.submit(ADA, elastic=RANGE)
    scene.submit(ADMIN, key="k2", gpus=1)
    scene.submit(ADMIN, key="k3", elastic=RANGE)
    scene.submit(ADMIN, key="k4", gpus=0)
    scene.take_up()

    def wish(job: int, gpus: int, words: str) -> None:
        asked = Request(key=f"w{job}{gpus}{words}", tenant="", kind="resize", body={"id": job, "gpus": gpus})
        with pytest.raises(ConflictError) as found:
            scene.service.command(ADMIN, asked)
        assert str(found.value) == f"resize: job {job} {words}"

    wish(3, 1, "was submitted without devices, and gets none")
    scene.happen(ev.Started(11.0, 0, 1, (0,)))
    wish(0, 2, 'is on 1 device, 2 asked; tenant "ada" may hold 1, and holds 1')
    scene.happen(ev.Ended(12.0, 0, 1, "done", 1.0), ev.Started(12.0, 1, 1, (0,)))
    wish(1, 1, "is on 1 device already")
    wish(1, 2, "is not elastic (max_gpus), so while it runs it keeps its devices (1)")
    scene.happen(ev.Suspended(13.0, 1, 1, 1.0))
    wish(1, 2, "is not elastic (max_gpus), and its state was saved on 1 devices")
    scene.happen(ev.Started(14.0, 1, 1, (0,), resumed=True), ev.Started(14.0, 2, 1, (1,)))
    wish(2, 2, "is on 1 device, 2 asked; 0 free")
    scene.happen(ev.Ended(15.0, 1, 1, "done", 1.0), ev.Drained(15.0, 0, device=0))
    wish(2, 2, "is on 1 device, 2 asked; 0 free; cpu:0 is drained until cotenant undrain --device cpu:0")
    scene.happen(ev.Undrained(16.0, 0, device=0))
    more = Request(key="more", tenant="", kind="resize", body={"id": 2, "gpus": 2})
    assert not scene.service.command(ADMIN, more).again


def test_of_two_resizes_that_come_together_each_is_told_its_own_fate(scene: Scene) -> None:
    scene.submit(ADMIN, gpus=1, elastic={"min_gpus": 1, "max_gpus": 2}, gpu_memory="1GiB")
    scene.take_up()
    scene.happen(ev.Started(1.0, 0, 1, (0,)))
    wishes = scene.with_wishes()

    def ask(key: str) -> str:
        body = {"id": 0, "gpus": 2}
        try:
            scene.service.command(ADMIN, Request(key=key, tenant="", kind="resize", body=body))
        except ConflictError as error:
            return str(error)
        return ""

    with ThreadPoolExecutor(2) as pool:
        told = [pool.submit(ask, key) for key in ("one", "two")]
        while len(scene.store.waiting(1)) < 2:  # both were accepted: each seemed possible then
            assert not all(one.done() for one in told)
            time.sleep(0.01)
        events = (
            ev.ResizeRequested(2.0, 0, gpus=2, request="one"),
            ev.Resized(2.0, 0, 1, (0, 1), in_place=True),
            ev.ResizeRequested(2.0, 0, gpus=2, request="two"),
            ev.Refused(2.0, 0, "resize", Reason.STILL_RESIZING),
            ev.Refused(2.0, 0, "resize", Reason.NO_CAPACITY),  # a decision of the policy
        )
        scene.happen(*events)
        wishes.see(events)
        answers = [one.result() for one in told]
    assert answers == ["", f"resize: job 0 stays as it is: {meaning(Reason.STILL_RESIZING)}"]
    assert [ask("one"), ask("two")] == answers  # with the same key, the same answer


def test_a_range_and_a_resize_under_way_are_told(scene: Scene) -> None:
    scene.submit(ADMIN, elastic={"min_gpus": 2, "max_gpus": 2})
    scene.submit(ADMIN, key="k2", elastic=RANGE, gpus=2)
    scene.take_up()
    scene.happen(ev.Started(11.0, 1, 1, (0, 1)), ev.Resized(12.0, 1, 1, (0,), in_place=True))

    def wish(job: int, gpus: int) -> None:
        asked = Request(key=f"w{job}{gpus}", tenant="", kind="resize", body={"id": job, "gpus": gpus})
        scene.service.command(ADMIN, asked)

    with pytest.raises(ConflictError, match="job 0 is elastic on 2 to 2 devices; 1 asked"):
        wish(0, 1)
    with pytest.raises(ConflictError, match=r"an earlier resize of job 1 \(to cpu:0\) is under way"):
        wish(1, 2)
    scene.happen(ev.Resettled(13.0, 1, 1, (0,)))
    wish(1, 2)


def test_only_digests_of_tokens_are_kept_and_a_readable_token_is_refused(tmp_path: Path) -> None:
    tenants = Tenants(tmp_path)
    token = tenants.add(TenantRow(name="ada"))
    text = (tmp_path / "tenants.toml").read_text()
    assert token not in text
    assert sha256_of_token(token) in text
    assert tenants.caller(bytes.fromhex(sha256_of_token(token))) == Caller("ada")
    admin = (tmp_path / "token").read_text().strip()
    assert tenants.caller(bytes.fromhex(sha256_of_token(admin))) == ADMIN
    assert stat.S_IMODE((tmp_path / "token").stat().st_mode) == 0o600
    tenants.remove("ada")
    assert tenants.caller(bytes.fromhex(sha256_of_token(token))) is None
    (tmp_path / "token").chmod(0o644)
    with pytest.raises(ConfigError, match="can be read by others"):
        Tenants(tmp_path)


def test_devices_keep_their_numbers_whatever_order_they_are_found_in(tmp_path: Path) -> None:
    one, two, three = core(0), core(1), core(2)
    assert [d.device for d in numbered([one, two], tmp_path)[0]] == [0, 1]
    present, missing = numbered([three, two], tmp_path)
    assert [(d.device, d.uuid) for d in present] == [(1, "cpu:1"), (2, "cpu:2")]
    assert [(d.device, d.uuid) for d in missing] == [(0, "cpu:0")]
    present, missing = numbered([one, three, two], tmp_path)
    assert [(d.device, d.uuid) for d in present] == [(0, "cpu:0"), (1, "cpu:1"), (2, "cpu:2")]
    assert missing == []


def test_core_sets_that_overlap_are_refused() -> None:
    with pytest.raises(ConfigError, match="overlap"):
        discover(["cpu:0", "cpu:0"])


def test_a_neighbour_of_another_tenant_is_shown_without_its_name(scene: Scene) -> None:
    scene.submit(ADA, key="1", name="mine")
    scene.submit(SOLE, key="2", name="secret")
    scene.take_up()
    share = Share("spatial", GIB, 300)
    scene.happen(ev.Started(11.0, 0, 1, (0,), share), ev.Started(11.0, 1, 1, (0,), share))
    from cotenant.live.standing import Standing as Real

    real = Real(
        picture=scene.picture, clock=Clock(), devices=[core(0), core(1)], policy="fifo",
        forecast=lambda: "none", epoch=3, enforcement={}, warnings=tuple, examine=dict, wake=lambda: None,
    )  # fmt: skip
    scene.service._standing = real
    device = scene.service.devices(ADA)[0]
    assert [r.name for r in device.residents] == ["mine", "(another tenant's)"]
    assert (device.free_milli, device.memory_free_bytes) == (400, 2 * GIB)
    status = scene.service.status()
    assert (status.running, status.waiting, status.epoch, status.devices) == (2, 0, 3, 2)
    assert "cotenant_epoch 3.0" in scene.service.metrics()


def test_doctor_tells_which_quotas_limits_and_weights_are_in_force(scene: Scene) -> None:
    from cotenant.live.doctor import tenancy

    held = "ada: quota 0, limit 1, weight 1; sole: quota 0, limit none, weight 1"
    (finding,) = tenancy(scene.tenants, scene.cluster)
    assert (finding.level, finding.text) == ("ok", f"in force as in tenants.toml: {held}")
    scene.tenants.add(TenantRow(name="ada", limit_gpus=2))
    (finding,) = tenancy(scene.tenants, scene.cluster)
    assert (finding.level, finding.about) == ("warning", "tenants")
    assert finding.text.endswith(f"are not in force yet: {held}")
    path = scene.tenants._path
    path.write_text(path.read_text() + "weight = 0\n")
    (finding,) = tenancy(scene.tenants, scene.cluster)
    assert finding.level == "error"
    assert f"{path}:{len(path.read_text().splitlines())}: " in finding.text
    assert finding.text.endswith(f"In force is what was read before: {held}")


def test_doctor_tells_books_and_reality_apart(scene: Scene) -> None:
    from cotenant.live.doctor import books_against
    from cotenant.model.liveports import Found

    scene.submit(ADA, key="1")
    scene.submit(SOLE, key="2")
    scene.take_up()
    scene.happen(ev.Started(11.0, 0, 1, (0,)))
    stray = Found(id=1, attempt=1, serial=1, pid=77, start_ticks=5)
    told = [f.text for f in books_against(scene.picture, [stray])]
    assert told == [
        "job 0 runs by the books, and no process of it is there",
        "process 77 of job 1 runs, and the books have it waiting",
    ]
    right = Found(id=0, attempt=1, serial=1, pid=70, start_ticks=5)
    (fine,) = books_against(scene.picture, [right])
    assert fine.level == "ok"


def test_doctor_looks_again_before_it_tells_of_a_job_that_is_just_starting(scene: Scene) -> None:
    from cotenant.live.doctor import looked_at_again
    from cotenant.model.liveports import Found

    scene.submit(ADA)
    scene.take_up()
    scene.happen(ev.Started(11.0, 0, 1, (0,)))
    looks = [[], [Found(id=0, attempt=1, serial=1, pid=70, start_ticks=5)]]
    assert [f.level for f in looked_at_again(scene.picture, lambda: looks.pop(0))] == ["ok"]
    assert [f.level for f in looked_at_again(scene.picture, list)] == ["error"]


def test_explain_tells_the_end_that_ps_tells(scene: Scene) -> None:
    scene.happen(ev.Opened(0.0, 1, "0", 0, "fifo", {}, {}, scene.cluster, {}, {"kind": "none"}, {}))
    scene.submit(name="train")
    scene.take_up()
    # A sample that was soon outrun: 4 s of work foreseen, 5 s done by then.
    scene.happen(ev.Started(0.0, 0, 1, (0,)), ev.Sampled(5.0, 0, 1, 4.0, 3.0, 5.0))
    scene.picture.report(Progress(id=0, attempt=1, serial=1, steps=40, total=100, step_s=0.5))
    assert scene.service.job(ADMIN, 0).ends_at == pytest.approx((1040.0, 1037.0, 1043.0))
    mean, low, high = (time.strftime("%H:%M:%S", time.localtime(t)) for t in (1040.0, 1037.0, 1043.0))
    told = scene.service.explain(ADMIN, 0)
    wanted = f"running; as it goes now it will finish at {mean} (between {low} and {high})."
    assert told["verdict"] == wanted
    assert wanted in told["text"]
    assert "when it finishes is not known from this" in told["text"]
