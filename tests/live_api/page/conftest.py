"""A headless Chromium that tests can press keys in: its debugging protocol over two pipes.

The protocol needs no library (JSON, each message ended by a zero byte), and a pipe, unlike a port,
is open to nobody else on the machine.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cotenant.live.views import Resident

PATIENCE_S = 60.0
KEYS = {"Enter": (13, "\r"), "Tab": (9, ""), "Escape": (27, "")}


class Browser:
    """One Chromium with one tab."""

    def __init__(self, program: str, profile: Path) -> None:
        to_read, self._write = _pipe()
        self._read, to_write = _pipe()
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-pipe"]
        flags += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
        flags += ["--disable-dev-shm-usage", "--hide-scrollbars", f"--user-data-dir={profile}"]
        line = f'exec "$0" "$@" 3<&{to_read} 4>&{to_write}'
        self._process = subprocess.Popen(
            ["/bin/bash", "-c", line, program, *flags],
            pass_fds=(to_read, to_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self._rest, self._number, self._session = b"", 0, ""
        self.told: list[dict[str, Any]] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method and wait for its answer."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            for found in self._messages(0.2):
                if found.get("id") == self._number:
                    assert "error" not in found, found
                    result: dict[str, Any] = found["result"]
                    return result
                self.told.append(found)
        raise AssertionError(f"no answer to {method}")

    def _messages(self, wait_s: float) -> list[dict[str, Any]]:
        if not select.select([self._read], [], [], wait_s)[0]:
            return []
        *whole, self._rest = (self._rest + os.read(self._read, 1 << 20)).split(b"\0")
        return [json.loads(one) for one in whole]

    # -- what a person does ------------------------------------------------------------------

    def look(self, width: int, height: int = 900, *, dark: bool = False, still: bool = True) -> None:
        """How large the window is, and what the person prefers."""
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 500,
        )
        features = [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce" if still else "no-preference"},
        ]
        self.ask("Emulation.setEmulatedMedia", features=features)

    def go(self, url: str) -> None:
        self.ask("Page.navigate", url=url)
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    def run(self, script: str) -> Any:
        """What a script says."""
        answer = self.ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, script: str) -> None:
        """Wait for a script to say yes."""
        deadline = time.monotonic() + PATIENCE_S
        while not self.run(script):
            assert time.monotonic() < deadline, f"never: {script}\n{self.run('document.body.innerText')}"
            time.sleep(0.05)

    def press(self, key: str, *, shift: bool = False) -> None:
        code, text = KEYS.get(key, (ord(key.upper()) if len(key) == 1 else 0, key))
        given: dict[str, Any] = {"key": key, "windowsVirtualKeyCode": code, "modifiers": 8 if shift else 0}
        down = {"type": "keyDown", **given, **({"text": text} if text else {})}
        self.ask("Input.dispatchKeyEvent", **down)
        self.ask("Input.dispatchKeyEvent", type="keyUp", **given)

    def write(self, text: str) -> None:
        self.ask("Input.insertText", text=text)

    def shot(self, path: Path, *, whole: bool = True) -> bytes:
        """A picture of the page."""
        given = {"format": "png", "captureBeyondViewport": whole}
        data = base64.b64decode(self.ask("Page.captureScreenshot", **given)["data"])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return data

    def complaints(self) -> list[str]:
        """Errors that the page's scripts or the browser spoke of, but for the 401 that says that nobody is signed in."""
        self.run("1")
        found = []
        for message in self.told:
            params = message.get("params", {})
            if message.get("method") == "Runtime.exceptionThrown":
                found.append(str(params["exceptionDetails"].get("exception", params)))
            elif message.get("method") == "Log.entryAdded" and params["entry"]["level"] == "error":
                if params["entry"].get("url", "").endswith("/v1/me"):
                    continue
                found.append(params["entry"]["text"] + " " + params["entry"].get("url", ""))
        return found

    def asked_of(self) -> list[str]:
        """Every address that was asked."""
        return [
            m["params"]["request"]["url"] for m in self.told if m.get("method") == "Network.requestWillBeSent"
        ]

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self._write)
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._read)


def _pipe() -> tuple[int, int]:
    """Ends with high numbers, so that the shell's 3 and 4 are free."""
    ends = os.pipe()
    high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 60) for end in ends]
    for end in ends:
        os.close(end)
    return high[0], high[1]


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no Chromium here; install it to see pages drawn")
    found = Browser(program, tmp_path / "profile")
    yield found
    found.close()


@pytest.fixture
def shots(tmp_path: Path) -> Path:
    """Where pictures go: ``COTENANT_SHOTS`` keeps them."""
    return Path(os.environ.get("COTENANT_SHOTS", tmp_path / "shots"))


@pytest.fixture
def signed_in(browser: Browser, served: Any, make: Any) -> Browser:
    """The page, opened by somebody who may do everything."""

    def begin(**look: Any) -> Browser:
        browser.look(**{"width": 1400, **look})
        browser.go(served.url)
        browser.until("!document.getElementById('sign-in').hidden")
        browser.run(f"document.getElementById('token').value = {json.dumps(make.admin_token)}")
        browser.run("document.getElementById('sign-in-form').requestSubmit()")
        browser.until("document.getElementById('link').dataset.state === 'on'")
        browser.until("document.getElementById('timeline-text').textContent !== ''")
        return browser

    return begin  # type: ignore[return-value]


