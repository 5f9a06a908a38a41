"""Two runs are told apart at the first step, worker, module and tensor, with the cause: each cause by a training that has it."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from cotenant import elastic
from cotenant.app import elasticdiff
from cotenant.elastic import diff, logs
from cotenant.elastic.contexts import Context
from cotenant.errors import InputError

torch = pytest.importorskip("torch")
nn = torch.nn
STEPS = 3  # of an epoch: 24 samples, 2 for each of 4 workers


@pytest.fixture(autouse=True)
def _as_before() -> Any:
    deterministic, threads = torch.are_deterministic_algorithms_enabled(), torch.get_num_threads()
    yield
    torch.use_deterministic_algorithms(deterministic)
    torch.set_num_threads(threads)


class Net(nn.Module):
    """What is declared first is called last."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(8, 4)
        self.drop = nn.Dropout(0.5)
        self.body = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Tanh())
        self.register_buffer("scale", torch.ones(()))

    def forward(self, x: Any) -> Any:
        return self.head(self.drop(self.body(x * self.scale)))


class Pictures(torch.utils.data.Dataset[Any]):
    def __init__(self, changed: int | None = None) -> None:
        self.x = torch.randn(24, 3, generator=torch.Generator().manual_seed(1))
        if changed is not None:
            self.x[changed, 0] += 1.0

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> Any:
        return self.x[index], index % 4


class Place:
    """What a test changes in a training, and where."""

    def __init__(self, run: Any, model: Any, step: Any, worker: int) -> None:
        self.run, self.model, self.step, self.worker = run, model, step, worker

    def at(self, step: int, worker: int = -1) -> bool:
        return (self.step.number, self.worker) == (step, worker)


Hook = Callable[[Place], None]


def nothing(place: Place) -> None:
    del place


@pytest.fixture
def logged(tmp_path: Path) -> Any:
    """Trains, with a log, and reads it."""

    def run(
        name: str,
        *,
        turn: Hook = nothing,
        begun: Hook = nothing,
        stepped: Hook = nothing,
        updated: Hook = nothing,
        loss: Any = nn.functional.cross_entropy,
        data: Any = None,
        optimizer: Any = lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
        batch_size: int = 2,
        model: Any = Net,
        epochs: int = 1,
        shuffle: bool = True,
        stop_after: int | None = None,
        **options: Any,
    ) -> Any:
        options = {"workers": 4, "seed": 5, "threads": 1, "digests": tmp_path / name} | options
        run = elastic.Run(**options)
        net, loader = run.prepare(model(), data or Pictures(), batch_size, shuffle=shuffle)
        opt = optimizer(net.parameters())
        run.keep(opt)
        for step in run.steps(loader, epochs):
            begun(Place(run, net, step, -1))
            for worker, (x, y) in enumerate(step):
                turn(Place(run, net, step, worker))
                loss(net(x), y).backward()
                step.note(loss=1.0)
            stepped(Place(run, net, step, -1))
            opt.step()
            updated(Place(run, net, step, -1))
            opt.zero_grad()
            if step.number == stop_after:
                run.save()
                break
        return logs.read(tmp_path / name) if options["digests"] else None

    return run


def place(found: diff.Difference | None) -> tuple[Any, ...]:
    assert found is not None
    return found.step, found.worker, found.cause, found.module, found.tensors[0]


def test_the_same_training_twice_has_the_same_digests(logged: Any) -> None:
    a, b = logged("a", epochs=2), logged("b", epochs=2)
    assert a.steps == list(range(2 * STEPS))
    assert a.records == b.records
    assert diff.compare(a, b) is None
    assert diff.missing(a, b) == []
    # Before the first step, four turns, mean, update and state after each: nothing is written twice.
    assert len(a.records) == 1 + 7 * 2 * STEPS


