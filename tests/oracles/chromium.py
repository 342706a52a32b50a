"""A real browser that opens a page and says what happened: Debian's headless Chromium, over a pipe.

The DevTools protocol goes over file descriptors 3 and 4 (`--remote-debugging-pipe`), each message JSON with a
zero byte after it: no port is opened and no driver is needed.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PATIENCE = 60.0  # s, for one answer
FLAGS = (
    "--headless=new", "--no-sandbox", "--remote-debugging-pipe", "--disable-gpu", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
    "--force-color-profile=srgb", "--disable-dev-shm-usage", "--disable-extensions",
)  # fmt: skip


class Browser:
    """One tab. `requests` are the addresses it asked for, `errors` what its console complained of."""

    def __init__(self, read: int, write: int) -> None:
        self._read, self._write, self._buffer, self._number = read, write, b"", 0
        self._session: str | None = None
        self._loaded = False
        self.requests: list[str] = []
        self.errors: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def open(self, page: Path, width: int, height: int = 900) -> None:
        """Open a file of this machine in a window of that size, and wait until it has drawn."""
        self.requests, self.errors = [], []
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self._loaded = False
        self.call("Page.navigate", url=page.resolve().as_uri())
        end = time.monotonic() + PATIENCE
        while not self._loaded:
            self._take(end)
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def run(self, script: str) -> Any:
        """The value of an expression of JavaScript in the page; a promise is waited for."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise AssertionError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def press(self, key: str, code: int) -> None:
        text = {"Enter": "\r", " ": " "}.get(key)
        down = {"type": "keyDown", "text": text} if text else {"type": "rawKeyDown"}
        self.call("Input.dispatchKeyEvent", key=key, windowsVirtualKeyCode=code, **down)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def picture(self, path: Path, *, whole: bool = True, **clip: float) -> Path:
        """A PNG of the page, or of the part `x, y, width, height` of it."""
        part = {"clip": {**clip, "scale": 1}} if clip else {}
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole, **part)
        path.write_bytes(base64.b64decode(shot["data"]))
        return path

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """The browser's answer to one command; what happened meanwhile is noted."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._write, data) :]
        end = time.monotonic() + PATIENCE
        while True:
            answer = self._take(end)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error']}")
                return answer["result"]

    def _take(self, end: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            if not select.select([self._read], [], [], max(0.0, end - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            piece = os.read(self._read, 1 << 20)
            if not piece:
                raise EOFError("the browser has ended")
            self._buffer += piece
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, method: str, params: dict[str, Any]) -> None:
        if method == "Page.loadEventFired":
            self._loaded = True
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.errors.append(str(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.errors.append(str(params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.errors.append(str(params["entry"]))


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    assert PROGRAM, "no Chromium on this machine"
    (theirs_in, ours_out), (ours_in, theirs_out) = os.pipe(), os.pipe()
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (theirs_in, theirs_out)]
    os.close(theirs_in), os.close(theirs_out)

    def place() -> None:
        os.dup2(high[0], 3)
        os.dup2(high[1], 4)

    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "HOME": home, "XDG_CONFIG_HOME": home, "XDG_CACHE_HOME": home}
        child = subprocess.Popen(
            [PROGRAM, *FLAGS, f"--user-data-dir={home}/profile", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            preexec_fn=place, pass_fds=(3, 4), env=environment, start_new_session=True,
        )  # fmt: skip
        for fd in high:
            os.close(fd)
        try:
            yield Browser(ours_in, ours_out)
        finally:
            os.close(ours_in), os.close(ours_out)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
