"""An NVIDIA device, as far as a stand-in for the driver's library goes: names, environment, readings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from cotenant.errors import ConfigError
from cotenant.profiles.measure.target import Target, parse_target
from cotenant.profiles.runsfile import read_co_runs, read_solo_runs

pytestmark = pytest.mark.slow

SEES = """
import os, time
log = open(os.environ["COTENANT_STEPS"], "a", buffering=1)
print(os.environ["CUDA_VISIBLE_DEVICES"], os.environ["CUDA_DEVICE_ORDER"], os.environ["COTENANT_TORCH_DEVICE"], flush=True)
while True:
    time.sleep(0.004)
    log.write(f"{time.monotonic_ns()}\\n")
"""


def _run(folder: Path, library: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cotenant", *words],
        cwd=folder,
        env={**os.environ, "LD_LIBRARY_PATH": str(library), "CUDA_MPS_PIPE_DIRECTORY": str(folder / "mps")},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def _file(kit: Any, folder: Path, more: str = "") -> None:
    text = (
        '[measure]\ndevice = "cuda:0"\nbudget = "60s"\nwarmup_steps = 2\nwarmup = "0s"\nsettle = "50ms"\n'
        f'window = "600ms"\nmin_steps = 3\nmin_repeats = 1\ntarget_pct = 95.0\nself_pairs = false\n{more}\n'
    )
    (folder / "jobs.toml").write_text(text + kit.job("one", SEES) + kit.job("two", SEES))


def test_a_campaign_on_an_nvidia_device(nvml_library: Path, kit: Any, tmp_path: Path) -> None:
    _file(kit, tmp_path)
    done = _run(tmp_path, nvml_library, "measure", "jobs.toml", "-o", "out", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["complete"] is True
    # Each job was started anew for each measurement: alone, together, and alone again or not.
    seen = (tmp_path / "out" / "logs" / "one-1.log").read_text().splitlines()
    assert len(seen) >= 2
    assert set(seen) == {"0 PCI_BUS_ID cuda"}
    (run,) = read_co_runs(tmp_path / "out")
    assert (run.status, run.device_type, run.device_mem_mib) == ("ok", "A100-80GB", 81559.0)
    assert (run.total_gpu_util, run.total_mem_util) == (87.0, 41.0)
    solos = read_solo_runs(tmp_path / "out")
    assert [(s.gpu_util, s.mem_util, s.counters["power_w"]) for s in solos] == [(87.0, 41.0, 245.5)] * 2
    # The driver lists other processes: what these use of the device is not known, and not 0.
    assert [s.mem_mib for s in solos] == [None, None]
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert (manifest["clock"], manifest["resident"], manifest["machine"]["mps"]) == ("wall", False, False)


class _Exporter(BaseHTTPRequestHandler):
    """Gives two devices; the second is not the one that is measured."""

    def do_GET(self) -> None:
        lines = [
            f'DCGM_FI_PROF_{n}{{gpu="0",UUID="GPU-aa"}} {v}'
            for n, v in (("SM_ACTIVE", 0.15), ("DRAM_ACTIVE", 0.1))
        ]
        lines += [
            'DCGM_FI_PROF_SM_ACTIVE{gpu="1",UUID="GPU-bb"} 0.9',
            'DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-aa"} 3',
        ]
        self.send_response(200)
        self.end_headers()
        self.wfile.write("\n".join(lines).encode())

    def log_message(self, *_: object) -> None:
        return


def test_an_exporter_adds_what_the_driver_does_not_measure(
    nvml_library: Path, kit: Any, tmp_path: Path
) -> None:
    server = HTTPServer(("127.0.0.1", 0), _Exporter)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        address = f"http://127.0.0.1:{server.server_port}/metrics"
        _file(kit, tmp_path, f'pairs = "none"\ndcgm = "{address}"')
        done = _run(tmp_path, nvml_library, "measure", "jobs.toml", "-o", "out")
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
    assert done.returncode == 0, done.stderr
    solo = read_solo_runs(tmp_path / "out")[0]
    assert solo.gpu_util == 87.0  # busy time as the driver gives it
    assert solo.counters["sm_active_pct"] == 15.0
    assert solo.counters["dram_active_pct"] == 10.0
    assert "sm_occupancy_pct" not in solo.counters


def test_mps_must_run_and_suspends_nobody(nvml_library: Path, kit: Any, tmp_path: Path) -> None:
    _file(kit, tmp_path)
    done = _run(tmp_path, nvml_library, "measure", "jobs.toml", "-o", "out", "--mps")
    assert done.returncode == 1
    assert "MPS is not running" in done.stderr
    (tmp_path / "mps").mkdir()
    (tmp_path / "mps" / "control").touch()
    _file(kit, tmp_path, "resident = true")
    held = _run(tmp_path, nvml_library, "measure", "jobs.toml", "-o", "out", "--mps")
    assert "cannot be suspended under MPS" in held.stderr
    _file(kit, tmp_path, 'pairs = "none"')
    ran = _run(tmp_path, nvml_library, "measure", "jobs.toml", "-o", "out", "--mps")
    assert ran.returncode == 0, ran.stderr
    # Sharing through MPS is another device to predictors: tables keep the two apart.
    assert {run.device_type for run in read_solo_runs(tmp_path / "out")} == {"A100-80GB MPS"}


def test_a_device_that_is_not_there_or_is_lost(nvml_library: Path, kit: Any, tmp_path: Path) -> None:
    _file(kit, tmp_path)
    for device, words in (
        ("cuda:7", "no NVIDIA device 7; NVML lists: 0 (GPU-aa)"),
        ("cuda:2", "is it lost?"),
    ):
        done = _run(tmp_path, nvml_library, "measure", "jobs.toml", "-o", "out", "--device", device)
        assert done.returncode == 1
        assert words in done.stderr


def test_profile_names_what_each_source_measures(nvml_library: Path, tmp_path: Path) -> None:
    done = _run(tmp_path, nvml_library, "profile", "--json", "--every", "100ms", "--", "sleep", "1")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    gpus = {summary["device"]: summary for summary in found["devices"]["nvml"]}
    assert gpus["GPU-aa"]["meters"]["busy_pct"]["mean"] == 87.0
    assert gpus["GPU-aa"]["meters"]["sm_active_pct"]["mean"] is None
    assert gpus["GPU-bb"]["meters"]["busy_pct"]["mean"] is None
    assert list(found["failures"]) == ["nvml: GPU-cc: GPU is lost"]
    shown = _run(tmp_path, nvml_library, "profile", "--every", "100ms", "--", "sleep", "1")
    assert "memory busy time [%]" in shown.stdout
    assert "SM active" not in shown.stdout
    assert "warning:" in shown.stderr


def test_names_of_devices() -> None:
    for name in ("gpu:0", "cuda", "cuda:-1", "cpux", "cuda:GPU"):
        with pytest.raises(ConfigError):
            parse_target(name)
    mig = Target(name="cuda:MIG-1-2", kind="cuda", visible="MIG-1-2")
    assert mig.environment(2)["CUDA_VISIBLE_DEVICES"] == "MIG-1-2"
    assert mig.environment(2)["OMP_NUM_THREADS"] == "2"
    cpu = Target(name="cpu:0", kind="cpu", cores=(0,))
    assert cpu.environment(1)["CUDA_VISIBLE_DEVICES"] == ""
