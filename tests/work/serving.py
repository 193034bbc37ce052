"""A real HTTP server on loopback that serves a folder, and can be told to misbehave."""

import contextlib
import http.server
import threading
from urllib.parse import unquote


@contextlib.contextmanager
def serving(folder, *, fault=None):
    """The address of a server of a folder.

    fault: None, or a function from (path, data) to the bytes that are really sent; the length
    announced stays that of the file, so that fewer bytes are an interruption.
    """
    queries = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, *args):
            pass

        def do_GET(self):
            path = unquote(self.path).lstrip("/")
            queries.append(path)
            file = folder / path
            if not file.is_file():
                self.send_error(404)
                return
            data = file.read_bytes()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data if fault is None else fault(path, data))

    with running(Handler) as address:
        yield address, queries


@contextlib.contextmanager
def running(handler):
    """The address of a server on this machine, until the block ends."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=10)