def test_the_log_changes_no_bits_and_only_every_so_many_steps_are_in_it(logged: Any) -> None:
    ends: list[list[Any]] = []

    def keep(at: Place) -> None:
        if at.step.number == 2 * STEPS - 1:
            ends.append([tensor.detach().clone() for tensor in at.model.state_dict().values()])

    assert logged("none", updated=keep, epochs=2, digests=None) is None
    for every, steps in ((1, [0, 1, 2, 3, 4, 5]), (2, [0, 2, 4]), (5, [0, 5])):
        assert logged(f"log{every}", updated=keep, epochs=2, digests_every=every).steps == steps
    assert len(ends) == 4
    assert all(torch.equal(p, q) for end in ends[1:] for p, q in zip(ends[0], end, strict=True))


# -- loader ------------------------------------------------------------------------


def test_a_changed_sample_is_the_loader_where_it_is_first_read(logged: Any) -> None:
    a, b = logged("a"), logged("b", data=Pictures(changed=13))
    read = {key: record["samples"] for key, record in a.records.items() if key[1] == "turn"}
    ((step, _, _, worker),) = [key for key, samples in read.items() if 13 in samples]
    found = diff.compare(a, b)
    assert place(found) == (step, worker, "loader", None, "batch[0]")
    assert "the same samples were read" in found.evidence  # type: ignore[union-attr]


def test_another_order_of_samples_is_the_loader(logged: Any) -> None:
    found = diff.compare(logged("a"), logged("b", shuffle=False))
    assert place(found)[:4] == (0, 0, "loader", None)
    assert "other samples were read" in found.evidence  # type: ignore[union-attr]
    assert "and 0, 4" in found.evidence  # type: ignore[union-attr]


# -- rng ---------------------------------------------------------------------------


def reseed(at: Place) -> None:
    if at.at(1, 2):
        torch.manual_seed(99)


def move(at: Place) -> None:
    if at.at(1):
        at.run._process.contexts[2] = Context.seeded(99)
        at.run._process.contexts[2].buffers = at.run._process.contexts[1].buffers


def draw(at: Place) -> None:
    if at.at(1, 2):
        random.random()


def test_a_seed_set_in_one_turn_is_rng_and_shows_in_the_dropout(logged: Any) -> None:
    found = diff.compare(logged("a"), logged("b", turn=reseed))
    assert place(found) == (1, 2, "rng", "drop", "output of drop")


def test_one_workers_generator_moved_between_steps_is_rng(logged: Any) -> None:
    found = diff.compare(logged("a"), logged("b", begun=move))
    assert place(found) == (1, 2, "rng", "drop", "output of drop")
    assert "differs before the turn" in found.evidence  # type: ignore[union-attr]


def test_a_number_drawn_more_is_rng_though_no_module_shows_it(logged: Any) -> None:
    assert place(diff.compare(logged("a"), logged("b", turn=draw))) == (1, 2, "rng", None, "python")


# -- kernel ------------------------------------------------------------------------


class OtherLinear(torch.autograd.Function):
    """The same product, with the gradient of the weights summed in another order."""

    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any, bias: Any) -> Any:
        ctx.save_for_backward(x, weight)
        return nn.functional.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        x, weight = ctx.saved_tensors
        return grad @ weight, (grad.t() @ x) * (1 + 2**-20), grad.sum(0)


