"""Reading the exporter's text: labels as they come, blanks, repeats for pods, MIG."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from cotenant.errors import ConfigError
from cotenant.profiles.samplers.dcgm import DcgmSampler, parse_dcgm, parse_exposition

OLD = """\
# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).
# TYPE DCGM_FI_DEV_GPU_UTIL gauge
DCGM_FI_DEV_GPU_UTIL{gpu="0", UUID="GPU-604ac76c",container="",namespace="",pod=""} 100
DCGM_FI_DEV_MEM_COPY_UTIL{gpu="0", UUID="GPU-604ac76c",container="",namespace="",pod=""} 12
DCGM_FI_DEV_FB_USED{gpu="0", UUID="GPU-604ac76c",container="",namespace="",pod=""} 2048
DCGM_FI_DEV_FB_FREE{gpu="0", UUID="GPU-604ac76c",container="",namespace="",pod=""} 14112
DCGM_FI_DEV_POWER_USAGE{gpu="0", UUID="GPU-604ac76c",container="",namespace="",pod=""} 9223372036854775794
"""


def test_spaces_after_commas_and_blank_values() -> None:
    page = parse_dcgm(OLD)
    (gpu,) = page.devices
    assert (gpu.device, gpu.index) == ("GPU-604ac76c", 0)
    assert (gpu.busy_pct, gpu.memory_busy_pct) == (100.0, 12.0)
    assert (gpu.memory_used_mib, gpu.memory_total_mib) == (2048.0, 16160.0)
    assert gpu.power_w is None
    assert gpu.sm_active_pct is None
    assert page.failures == ()
    assert page.pods == {"GPU-604ac76c": ()}


def test_ratios_become_percentages_and_each_keeps_its_name() -> None:
    labels = '{gpu="1",UUID="GPU-b",device="nvidia1",modelName="NVIDIA A30"}'
    page = parse_dcgm(
        f"DCGM_FI_PROF_SM_ACTIVE{labels} 0.15\nDCGM_FI_PROF_SM_OCCUPANCY{labels} 0.0625\n"
        f"DCGM_FI_PROF_DRAM_ACTIVE{labels} 1.0004\nDCGM_FI_PROF_GR_ENGINE_ACTIVE{labels} 7\n"
    )
    (gpu,) = page.devices
    assert gpu.sm_active_pct == pytest.approx(15.0)
    assert gpu.sm_occupancy_pct == pytest.approx(6.25)
    assert gpu.dram_active_pct == 100.0
    assert gpu.engine_active_pct is None  # 7 is no ratio
    assert gpu.model == "NVIDIA A30"


def test_c55_four_pods_on_one_card_are_one_reading() -> None:
    lines = []
    for pod in "abcd":
        labels = f'{{gpu="0",UUID="GPU-x",container="c",namespace="n",pod="{pod}"}}'
        lines += [f"DCGM_FI_DEV_GPU_UTIL{labels} 80", f"DCGM_FI_DEV_POWER_USAGE{labels} 200"]
    page = parse_dcgm("\n".join(lines))
    assert [(d.busy_pct, d.power_w) for d in page.devices] == [(80.0, 200.0)]
    assert page.pods == {"GPU-x": ("n/a/c", "n/b/c", "n/c/c", "n/d/c")}


def test_repeats_that_contradict_are_reported() -> None:
    page = parse_dcgm('DCGM_FI_DEV_GPU_UTIL{gpu="0",pod="a"} 80\nDCGM_FI_DEV_GPU_UTIL{gpu="0",pod="b"} 81\n')
    assert page.devices[0].busy_pct == 80.0
    assert [f.reason for f in page.failures] == ["DCGM_FI_DEV_GPU_UTIL is both 80 and 81; the first is used"]


def test_under_mig_busy_time_of_the_card_is_no_reading_of_an_instance() -> None:
    card = 'gpu="0",UUID="GPU-m"'
    instance = f'{card},GPU_I_PROFILE="3g.20gb",GPU_I_ID="2"'
    page = parse_dcgm(
        f"DCGM_FI_DEV_GPU_UTIL{{{card}}} 99\nDCGM_FI_DEV_GPU_UTIL{{{instance}}} 99\n"
        f"DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{instance}}} 0.5\n"
    )
    whole, part = page.devices
    assert (whole.device, whole.mig, whole.busy_pct) == ("GPU-m", True, None)
    assert (part.device, part.mig, part.busy_pct) == ("GPU-m/2", True, None)
    assert part.engine_active_pct == 50.0


def test_escapes_time_stamps_and_lines_that_are_none() -> None:
    metrics, failures = parse_exposition('a{p="x\\"y\\\\z, q"} 1 1700000000000\nb 2\nc{p=} 3\n\n# d 4\nNaN\n')
    assert [(m.name, m.labels, m.value) for m in metrics] == [("a", {"p": 'x"y\\z, q'}, "1"), ("b", {}, "2")]
    assert [f.reason for f in failures] == ["line 3 is no metric: c{p=} 3", "line 6 is no metric: NaN"]


def test_a_metric_without_device_is_reported_and_other_metrics_are_not_ours() -> None:
    page = parse_dcgm('DCGM_FI_DEV_GPU_UTIL{pod="x"} 5\ngo_threads 7\n')
    assert page.devices == ()
    assert [f.reason for f in page.failures] == ["DCGM_FI_DEV_GPU_UTIL names no device"]


@pytest.fixture
def exporter() -> Iterator[str]:
    """Address of a server that gives the text above."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = OLD.encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    server = HTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/metrics"
    server.shutdown()
    server.server_close()
    thread.join(5)


def test_over_http_and_a_silent_exporter_is_a_failure(exporter: str) -> None:
    sampler = DcgmSampler(exporter)
    assert [d.busy_pct for d in sampler.read().devices] == [100.0]
    dead = DcgmSampler("http://127.0.0.1:9/metrics", timeout_s=0.5).read()
    assert dead.devices == ()
    assert len(dead.failures) == 1
    with pytest.raises(ConfigError, match="no address"):
        DcgmSampler("localhost:9400")
