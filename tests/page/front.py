"""Stands between the page and the server under test, and does to them what networks and ill servers do.

All requests go on to the server, unless a test took the next one or replaced a path. A test holds a stream, cuts it, or
takes the whole server away and brings it back at the same address.
"""
import http.client
import json
import select
import socket
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CHAT = "/v1/chat/completions"
EVENTS = {"Content-Type": "text/event-stream"}
HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length"}


class Front:
    def __init__(self, url):
        self.upstream = urllib.parse.urlsplit(url).netloc
        self.server, self.port = None, 0
        self.reset()
        self.up()

    def reset(self):
        self.taken = []  # what answers the next questions instead of the server
        self.replaced = {}  # path: what answers it
        self.questions = []  # (headers, body) of each question
        self.hold_after = None  # the events with text of the next answer that pass before it is held
        self.go_on = threading.Event()
        self.peer_left = threading.Event()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}/"

    def up(self):
        front = self

        class Bound(Exchange):
            pass

        Bound.front = front
        self.connections = set()
        self.server = Server(("127.0.0.1", self.port), Bound)
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def down(self):
        self.server.shutdown()
        self.server.server_close()
        for connection in list(self.connections):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it ended by itself

    def take(self, answer):
        """Lets `answer`, a function of the exchange, answer the next question."""
        self.taken.append(answer)

    def replace(self, path, answer):
        self.replaced[path] = answer


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request, client_address):
        pass  # a peer that leaves is no news here


class Exchange(BaseHTTPRequestHandler):
    """One connection's requests."""

    protocol_version = "HTTP/1.1"
    front: Front

    def setup(self):
        super().setup()
        self.front.connections.add(self.connection)

    def finish(self):
        self.front.connections.discard(self.connection)
        super().finish()

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.pass_on(b"")

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path != CHAT:
            return self.pass_on(body)
        self.front.questions.append((dict(self.headers), json.loads(body)))
        if self.front.taken:
            return self.front.taken.pop(0)(self)
        self.pass_on(body)

    def pass_on(self, body):
        path = self.path.split("?")[0]
        if path in self.front.replaced:
            return self.front.replaced[path](self)
        server = http.client.HTTPConnection(self.front.upstream, timeout=300)
        try:
            server.request(self.command, self.path, body or None, dict(self.headers))
            answer = server.getresponse()
            headers = {name: value for name, value in answer.getheaders() if name.lower() not in HOP_BY_HOP}
            if answer.getheader("Content-Type", "").startswith(EVENTS["Content-Type"]):
                self.pass_stream_on(answer, headers)
            else:
                self.send(answer.status, answer.read(), headers)
        finally:
            server.close()

    def pass_stream_on(self, answer, headers):
        # This answer's alone: it may be cut off before it is held.
        hold_after, self.front.hold_after = self.front.hold_after, None
        self.begin(headers)
        passed, event = 0, b""
        while line := answer.readline():
            event += line
            if line.strip():
                continue
            self.put(event)
            passed += has_text(event)
            event = b""
            if passed == hold_after:
                hold_after = None
                self.hold()
        self.end()

    def hold(self):
        """Waits until the test lets go or the peer leaves."""
        while not self.front.go_on.is_set():
            if select.select([self.connection], [], [], 0.05)[0] and not self.connection.recv(1, socket.MSG_PEEK):
                self.front.peer_left.set()
                raise ConnectionAbortedError

    # --- Answers of its own ---

    def send(self, status, body=b"", headers=None):
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
            headers = {"Content-Type": "application/json", **(headers or {})}
        self.send_response_only(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def begin(self, headers=None):
        self.send_response_only(200)
        for name, value in (headers or EVENTS).items():
            self.send_header(name, value)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def put(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def say(self, text):
        self.put(event_of(text))

    def end(self):
        self.wfile.write(b"0\r\n\r\n")

    def cut(self):
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)


def event_of(text, part="content"):
    chunk = {"choices": [{"index": 0, "delta": {part: text}, "finish_reason": None}]}
    return b"data: " + json.dumps(chunk, ensure_ascii=False).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


def has_text(event):
    return event.startswith(b"data: {") and bool(
        (json.loads(event[6:]).get("choices") or [{}])[0].get("delta", {}).get("content"))


def answer_of(*pieces, last=DONE):
    """An answer in these pieces of text."""

    def answer(exchange):
        exchange.begin()
        for piece in pieces:
            exchange.say(piece)
        exchange.put(last)
        exchange.end()

    return answer
