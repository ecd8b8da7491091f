"""Serves a model over HTTP: requests that come together are one batch of the compiled model.

    uv run --with fastapi --with uvicorn examples/serve.py --port 8000
    curl -d '{"tokens": [5, 6, 7, 8]}' -H 'content-type: application/json' localhost:8000/embed

``/health`` answers 503 until the model is warm, and from when the server is told to end (SIGTERM):
for ``--drain`` seconds it answers what still comes, then what it has accepted, and ends. The model
is a BERT with random weights, or a local folder's (``--model``).
"""

from __future__ import annotations

import argparse
import asyncio
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import FrameType

import torch
import uvicorn
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, Field
from transformers import AutoModel, BertConfig, BertModel

PAD = 0


class Request(BaseModel):
    """A text as tokens."""

    tokens: list[int] = Field(min_length=1, max_length=512)


@dataclass
class Batches:
    """Requests on their way to the model.

    Attributes:
        model: Takes tokens and a mask, (batch, length) each.
        most: How many requests a batch may have.
        wait: Seconds that a request may wait for others.
        ready: Whether the model is warm.
        ending: Whether the server was told to end.
    """

    model: torch.nn.Module
    most: int = 16
    wait: float = 0.002
    ready: bool = False
    ending: bool = False
    waiting: asyncio.Queue[tuple[list[int], asyncio.Future[list[float]]]] = field(
        default_factory=asyncio.Queue
    )
    # One thread calls the model, so that one batch has all cores.
    thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))

    @torch.inference_mode()
    def run(self, texts: list[list[int]]) -> list[list[float]]:
        """The mean of the last hidden states of each text."""
        length = max(map(len, texts))
        tokens = torch.tensor([text + [PAD] * (length - len(text)) for text in texts])
        mask = torch.tensor([[1] * len(text) + [0] * (length - len(text)) for text in texts])
        hidden = self.model(input_ids=tokens, attention_mask=mask).last_hidden_state
        return ((hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)).tolist()

    def warm(self) -> None:
        """Compile for one text and for several, of any length."""
        for count, length in ((1, 8), (1, 9), (3, 8), (4, 17)):
            self.run([[1] * length] * count)
        self.ready = True

    async def answer(self, tokens: list[int]) -> list[float]:
        """The embedding of a text, in a batch with others."""
        found: asyncio.Future[list[float]] = asyncio.get_running_loop().create_future()
        await self.waiting.put((tokens, found))
        return await found

    async def work(self) -> None:
        """Takes requests and answers them, until it is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            batch = [await self.waiting.get()]
            if not self.waiting.qsize():
                await asyncio.sleep(self.wait)
            while len(batch) < self.most and not self.waiting.empty():
                batch.append(self.waiting.get_nowait())
            try:
                results = await loop.run_in_executor(self.thread, self.run, [t for t, _ in batch])
            except Exception as e:
                for _, found in batch:
                    found.cancelled() or found.set_exception(e)
                continue
            for (_, found), result in zip(batch, results, strict=True):
                found.cancelled() or found.set_result(result)


def app_of(model: torch.nn.Module) -> FastAPI:
    """The service of a model that is compiled already, or not."""
    batches = Batches(model)

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        warming = loop.run_in_executor(batches.thread, batches.warm)

        async def work() -> None:
            await warming
            await batches.work()

        worker = asyncio.create_task(work())
        yield
        # uvicorn comes here when it takes no more requests and those that it took are answered.
        batches.ready = False
        worker.cancel()
        batches.thread.shutdown()

    app = FastAPI(lifespan=life)
    app.state.batches = batches

    @app.get("/health")
    async def health() -> dict[str, bool]:
        if batches.ending or not batches.ready:
            raise HTTPException(503, "ending" if batches.ending else "the model is compiling")
        return {"ready": True}

    @app.post("/embed")
    async def embed(request: Request) -> dict[str, list[float]]:
        if not batches.ready:
            raise HTTPException(503, "the model is compiling")
        return {"embedding": await batches.answer(request.tokens)}

    return app


class Server(uvicorn.Server):
    """One that answers for a while after it was told to end: load balancers look at its health, and
    requests are on their way."""

    drain = 1.0

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.config.app.state.batches.ending = True
        threading.Timer(self.drain, super().handle_exit, (sig, frame)).start()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--model", help="a local folder of a transformers model")
    parser.add_argument("--layers", type=int, default=4, help="of the model with random weights")
    parser.add_argument("--drain", type=float, default=1.0, help="seconds, see above")
    parser.add_argument("--backend", default="max", help="eager: without torch.compile")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    if arguments.model:
        model = AutoModel.from_pretrained(arguments.model)
    else:
        sizes = {"hidden_size": 256, "intermediate_size": 1024, "num_attention_heads": 4}
        model = BertModel(BertConfig(num_hidden_layers=arguments.layers, **sizes), False)
    model.eval()
    if arguments.backend != "eager":
        model.compile(backend=arguments.backend, dynamic=True)
    settings = {"log_level": "warning", "timeout_graceful_shutdown": 30}
    server = Server(uvicorn.Config(app_of(model), port=arguments.port, **settings))
    server.drain = arguments.drain
    server.run()


if __name__ == "__main__":
    main()
