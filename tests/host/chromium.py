"""A browser without a window, told what to do over Chromium's DevTools protocol."""

import base64
import contextlib
import itertools
import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
CODES = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Enter": 13, "Backspace": 8, " ": 32}


class Tab:
    """One page."""

    def __init__(self, connection):
        self.connection, self.ids = connection, itertools.count()
        self.errors = []
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method, **params):
        id = next(self.ids)
        self.connection.send(json.dumps({"id": id, "method": method, "params": params}))
        while True:
            said = json.loads(self.connection.recv(timeout=120))
            if said.get("method") == "Runtime.exceptionThrown":
                self.errors.append(said["params"]["exceptionDetails"])
            if said.get("method") == "Log.entryAdded" and said["params"]["entry"]["level"] == "error":
                self.errors.append(said["params"]["entry"])
            if said.get("id") == id:
                assert "error" not in said, (method, said)
                return said["result"]

    def js(self, code):
        """The value of an expression, which may be awaited."""
        found = self.call("Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, (code, found["exceptionDetails"])
        return found["result"].get("value")

    def until(self, code, seconds=120):
        """Wait until an expression holds; returns its value."""
        end = time.monotonic() + seconds
        while not (value := self.js(code)):
            assert time.monotonic() < end, (code, self.js("document.body.innerText"), self.errors)
            time.sleep(0.05)
        return value

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete'")

    def key(self, key, held=False):
        """Press a key, as a hand does, and let it go unless it is `held`."""
        code = CODES.get(key, ord(key[0].upper()))
        text = {"text": "\r" if key == "Enter" else key} if len(key) == 1 or key == "Enter" else {}
        names = {"key": key, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown", **names, **text)
        if not held:
            self.let_go(key)

    def let_go(self, key):
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def click(self, selector):
        """Click with the mouse in the middle of an element."""
        box = self.js(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'center'}); const r = e.getBoundingClientRect();"
            "return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        for what in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=what, x=box[0], y=box[1], button="left", clickCount=1)

    def text(self, id):
        return self.js(f"document.getElementById({json.dumps(id)}).textContent")

    def picture(self, file, width=1160, height=900, dark=False):
        """What it looks like, as a PNG."""
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=scheme)
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        time.sleep(0.3)
        Path(file).write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))


@contextlib.contextmanager
def chromium():
    """A `Tab` of a browser with a profile of its own, which is closed at the end."""
    from websockets.sync.client import connect

    assert CHROMIUM is not None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        flags = ["--headless=new", "--remote-debugging-port=0", f"--user-data-dir={profile}", "--disable-gpu"]
        flags += ["--no-first-run", "--disable-extensions", "--disable-dev-shm-usage", "--mute-audio"]
        flags += ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []  # which root cannot have
        program = subprocess.Popen(
            [CHROMIUM, *flags, "about:blank"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            told, end = Path(profile) / "DevToolsActivePort", time.monotonic() + 60
            while not (told.exists() and told.read_text().count("\n")):
                assert time.monotonic() < end and program.poll() is None, "Chromium did not start"
                time.sleep(0.05)
            port, path = told.read_text().split()
            with connect(f"ws://127.0.0.1:{port}{path}", max_size=None, proxy=None) as browser:
                root = Tab.__new__(Tab)
                root.connection, root.ids, root.errors = browser, itertools.count(), []
                target = root.call("Target.createTarget", url="about:blank")["targetId"]
            with connect(f"ws://127.0.0.1:{port}/devtools/page/{target}", max_size=None, proxy=None) as page:
                yield Tab(page)
        finally:
            program.terminate()
            try:
                program.wait(20)
            except subprocess.TimeoutExpired:
                program.kill()
                program.wait()
