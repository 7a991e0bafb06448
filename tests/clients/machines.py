"""HAProxy, set up as in docs/haproxy.cfg, in front of two servers: one is drained, and one is killed."""
import http.client
import json
import os
import re
import socket
import subprocess
import tempfile
import threading
import time
import unittest

from server import PATIENCE, Server, free_port

here = os.path.dirname(os.path.abspath(__file__))


class Machines(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.servers = {name: self.server() for name in "ab"}
        for server in self.servers.values():
            server.wait_until_ready()
        self.port = free_port()
        self.start_haproxy()
        self.until(lambda: self.states() == {"a": "UP", "b": "UP"})

    def server(self):
        server = Server(os.environ["KILN"], self.folder)
        self.addCleanup(server.kill)
        return server

    def start_haproxy(self):
        with open(os.path.join(here, "..", "..", "docs", "haproxy.cfg")) as file:
            text = file.read()
        changes = [
            ("192.0.2.11:8080", f"127.0.0.1:{self.servers['a'].port}"),
            ("192.0.2.12:8080", f"127.0.0.1:{self.servers['b'].port}"),
            ("bind :80\n", f"bind 127.0.0.1:{self.port}\n"),
            ("/run/haproxy/", f"{self.folder}/"),
        ]
        for written, here_it_is in changes:
            self.assertIn(written, text)
            text = text.replace(written, here_it_is)
        # Says which machine answered.
        text += "\n    http-response set-header X-Machine %[srv_name]\n"
        path = os.path.join(self.folder, "haproxy.cfg")
        with open(path, "w") as file:
            file.write(text)
        environment = {**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin"}
        haproxy = subprocess.Popen(["haproxy", "-db", "-q", "-f", path], env=environment, stderr=subprocess.DEVNULL)
        self.addCleanup(haproxy.wait)
        self.addCleanup(haproxy.kill)

    def states(self):
        """What HAProxy takes each machine for: UP, DOWN, or on the way from one to the other."""
        with socket.socket(socket.AF_UNIX) as control:
            try:
                control.connect(os.path.join(self.folder, "kiln.sock"))
            except OSError:
                return {}
            control.sendall(b"show stat\n")
            text = b"".join(iter(lambda: control.recv(65536), b"")).decode()
        rows = [line.split(",") for line in text.splitlines() if re.match("kiln,[ab],", line)]
        return {row[1]: row[17] for row in rows}

    def until(self, holds):
        end = time.monotonic() + PATIENCE
        while not holds():
            self.assertLess(time.monotonic(), end, self.states())
            time.sleep(0.1)

    def ask(self, client, tokens=4, stream=False):
        """The answer to a question of the client with this number. HAProxy keeps each at its machine."""
        address = (f"127.0.0.{client}", 0)
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE, source_address=address)
        prompt = {"prompt": "Hello", "max_tokens": tokens, "ignore_eos": True, "stream": stream}
        headers = {"Content-Type": "application/json", "Connection": "close"}
        connection.request("POST", "/v1/completions", json.dumps(prompt), headers)
        return connection.getresponse()

    def client_of(self, machine):
        """A client whose questions go to a machine."""
        for client in range(2, 60):
            answer = self.ask(client)
            self.assertEqual(answer.status, 200, answer.read())
            answer.read()
            if answer.getheader("X-Machine") == machine:
                return client
        self.fail(f"nobody's questions go to {machine}")

    def ask_all_the_while(self, stop):
        """Clients that ask until told to stop; gives their threads and a list of what became of each question."""
        outcomes = []

        def ask_on(client):
            while not stop.is_set():
                try:
                    answer = self.ask(client)
                    text = answer.read()
                    outcomes.append((answer.status, answer.getheader("X-Machine"), text))
                except (OSError, http.client.HTTPException) as error:
                    outcomes.append((0, None, repr(error)))

        threads = [threading.Thread(target=ask_on, args=(client,)) for client in range(100, 104)]
        for thread in threads:
            thread.start()
        return threads, outcomes

    def change(self, change):
        """What becomes of other clients' questions, before a change and until HAProxy has seen it."""
        stop = threading.Event()
        threads, outcomes = self.ask_all_the_while(stop)
        try:
            self.until(lambda: len(outcomes) >= 4)
            change()
            self.until(lambda: self.states()["a"] == "DOWN")
            seen = len(outcomes)
            self.until(lambda: len(outcomes) >= seen + 4)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        return outcomes

    def test_a_drained_machine_ends_what_it_began_and_loses_nothing(self):
        client = self.client_of("a")
        stream = self.ask(client, tokens=200, stream=True)
        self.assertEqual((stream.status, stream.getheader("X-Machine")), (200, "a"))
        stream.readline()
        outcomes = self.change(self.servers["a"].drain)
        self.assertEqual({status for status, _, _ in outcomes}, {200}, outcomes)
        self.assertEqual(self.ask(client).getheader("X-Machine"), "b")
        self.assertTrue(stream.read().rstrip().endswith(b"data: [DONE]"))
        self.assertEqual(self.servers["a"].process.wait(PATIENCE), 0)

    def test_a_killed_machine_loses_only_what_it_had_begun(self):
        client = self.client_of("a")
        stream = self.ask(client, tokens=1000, stream=True)
        self.assertEqual((stream.status, stream.getheader("X-Machine")), (200, "a"))
        stream.readline()
        outcomes = self.change(self.servers["a"].kill)
        # Of the four that ask, each had at most one question at the machine.
        lost = [outcome for outcome in outcomes if outcome[0] != 200]
        self.assertLessEqual(len(lost), 4, lost)
        self.assertEqual({machine for status, machine, _ in outcomes[-4:]}, {"b"})
        self.assertEqual(self.ask(client).getheader("X-Machine"), "b")
        try:
            self.assertNotIn(b"[DONE]", stream.read())
        except (OSError, http.client.HTTPException):
            pass  # cut off
