"""ONNX files, Hugging Face configurations, the zoo, and the commands over all of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper  # noqa: E402
from typer.testing import CliRunner  # noqa: E402

from cotenant.errors import ConfigError, UnknownNameError  # noqa: E402
from cotenant.profiles.graph.features import features_of  # noqa: E402
from cotenant.profiles.graph.ir import Options  # noqa: E402
from cotenant.profiles.graph.onnxreader import read_onnx  # noqa: E402
from cotenant.profiles.graph.source import read_graph  # noqa: E402
from cotenant.profiles.graph.table import features_for, zoo_rows  # noqa: E402
from cotenant.profiles.zoo.recipes import RECIPES, builder_of, find_recipe  # noqa: E402

torch.set_num_threads(1)


def weight(name: str, *shape: int) -> Any:
    # Raw data of the right length: nothing reads it.
    size = 4
    for length in shape:
        size *= length
    return helper.make_tensor(name, TensorProto.FLOAT, shape, bytes(size), raw=True)


def network(path: Path, *, batch: int | str = "n", odd: bool = False) -> Path:
    """Convolution 3->8 of 3x3 over 16x16, ReLU, mean over the image, product 8->10."""
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "v", "d"], ["y"], transB=1),
    ]
    if odd:
        nodes.append(helper.make_node("Foretell", ["y"], ["z"], domain="our.own"))
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 3, 16, 16])],
        [helper.make_tensor_value_info("z" if odd else "y", TensorProto.FLOAT, None)],
        [weight("w", 8, 3, 3, 3), weight("b", 8), weight("v", 10, 8), weight("d", 10)],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("our.own", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets), str(path))
    return path


CONV, GEMM = 2 * 16 * 16 * 8 * 27, 2 * 8 * 10


def test_an_onnx_file_is_counted_for_the_batch_that_is_asked_for(tmp_path: Path) -> None:
    found = features_of(read_onnx(network(tmp_path / "net.onnx"), Options(batch=5)))
    assert found.parameters == 8 * 27 + 8 + 80 + 10
    assert found.flops_forward == 5 * (CONV + GEMM)
    # The image needs no gradient, the pooled features do.
    assert found.flops_backward == 5 * (CONV + 2 * GEMM)
    assert found.gradient_bytes == found.parameter_bytes == 314 * 4
    assert found.input_bytes == 5 * 3 * 256 * 4
    assert found.depth == 2
    assert found.source == "onnx, backward derived"
    assert any("no batch normalisation" in text for text in found.notes)


def test_what_an_onnx_file_keeps_is_what_its_gradients_need(tmp_path: Path) -> None:
    found = features_of(read_onnx(network(tmp_path / "net.onnx"), Options(batch=1)))
    # ReLU's output, which the pooling needs too, and the pooled features of the last product.
    assert found.activation_bytes == 8 * 256 * 4 + 8 * 4


def test_inference_from_onnx_has_no_backward_pass(tmp_path: Path) -> None:
    found = features_of(read_onnx(network(tmp_path / "net.onnx"), Options(batch=2, training=False)))
    assert (found.flops_backward, found.gradient_bytes, found.activation_bytes) == (0, 0, 0)
    assert found.peak_bytes < 314 * 4 + 2 * (3 + 8 + 8 + 1) * 256 * 4


def test_an_unknown_onnx_operator_is_named_and_its_missing_shape_is_told(tmp_path: Path) -> None:
    found = features_of(read_onnx(network(tmp_path / "net.onnx", odd=True), Options(batch=2)))
    assert found.unknown == {"onnx.Foretell": 1, "onnx.Foretell backward": 1} or found.unknown == {
        "onnx.Foretell": 1
    }
    assert any("1 tensors have no inferred shape" in text and "z" in text for text in found.notes)


def test_a_file_exported_for_another_batch_says_which(tmp_path: Path) -> None:
    path = network(tmp_path / "net.onnx", batch=4)
    assert features_of(read_onnx(path, Options(batch=4))).flops_forward == 4 * (CONV + GEMM)
    with pytest.raises(ConfigError, match=r"exported for a batch of 4 \(input x\), not 8; ask for --batch 4"):
        read_onnx(path, Options(batch=8))


@pytest.mark.parametrize("content", [b"", b"not a model", bytes(range(256))])
def test_what_is_no_onnx_file_gives_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.onnx"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        read_onnx(path, Options())
    assert "bad.onnx" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_a_hugging_face_configuration_is_read_without_weights_or_network(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    fields = {
        "model_type": "bert",
        "architectures": ["BertForMaskedLM"],
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 128,
        "vocab_size": 500,
    }
    (tmp_path / "config.json").write_text(json.dumps(fields))
    graph = read_graph(str(tmp_path), Options(batch=3), hugging_face=True, length=16)
    found = features_of(graph)
    layer = 16 * (4 * 64 * 64 + 2 * 64 * 128) + 2 * 16 * 16 * 64
    assert found.flops_forward == 3 * 2 * (2 * layer + 16 * 64 * 64 + 16 * 64 * 500)
    embeddings = (500 + 512 + 2) * 64 + 2 * 64
    layers = 2 * (4 * (64 * 64 + 64) + 2 * 64 * 128 + 128 + 64 + 4 * 64)
    assert found.parameters == embeddings + layers + 64 * 64 + 64 + 2 * 64 + 500
    assert found.unknown == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("{}", "names no model_type"),
        ('{"model_type": "bart9"}', "knows no model_type 'bart9'"),
    ],
)
def test_a_bad_configuration_says_what_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    pytest.importorskip("transformers")
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_graph(str(tmp_path / "config.json"), Options(), hugging_face=True)


def test_a_source_that_is_nothing_known_lists_what_would_be() -> None:
    with pytest.raises(ConfigError, match="cannot tell what 'resnets' is"):
        read_graph("resnets", Options())
    with pytest.raises(ConfigError, match="at least one sample"):
        read_graph("VAE@MNIST", Options(batch=0))
    with pytest.raises(UnknownNameError, match='did you mean "VAE@MNIST"'):
        find_recipe("VAE@MNITS")


def test_every_recipe_has_a_maker_and_a_usual_batch() -> None:
    for recipe in RECIPES.values():
        assert callable(builder_of(recipe)), recipe.name
        assert recipe.usual_batch > 0
        assert list(recipe.batches) == sorted(set(recipe.batches)), recipe.name


def test_the_shipped_table_is_what_reading_gives() -> None:
    row = features_for("VAE", "MNIST", 64)
    assert row is not None
    graph = read_graph("VAE@MNIST", Options(batch=64, optimiser=row.optimiser))
    found = features_of(graph).row()
    assert row.numbers["flops_forward"] == found["flops_forward"]
    assert row.numbers["peak_bytes"] == found["peak_bytes"]
    assert {r.precision for r in zoo_rows()} == {"fp32", "amp"}
    assert {(r.model, r.dataset) for r in zoo_rows()} == {(r.model, r.dataset) for r in RECIPES.values()}


BUILDER = """
import torch


