"""A server process: load the model in one of the ways, answer one HTTP request, end.

    python -m examples.demo.server WAY JOB MODEL CACHE

Prints the port when it can answer. Starting a new process for every figure is the point: it is
what a restart, a new pod or a scale-up does.
"""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

from examples.demo.jobs import JOBS, Job, decode_request, encode_answer
from examples.demo.ways import WAYS, Loaded


def handler(job: Job, loaded: Loaded) -> type[BaseHTTPRequestHandler]:
    """The request handler for one loaded model."""

    class Predict(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            outputs = loaded.run(decode_request(job, body))
            answer = {"compiled": loaded.compiled, **encode_answer(job, outputs)}
            raw = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *_: object) -> None:
            """Standard output carries the port and nothing else."""

    return Predict


def main(way: str, job_name: str, model: str, cache: str) -> None:
    """Load, announce the port, answer once."""
    job = JOBS[job_name]
    loaded = WAYS[way].load(job, Path(model), Path(cache))
    with HTTPServer(("127.0.0.1", 0), handler(job, loaded)) as server:
        print(server.server_port, flush=True)
        server.handle_request()


if __name__ == "__main__":
    main(*sys.argv[1:])
