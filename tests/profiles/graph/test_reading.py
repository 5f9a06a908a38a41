"""Modules that are easy and modules that resist; options; what a builder may return."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from cotenant.errors import ConfigError  # noqa: E402
from cotenant.profiles.graph.features import features_of  # noqa: E402
from cotenant.profiles.graph.ir import Graph, Options  # noqa: E402
from cotenant.profiles.graph.torchreader import read_builder, read_module  # noqa: E402

torch.set_num_threads(1)


class Blocks(nn.Module):
    """Repeated blocks of two linear layers."""

    def __init__(self, count: int = 3) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8)) for _ in range(count)
        )

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return x.sum()


def blocks(batch: int) -> Any:
    return Blocks(), torch.randn(batch, 8)


def read(build: Any, batch: int = 4, **more: Any) -> Graph:
    return read_builder(build, Options(batch=batch, **more))


class Asking(nn.Module):
    """Asks for values in its forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        scale = x.abs().max().item()
        rows = torch.nonzero(x[:, 0] > 0)
        return (self.layer(x) * scale).sum() + rows.sum()


def test_a_module_that_asks_for_values_is_read_and_the_notes_say_what_was_assumed() -> None:
    graph = read(lambda b: (Asking(), torch.randn(b, 8)))
    assert features_of(graph).flops_forward == 2 * 4 * 8 * 8
    assert any("_local_scalar_dense" in text and "1 times" in text for text in graph.notes)
    assert any("nonzero" in text for text in graph.notes)


class OneWay(torch.autograd.Function):
    """Has no backward pass on fake tensors."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        raise RuntimeError("only on a real device")


class Broken(nn.Module):
    """A layer before and after a function that cannot go back."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: Any) -> Any:
        return self.last(OneWay.apply(self.first(x)).relu()).sum()


def test_a_backward_pass_that_cannot_be_traced_is_derived_and_said_to_be() -> None:
    graph = read(lambda b: (Broken(), torch.randn(b, 8)))
    found = features_of(graph)
    assert "derived" in graph.source
    assert any("only on a real device" in text for text in graph.notes)
    one = 2 * 4 * 8 * 16
    assert found.flops_forward == 2 * one
    # The second layer's two products, the first layer's for its weight alone.
    assert found.flops_backward == 3 * one
    assert found.gradient_bytes == (8 * 16 + 16 + 16 * 8 + 8) * 4


def test_a_module_that_cannot_run_gives_one_line_with_the_reason() -> None:
    with pytest.raises(
        ConfigError, match=r"raised RuntimeError: mat1 and mat2 shapes cannot be multiplied \(4x4 and 3x3\)$"
    ):
        read(lambda b: (nn.Linear(3, 3), torch.randn(b, 4)))


def test_a_builder_that_returns_something_else_is_told_what_it_should_return() -> None:
    with pytest.raises(ConfigError, match=r"must return \(module, inputs\).*it returned \(int\)"):
        read(lambda b: b)


class Numpy(nn.Module):
    """Its weights come from real numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(torch.ones(8, 8).numpy().copy()))

    def forward(self, x: Any) -> Any:
        return (x @ self.weight).sum()


def test_a_builder_that_needs_real_numbers_is_run_and_its_weights_are_made_fake() -> None:
    graph = read(lambda b: (Numpy(), torch.randn(b, 8)))
    assert any("made fake afterwards" in text for text in graph.notes)
    assert features_of(graph).flops_forward == 2 * 4 * 8 * 8


class Leaving(nn.Module):
    """Leaves torch in its forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        scale = float(x.numpy().max()) + int(x[0, 0].item() > 100)
        return (self.layer(x) * scale).sum()


def test_a_module_that_leaves_torch_is_really_run_and_the_source_says_so() -> None:
    graph = read(lambda b: (Leaving(), torch.randn(b, 8)))
    found = features_of(graph)
    assert graph.source == "torch, really run"
    assert "one step was really run on the CPU" in graph.notes[0]
    assert (found.flops_forward, found.flops_backward) == (2 * 4 * 8 * 8, 2 * 4 * 8 * 8)
    assert found.gradient_bytes == (64 + 8) * 4
    # Nothing was assumed: the values were there.
    assert len(graph.notes) == 1


def test_a_builder_that_raises_is_told_in_one_line() -> None:
    def build(batch: int) -> Any:
        raise KeyError("width")

    with pytest.raises(ConfigError, match="build raised KeyError: 'width'"):
        read(build)


