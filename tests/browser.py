"""A real browser without a window, spoken to over a pipe (DevTools protocol). Needs nothing but the browser."""

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# The browser reads commands from its file 3 and answers on its file 4.
_LAUNCH = """
import fcntl, os, sys
read, write = (fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3])
os.dup2(read, 3)
os.dup2(write, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


def installed():
    """Path of a browser, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


def _is_loaded(event, page):
    """Whether the event says that this page, and not one before it, is there."""
    about = event.get("params", {})
    return event.get("method") == "Page.lifecycleEvent" and (about["loaderId"], about["name"]) == (page, "load")


class Browser:
    """A browser with one page. All waiting has an end."""

    def __init__(self, path, patience=60):
        self.patience = patience
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        commands, self.commands = os.pipe()
        self.answers, answers = os.pipe()
        # No sandbox where the user is root, as in containers: the pages are our own.
        flags = [
            "--headless", "--remote-debugging-pipe", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
            "--hide-scrollbars", f"--user-data-dir={self.profile.name}",
        ]  # fmt: skip
        flags += ["--no-sandbox"] if os.geteuid() == 0 else []
        command = [sys.executable, "-c", _LAUNCH, str(commands), str(answers), path, *flags, "about:blank"]
        self.process = subprocess.Popen(
            command, pass_fds=(commands, answers), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(commands)
        os.close(answers)
        self.buffer, self.number, self.session, self.events = b"", 0, None, []
        try:
            self._attach()
        except (OSError, RuntimeError, TimeoutError):
            self.close()
            raise

    def _attach(self):
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(target for target in targets if target["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Page.setLifecycleEventsEnabled", enabled=True)

    def call(self, method, **parameters):
        """One command and its answer."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self.events.append(answer)

    def _next(self):
        end = time.monotonic() + self.patience
        while b"\0" not in self.buffer:
            if not select.select([self.answers], [], [], max(0, end - time.monotonic()))[0]:
                raise TimeoutError(f"the browser did not answer within {self.patience} s")
            if not (more := os.read(self.answers, 1 << 20)):
                raise RuntimeError(f"the browser ended with status {self.process.wait(10)}")
            self.buffer += more
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def open(self, path, width=1200, height=900, dark=False, scripts=True):
        """Load a file at a size of the window, in light or dark."""
        phone = width < 600
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2 if phone else 1,
            mobile=phone,
        )  # fmt: skip
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=scheme)
        self.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.events.clear()
        page = self.call("Page.navigate", url=path.absolute().as_uri())
        if "errorText" in page:
            raise RuntimeError(f"{path}: {page['errorText']}")
        while not any(_is_loaded(event, page["loaderId"]) for event in self.events):
            self.events.append(self._next())

    def run(self, code):
        """The value of an expression in the page; promises are waited for."""
        found = self.call("Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(found["exceptionDetails"]["exception"].get("description", "an error in the page"))
        return found["result"].get("value")

    def press(self, key, code):
        """One key, as a person presses it."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def complaints(self):
        """Errors of scripts, lines on the console, and requests for anything but the file itself."""
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        found = []
        for event in self.events:
            method, about = event.get("method"), event.get("params", {})
            if method in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"):
                found.append(json.dumps(about)[:500])
            elif method == "Page.javascriptDialogOpening":
                found.append("a dialog")
            elif method == "Network.requestWillBeSent" and about.get("type") != "Document":
                found.append(about["request"]["url"])
        return found

    def screenshot(self, path):
        """The whole page as a picture."""
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def close(self):
        """End the browser."""
        try:
            self.session = None
            self.call("Browser.close")
            self.process.wait(20)
        except (OSError, RuntimeError, TimeoutError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait(20)
        os.close(self.commands)
        os.close(self.answers)
        self.profile.cleanup()