@pytest.fixture
def busy(service: Any, make: Any) -> Any:
    """Four devices, thirty jobs, an hour of history."""
    return fill(service, make)


def fill(service: Any, make: Any, waiting: int = 18) -> Any:
    now, names = (
        make.noon,
        ["resnet50-imagenet", "bert-squad", "训练-01", "dlrm", "vit-b16 sweep", "gpt2-small"],
    )
    running: list[list[Resident]] = [[], [], [], []]
    number = 0
    for device in range(4):
        for place in range(1 if device == 3 else 2):
            name = names[number % len(names)]
            predicted = (0.82 + 0.03 * number, 0.74 + 0.03 * number, 0.9 + 0.03 * number)
            measured = (
                None
                if number in (5, 6)
                else predicted[0] + (0.02, -0.05, 0.12, 0.01, 0.03, 0.0, -0.02)[number]
            )
            alone = device == 3
            running[device].append(
                Resident(
                    id=number,
                    name=name,
                    compute_milli=1000 if alone else 400,
                    compute_limit_milli=1000 if alone else 800,
                    memory_bytes=(20 + 6 * place) << 30,
                    mode="exclusive" if alone else "shared",
                    predicted_speed=(1.0, 1.0, 1.0) if alone else predicted,
                    measured_speed=measured,
                )
            )
            service.views[number] = make.view(
                number,
                name=name,
                status="running",
                reason="",
                devices=(f"gpu{device}",),
                started=now - 2600 + 240 * number,
                submitted=now - 3000,
                steps=1200 * (number + 1),
                total_steps=12_000,
                step_s=0.21,
                ends_at=(now + 1800, now + 1500, now + 2400),
                predicted_s=(5000.0, 4200.0, 6100.0),
                predicted_speed=predicted,
                measured_speed=measured,
                memory_bytes=20 << 30,
                memory_used_bytes=17 << 30,
                compute_milli=400,
                compute_limit_milli=800,
            )
            number += 1
    for _ in range(waiting):
        status = "suspended" if number == 9 else "held" if number == 10 else "waiting"
        reason = {
            "waiting": "not now: no device has 40 % of its compute and 24 GiB free",
            "suspended": "its state is saved; not now: job 3 is ahead of it",
            "held": "suspended by its owner; resume lets it go on",
        }[status]
        service.views[number] = make.view(
            number,
            name=f"{names[number % 6]}-{number}",
            status=status,
            reason=reason,
            submitted=now - 60 * number,
            compute_milli=400,
            memory_bytes=24 << 30,
            priority=5 if number == 12 else 0,
        )
        number += 1
    for status, reason in (
        ("done", "done after 31m"),
        ("failed", "failed with exit code 3 after 2m"),
        ("done", "done"),
        ("cancelled", "cancelled"),
        ("done", "done"),
    ):
        service.views[number] = make.view(
            number,
            name=f"early-{number}",
            status=status,
            reason=reason,
            started=now - 3500,
            ended=now - 2700,
            exit_code=3 if status == "failed" else 0,
        )
        number += 1
    service.device_views = [
        make.device(d, *running[d], busy=(0.93, 0.71, 0.4, 1.0)[d], name=f"gpu{d}") for d in range(4)
    ]
    service.device_views[1] = make.device(
        1,
        *running[1],
        busy=0.71,
        name="gpu1",
        foreign_bytes=9 << 30,
        foreign_pids=(77,),
        memory_used_bytes=55 << 30,
    )
    _history(service, make)
    return service


def _history(service: Any, make: Any) -> None:
    start = make.noon - 3600

    def note(kind: str, t: float, **facts: Any) -> None:
        service.lines.append(json.dumps({"e": kind, "t": t, **facts}).encode())

    for number, view in service.views.items():
        submit_s = view.submitted - start
        note(
            "submitted",
            submit_s,
            job={"id": number, "name": view.name, "model": view.model, "submit_s": submit_s, "gpus": 1},
        )
    early = [n for n, v in service.views.items() if v.name.startswith("early")]
    for place, number in enumerate(early):
        note(
            "started", 100.0 + place, id=number, attempt=1, devices=[place % 4], share={"compute_milli": 500}
        )
        note("ended", 900.0, id=number, attempt=1, outcome=service.views[number].status, work_s=1.0)
    for number, view in service.views.items():
        if view.status == "running":
            note("started", view.started - start, id=number, attempt=1, devices=[int(view.devices[0][-1])])
    note("started", 950.0, id=9, attempt=1, devices=[3])
    why = {"rule": "shorter-first", "facts": {"gain_s": 412.0, "cost_s": 38.5}}
    note("stopping", 1500.0, id=9, attempt=1, beneficiary=3, why=why)
    note("suspended", 1520.0, id=9, attempt=1, work_s=3.0)
    why = {"rule": "better-neighbours", "facts": {"speed_before": 0.62, "speed_after": 0.91}}
    note("resized", 2000.0, id=2, attempt=1, devices=[1], share={"compute_milli": 600}, why=why)
    note("moved", 2400.0, id=4, attempt=1, devices=[0], why=why)
    note("released", 2420.0, id=4, devices=[2])
    note("moved", 2900.0, id=4, attempt=1, devices=[2], why=why)
    note("released", 2910.0, id=4, devices=[0])