def test_a_number_that_decides_the_networks_shape_is_not_assumed() -> None:
    def build(batch: int) -> Any:
        widths = [int(w.item()) for w in torch.linspace(8, 32, 3)]
        return nn.Sequential(*(nn.Linear(a, b) for a, b in pairwise(widths))), torch.randn(batch, 8)

    graph = read(build)
    assert features_of(graph).parameters == 8 * 20 + 20 + 20 * 32 + 32
    assert any("needs real weights" in text for text in graph.notes)


def test_a_real_module_is_left_as_it_was() -> None:
    module = Blocks().eval()
    weights = [p.clone() for p in module.parameters()]
    graph = read_module(module, torch.randn(4, 8), options=Options(batch=4, precision="bf16"))
    assert not module.training
    assert all(
        torch.equal(a, b) and a.dtype == torch.float32
        for a, b in zip(weights, module.parameters(), strict=True)
    )
    assert all(p.grad is None for p in module.parameters())
    assert features_of(graph).parameter_bytes == sum(p.numel() for p in module.parameters()) * 2


def test_functions_of_torch_are_put_back_after_reading_for_a_gpu() -> None:
    before = (nn.functional.dropout, nn.functional.scaled_dot_product_attention)
    read(lambda b: (nn.Sequential(nn.Linear(8, 8), nn.Dropout()), torch.randn(b, 8)))
    with pytest.raises(ConfigError):
        read(lambda b: (nn.Linear(3, 3), torch.randn(b, 4)))
    assert (nn.functional.dropout, nn.functional.scaled_dot_product_attention) == before


def test_a_dropout_mask_is_a_byte_an_element_on_a_gpu_and_a_float_on_a_cpu() -> None:
    def build(batch: int) -> Any:
        return nn.Sequential(nn.Linear(8, 64), nn.Dropout(0.5), nn.Linear(64, 1)), torch.randn(batch, 8)

    gpu, cpu = (features_of(read(build, 16, device=device)) for device in ("gpu", "cpu"))
    assert cpu.activation_bytes - gpu.activation_bytes == 16 * 64 * 3


def test_checkpointing_keeps_less_and_computes_the_blocks_again() -> None:
    plain, again = (features_of(read(blocks, 64, checkpointing=flag)) for flag in (False, True))
    assert again.flops_forward == plain.flops_forward
    # All but each block's last product is needed again; PyTorch stops there.
    assert plain.flops_backward < again.flops_backward <= plain.flops_backward + plain.flops_forward
    assert again.activation_bytes < plain.activation_bytes
    assert any("3 repeated blocks" in text for text in again.notes)


def test_checkpointing_without_blocks_changes_nothing_and_says_so() -> None:
    graph = read(lambda b: (nn.Linear(8, 8), torch.randn(b, 8)), checkpointing=True)
    assert any("no repeated blocks" in text for text in graph.notes)


def test_tied_weights_count_once() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.out = nn.Embedding(50, 8), nn.Linear(8, 50, bias=False)
            self.out.weight = self.embed.weight

        def forward(self, words: Any) -> Any:
            return self.out(self.embed(words)).sum()

    found = features_of(read(lambda b: (Tied(), torch.randint(50, (b, 3)))))
    assert found.parameters == 400
    assert found.parameter_bytes == 1600


def test_frozen_weights_get_neither_gradient_nor_state() -> None:
    def build(batch: int) -> Any:
        module = nn.Sequential(nn.Linear(8, 8, bias=False), nn.Linear(8, 4, bias=False))
        module[0].weight.requires_grad_(False)
        return module, torch.randn(batch, 8)

    found = features_of(read(build, optimiser="adam"))
    assert (found.parameters, found.gradient_bytes, found.optimiser_bytes) == (96, 128, 256)


def test_reading_is_repeatable() -> None:
    assert read(blocks) == read(blocks)


def test_a_loss_of_ones_own_is_used() -> None:
    graph = read(lambda b: (nn.Linear(8, 4), torch.randn(b, 8), lambda out: out.square().sum()))
    assert "aten.pow" in {op.name for op in graph.ops}
    assert not graph.notes


def test_an_operator_that_no_table_knows_is_named_and_counted() -> None:
    def build(batch: int) -> Any:
        class Odd(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.layer = nn.Linear(8, 8)

            def forward(self, x: Any) -> Any:
                return torch.special.bessel_j0(self.layer(x).detach()).sum() + self.layer(x).sum()

        return Odd(), torch.randn(batch, 8)

    found = features_of(read(build))
    assert found.unknown == {"aten.special_bessel_j0": 1}
    other = next(use for use in found.classes if use.kind == "other")
    assert (other.scalar_ops, other.moved_bytes) == (32, 2 * 32 * 4)
