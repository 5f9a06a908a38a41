"""Sharded by fully_shard: the same bits on any number of processes, and as unsharded accumulation."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from cotenant.elastic.sharded import check_optimizers
from cotenant.errors import InputError

torch = pytest.importorskip("torch")

LONG = os.environ.get("COTENANT_ELASTIC_LONG") == "1"
SHORT = {"epochs": 2 if LONG else 1}
CASES: dict[str, dict[str, Any]] = {
    "BatchNorm, unused parameters, AdamW, clipped": {"model": "net"},
    "tied weights, workers without samples": {"model": "gpt", "optimizer": "adam", "clip": False} | SHORT,
    "bf16 parameters, fp32 sums": {"model": "gpt", "mixed": True, "optimizer": "sgd"} | SHORT,
    "fp16 with scaler": {"model": "net", "precision": "fp16", "optimizer": "sgd"},
    "accumulated over two steps, PyTorch's own clipping": {
        "model": "net",
        "accumulate": 2,
        "optimizer": "adam",
        "torch_clip": True,
    },
    "offload policy": {"model": "net", "offload": True} | SHORT,
}
MORE: dict[str, dict[str, Any]] = {
    f"{model}, {optimizer}, {precision or 'fp32'}, {workers} workers": {
        "model": model,
        "optimizer": optimizer,
        "precision": precision,
        "workers": workers,
    }
    for model in ("net", "gpt")
    for optimizer in ("sgd", "adam", "adamw")
    for precision in ("", "bf16")
    for workers in ((4, 7) if model == "gpt" else (4,))
}


@pytest.fixture
def sharded(play: Any, tmp_path: Path) -> Any:
    def together(processes: int, name: str = "", **options: Any) -> list[str]:
        folder = str(tmp_path / f"state{name or play.count}")
        options = {"script": "sharded_training.py", "sharded": True, "state": folder} | options
        return list(play.together(processes, **options))

    return together


def alone(play: Any, **options: Any) -> list[str]:
    return list(play.alone(script="sharded_training.py", **options))


@pytest.mark.parametrize(
    "options", (CASES | MORE if LONG else CASES).values(), ids=CASES | MORE if LONG else CASES
)
def test_bits_are_those_of_unsharded_accumulation(play: Any, sharded: Any, options: dict[str, Any]) -> None:
    expected = alone(play, **options)
    assert len(set(expected)) >= len(expected) // options.get("accumulate", 1) > 3
    assert alone(play, sharded=True, **options) == expected
    for processes in (2, 3, 4) if LONG or options == {"model": "net"} else (3,):
        assert sharded(processes, **options) == expected
        assert play.processes == [processes] * len(expected)
        assert play.code == 0


def test_grown_shrunk_killed_and_resumed_unsharded(play: Any, sharded: Any, tmp_path: Path) -> None:
    expected = alone(play, epochs=3)
    log, folder = str(tmp_path / "log"), str(tmp_path / "state")
    killed: list[int] = []

    def on_poll(supervisor: Any, steps: int) -> None:
        supervisor.want(3 if steps < 5 else 2)
        if steps >= 8 and not killed and len(supervisor._members) == 2:
            name = supervisor._members[1]
            os.kill(supervisor.running[name], signal.SIGKILL)
            killed.append(steps)

    more = {"every": 3, "sleep": 0.05, "log": log, "state": folder, "epochs": 2}
    with contextlib.suppress(AssertionError):  # steps after the last checkpoint are done twice
        sharded(2, up_to=4, on_poll=on_poll, **more)
    lines = play.lines({"log": log})
    assert play.code == 0
    assert killed
    assert {int(line[0]) for line in lines} == set(range(10))
    assert [line[1] for line in lines] == [expected[int(line[0])] for line in lines]
    assert {line[2] for line in lines} == {"3", "2"}
    # The checkpoint is that of an unsharded run, which goes on from it.
    after = str(tmp_path / "after")
    with contextlib.suppress(AssertionError):
        alone(play, state=folder, epochs=3, log=after)
    assert [line[1] for line in play.lines({"log": after})] == expected[10:]


@pytest.mark.parametrize("seed", range(int(os.environ.get("COTENANT_ELASTIC_KILLS", "1"))))
def test_killed_at_any_moment_it_begins_again_from_the_last_checkpoint(
    play: Any, sharded: Any, tmp_path: Path, seed: int
) -> None:
    options = {"epochs": 3 if LONG else 2, "model": "net"}
    expected = alone(play, **options)
    draw = random.Random(seed)
    log, begun = str(tmp_path / "log"), time.monotonic()
    # Also before the first step, while processes meet, in a checkpoint, when they leave for another number.
    moments = sorted(draw.uniform(0.0, 4.0) for _ in range(3))
    killed: list[int] = []

    def on_poll(supervisor: Any, steps: int) -> None:
        if moments and time.monotonic() - begun > moments[0] and supervisor.running:
            moments.pop(0)
            killed.append(steps)
            os.kill(draw.choice(list(supervisor.running.values())), signal.SIGKILL)
            supervisor.want(draw.randint(1, 3))

    with contextlib.suppress(AssertionError):  # steps after the last checkpoint are done twice
        sharded(3, on_poll=on_poll, every=2, sleep=0.06, log=log, **options)
    lines = play.lines({"log": log})
    late = "may not be done" in " ".join(play.told)
    assert play.code == (137 if late else 0), (killed, play.told)
    assert killed
    assert {int(line[0]) for line in lines} == set(range(len(expected)))
    assert [line[1] for line in lines] == [expected[int(line[0])] for line in lines]


def test_another_mixed_precision_policy_is_not_the_same_bits(play: Any, tmp_path: Path) -> None:
    log = str(tmp_path / "log")

    def refused(**policy: Any) -> str:
        """Why the run does not go on bitwise from the state there is; empty if it does."""
        Path(log + ".error").write_text("")
        options = {"model": "gpt", "optimizer": "sgd", "sharded": True, "state": str(tmp_path / "state")}
        with contextlib.suppress(AssertionError):  # steps do not begin at 0
            alone(play, log=log, **{"least": "bitwise", "epochs": 1} | options | policy)
        why = Path(log + ".error").read_text()
        assert play.code == (1 if why else 0)
        return why

    both = "param_dtype bfloat16, reduce_dtype float32, output_dtype None, cast_forward_inputs True"
    assert refused() == ""
    for module in ("layer", "the model"):
        assert f"mixed precision of {module} none -> {both}" in refused(mixed=True)
    assert "grade statistical: mixed precision" in refused(output="bfloat16")
    # Going on with less than bitwise, the state is from then on that of the new policy.
    assert refused(mixed=True, least="statistical", epochs=2) == ""
    assert refused(mixed=True, epochs=2) == ""
    assert f"mixed precision of the model {both} -> none" in refused(epochs=2)


@pytest.mark.parametrize("processes", [1, 2])
def test_a_module_that_is_left_out_now_and_then_is_noticed(
    play: Any, sharded: Any, tmp_path: Path, processes: int
) -> None:
    log = str(tmp_path / "log")
    with contextlib.suppress(AssertionError):
        if processes == 1:
            alone(play, model="skips", sharded=True, log=log)
        else:
            sharded(processes, model="skips", log=log)
    assert play.code == 1
    why = Path(log + ".error").read_text()
    assert "each fully_shard module must be called on every process, in every turn" in why
    assert "second" in why


def test_a_sum_over_shards_is_told_or_refused(play: Any, sharded: Any, tmp_path: Path) -> None:
    place = f"{Path(__file__).with_name('sharded_training.py')}:"
    told = "a sum over the shards of the model depends on the number of processes"
    with contextlib.suppress(AssertionError):
        sharded(2, norms="item", least="bitwise", log=str(tmp_path / "log"))
    why = (tmp_path / "log.error").read_text()
    assert why.startswith(place)
    assert told in why
    log = str(tmp_path / "full")
    expected = alone(play, epochs=1)
    assert sharded(2, "full", norms="full", epochs=1, log=log) == expected  # nothing was done with the sum
    assert play.code == 0, play.told
    assert Path(log + ".grade").read_text() == "statistical"
    log = str(tmp_path / "none")
    assert sharded(2, "none", epochs=1, log=log) == expected
    assert Path(log + ".grade").read_text() == "bitwise"


@pytest.mark.parametrize("killed", [0, 1])
def test_killed_while_all_make_the_final_model(
    play: Any, sharded: Any, tmp_path: Path, capfd: Any, killed: int
) -> None:
    log, folder, gone = str(tmp_path / "final"), str(tmp_path / "state"), list[str]()

    def on_poll(supervisor: Any, steps: int) -> None:
        if supervisor._board.finished and not gone:
            gone.append(supervisor.members[killed])
            os.kill(supervisor.running[gone[0]], signal.SIGKILL)

    sharded(2, epochs=1, log=log, state=folder, final=2.0, on_poll=on_poll)
    assert play.code == 137, play.told
    assert "start the run again for that alone" in " ".join(play.told)
    assert "Traceback" not in capfd.readouterr().err
    assert not Path(log + ".final").exists()
    assert sharded(2, epochs=1, log=str(tmp_path / "again"), state=folder, final=0.0) == []
    assert play.code == 0
    assert (tmp_path / "again.final").exists()


def test_who_is_late_at_the_last_step_still_does_what_the_script_does_then(
    play: Any, sharded: Any, tmp_path: Path
) -> None:
    log = str(tmp_path / "late")
    sharded(2, epochs=1, log=log, late=1.0)
    assert play.code == 0, play.told
    assert Path(log + ".grade").read_text() == "bitwise"


@pytest.mark.parametrize(
    "kind", ["Adamax", "NAdam", "RAdam", "RMSprop", "Adagrad", "Adadelta", "ASGD", "Adafactor"]
)
def test_only_optimizers_whose_bits_were_compared_are_taken(kind: str) -> None:
    weights = [torch.nn.Parameter(torch.ones(3))]
    check_optimizers({"one": torch.optim.SGD(weights), "other": torch.optim.AdamW(weights)})
    optimizer = getattr(torch.optim, kind)(weights)
    with pytest.raises(InputError, match=f"'it' is a {kind}, .* use torch.optim's Adam, AdamW, SGD, or set"):
        check_optimizers({"it": optimizer})
    optimizer.elementwise = True
    check_optimizers({"it": optimizer})


def test_an_optimizer_of_a_known_name_is_not_taken_for_it() -> None:
    with pytest.raises(InputError, match="'it' is a Adam, "):
        check_optimizers({"it": type("Adam", (torch.optim.Adam,), {})([torch.nn.Parameter(torch.ones(3))])})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"order": "blocks"}, "order 'sequence'"),
        ({"optimizer": "fused"}, "fused AdamW"),
        ({"optimizer": "adafactor"}, "Adafactor, which may combine"),
        ({"model": "gpt", "torn": True}, "one tied parameter in two fully_shard groups"),
    ],
)
def test_refused_with_a_reason(play: Any, tmp_path: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises(AssertionError):
        alone(play, sharded=True, log=str(tmp_path / "log"), **options)
    assert play.code == 1
    assert words in (tmp_path / "log.error").read_text()
