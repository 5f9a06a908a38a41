"""A step boiled down: groups, sums, files."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.errors import ConfigError
from cotenant.predictors.resources.work import StepWork, read_works, work_of, write_works, zoo_works
from cotenant.profiles.graph.ir import Graph, Op, Options

KINDS = ("matmul", "convolution", "elementwise", "attention", "view")


def graph(ops: list[Op], **options: object) -> Graph:
    return Graph(
        name="m",
        source="",
        options=Options(**options),  # type: ignore[arg-type]
        ops=tuple(ops),
        tensors=(),
        storages=(),
        parameters=0,
        trained=0,
        trained_sizes=(4, 4, 4),
    )


def op(kind: str, flops: int, moved: int, phase: str = "forward") -> Op:
    return Op(name=kind, kind=kind, phase=phase, flops=flops, moved_bytes=moved)  # type: ignore[arg-type]


def test_groups_by_class_and_binary_order_of_intensity() -> None:
    ops = [
        op("convolution", 800, 100),  # 8 FLOPs a byte: exponent 3
        op("convolution", 1500, 100, "backward"),  # 15: the same
        op("convolution", 1600, 100),  # 16: exponent 4
        op("attention", 50, 100),  # a half: exponent -1
        op("elementwise", 0, 64),
        op("view", 0, 0),  # moves nothing: no kernel
    ]
    work = work_of(graph(ops, batch=4, optimiser="momentum"))
    assert [tuple(getattr(g, f) for f in g.__struct_fields__) for g in work.groups] == [
        ("convolution", 3, 2, 2300.0, 200.0),
        ("convolution", 4, 1, 1600.0, 100.0),
        ("matrix", -1, 1, 50.0, 100.0),
        ("other", 0, 1, 0.0, 64.0),
    ]
    assert (work.forward, work.backward, work.weights) == (4, 1, 3)
    assert work.updates == 12  # four kernels for each of three weights
    assert work.kernels == 17
    assert work.counts == {"attention": 1, "convolution": 2, "elementwise": 1}


def test_inference_updates_nothing() -> None:
    work = work_of(graph([op("matmul", 10, 10)], training=False))
    assert work.updates == 0


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(st.sampled_from(KINDS), st.integers(0, 10**12), st.integers(0, 10**9)),
        max_size=30,
    )
)
def test_nothing_is_lost_in_groups(rows: list[tuple[str, int, int]]) -> None:
    ops = [op(k, f if k not in {"elementwise", "view"} else 0, m) for k, f, m in rows]
    work = work_of(graph(ops))
    assert work.flops == pytest.approx(sum(o.flops for o in ops))
    assert work.moved_bytes == pytest.approx(sum(o.moved_bytes for o in ops))
    assert sum(g.count for g in work.groups) == work.forward + work.backward


def test_files_give_back_what_was_written(tmp_path: Path) -> None:
    works = [work_of(graph([op("matmul", 10, 10)])), StepWork(name="n", batch=2, precision="amp")]
    write_works(tmp_path / "w.jsonl", works)
    assert read_works(tmp_path / "w.jsonl") == tuple(works)


def test_errors_say_where(tmp_path: Path) -> None:
    path = tmp_path / "w.jsonl"
    path.write_text('{"name": "a", "batch": 1}\n{"name": 3}\n')
    with pytest.raises(ConfigError, match=r"w\.jsonl:2: "):
        read_works(path)
    with pytest.raises(ConfigError, match="No such file"):
        read_works(tmp_path / "none.jsonl")


def test_shipped_steps_agree_with_hand_counts() -> None:
    shipped = {(w.name, w.batch, w.precision): w for w in zoo_works()}
    resnet = shipped[("ResNet-50@ImageNet", 32, "fp32")]
    # 4.089 GMAC forward at 224 x 224 for one image; backward twice that, less the first layer's input.
    assert resnet.flops == pytest.approx(3 * 2 * 4.089e9 * 32, rel=0.02)
    assert resnet.parameter_bytes == 4 * 25_557_032
    assert resnet.counts["convolution"] == 53
    mobile = shipped[("MobileNetV3@ImageNet", 32, "fp32")]
    assert mobile.parameter_bytes == 4 * 2_542_856
    mixed = shipped[("ResNet-50@ImageNet", 32, "amp")]
    assert mixed.flops == pytest.approx(resnet.flops)
    assert mixed.moved_bytes < resnet.moved_bytes