def build(batch):
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)), torch.randn(batch, 8)
"""


def run(*words: str) -> Any:
    from cotenant.app.main import app

    return CliRunner().invoke(app, list(words))


def test_features_of_ones_own_file_as_json_and_as_a_table(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(BUILDER)
    source = f"{tmp_path / 'net.py'}:build"
    found = json.loads(run("features", source, "--batch", "4", "--optimiser", "adam", "--json").stdout)
    assert found["parameters"] == 8 * 16 + 16 + 16 + 1
    assert found["flops_forward"] == 4 * 2 * (8 * 16 + 16)
    assert found["optimiser_bytes"] == 2 * found["gradient_bytes"] == 2 * 161 * 4
    assert found["row"]["matmul_count"] == 2
    shown = run("features", source, "--batch", "4")
    assert shown.exit_code == 0
    assert "1.152 kFLOP" in shown.stdout


def test_a_module_of_the_working_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mynets").mkdir()
    (tmp_path / "mynets" / "small.py").write_text(BUILDER)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [one for one in sys.path if one])
    done = run("features", "mynets.small:build", "--batch", "2", "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["options"]["batch"] == 2
    missing = run("features", "mynets.large:build")
    assert (missing.exit_code, "No module named 'mynets.large'" in missing.stderr) == (1, True)


def test_a_file_finds_what_lies_beside_it_after_what_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nets").mkdir()
    (tmp_path / "nets" / "sibling_layers.py").write_text("WIDTH = 16\n")
    (tmp_path / "nets" / "sibling_data.py").write_text(
        "import torch\n\ndef batch_of(n):\n    return torch.randn(n, 8)\n"
    )
    (tmp_path / "nets" / "json.py").write_text("raise ValueError('not this one')\n")
    (tmp_path / "nets" / "net.py").write_text(
        "import json\nfrom torch import nn\nfrom sibling_layers import WIDTH\n\n"
        "def build(batch):\n    from sibling_data import batch_of\n    return nn.Linear(8, WIDTH), batch_of(batch)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", list(sys.path))
    done = run("features", "nets/net.py:build", "--batch", "4", "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["parameters"] == 8 * 16 + 16
    assert sys.path[-1] == str(tmp_path / "nets")


@pytest.mark.parametrize(
    ("words", "missing"),
    [
        (("features", "gone.json", "--hf"), "transformers"),
        (("features", "gone.onnx"), "onnx"),
    ],
)
def test_a_missing_file_is_told_before_a_missing_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], missing: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, missing, None)
    done = run(*words)
    assert done.exit_code == 1
    assert words[1] in str(done.exception) + done.stderr
    assert "extra" not in str(done.exception) + done.stderr
    (tmp_path / words[1]).write_text('{"model_type": "bert"}')
    there = run(*words)
    assert "extra" in str(there.exception) + there.stderr


def test_memory_as_a_table_with_a_verdict_for_each_type(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(BUILDER)
    source = f"{tmp_path / 'net.py'}:build"
    shown = run("predict", "memory", source, "--device", "T4,A100", "--optimiser", "adamw")
    assert shown.exit_code == 0
    words = shown.stdout.split()
    assert all(
        part in words for part in ("weights", "optimiser", "activations", "context", "total", "T4", "fits")
    )
    told = run("predict", "memory", source, "--device", "T4", "--json").stdout
    assert run("predict", "memory", source, "--on", "T4", "--json").stdout == told
    found = json.loads(told)
    assert found["fits"][0]["device_type"] == "T4"
    assert found["memory"]["p95_bytes"] == sum(part["p95_bytes"] for part in found["memory"]["parts"])


def test_totals_that_differ_by_type_are_explained(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(BUILDER)
    source = f"{tmp_path / 'net.py'}:build"
    some = run("predict", "memory", source, "--device", "T4,H100").stdout
    # The matrix library holds 8.1 MiB on a T4 and 32 MiB on an H100, or where nobody knows.
    assert (
        "of a GPU of unknown type; below, workspace and reserve are those of each type's own libraries:"
        in some
    )
    for other in (("--device", "T4"), ("--device", "H100,H200"), ("--cpu",)):
        assert "of a GPU of unknown type" not in run("predict", "memory", source, *other).stdout


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("features", "VAE@MNIST", "--precision", "fp23"), 2, 'did you mean "fp32"'),
        (("features", "VAE@MNIST", "--optimiser", "adm"), 2, 'did you mean "adam"'),
        (("features", "nowhere.py:build"), 1, "no such file: nowhere.py"),
        (("predict", "memory", "VAE@MNIST", "--device", "T5"), 2, "device type"),
        (("predict", "memory", "VAE@MNIST", "--device", ","), 2, "names no device type"),
        (
            ("predict", "memory", "VAE@MNIST", "--device", "T4", "--cpu"),
            2,
            "ask for GPU types and for core sets apart",
        ),
    ],
)
def test_wrong_words_give_one_line_and_the_right_exit_code(
    words: tuple[str, ...], code: int, message: str
) -> None:
    done = run(*words)
    assert done.exit_code == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr
