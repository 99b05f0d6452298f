"""A headless Chromium of the system, spoken to over two pipes (Chrome DevTools Protocol): no driver, no port.

https://chromedevtools.github.io/devtools-protocol/
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

NAMES = ("chromium-headless-shell", "chromium", "google-chrome")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars")
FLAGS += ("--disable-background-networking", "--no-first-run", "--remote-debugging-pipe")
PATIENCE = 30.0  # seconds


def chromium() -> str | None:
    """The browser on PATH, or None."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Page:
    """One page. `requests`: every address that it asked for; `errors`: what its scripts threw; `dialogs`: alerts."""

    def __init__(self, read: int, write: int) -> None:
        self.read, self.write = read, write
        self.buffer = b""
        self.calls = 0
        self.session = ""
        self.requests: list[str] = []
        self.errors: list[str] = []
        self.dialogs: list[str] = []
        self.loaded = False
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """The result of a command. Events that come first are noted."""
        self.calls += 1
        number = self.calls
        message = {"id": number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write, json.dumps(message).encode() + b"\0")
        while True:
            found = self.message()
            if found.get("id") == number:
                if "error" in found:
                    raise RuntimeError(f"{method}: {found['error']['message']}")
                result: dict[str, Any] = found["result"]
                return result
            self.note(found)

    def message(self) -> dict[str, Any]:
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.read], [], [], PATIENCE)
            piece = os.read(self.read, 1 << 20) if ready else b""
            if not piece:
                raise TimeoutError("the browser does not answer")
            self.buffer += piece
        said, _, self.buffer = self.buffer.partition(b"\0")
        found: dict[str, Any] = json.loads(said)
        return found

    def note(self, event: dict[str, Any]) -> None:
        params = event.get("params", {})
        match event.get("method"):
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])
            case "Runtime.exceptionThrown":
                self.errors.append(params["exceptionDetails"]["text"])
            case "Page.javascriptDialogOpening":
                self.dialogs.append(params["message"])
                self.calls += 1
                answer = {"id": self.calls, "method": "Page.handleJavaScriptDialog", "params": {"accept": True}}
                os.write(self.write, json.dumps(answer | {"sessionId": self.session}).encode() + b"\0")
            case "Page.loadEventFired":
                self.loaded = True

    def open(self, address: str | Path) -> None:
        """Go there and wait until it is loaded. Another place of the same page is there at once."""
        self.loaded = False
        where = address.resolve().as_uri() if isinstance(address, Path) else address
        if "loaderId" in self.call("Page.navigate", url=where):
            self.wait(lambda: self.loaded, "the page to load")

    def wait(self, done: Any, what: str) -> None:
        """Until `done()`, or TimeoutError."""
        end = time.monotonic() + PATIENCE
        while not done():
            if time.monotonic() > end:
                raise TimeoutError(f"waited {PATIENCE:.0f} s for {what}; the page says: {self.text()[:2000]}")
            time.sleep(0.05)
            self.run("0")  # events come with its answer

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(found["exceptionDetails"].get("exception", {}).get("description", script))
        return found["result"].get("value")

    def text(self) -> str:
        return str(self.run("document.body ? document.body.innerText : ''"))

    def wait_text(self, said: str) -> None:
        self.wait(lambda: said in self.text(), repr(said))

    def wait_quiet(self) -> None:
        """Until the page has asked for nothing for half a second."""
        asked, since = len(self.requests), time.monotonic()

        def quiet() -> bool:
            nonlocal asked, since
            if asked != len(self.requests):
                asked, since = len(self.requests), time.monotonic()
            return time.monotonic() - since > 0.5

        self.wait(quiet, "the page to ask for nothing more")

    def click(self, said: str) -> None:
        """Click the first innermost element whose text is, or else begins with, `said`."""
        script = f"""(() => {{
          const all = [...document.querySelectorAll('body *')].filter(e => e.getClientRects().length);
          const mine = e => (e.innerText || '').trim();
          const leaves = those => those.filter(e => !those.some(o => o !== e && e.contains(o)));
          const found = all.filter(e => mine(e) === {json.dumps(said)});
          const chosen = leaves(found.length ? found : all.filter(e => mine(e).startsWith({json.dumps(said)})))[0];
          if (!chosen) return null;
          chosen.scrollIntoView({{block: 'center'}});
          const box = chosen.getBoundingClientRect();
          const place = [box.x + Math.min(box.width / 2, 40), box.y + box.height / 2];
          const hit = document.elementFromPoint(...place);
          return hit && (chosen.contains(hit) || hit.contains(chosen)) ? place : null;
        }})()"""
        seen: list[Any] = [None]

        def at_rest() -> bool:  # a row that others push away would leave the click to its neighbour
            seen.append(self.run(script))
            return seen[-1] is not None and seen[-1] == seen[-2]

        self.wait(at_rest, f"{said!r} to click on")
        x, y = seen[-1]
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def size(self, width: int, height: int) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.standard_b64decode(self.call("Page.captureScreenshot", format="png")["data"]))


class Quiet(SimpleHTTPRequestHandler):
    """Says nothing of what it is asked for."""

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a folder of files on loopback, until the block ends."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@contextmanager
def browser_page(width: int = 1200, height: int = 800) -> Iterator[Page]:
    """A page of a browser of its own, which ends with the block."""
    program = chromium()
    assert program is not None, "no Chromium on PATH"
    asked, commands = os.pipe()
    answers, told = os.pipe()

    def inherit() -> None:  # the browser reads from descriptor 3 and writes to 4
        first, second = os.dup(asked), os.dup(told)
        os.dup2(first, 3)
        os.dup2(second, 4)

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [program, *FLAGS, f"--user-data-dir={profile}"],
            preexec_fn=inherit,
            close_fds=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(asked)
        os.close(told)
        try:
            page = Page(answers, commands)
            page.size(width, height)
            yield page
        finally:
            os.close(commands)
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            os.close(answers)