class OtherTanh(torch.autograd.Function):
    """The same values, another formula for the derivative."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        y = torch.tanh(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (y,) = ctx.saved_tensors
        return grad * (1 - y) * (1 + y)


def by_rows(module: Any) -> Any:
    """A linear layer as sums of products, from the last to the first, with bias first."""

    def forward(x: Any) -> Any:
        out = module.bias.expand(len(x), -1)
        for n in reversed(range(x.shape[1])):
            out = out + x[:, n : n + 1] * module.weight[:, n]
        return out

    return forward


KERNELS: dict[str, tuple[Callable[[Any], tuple[Any, Any]], str, str]] = {
    "first in order of execution, last in that of declaration": (
        lambda m: (m.body[0], by_rows(m.body[0])),
        "body.0",
        "output of body.0",
    ),
    "called last": (lambda m: (m.head, by_rows(m.head)), "head", "output of head"),
    "backward of an activation": (
        lambda m: (m.body[2], OtherTanh.apply),
        "body.2",
        "gradient of the output of body.1",
    ),
    "gradient of weights alone": (
        lambda m: (m.body[0], lambda x: OtherLinear.apply(x, m.body[0].weight, m.body[0].bias)),
        "body.0",
        "body.0.weight",
    ),
    "code of the model itself": (
        lambda m: (m, lambda x: m.head(m.drop(m.body(x * m.scale) + 2**-20))),
        "the model",
        "input of drop",
    ),
}


@pytest.mark.parametrize(("change", "module", "tensor"), KERNELS.values(), ids=KERNELS)
def test_another_kernel_is_found_in_its_module(logged: Any, change: Any, module: str, tensor: str) -> None:
    def turn(at: Place) -> None:
        target, other = change(at.model)
        vars(target).pop("forward", None)
        if at.at(1, 3):
            target.forward = other

    assert place(diff.compare(logged("a"), logged("b", turn=turn))) == (1, 3, "kernel", module, tensor)


def test_of_several_gradients_of_weights_the_first_is_that_of_the_module_called_last(logged: Any) -> None:
    def turn(at: Place) -> None:
        if at.at(1, 3):
            for module in (at.model.body[0], at.model.body[1]):
                module.weight.register_hook(lambda grad: grad * (1 + 2**-20))

    found = diff.compare(logged("a"), logged("b", turn=turn))
    assert place(found) == (1, 3, "kernel", "body.1", "body.1.weight")
    assert found.tensors == ["body.1.weight", "body.0.weight"]  # type: ignore[union-attr]


def test_another_loss_is_a_kernel_outside_of_the_model(logged: Any) -> None:
    def loss(out: Any, y: Any) -> Any:
        return (out.logsumexp(1) - out.gather(1, y[:, None])[:, 0]).mean()

    found = diff.compare(logged("a"), logged("b", loss=loss))
    assert place(found) == (0, 0, "kernel", None, "gradient of the output of head")
    assert "the loss" in found.evidence  # type: ignore[union-attr]


# -- reduction, state, optimiser ---------------------------------------------------


@pytest.mark.parametrize("most", [4, 2])
def test_another_order_of_sums_is_a_reduction(logged: Any, most: int) -> None:
    # With two blocks the gradient that a worker leaves is a sum in one run, and its own in the other.
    found = diff.compare(logged("a", max_processes=most), logged("b", order="sequence"))
    assert place(found)[:3] == (0, None, "reduction")


def test_a_gradient_changed_before_the_update_is_the_optimisers(logged: Any) -> None:
    def clip(at: Place) -> None:
        if at.at(2):
            nn.utils.clip_grad_norm_(at.model.body.parameters(), 1e-3)

    found = diff.compare(logged("a"), logged("b", stepped=clip))
    assert place(found) == (2, None, "optimiser", "body.0", "body.0.weight")
    assert "what optimizer.step() was given is not" in found.evidence  # type: ignore[union-attr]


def test_a_parameter_or_buffer_that_the_script_changes_behind_the_update_is_state(logged: Any) -> None:
    def change(at: Place) -> None:
        if at.at(1):
            at.model.head.bias.data[2] = 0.5  # PyTorch's version counter does not see this

    def rescale(at: Place) -> None:
        if at.at(1):
            at.model.scale.fill_(1.5)

    a = logged("a")
    assert place(diff.compare(a, logged("b", updated=change))) == (1, None, "state", "head", "head.bias")
    assert place(diff.compare(a, logged("c", updated=rescale))) == (1, None, "state", "the model", "scale")


def test_a_resume_that_loses_something_is_state_and_the_run_contradicts_itself(
    logged: Any, tmp_path: Path
) -> None:
    def forget(at: Place) -> None:
        if at.at(2):
            with torch.no_grad():
                at.model.head.bias.zero_()

    a = logged("a", epochs=2)
    for name, wrong in (("right", nothing), ("wrong", forget)):
        logged(name, epochs=2, state=tmp_path / f"state {name}", stop_after=1)
        b = logged(name, epochs=2, state=tmp_path / f"state {name}", begun=wrong)
        found = diff.compare(a, b)
        if name == "right":
            assert found is None
            assert b.contradictions == []
        else:
            assert place(found) == (2, None, "state", "head", "head.bias")
            assert b.contradictions == [
                "step 2 was begun with another state than step 1 ended with (parameters)"
            ]


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (lambda p: torch.optim.SGD(p, lr=0.2, momentum=0.9), "group 0: lr 0.1 and 0.2"),
        (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True), "nesterov False and True"),
        (lambda p: torch.optim.AdamW(p, lr=0.1), "betas none and"),
    ],
)
def test_another_learning_rate_option_or_kind_is_the_optimisers(logged: Any, other: Any, words: str) -> None:
    found = diff.compare(logged("a"), logged("b", optimizer=other))
    assert place(found)[:3] == (0, None, "optimiser")
    assert words in found.evidence  # type: ignore[union-attr]


def test_a_learning_rate_changed_on_the_way_is_found_at_its_step(logged: Any) -> None:
    def slower(at: Place) -> None:
        if at.at(2):
            at.run._parts["optimizer"]["optimizer"].param_groups[0]["lr"] = 0.05

    found = diff.compare(logged("a"), logged("b", stepped=slower))
    assert place(found)[:3] == (2, None, "optimiser")
    assert found.evidence.endswith("settings differ: group 0: lr 0.1 and 0.05")  # type: ignore[union-attr]


def test_a_schedule_that_differs_is_told_with_both_values(
    logged: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedules = torch.optim.lr_scheduler

    def train(name: str, make: Callable[[Any], Any], before: Any = nothing) -> Any:
        keep = elastic.Run.keep

        def kept(run: Any, optimizer: Any) -> None:
            keep(run, optimizer, scheduler=make(optimizer))

        with monkeypatch.context() as patch:
            patch.setattr(elastic.Run, "keep", kept)
            return logged(name, begun=before)

    a = train("a", lambda o: schedules.OneCycleLR(o, 0.1, total_steps=STEPS))
    b = train("b", lambda o: schedules.OneCycleLR(o, 0.2, total_steps=STEPS))
    found = diff.compare(a, b)
    assert place(found) == (0, None, "optimiser", None, "lr of optimizer group 0")
    told = found.evidence  # type: ignore[union-attr]
    assert "max_lr of optimizer group 0 0.1 and 0.2" in told
    assert "base_lrs of scheduler [0.004] and [0.008]" in told

    a, b = (train(f"s{gamma}", lambda o, gamma=gamma: schedules.StepLR(o, 9, gamma)) for gamma in (0.1, 0.5))
    found = diff.compare(a, b)
    assert place(found) == (0, None, "optimiser", None, "gamma of scheduler")
    assert found.evidence.endswith("; settings differ: gamma of scheduler 0.1 and 0.5")  # type: ignore[union-attr]

    def lose(at: Place) -> None:
        if at.at(2):
            at.run._parts["scheduler"]["scheduler"].last_epoch = 7

    found = diff.compare(a, train("lost", lambda o: schedules.StepLR(o, 9, 0.1), lose))
    assert place(found)[:3] == (2, None, "optimiser")
    assert "last_epoch of scheduler 0 and 7" in found.evidence  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "compile_", [lambda m: torch.compile(m, backend="eager"), None], ids=["function", "method"]
)
def test_a_compiled_model_keeps_its_bits_and_is_not_watched_inside(
    logged: Any, tmp_path: Path, compile_: Any
) -> None:
    ends: list[list[Any]] = []

    def keep(at: Place) -> None:
        ends.append([tensor.detach().clone() for tensor in at.model.state_dict().values()])

    def model() -> Any:
        net = Net()
        if compile_ is not None:
            return compile_(net)
        net.body.compile(backend="eager")
        return net

    logged("none", model=model, updated=keep, digests=None)
    log = logged("a", model=model, updated=keep)
    inside = ["head", "drop"] if compile_ is None else []
    assert log.modules == ["(script)", "", *inside]
    assert all(torch.equal(p, q) for p, q in zip(ends[STEPS - 1], ends[-1], strict=True))


def test_of_several_inner_loops_the_first_that_differs_is_found(tmp_path: Path) -> None:
    def train(name: str, rate: float) -> logs.Log:
        run = elastic.Run(4, seed=5, threads=1, digests=tmp_path / name)
        model, loader = run.prepare(nn.ModuleList([nn.Linear(3, 4), nn.Linear(3, 4)]), Pictures(), 2)
        rates = (0.1, rate)
        both = [torch.optim.SGD(part.parameters(), lr) for part, lr in zip(model, rates, strict=True)]
        run.keep(both)
        for step in run.steps(loader, 1):
            for part, optimizer in zip(model, both, strict=True):
                for x, y in step.turn(optimizer):
                    nn.functional.cross_entropy(part(x), y).backward()
                optimizer.step()
                optimizer.zero_grad()
        return logs.read(tmp_path / name)

    a, b, same = train("a", 0.1), train("b", 0.2), train("c", 0.1)
    assert a.parts(0) == [0, 1]
    assert len(a.records) == 1 + STEPS * (2 * 6 + 1)
    assert diff.compare(a, same) is None
    assert place(diff.compare(a, b)) == (0, None, "optimiser", "1", "1.weight")


class TwoLoops:
    """The guide's GAN; the turn of worker 2 at step 1 is given to ``change`` with the name of its loop."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def train(self, name: str, change: Callable[[str, Any], None] = lambda loop, net: None) -> logs.Log:
        run = elastic.Run(4, seed=5, threads=1, digests=self.folder / name)
        net = nn.ModuleDict({"maker": nn.Linear(3, 3), "judge": nn.Linear(3, 1)})
        optimizers = {loop: torch.optim.SGD(net[loop].parameters(), 0.1) for loop in ("judge", "maker")}
        net, loader = run.prepare(net, Pictures(), 2)
        run.keep(list(optimizers.values()))
        for step in run.steps(loader, 1):
            for loop, optimizer in optimizers.items():
                for worker, (x, _) in enumerate(step.turn(optimizer)):
                    fake = net["maker"](x)
                    net["judge"](fake if loop == "maker" else fake.detach()).square().mean().backward()
                    if (step.number, worker) == (1, 2):
                        change(loop, net)
                optimizer.step()
                optimizer.zero_grad()
        return logs.read(self.folder / name)


