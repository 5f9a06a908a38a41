"""What a person's own module, builder or loss does wrong is told in one line, with its place."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from typer.testing import CliRunner

torch = pytest.importorskip("torch")

from cotenant.app.main import app  # noqa: E402
from cotenant.errors import ConfigError  # noqa: E402
from cotenant.profiles.graph.failures import quiet, untraceable  # noqa: E402
from cotenant.profiles.graph.ir import Options  # noqa: E402
from cotenant.profiles.graph.source import read_graph  # noqa: E402

SOURCE = """import sys
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, stops=False):
        super().__init__()
        self.last, self.stops = nn.Linear(5, 4), stops

    def forward(self, x):
        if self.stops:
            sys.exit(4)
        return self.last(x)

def mismatch(batch):
    return Net(), torch.randn(8, 4)

def quits(batch):
    sys.exit(3)

def stops(batch):
    return Net(True), torch.randn(8, 5)

def number(batch):
    return Net(), torch.randn(8, 5), 3

def raises(batch):
    raise ValueError("no data here")
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "cnn.py"
    path.write_text(SOURCE)
    return str(path)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("mismatch", "raised RuntimeError: mat1 and mat2 shapes cannot be multiplied (8x4 and 5x4) at {}:13"),
        ("quits", "raised SystemExit: it ends the program (sys.exit(3)) at {}:19"),
        ("stops", "raised SystemExit: it ends the program (sys.exit(4)) at {}:12"),
        ("number", "returned a loss that is no function but int; it takes what the module returns"),
        ("raises", "raised ValueError: no data here at {}:28"),
    ],
)
def test_one_line_says_what_and_where(name: str, told: str, file: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_graph(f"{file}:{name}", Options(batch=1))
    message = str(caught.value)
    assert told.format(file) in message
    assert "\n" not in message
    assert "fake tensors" not in message


def test_torch_prints_nothing_before_the_error(file: str, caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    logger.addHandler(caplog.handler)
    try:
        result = CliRunner().invoke(app, ["predict", "memory", f"{file}:mismatch", "--device", "T4"])
    finally:
        logger.removeHandler(caplog.handler)
    assert result.exit_code == 1
    assert caplog.records == []
    assert not logger.disabled


def test_loggers_are_as_before_even_after_an_error() -> None:
    logger = logging.getLogger("torch.of.a.test")
    with pytest.raises(ValueError, match="x"), quiet():
        assert logger.disabled
        raise ValueError("x")
    assert not logger.disabled


def test_numbers_that_fake_tensors_lack_have_their_own_advice() -> None:
    from torch._subclasses.fake_tensor import DataDependentOutputException

    told = str(untraceable("mine", DataDependentOutputException("aten.item")))
    assert told.startswith("mine cannot be traced on fake tensors: DataDependentOutputException")
    assert "does not depend on the values of its inputs" in told


@pytest.mark.parametrize(
    ("source", "meant"),
    [("ResNet-51@ImageNet", "ResNet-50@ImageNet"), ("resnet-50", "ResNet-50@"), ("AlexNet", "AlexNet@")],
)
def test_a_network_that_the_zoo_lacks_gets_a_suggestion_and_the_list(source: str, meant: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_graph(source, Options(batch=1))
    assert f'did you mean "{meant}' in str(caught.value)
    assert "a network of the zoo: ResNet-18@CIFAR-10, " in str(caught.value)


def test_functions_of_a_file_are_listed(file: str) -> None:
    with pytest.raises(
        ConfigError, match="no 'mismatches'; did you mean \"mismatch\"\\? it has: Net, mismatch, quits"
    ):
        read_graph(f"{file}:mismatches", Options(batch=1))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("raise SystemExit(3)", "SystemExit while loading: 3"),
        ("raise ModuleNotFoundError('No module named torch', name='torch')", 'pip install "cotenant[torch]"'),
    ],
)
def test_a_file_that_ends_the_program_or_lacks_torch_is_told(text: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "ends.py"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_graph(f"{path}:build", Options(batch=1))
    assert told in str(caught.value)


LOSSES = """import torch
from torch import nn

def mismatch(batch):
    def loss(out):
        target = torch.zeros(batch, 5)
        return ((out - target) ** 2).mean()
    return nn.Linear(16, 4), torch.randn(batch, 16), loss

def number(batch):
    return nn.Linear(16, 4), torch.randn(batch, 16), lambda out: 3.0

def detached(batch):
    return nn.Linear(16, 4), torch.randn(batch, 16), lambda out: out.detach().mean()

def good(batch):
    return nn.Linear(16, 4), torch.randn(batch, 16), lambda out: out.mean()
"""


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("mismatch", "the loss function raised RuntimeError: "),
        ("number", "the loss function returned float that leads back to no weight"),
        ("detached", "the loss function returned a tensor that leads back to no weight"),
    ],
)
def test_a_loss_that_fails_is_warned_of_with_its_place_and_what_is_told_without_it(
    name: str, told: str, tmp_path: Path
) -> None:
    path = tmp_path / "losses.py"
    path.write_text(LOSSES)
    source = f"{path}:{name}"
    graph = read_graph(source, Options(batch=8))
    (said,) = graph.notes
    assert said.startswith(told)
    assert said.endswith("a backward pass derived from it by rules, without the loss")
    assert (f" at {path}:7; a real run fails there" in said) is (name == "mismatch")
    assert graph.source == "torch fake tensors, backward derived"
    for words in (["features", source], ["predict", "memory", source], ["predict", "resources", source]):
        done = CliRunner().invoke(
            app, [*words, "--batch", "8", *(["--device", "V100"] if len(words) > 2 else [])]
        )
        assert done.exit_code == 0
        assert f"warning: {said}\n" in done.stderr
    assert read_graph(f"{path}:good", Options(batch=8)).notes == ()
