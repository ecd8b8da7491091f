"""The frameworks that are compared: what each makes of a model."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import torch

from torch_max_backend.bench.models import Subject

Made = Callable[..., Any]


class Unavailable(Exception):
    """A framework cannot run this here; the message is the reason."""


def _compiled(subject: Subject, mode: str, backend: Any, **settings: Any) -> Made:
    if mode == "generate":
        # In place: `generate` calls the model itself.
        subject.model.compile(backend=backend, **settings)
        return subject.model
    return torch.compile(subject.model, backend=backend, **settings)


def _eager(subject: Subject, mode: str) -> Made:
    return subject.model


def _inductor(subject: Subject, mode: str) -> Made:
    return _compiled(subject, mode, "inductor")


def _max(subject: Subject, mode: str) -> Made:
    from torch_max_backend import max_backend

    return _compiled(subject, mode, max_backend)


def _packed(subject: Subject, mode: str) -> Made:
    if mode == "training":
        raise Unavailable("training packs no weights")
    return _compiled(subject, mode, "max", options={"pack": True})


def _openvino(subject: Subject, mode: str) -> Made:
    try:
        import openvino.torch  # noqa: F401  registers the backend
    except ImportError as e:
        raise Unavailable("openvino is not installed") from e
    if mode == "training":
        raise Unavailable("it has no training")
    return _compiled(subject, mode, "openvino")


def _onnxruntime(subject: Subject, mode: str) -> Made:
    try:
        import onnxruntime
    except ImportError as e:
        raise Unavailable("onnxruntime is not installed") from e
    if mode != "inference":
        raise Unavailable(f"the exported graph has no {mode}")
    try:
        exported = torch.onnx.export(
            subject.model,
            tuple(subject.args),
            kwargs=dict(subject.kwargs),
            dynamo=True,
            verbose=False,
        )
    except Exception as e:
        reason = re.sub(r"\x1b\[\d+m", "", " ".join(str(e).split()))[:200]
        raise Unavailable(f"torch.onnx.export: {type(e).__name__}: {reason}") from e
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(exported.model_proto.SerializeToString(), options)
    names = [i.name for i in session.get_inputs()]

    def call(*args: Any, **kwargs: Any) -> list[torch.Tensor]:
        given = [*args, *kwargs.values()]
        feed = {n: v.numpy() for n, v in zip(names, given, strict=True)}
        return [torch.from_numpy(result) for result in session.run(None, feed)]

    return call


def _tinygrad(subject: Subject, mode: str) -> Made:
    if type(subject.model).__name__ != "LlamaForCausalLM":
        raise Unavailable("it runs no PyTorch models; llama alone is written down for it")
    if mode != "inference":
        raise Unavailable(f"llama's {mode} is not written down for it")
    try:
        from torch_max_backend.bench.tinygrad_llama import llama
    except ImportError as e:
        raise Unavailable("tinygrad is not installed") from e
    try:
        return llama(subject.model)
    except ValueError as e:
        raise Unavailable(str(e)) from e


FRAMEWORKS: Mapping[str, Callable[[Subject, str], Made]] = {
    "eager": _eager,
    "inductor": _inductor,
    "max": _max,
    "max-packed": _packed,
    "openvino": _openvino,
    "onnxruntime": _onnxruntime,
    "tinygrad": _tinygrad,
}
