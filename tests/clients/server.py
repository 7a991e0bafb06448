"""A `kiln serve` on the CPU, of the built-in model or another, for a suite of tests."""
import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request

# How long a server may take to load, and to stop, on a loaded machine.
PATIENCE = 180


class Server:
    """A running server: its address, and the path of its Unix socket."""

    def __init__(self, program, folder, *options, context=2048):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.socket = os.path.join(folder, f"{self.port}.socket")
        command = [program, "serve", "--device", "cpu", "--listen", f"127.0.0.1:{self.port}", "--unix", self.socket]
        command += ["--ctx", str(context), "--batch", "4", "--drain", str(PATIENCE), *options]
        # A configuration of the machine is not the tests'.
        self.process = subprocess.Popen(command, env={**os.environ, "KILN_CONFIG": ""})

    def wait_until_ready(self):
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and self.process.poll() is None:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.url}/readyz", timeout=PATIENCE):
                return
            time.sleep(0.1)
        raise SystemExit("clients: the server does not answer")

    def drain(self):
        self.process.send_signal(signal.SIGTERM)

    def stop(self):
        """Lets it end by itself, which it has to do without a fault."""
        self.drain()
        if status := self.process.wait(2 * PATIENCE):
            raise SystemExit(f"clients: the server ended with {status}")

    def kill(self):
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def serving(program, *options, context=2048):
    with tempfile.TemporaryDirectory() as folder:
        server = Server(program, folder, *options, context=context)
        try:
            server.wait_until_ready()
            yield server
            server.stop()
        finally:
            server.kill()


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]
