"""Hugging Face's Trainer, suspended and resumed for real: a tiny language model made from its configuration."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cotenant.errors import StateError
from cotenant.runtime import SUSPENDED, StatusFile
from cotenant.runtime.statusfile import STATE_SAVED

transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate", reason="the Trainer needs accelerate: pip install 'cotenant[huggingface]'")
torch = pytest.importorskip("torch")

from cotenant.runtime import huggingface  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # the Trainer's own, about things to come


def _trainer(folder: Path, callback: Any, *more: Any) -> Any:
    transformers.set_seed(0)
    config = transformers.GPT2Config(vocab_size=50, n_positions=16, n_embd=16, n_layer=1, n_head=2)
    model = transformers.GPT2LMHeadModel(config)
    drawn = torch.Generator().manual_seed(3)
    text = torch.randint(50, (40, 16), generator=drawn)
    data = [{"input_ids": row, "labels": row} for row in text]
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        max_steps=12,  # five steps an epoch
        learning_rate=1e-2,
        lr_scheduler_type="cosine",
        report_to=[],
        save_strategy="no",
        logging_steps=1,
        disable_tqdm=True,
        use_cpu=True,
        seed=7,
    )
    return transformers.Trainer(model, arguments, train_dataset=data, callbacks=[callback, *more])


class _Suspend(transformers.TrainerCallback):
    """Gives the order in the middle of a step."""

    def __init__(self, status: StatusFile, step: int) -> None:
        self.status, self.step = status, step

    def on_step_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        self.status.give_order(state.global_step == self.step - 1)


def _weights(trainer: Any) -> list[bytes]:
    return [value.numpy().tobytes() for value in trainer.model.state_dict().values()]


def test_suspended_at_steps_of_two_epochs_it_ends_with_the_same_bits(
    status: StatusFile, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    whole = _trainer(tmp_path / "whole", huggingface.callback())
    whole.train()
    for stop in (2, 5, 9):
        callback = huggingface.callback(state)
        trainer = _trainer(tmp_path / "out", callback, _Suspend(status, stop))
        with pytest.raises(SystemExit) as left:
            trainer.train(resume_from_checkpoint=callback.checkpoint)
        assert left.value.code == SUSPENDED
        now = status.read()
        assert (now.steps, now.total, now.state_step) == (stop, 12, stop)
        assert now.flags & STATE_SAVED
        assert [path.name for path in state.iterdir()] == [f"trainer-{stop:012d}"]
        status.give_order(0)
    callback = huggingface.callback(state)
    trainer = _trainer(tmp_path / "out", callback)
    result = trainer.train(resume_from_checkpoint=callback.checkpoint)
    assert result.global_step == 12
    assert _weights(trainer) == _weights(whole)
    assert [row["loss"] for row in trainer.state.log_history if "loss" in row] == [
        row["loss"] for row in whole.state.log_history if "loss" in row
    ]
    assert status.read().steps == 12


def test_a_damaged_or_newer_checkpoint_is_refused(tmp_path: Path) -> None:
    made = tmp_path / "checkpoint-3"
    made.mkdir()
    (made / "model.safetensors").write_bytes(b"weights" * 100)
    state = tmp_path / "state"
    kept = huggingface.keep_checkpoint(made, state, 3)
    assert huggingface.newest_checkpoint(state) == str(kept)
    (kept / "model.safetensors").unlink()
    (kept / "model.safetensors").write_bytes(b"weights" * 99)
    with pytest.raises(StateError, match=r"model\.safetensors: checkpoint is truncated or damaged"):
        huggingface.callback(state)
    manifest = kept / "cotenant.json"
    manifest.write_text(manifest.read_text().replace('"format": 1', '"format": 2'))
    with pytest.raises(StateError, match="format 2, this version of cotenant reads up to 1"):
        huggingface.callback(state)
    assert huggingface.newest_checkpoint(tmp_path / "none") is None


def test_without_transformers_it_says_what_to_install(tmp_path: Path) -> None:
    script = (
        "import sys; sys.modules['transformers'] = None\n"
        "from cotenant.runtime import huggingface\n"
        "try:\n    huggingface.callback()\n"
        "except Exception as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert "pip install 'cotenant[huggingface]'" in done.stdout
