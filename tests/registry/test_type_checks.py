"""Type hints of lowerings are checked by beartype, which not every process can import."""

from __future__ import annotations

import pytest

from tests.support.interpreters import run_python

# nnsight gives every object a method `save`, by an entry in the dictionary of `object` itself. The
# entry has no hash, and beartype, while it is imported, puts what `object` has in a set.
MOUNT = """
import ctypes, gc, torch
method = ctypes.pythonapi.PyInstanceMethod_New
method.restype, method.argtypes = ctypes.py_object, [ctypes.py_object]
gc.get_referents(object.__dict__)[0]["save"] = method(lambda self: self)
assert (1).save() == 1
"""
NO_BEARTYPE = """
import sys
sys.modules["beartype"] = None
"""
FIRST_USE = """
import torch_max_backend
torch_max_backend.max_backend
"""
CALL = """
import logging, torch
said = []
class Handler(logging.Handler):
    def emit(self, record): said.append(record.getMessage())
logging.getLogger("torch_max_backend").addHandler(Handler())
import torch_max_backend.ops
from torch_max_backend.convert import nodes
from torch_max_backend.registry.lowerings import map_to, registry
aten = torch.ops.aten
@map_to(aten.mm.default, override=True)
def mm(self: int, mat2: int) -> int:
    return self * mat2
call = registry[aten.mm.default].call
assert [call({"self": 2, "mat2": n}) for n in range(3)] == [0, 2, 4]
try:
    wrong = call({"self": 2, "mat2": 0.5})
except Exception as e:
    assert isinstance(e, nodes.VIOLATIONS)
    wrong = "refused"
"""
CHECKED = "assert wrong == 'refused' and not said, (wrong, said)"
UNCHECKED = """
assert wrong == 1.0, wrong
(text,) = said
assert "type hints of lowerings are not checked" in text, text
assert "TORCH_MAX_BACKEND_BEARTYPE=0" in text, text
"""
SILENT = "assert wrong == 1.0 and not said, (wrong, said)"


@pytest.mark.parametrize(
    ("parts", "variable"),
    [
        ((CALL, CHECKED), "1"),
        ((MOUNT, CALL, UNCHECKED), "1"),
        ((NO_BEARTYPE, CALL, UNCHECKED), "1"),
        ((MOUNT, CALL, SILENT), "0"),
        ((FIRST_USE, MOUNT, CALL, CHECKED), "1"),
    ],
    ids=["alone", "nnsight first", "no beartype", "not wanted", "nnsight after us"],
)
def test_any_order_of_imports(
    parts: tuple[str, ...], variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_MAX_BACKEND_BEARTYPE", variable)
    done = run_python("-c", "".join(parts))
    assert done.returncode == 0, done.stderr
