"""Chromium without a window, driven over a pipe by its DevTools protocol. Nothing but Python's own library is needed.

https://chromedevtools.github.io/devtools-protocol/
"""
import base64
import fcntl
import json
import os
import queue
import shutil
import subprocess
import tempfile
import threading
import time

# What a slow and loaded machine may take, in seconds. Nothing waits that long unless something is wrong.
PATIENCE = 60
NAMES = ["chromium", "chromium-browser", "google-chrome"]
KEYS = {"Enter": (13, "\r"), "Escape": (27, ""), "Tab": (9, "")}
SHIFT = 8


class Failed(AssertionError):
    """What was waited for did not come."""


class Browser:
    def __init__(self):
        program = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
        if program is None:
            raise SystemExit("kiln: there is no Chromium; install it (Debian: apt install chromium) or set CHROMIUM")
        self.profile = tempfile.mkdtemp(prefix="kiln-page-")
        to_browser, self._write = above(os.pipe())
        self._read, from_browser = above(os.pipe())

        def place():  # the protocol's pipes are descriptors 3 and 4
            os.dup2(to_browser, 3)
            os.dup2(from_browser, 4)

        self.process = subprocess.Popen(
            [program, "--headless=new", "--remote-debugging-pipe", f"--user-data-dir={self.profile}", "--no-first-run",
             "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking", "--disable-sync",
             "--disable-component-update", "--hide-scrollbars",
             "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
             # Its sandbox needs rights that a container does not give; the pages are our own.
             "--no-sandbox", "about:blank"],
            preexec_fn=place, close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self._last = 0
        self._replies = {}
        self._pages = {}
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self):
        rest = b""
        while piece := os.read(self._read, 1 << 16):
            *messages, rest = (rest + piece).split(b"\0")
            for message in map(json.loads, messages):
                if "id" in message:
                    self._replies.pop(message["id"]).put(message)
                elif page := self._pages.get(message.get("sessionId")):
                    page.note(message["method"], message["params"])
        for reply in self._replies.values():
            reply.put({"error": {"message": "the browser ended"}})

    def call(self, method, session=None, **params):
        self._last += 1
        reply = self._replies[self._last] = queue.Queue()
        message = {"id": self._last, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._write, data):]
        answer = reply.get(timeout=PATIENCE)
        if "error" in answer:
            raise Failed(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def open(self, url, **settings):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self._pages[session] = Page(self, session, target)
        page.start(url, **settings)
        return page

    def close(self):
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.profile, ignore_errors=True)


class Page:
    """One tab. `requests` are the addresses it asked for, `complaints` the errors of its console."""

    def __init__(self, browser, session, target):
        self.browser, self.session, self.target = browser, session, target
        self.requests, self.complaints, self.refusals = [], [], []

    def start(self, url, size=(390, 844), dark=False, still=False, languages="en"):
        agent = self.browser.call("Browser.getVersion")["userAgent"]
        self.call("Emulation.setUserAgentOverride", userAgent=agent, acceptLanguage=languages)
        for domain in ["Page", "Runtime", "Network", "Log"]:
            self.call(f"{domain}.enable")
        self.resize(*size)
        self.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce" if still else "no-preference"}])
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    def resize(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def note(self, method, params):
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.complaints.append(str(params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            entry = params["entry"]
            # What the server refuses, the browser reports by itself.
            (self.refusals if entry["source"] == "network" else self.complaints).append(entry["text"])

    def call(self, method, **params):
        return self.browser.call(method, self.session, **params)

    def run(self, script):
        """The value of an expression in the page, or of its promise."""
        result = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            raise Failed(details.get("exception", {}).get("description") or details["text"])
        return result["result"].get("value")

    def until(self, condition, patience=PATIENCE):
        """Waits until an expression holds, and returns its value."""
        end = time.monotonic() + patience
        while True:
            try:
                value = self.run(condition)
            except Failed as error:  # the page may be on its way to another
                value, why = None, error
            else:
                why = f"it is {value!r}"
            if value not in (None, False, 0, ""):
                return value
            if time.monotonic() > end:
                raise Failed(f"waited {patience} s for {condition}: {why}")
            time.sleep(0.05)

    def text(self, selector):
        return self.run(f"document.querySelector({json.dumps(selector)})?.innerText ?? null")

    def until_text(self, selector, part):
        found = f"document.querySelector({json.dumps(selector)})"
        return self.until(f"{found}?.checkVisibility() && {found}.innerText.includes({json.dumps(part)})")

    def middle(self, selector):
        """The middle of an element, which must be what lies there."""
        return self.until(f"""(() => {{
            const found = document.querySelector({json.dumps(selector)});
            if (!found?.checkVisibility()) return null;
            found.scrollIntoView({{ block: 'nearest' }});
            const box = found.getBoundingClientRect();
            const at = [box.x + box.width / 2, box.y + box.height / 2];
            return found.contains(document.elementFromPoint(...at)) ? at : null;
        }})()""")

    def click(self, selector):
        self.press(selector)()

    def press(self, selector):
        """Presses the mouse on an element. Returns what lets it go."""
        x, y = self.middle(selector)
        event = {"x": x, "y": y, "button": "left", "clickCount": 1}
        self.call("Input.dispatchMouseEvent", type="mousePressed", **event)
        return lambda: self.call("Input.dispatchMouseEvent", type="mouseReleased", **event)

    def tap(self, selector):
        """Touches an element with a finger."""
        x, y = self.middle(selector)
        self.call("Emulation.setTouchEmulationEnabled", enabled=True)
        self.call("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y}])
        self.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])

    def type(self, text):
        self.call("Input.insertText", text=text)

    def key(self, name, modifiers=0, code=None):
        number, text = KEYS[name]
        same = {"key": name, "code": name, "windowsVirtualKeyCode": code or number, "modifiers": modifiers}
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **same)
        self.call("Input.dispatchKeyEvent", type="keyUp", **same)

    def picture(self):
        """What is seen: a PNG in base64."""
        return self.call("Page.captureScreenshot", format="png")["data"]

    def shoot(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.picture()))

    def close(self):
        self.browser.call("Target.closeTarget", targetId=self.target)


def above(pipe):
    """The same two descriptors, out of the way of 3 and 4."""
    moved = tuple(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in pipe)
    for fd in pipe:
        os.close(fd)
    return moved