@pytest.mark.parametrize("loop", ["judge", "maker"])
def test_of_two_loops_the_gradients_that_count_are_compared(tmp_path: Path, loop: str) -> None:
    def rounded(of: str) -> Callable[[str, Any], None]:
        def change(here: str, net: Any) -> None:
            if here == loop:
                net[of].weight.grad *= 1 + 2**-20

        return change

    gan = TwoLoops(tmp_path)
    a, b = gan.train("a"), gan.train("b", rounded(loop))
    found = diff.compare(a, b)
    assert place(found) == (1, 2, "kernel", loop, f"{loop}.weight")
    if loop == "maker":  # the judge's are there as well, and are dropped
        assert diff.compare(a, gan.train("c", rounded("judge"))) is None


# -- several processes -------------------------------------------------------------


@pytest.fixture
def played(play: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    def run(name: str, processes: int = 1, **options: Any) -> logs.Log:
        monkeypatch.setenv("COTENANT_ELASTIC_DIGESTS", str(tmp_path / name))
        options = {"epochs": 1} | options
        if options.get("sharded"):
            options["state"] = str(tmp_path / f"state {name}")
        if processes == 1:
            play.alone(**options)
        else:
            play.together(processes, **options)
        return logs.read(tmp_path / name)

    return run


def test_one_and_three_processes_have_the_same_digests(played: Any) -> None:
    alone, three = played("a", model="cnn"), played("b", 3, model="cnn")
    assert len(alone.steps) == 5
    assert alone.records == three.records
    assert three.contradictions == []
    assert diff.compare(alone, three) is None


def test_a_gan_of_two_loops_has_the_same_digests_on_any_number_of_processes(played: Any) -> None:
    alone, *others = (played(f"on {number}", number, script="loops.py") for number in (1, 2, 3))
    assert len(alone.steps) == 10
    assert alone.parts(0) == [0, 1]
    for log in others:
        assert log.contradictions == []
        assert diff.compare(alone, log) is None
        assert alone.records == log.records
    given = {key[2]: record["gradients"] for key, record in alone.records.items() if key[1] == "turn"}
    maker = [name.startswith("maker.") for name in alone.parameters]
    assert [one is None for one in given[0]] == maker
    assert [one is not None for one in given[1]] == maker


def test_who_comes_in_the_middle_of_a_step_tells_the_state_before_it(played: Any, tmp_path: Path) -> None:
    alone = played("a", script="loops.py")
    kill = {"flag": str(tmp_path / "flag"), "name": "1", "step": 3, "where": "after 0", "newcomer": True}

    def on_poll(supervisor: Any, steps: int) -> None:
        supervisor.want(4 if steps >= 3 else 3)

    replays = tmp_path / "replays"
    more = {"up_to": 4, "on_poll": on_poll, "replays": str(replays)}
    came = played("b", 3, script="loops.py", kill=kill, **more)
    assert set(replays.read_text().split()) == {"3"}
    (told,) = (record for key, record in came.records.items() if key[:2] == (3, "before"))
    (known,) = (record for key, record in alone.records.items() if key[:2] == (2, "after"))
    own = {"step", "when"}
    assert {k: v for k, v in told.items() if k not in own} == {k: v for k, v in known.items() if k not in own}
    assert came.contradictions == []
    assert diff.compare(alone, came) is None


def test_a_run_of_which_a_process_is_killed_has_the_same_digests(played: Any, tmp_path: Path) -> None:
    kill = {"flag": str(tmp_path / "flag"), "where": "turn", "step": 2, "name": "1"}
    killed = played("b", 3, kill=kill)
    assert (tmp_path / "flag").exists()
    assert len(list((tmp_path / "b").glob("*.jsonl"))) > 3
    assert killed.contradictions == []
    assert killed.records == played("a").records | {
        key: record for key, record in killed.records.items() if key[1] == "before"
    }


def test_a_sharded_run_is_logged_with_the_same_digests_on_any_number_of_processes(
    played: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COTENANT_ELASTIC_DIGESTS_EVERY", "2")
    options = {"script": "sharded_training.py", "model": "net"}
    whole = played("a", **options)
    shards = [played(f"b{number}", number, sharded=True, **options) for number in (1, 3)]
    assert whole.steps == [0, 2, 4]
    for log in shards:
        assert len(log.records) == len(whole.records)
        assert log.contradictions == []
        assert diff.compare(whole, log) is None
    other = played("c", 3, sharded=True, optimizer="sgd", **options)
    assert place(diff.compare(whole, other))[:3] == (0, None, "optimiser")


# -- files -------------------------------------------------------------------------


def test_digests_are_asked_for_by_script_or_environment(
    logged: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="digests=True, and no state folder"):
        logged("a", digests=True)
    with pytest.raises(InputError, match="digests_every is 0"):
        logged("a", digests_every=0)
    with pytest.raises(InputError, match="digests is 3: it must be a folder, or True"):
        logged("a", digests=3)
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"folder of digests .*file: .*; give another one"):
        logged("a", digests=tmp_path / "file")
    monkeypatch.setenv("COTENANT_ELASTIC_DIGESTS", str(tmp_path / "b"))
    monkeypatch.setenv("COTENANT_ELASTIC_DIGESTS_EVERY", "2")
    assert logged("b", digests=tmp_path / "elsewhere", digests_every=1).steps == [0, 2]
    assert not (tmp_path / "elsewhere").exists()
    monkeypatch.setenv("COTENANT_ELASTIC_DIGESTS_EVERY", "none")
    with pytest.raises(InputError, match="COTENANT_ELASTIC_DIGESTS_EVERY is 'none'"):
        logged("b")
    monkeypatch.delenv("COTENANT_ELASTIC_DIGESTS")
    monkeypatch.delenv("COTENANT_ELASTIC_DIGESTS_EVERY")
    assert logged("state/digests", digests=True, state=tmp_path / "state").steps == [0, 1, 2]


def cut(lines: list[str]) -> list[str]:
    return [*lines[:3], lines[3][: len(lines[3]) // 2], *lines[4:]]


DAMAGE: dict[str, tuple[Callable[[list[str]], list[str]], str]] = {
    "cut in the middle": (cut, r"jsonl:4: not a line of a log of digests \(damaged, or no JSON\)"),
    "beginning lost": (lambda lines: lines[2:], r"jsonl:1: a line before the one of kind 'run'"),
    "another program's": (
        lambda _: ['{"a": 1}', ""],
        r"jsonl:1: not a line of a log of digests \(kind None\)",
    ),
    "no JSON": (lambda _: ["hello"], r"jsonl:1: not a line of a log of digests \(damaged"),
    "a list": (lambda _: ["[1, 2]", ""], r"jsonl:1: not a line of a log of digests"),
    "an older format": (
        lambda lines: [lines[0].replace('"format":3', '"format":2'), *lines[1:]],
        r"jsonl:1: format 2, this version of cotenant reads 3",
    ),
    "a field lost": (
        lambda lines: [*lines[:2], lines[2].replace('"worker"', '"walker"'), *lines[3:]],
        r"jsonl:3: turn without a proper 'worker'",
    ),
    "a digest lost": (
        lambda lines: [*lines[:1], lines[1].replace('"parameters":[', '"parameters":[1,'), *lines[2:]],
        r"jsonl:2: 7 parameters where the run has 6",
    ),
    "nothing but the beginning": (lambda lines: [lines[0], ""], r"have taken no step of which they wrote"),
}


@pytest.mark.parametrize(("damage", "message"), DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_or_foreign_file_is_refused_by_line(
    logged: Any, tmp_path: Path, damage: Any, message: str
) -> None:
    logged("a")
    (path,) = (tmp_path / "a").glob("*.jsonl")
    path.write_text("\n".join(damage(path.read_text().split("\n"))))
    with pytest.raises(InputError, match=message):
        logs.read(tmp_path / "a")


def test_a_torn_last_line_is_passed_over(logged: Any, tmp_path: Path) -> None:
    log = logged("a")
    (path,) = (tmp_path / "a").glob("*.jsonl")
    with path.open("a") as file:
        file.write('{"kind":"tu')
    assert logs.read(tmp_path / "a") == log


def test_what_only_one_run_has_is_told(logged: Any, tmp_path: Path) -> None:
    a, b = logged("a"), logged("b")
    (path,) = (tmp_path / "b").glob("*.jsonl")
    kept = [line for line in path.read_text().split("\n") if '"step":1,"part":0,"worker":3' not in line]
    path.write_text("\n".join(kept))
    b = logs.read(tmp_path / "b")
    assert diff.compare(a, b) is None
    assert diff.missing(a, b) == ["step 1: the second run has no record of logical worker 3"]


def test_two_models_in_one_folder_are_refused_and_two_runs_contradict_each_other(logged: Any) -> None:
    logged("a")
    log = logged("a", optimizer=lambda p: torch.optim.SGD(p, lr=0.2))
    assert len(log.contradictions) > 5
    assert "has another before than a file before it (settings)" in log.contradictions[0]
    assert "has another update than a file before it" in log.contradictions[1]
    with pytest.raises(InputError, match="two runs of different models in one folder"):
        logged("a", model=lambda: nn.Linear(3, 4))


# -- the command -------------------------------------------------------------------


def command(*words: str) -> tuple[int, str, str]:
    found = subprocess.run(
        [sys.executable, "-m", "cotenant", "elastic", "diff", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    return found.returncode, found.stdout, found.stderr


def test_the_command_says_where_runs_part_and_its_exit_code_too(logged: Any, tmp_path: Path) -> None:
    a, b, c, d = (str(tmp_path / name) for name in "abcd")
    logged("a")
    logged("b")
    logged("c", turn=reseed)
    logged("d", batch_size=3)

    code, out, err = command(a, b)
    assert (code, out, err) == (0, "the same in all 3 steps that both logged, 0 to 2\n", "")

    code, out, err = command(a, c)
    assert (code, err) == (1, "")
    assert out.startswith(
        "step 1, logical worker 2: rng\n  module: drop\n  first:  output of drop\n  why:    "
    )

    code, out, err = command(a, c, "--json")
    told = json.loads(out)
    assert (code, err, told["same"], told["steps"]) == (1, "", False, [0, 1, 2])
    assert told["difference"]["cause"] == "rng"
    assert [told["difference"][name] for name in ("step", "worker", "module")] == [1, 2, "drop"]

    code, out, err = command(a, d)
    assert (code, out) == (2, "")
    assert "cannot be compared: batch size of a worker: 2 and 3" in err

    code, out, err = command(a, d, "--json")
    assert code == 2
    assert json.loads(out)["reasons"] == ["batch size of a worker: 2 and 3"]

    code, out, err = command(a, str(tmp_path / "nowhere"))
    assert (code, out) == (2, "")
    assert "there is no such folder; give the folder that a run wrote its digests to" in err


def test_the_example_of_the_page_is_what_comes_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    text = (Path(__file__).parents[2] / "docs" / "elastic-diff.md").read_text()
    (script,) = [
        part.partition("```")[0] for part in text.split("```python\n") if part.startswith("import sys")
    ]
    variants = {"one": script, "three": script, "four": script.replace("lr=0.01", "lr=0.02")}
    for name, code in variants.items():
        monkeypatch.setenv("COTENANT_ELASTIC_DIGESTS", str(tmp_path / name))
        monkeypatch.setattr(sys, "argv", ["train.py", "noisy"] if name == "three" else ["train.py"])
        exec(compile(code, "train.py", "exec"), {})
    for name in ("three", "four"):
        with pytest.raises(typer.Exit):
            elasticdiff.diff(tmp_path / "one", tmp_path / name)
        told = capsys.readouterr().out
        assert told.startswith("step ")
        assert told in text


def test_other_models_and_runs_without_a_common_step_cannot_be_compared(logged: Any) -> None:
    a = logged("a", digests_every=2)
    b = logged("b", model=lambda: nn.Sequential(nn.Linear(3, 4)))
    with pytest.raises(
        InputError, match=r"parameters: 8 are not the same, head.weight: float32\[4, 8\] and not there"
    ):
        diff.compare(a, b)
    c = a._replace(records={key: record for key, record in a.records.items() if key[0] == 2})
    d = a._replace(records={key: record for key, record in a.records.items() if key[0] == 0})
    with pytest.raises(InputError, match="no step in common: steps 2 to 2 and steps 0 to 0"):
        diff.compare(c, d)
