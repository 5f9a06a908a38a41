"""A headless Chromium for pictures and tests of pages: its debugging protocol over two pipes.

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
from pathlib import Path
from typing import Any

__all__ = ["Browser", "program"]

PATIENCE_S = 60.0
KEYS = {"Enter": (13, "\r"), "Tab": (9, ""), "Escape": (27, "")}


def program() -> str | None:
    """Where it is; None if there is none on this machine."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((found for name in names if (found := shutil.which(name))), None)


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

    def sign_in(self, url: str, token: str) -> None:
        """Open the live page as somebody with this token, and wait until it shows something."""
        self.go(url)
        self.until("!document.getElementById('sign-in').hidden")
        self.run(f"document.getElementById('token').value = {json.dumps(token)}")
        self.run("document.getElementById('sign-in-form').requestSubmit()")
        self.until("document.getElementById('link').dataset.state === 'on'")
        self.until("document.getElementById('timeline-text').textContent !== ''")

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
