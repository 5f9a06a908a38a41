"""FLOPs, parameters and classes against counts made by hand and against PyTorch's own counter."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from cotenant.profiles.graph.features import features_of  # noqa: E402
from cotenant.profiles.graph.ir import Graph, GraphFeatures, Options  # noqa: E402
from cotenant.profiles.graph.torchreader import read_builder  # noqa: E402
from cotenant.profiles.zoo.recipes import builder_of, find_recipe  # noqa: E402

torch.set_num_threads(1)


def read(name: str, batch: int, **more: Any) -> Graph:
    return read_builder(builder_of(find_recipe(name)), Options(batch=batch, **more), name=name)


def conv(side: int, inside: int, out: int, kernel: int = 3, groups: int = 1) -> int:
    """FLOPs of a convolution whose output is side x side."""
    return 2 * side * side * out * inside // groups * kernel * kernel


def resnet18() -> int:
    total = conv(112, 3, 64, 7) + 4 * conv(56, 64, 64)
    for side, inside, out in ((28, 64, 128), (14, 128, 256), (7, 256, 512)):
        total += conv(side, inside, out) + 3 * conv(side, out, out) + conv(side, inside, out, 1)
    return total + 2 * 512 * 1000


def resnet50() -> int:
    total, inside = conv(112, 3, 64, 7), 64
    for side, width, count in ((56, 64, 3), (28, 128, 4), (14, 256, 6), (7, 512, 3)):
        out = 4 * width
        for number in range(count):
            # The first block's 1x1 still sees the larger image, except in the first stage.
            before = side * 2 if not number and width > 64 else side
            total += conv(before, inside, width, 1) + conv(side, width, width) + conv(side, width, out, 1)
            total += conv(side, inside, out, 1) if not number else 0
            inside = out
    return total + 2 * 2048 * 1000


def vgg16() -> int:
    total, inside = 0, 3
    for side, out, count in ((224, 64, 2), (112, 128, 2), (56, 256, 3), (28, 512, 3), (14, 512, 3)):
        for _ in range(count):
            total += conv(side, inside, out)
            inside = out
    return total + 2 * (25088 * 4096 + 4096 * 4096 + 4096 * 1000)


def mobilenet2() -> int:
    total, inside, side = conv(112, 3, 32), 32, 112
    rows = (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    )
    for expand, out, count, stride in rows:
        for number in range(count):
            hidden = inside * expand
            total += conv(side, inside, hidden, 1) if expand > 1 else 0
            side = side // stride if not number else side
            total += conv(side, hidden, hidden, 3, hidden) + conv(side, hidden, out, 1)
            inside = out
    return total + conv(7, 320, 1280, 1) + 2 * 1280 * 1000


def transformer_layers(layers: int, tokens: int, width: int) -> int:
    """Four linear layers, scores and their sum, two layers of four times the width."""
    return layers * (2 * tokens * width * width * 12 + 4 * tokens * tokens * width)


def bert() -> int:
    return transformer_layers(12, 384, 768) + 2 * 384 * 768 * 2


def gpt2() -> int:
    return transformer_layers(12, 1024, 768) + 2 * 1024 * 768 * 50257


def vit() -> int:
    return 2 * 196 * 768 * 3 * 16 * 16 + transformer_layers(12, 197, 768) + 2 * 768 * 1000


def lstm_words() -> int:
    return 2 * 35 * 2 * 4 * 200 * (200 + 200) + 2 * 35 * 200 * 33278


def dlrm() -> int:
    bottom = 13 * 512 + 512 * 256 + 256 * 64
    top = (64 + 27 * 26 // 2) * 512 + 512 * 256 + 256
    return 2 * (bottom + top + 27 * 27 * 64)


HAND: list[tuple[str, int, Callable[[], int]]] = [
    ("ResNet-18@ImageNet", 11_689_512, resnet18),
    ("ResNet-50@ImageNet", 25_557_032, resnet50),
    ("VGG-16@ImageNet", 138_357_544, vgg16),
    ("MobileNetV2@ImageNet", 3_504_872, mobilenet2),
    # 109,482,240 of BERT base without the pooler's 590,592, with two answers a token.
    ("BERT@SQuAD", 109_482_240 - 590_592 + 2 * 768 + 2, bert),
    ("GPT-2@WikiText", 124_439_808, gpt2),
    ("ViT-B/16@ImageNet", 86_567_656, vit),
    ("LM-LSTM@Wikitext-2", 33278 * 200 * 2 + 33278 + 2 * 4 * 200 * (200 + 200 + 2), lstm_words),
    (
        "DLRM@Criteo",
        2_600_000 * 64
        + (13 * 512 + 512 + 512 * 256 + 256 + 256 * 64 + 64)
        + (415 * 512 + 512 + 512 * 256 + 256 + 256 + 1),
        dlrm,
    ),
]


@pytest.mark.parametrize(("name", "parameters", "flops"), HAND, ids=[row[0] for row in HAND])
def test_parameters_and_forward_flops_are_those_counted_by_hand(
    name: str, parameters: int, flops: Callable[[], int]
) -> None:
    found = features_of(read(name, 2))
    assert found.parameters == parameters
    assert found.flops_forward == 2 * flops()
    assert found.unknown == {}
    assert not found.notes


@pytest.mark.filterwarnings("ignore:TF32 acceleration")
@pytest.mark.parametrize("name", [row[0] for row in HAND])
def test_forward_flops_are_those_of_pytorchs_counter(name: str) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    # It knows neither the CPU's fused attention nor its recurrent layers: both are taken apart for it.
    with FakeTensorMode(), sdpa_kernel(SDPBackend.MATH), torch.backends.mkldnn.flags(enabled=False):
        module, inputs = builder_of(find_recipe(name))(1)
        with FlopCounterMode(display=False) as counter:
            module(*inputs)
    assert features_of(read(name, 1)).flops_forward == counter.get_total_flops()


def small(module: Any, *shape: int, **more: Any) -> GraphFeatures:
    return features_of(
        read_builder(lambda batch: (module(), torch.randn(batch, *shape)), Options(batch=4, **more))
    )


def test_a_grouped_convolution_costs_twice_its_forward_pass_in_the_backward_pass() -> None:
    found = small(
        lambda: torch.nn.Sequential(torch.nn.Conv2d(8, 8, 1), torch.nn.Conv2d(8, 8, 3, padding=1, groups=8)),
        8,
        6,
        6,
    )
    pointwise, depthwise = 4 * conv(6, 8, 8, 1), 4 * conv(6, 8, 8, 3, 8)
    assert found.flops_forward == pointwise + depthwise
    # The first layer's input needs no gradient.
    assert found.flops_backward == pointwise + 2 * depthwise


def test_transposed_convolutions_are_counted_over_their_input() -> None:
    found = small(lambda: torch.nn.ConvTranspose2d(8, 5, 4, 2, 1, bias=False), 8, 6, 6)
    assert found.flops_forward == 4 * 2 * 8 * 6 * 6 * 5 * 16
    assert found.flops_backward == found.flops_forward


def test_depth_is_the_number_in_the_networks_name() -> None:
    assert features_of(read("ResNet-50@ImageNet", 1)).depth == 50
    assert features_of(read("VGG-16@ImageNet", 1)).depth == 16


def test_classes_hold_all_operators_and_their_sums_are_the_totals() -> None:
    graph = read("ResNet-18@CIFAR-10", 2)
    found = features_of(graph)
    assert sum(use.forward + use.backward for use in found.classes) == len(graph.ops)
    assert sum(use.flops for use in found.classes) == found.flops
    by_kind = {use.kind: use for use in found.classes}
    assert (by_kind["convolution"].forward, by_kind["convolution"].backward) == (20, 20)
    assert by_kind["convolution"].shapes[0] == ("(2,64,32,32) x (64,64,3,3)", 4)
    row = found.row()
    assert row["convolution_count"] == 20.0
    assert row["attention_count"] == 0.0


@pytest.mark.parametrize("batch", [1, 3, 8])
def test_flops_and_saved_activations_grow_with_the_batch_and_weights_do_not(batch: int) -> None:
    one, many = (features_of(read("VGG@CIFAR-10", b)) for b in (1, batch))
    assert many.flops_forward == batch * one.flops_forward
    assert many.parameter_bytes == one.parameter_bytes
    assert many.input_bytes == batch * one.input_bytes


def test_bytes_moved_by_a_product_are_its_matrices() -> None:
    found = small(lambda: torch.nn.Linear(10, 20, bias=False), 10, training=False)
    assert prod((4, 10)) * 4 + prod((20, 10)) * 4 + prod((4, 20)) * 4 == found.moved_forward_bytes
    assert found.flops_backward == 0
    assert found.moved_backward_bytes == 0
