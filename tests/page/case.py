"""What every test of the page begins with: a browser, the front before the server, and a page that is ready."""
import json
import os
import unittest
import urllib.error
import urllib.parse
import urllib.request

from browser import PATIENCE, Browser
from front import Front

browser: Browser
front: Front


def begin(url):
    global browser, front
    try:
        urllib.request.urlopen(url, timeout=10).close()
    except (urllib.error.URLError, ValueError) as error:
        raise SystemExit(f"kiln: no page at {url}: {error}; start a server and give its address by --url")
    try:
        urllib.request.urlopen(urllib.parse.urljoin(url, "/logo"), timeout=10).close()
    except urllib.error.HTTPError as error:
        raise SystemExit(f"kiln: no logo at {url}: {error}; start the server with --page-logo tests/page/logo.svg")
    browser, front = Browser(), Front(url)


def end():
    browser.close()
    front.down()


class Case(unittest.TestCase):
    def setUp(self):
        self.front = front
        front.reset()
        self.pages = []

    def tearDown(self):
        for page in self.pages:
            page.close()
            self.assertEqual(page.complaints, [], "errors on the console")
            foreign = [url for url in page.requests if not url.startswith((front.url, "data:"))]
            self.assertEqual(foreign, [], "requests to another origin")

    def open(self, query="", health="Ready", **settings):
        page = browser.open(front.url + query, **settings)
        self.pages.append(page)
        if health:
            page.until_text("#health", health)
        return page

    def dress(self, language="en", **changed):
        """Lets pages find other settings of their owner, in one of the server's languages."""
        settings = settings_of(language)
        front.replace("/page.json", lambda exchange: exchange.send(200, {**settings, **changed}))

    def write(self, page, text):
        page.click("#question")
        page.type(text)

    def ask(self, page, text):
        self.write(page, text)
        page.click("#send")

    def until_answered(self, page, count=1):
        """Waits for the end of this many answers."""
        page.until(f"document.querySelectorAll('.turn[aria-busy=false]').length === {count}")

    def question_asked(self, index=-1):
        """The messages of a question as the server got them."""
        return [(message["role"], message["content"]) for message in front.questions[index][1]["messages"]]


def turn(number, part):
    """The selector of a part of a turn; turns count from 1."""
    return f".turn:nth-child({number}) {part}"


def status(phase="ready", **changed):
    """An answer of /status."""
    said = {"model": "gemma-3-27b-it", "device": "AMD Radeon 780M", "phase": phase,
            "uptime_s": 93784, "tokens_per_s": 61.4, "running": 6, "queued": 2, "slots": 8, "kv_tokens": 32768,
            "kv_tokens_used": 21880, "roofline_share": 0.71, **changed}
    return lambda exchange: exchange.send(200, said)


def settings_of(languages):
    """What the server tells a page that wants these languages."""
    request = urllib.request.Request(f"http://{front.upstream}/page.json", headers={"Accept-Language": languages})
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        return json.load(answer)


def colors(page, points):
    """The colors that are seen at these points, as (red, green, blue)."""
    script = """(async ([data, points]) => {
        const image = new Image();
        image.src = 'data:image/png;base64,' + data;
        await image.decode();
        const canvas = new OffscreenCanvas(image.width, image.height).getContext('2d');
        canvas.drawImage(image, 0, 0);
        return points.map(([x, y]) => [...canvas.getImageData(x, y, 1, 1).data].slice(0, 3));
    })"""
    picture = page.picture()
    # The page itself loads nothing that is not the server's.
    blank = browser.open("data:text/html,")
    try:
        return [tuple(color) for color in blank.run(f"{script}({json.dumps([picture, points])})")]
    finally:
        blank.close()


def axe():
    path = os.path.join(os.environ.get("CARGO_TARGET_DIR", "target"), "axe-core", "axe.min.js")
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        raise AssertionError(f"{error}; run tools/fetch-axe first")


def faults(page):
    """What axe-core finds on the page that is serious."""
    page.run(axe() + "; 0")
    found = page.run("axe.run().then((result) => JSON.stringify(result.violations))")
    return [(fault["id"], [node["html"] for node in fault["nodes"]]) for fault in json.loads(found)
            if fault["impact"] in ("serious", "critical")]
