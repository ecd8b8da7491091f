"""The HTTP example under load: requests a second, latency, memory, requests lost.

    uv run python -m benchmarks.serving      # 100,000 requests each, about half an hour
    uv run python -m benchmarks.serving --requests 5000 --backends eager max

Starts ``examples/serve.py`` once for each backend, and a client with so many requests in flight at
a time; texts have 8 to 64 tokens. The server is told to end while requests are in flight: all that
it had accepted must be answered. Writes ``serving.json`` and the table of ``serving.md``.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import socket
import statistics
import subprocess
import sys
import time
from typing import Any

import httpx
import psutil

from benchmarks.processes.results import HERE, Results, heading

SERVER = HERE.parent / "examples" / "serve.py"


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


async def _until_ready(client: httpx.AsyncClient) -> None:
    while True:
        try:
            if (await client.get("/health")).status_code == 200:
                return
        except httpx.TransportError:
            pass
        await asyncio.sleep(0.1)


async def load(url: str, process: psutil.Process, requests: int, at_once: int) -> dict[str, Any]:
    """The figures of one server."""
    chosen = random.Random(0)
    lengths = [chosen.randrange(8, 65) for _ in range(500)]
    texts = [[chosen.randrange(1, 30000) for _ in range(length)] for length in lengths]
    times: list[float] = []
    memory: list[float] = []
    lost, left = 0, iter(range(requests))
    limits = httpx.Limits(max_connections=at_once)
    async with httpx.AsyncClient(base_url=url, timeout=120, limits=limits) as client:
        start = time.perf_counter()
        await _until_ready(client)
        ready = time.perf_counter() - start

        async def one() -> None:
            nonlocal lost
            for i in left:
                begun = time.perf_counter()
                answer = await client.post("/embed", json={"tokens": texts[i % len(texts)]})
                times.append(time.perf_counter() - begun)
                lost += answer.status_code != 200 or len(answer.json()["embedding"]) != 256
                if i % max(1, requests // 10) == 0:
                    memory.append(process.memory_info().rss / 1e6)

        start = time.perf_counter()
        await asyncio.gather(*(one() for _ in range(at_once)))
        seconds = time.perf_counter() - start

        # The end: what is in flight is answered. When the first batch of them is, all have arrived.
        last = [
            asyncio.create_task(client.post("/embed", json={"tokens": texts[i]}))
            for i in range(at_once)
        ]
        await asyncio.wait(last, return_when=asyncio.FIRST_COMPLETED)
        process.send_signal(signal.SIGTERM)
        ended = await asyncio.gather(*last, return_exceptions=True)
        answered = sum(isinstance(a, httpx.Response) and a.status_code == 200 for a in ended)
    times.sort()
    return {
        "ready_s": ready,
        "requests_s": requests / seconds,
        "median_ms": 1e3 * statistics.median(times),
        "p99_ms": 1e3 * times[int(0.99 * len(times))],
        "lost": lost,
        "answered_at_end": [answered, len(last)],
        "memory_mb": memory,
    }


def serve(backend: str, requests: int, at_once: int, layers: int = 4) -> dict[str, Any]:
    """Start a server, load it, and end it."""
    port = _free_port()
    command = [sys.executable, str(SERVER), "--port", str(port), "--backend", backend]
    command += ["--layers", str(layers)]
    with subprocess.Popen(command) as server:
        try:
            url = f"http://127.0.0.1:{port}"
            found = asyncio.run(load(url, psutil.Process(server.pid), requests, at_once))
            found["exit"] = server.wait(60)
        finally:
            server.kill()
    return found


def section(results: Any) -> str:
    """The results of one processor as Markdown."""
    more = f"; {results['requests']:,} requests, {results['at_once']} at once"
    rows = [
        *heading(results["machine"], f"{more}; client and server share the cores"),
        "| | ready after, s | requests a second | median, ms | p99, ms | lost "
        "| answered at the end | memory after each tenth, MB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, r in results["backends"].items():
        memory = " ".join(f"{m:.0f}" for m in r["memory_mb"])
        rows.append(
            f"| {name} | {r['ready_s']:.1f} | {r['requests_s']:.0f} | {r['median_ms']:.1f} "
            f"| {r['p99_ms']:.1f} | {r['lost']} | {r['answered_at_end'][0]} of "
            f"{r['answered_at_end'][1]} | {memory} |"
        )
    return "\n".join(rows) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--at-once", type=int, default=32)
    parser.add_argument("--backends", nargs="+", default=["eager", "inductor", "max"])
    arguments = parser.parse_args()
    results = Results("serving", "torch", "max", "transformers", "fastapi")
    found = {b: serve(b, arguments.requests, arguments.at_once) for b in arguments.backends}
    settings = {"requests": arguments.requests, "at_once": arguments.at_once}
    results.here.update(settings, backends=found)
    results.publish(section)


if __name__ == "__main__":
    main()
