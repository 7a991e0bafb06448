"""slowhttptest's clients, which hold connections open by all but saying nothing, against a server that others use too."""
import csv
import json
import os
import subprocess
import tempfile
import time
import unittest
import urllib.request

URL, PROCESS = os.environ["KILN_URL"], os.environ["KILN_PROCESS"]
CONNECTIONS = 50
# Seconds within which a question of another client is answered, and slow connections are ended, on a loaded machine.
PATIENCE = 120


def ask():
    """Another client's question."""
    question = {"messages": [{"role": "user", "content": "Who are you?"}], "max_tokens": 2}
    request = urllib.request.Request(f"{URL}/v1/chat/completions", json.dumps(question).encode())
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        assert json.load(answer)["choices"]


def sockets():
    """How many sockets the server has open."""
    folder = f"/proc/{PROCESS}/fd"
    count = 0
    for name in os.listdir(folder):
        try:
            count += os.readlink(f"{folder}/{name}").startswith("socket:")
        except FileNotFoundError:  # closed meanwhile
            pass
    return count


class Slow(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.before = sockets()

    def start(self, *options, path="/v1/chat/completions"):
        """Starts slowhttptest, and waits until it holds connections."""
        command = ["slowhttptest", *options, "-c", str(CONNECTIONS), "-r", str(CONNECTIONS), "-l", str(4 * PATIENCE)]
        with open(f"{self.folder}/said", "w") as said:
            command += ["-g", "-o", f"{self.folder}/seen", "-u", URL + path]
            tool = subprocess.Popen(command, stdout=said, stderr=said)
        self.addCleanup(tool.wait)
        self.addCleanup(tool.kill)
        self.until(lambda: self.connected() > CONNECTIONS // 2)
        return tool

    def connected(self):
        """How many connections slowhttptest has, as it wrote down last."""
        if not os.path.exists(f"{self.folder}/seen.csv"):
            return 0
        with open(f"{self.folder}/seen.csv") as file:
            rows = [row["Connected"] for row in csv.DictReader(file)]
        return int(rows[-1] or 0) if rows else 0

    def until(self, holds):
        """Waits for something, while another client asks without end."""
        end = time.monotonic() + PATIENCE
        while not holds():
            self.assertLess(time.monotonic(), end, "nothing has changed")
            ask()

    def assert_ends(self, tool):
        self.until(lambda: tool.poll() is not None)
        with open(f"{self.folder}/said") as said:
            self.assertIn("No open connections left", said.read())

    def test_slow_heads_are_ended(self):
        self.assert_ends(self.start("-H", "-i", "3"))

    def test_slow_bodies_are_ended(self):
        self.assert_ends(self.start("-B", "-s", "8192", "-i", "3", "-x", "8"))

    def test_slow_readers_hold_nothing_of_the_server(self):
        """The answers wait in the kernel, and slowhttptest sees its connections open; the server has let go of them."""
        self.start("-X", "-w", "1", "-y", "2", "-n", "5", "-z", "1", "-k", "3", path="/openapi.json")
        self.until(lambda: sockets() <= self.before)
        self.assertGreater(self.connected(), CONNECTIONS // 2)
