"""Lightning's Trainer, suspended and resumed for real; and the loader that knows its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from cotenant.errors import MissingExtraError, StateError
from cotenant.runtime import SUSPENDED, Resumable, StatusFile, lightning

from .training import Network, Noisy


def test_a_loader_goes_on_in_the_middle_of_its_second_epoch() -> None:
    def loader() -> Resumable:
        torch.manual_seed(2)
        return Resumable(DataLoader(Noisy(20), batch_size=6, shuffle=True))

    whole = loader()
    batches = [batch for _ in range(3) for batch in whole]
    broken = loader()
    read = [*broken]
    second = iter(broken)
    read += [next(second), next(second)]
    state = broken.state_dict()
    torch.manual_seed(99)
    again = Resumable(DataLoader(Noisy(20), batch_size=6, shuffle=True))
    again.load_state_dict(state)
    read += [*again, *again]
    assert len(again) == 4
    assert len(read) == len(batches) == 12
    assert all(
        torch.equal(a[0], b[0]) and torch.equal(a[1], b[1]) for a, b in zip(read, batches, strict=True)
    )


def test_without_lightning_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "lightning.pytorch", None)
    monkeypatch.setitem(sys.modules, "lightning", None)
    with pytest.raises(MissingExtraError, match=r"cotenant\[lightning\]"):
        lightning.callback()


def test_a_damaged_or_newer_checkpoint_is_refused(tmp_path: Path) -> None:
    digest = "0" * 64
    (tmp_path / f"lightning-1-000000000003-{digest}.ckpt").write_bytes(b"x")
    with pytest.raises(StateError, match="truncated or damaged"):
        lightning.newest_checkpoint(tmp_path)
    (tmp_path / f"lightning-2-000000000004-{digest}.ckpt").write_bytes(b"x")
    with pytest.raises(StateError, match="format 2, this version of cotenant reads up to 1"):
        lightning.newest_checkpoint(tmp_path)
    assert lightning.newest_checkpoint(tmp_path / "none") is None


def _fit(folder: Path, state: Path | None, status: StatusFile | None = None, stop: int = 0) -> Any:
    pl = pytest.importorskip(
        "lightning.pytorch", reason="lightning is not installed: pip install 'cotenant[lightning]'"
    )

    class Module(pl.LightningModule):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.network = Network()
            self.seen: list[float] = []

        def training_step(self, batch: Any, number: int) -> Any:
            if status is not None:
                status.give_order(self.trainer.global_step >= stop - 1)
            loss = torch.nn.functional.cross_entropy(self.network(batch[0]), batch[1])
            self.seen.append(float(loss.detach()))
            return loss

        def validation_step(self, batch: Any, number: int) -> None:
            self.network(batch[0])

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.AdamW(self.parameters(), lr=0.05)
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.7)]

    torch.manual_seed(0)
    module, callback = Module(), lightning.callback(state)
    trainer = pl.Trainer(
        max_epochs=3, accumulate_grad_batches=2, accelerator="cpu", logger=False, default_root_dir=folder,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, callbacks=[callback],
    )  # fmt: skip
    loader = Resumable(DataLoader(Noisy(48), batch_size=6, shuffle=True))
    held = DataLoader(Noisy(12), batch_size=6)
    code = 0
    try:
        trainer.fit(module, loader, held, ckpt_path=callback.checkpoint, weights_only=True)
    except SystemExit as left:
        code = int(left.code or 0)
    return module, code


@pytest.mark.filterwarnings("ignore")  # Lightning's own, about workers and what is to come
@pytest.mark.parametrize("stops", [[1], [3, 5, 10], [4]])
def test_suspended_and_resumed_it_ends_with_the_same_bits(
    stops: list[int], status: StatusFile, tmp_path: Path
) -> None:
    whole, code = _fit(tmp_path, None)
    assert (code, len(whole.seen)) == (0, 24)  # three epochs of four steps of two batches
    seen = []
    state = tmp_path / "state"
    for stop in stops:
        module, code = _fit(tmp_path, state, status, stop)
        assert code == SUSPENDED
        # Where validation is due it leaves a step later.
        assert status.read().state_step == stop + (stop % 4 == 0)
        seen += module.seen
        status.give_order(0)
    module, code = _fit(tmp_path, state)
    assert code == 0
    assert seen + module.seen == whole.seen
    for name, value in whole.state_dict().items():
        assert torch.equal(value, module.state_dict()[name]), name
