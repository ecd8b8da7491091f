"""Signatures of kernels, read from Mojo sources, and the shells written from them."""

from __future__ import annotations

import re

import pytest

from tests.engines.steps.libraries.cases import CUMSUM, DOUBLE, GEMM
from torch_max_backend.engines.steps.shells import Instance, shells_text, unavailable
from torch_max_backend.engines.steps.signatures import (
    Argument,
    Parameter,
    Signature,
    Unavailable,
    kernels,
    parse,
    signature,
)
from torch_max_backend.engines.steps.sources import own
from torch_max_backend.engines.steps.standard import standard
from torch_max_backend.errors import LibraryError


def test_every_kernel_has_a_signature() -> None:
    found = [signature(kernel) for kernel in kernels()]
    assert {s.kernel: s.reason for s in found if isinstance(s, Unavailable)} == {}
    assert len(found) > 90
    gemm = signature("tmb_matmul")
    assert isinstance(gemm, Signature)
    assert (gemm.module, gemm.struct, gemm.raises) == ("gemm.matmul", "Matmul", True)
    assert gemm.parameters == (Parameter("precision", "StaticString", True),)
    assert gemm.inferred == ("dtype", "right_type")
    assert gemm.arguments[0] == Argument("output", "output", "dtype", "3")
    assert gemm.arguments[4] == Argument("routine", "scalar", "DType.int64", "")
    assert gemm.calls[-1] == ""
    check = signature("tmb_check_info")
    assert isinstance(check, Signature)
    assert [a.kind for a in check.arguments] == ["mutable", "input"]
    concat = signature("tmb_concat")
    assert isinstance(concat, Signature)
    assert [a.kind for a in concat.arguments] == ["output", "list"]


def _parsed(execute: str) -> Signature | Unavailable:
    text = f'@register("k")\nstruct K:\n    """A kernel."""\n\n    @staticmethod\n{execute}\n'
    (found,) = parse(text, "m")
    return found


def test_signatures_of_others() -> None:
    found = _parsed(
        "    def execute[t: DType, //, axis: Int, how: Bool = False, target: StaticString](\n"
        "        y: OutputTensor[dtype=t, rank=2, ...],  # the sum, of x\n"
        "        imm by: Scalar[t], n: Int32, on: Bool,\n"
        "        x: InputTensor[dtype=y.dtype, rank=y.rank, ...],\n"
        "    ):\n        pass"
    )
    assert isinstance(found, Signature)
    assert found.parameters == (Parameter("axis", "Int", False), Parameter("how", "Bool", True))
    assert [(a.name, a.kind, a.dtype, a.rank) for a in found.arguments] == [
        ("y", "output", "t", "2"),
        ("by", "scalar", "t", ""),
        ("n", "scalar", "DType.int32", ""),
        ("on", "scalar", "DType.bool", ""),
        ("x", "input", "y.dtype", "y.rank"),
    ]
    assert found.calls == ("y", "by", "n", "on", "x")
    assert not found.raises


@pytest.mark.parametrize(
    ("execute", "reason"),
    [
        ("    def shape(x: Int):\n        pass", "it has no method `execute`"),
        (
            "    def execute(x: OutputTensor) -> Int:\n        pass",
            "its `execute` returns something",
        ),
        ("    def execute(x: OutputTensor, *y: Int):", "its argument `y` is any number of tensors"),
        ("    def execute(x: OutputTensor, s: String):", "its argument `s` has the type String"),
        ("    def execute(x: InputTensor, n: Int64):", "it writes to no tensor"),
        ("    def execute[f: Shape](x: OutputTensor):", "its parameter `f` has the type Shape"),
        (
            "    def execute(x: OutputTensor[static_spec=s]):",
            "the type of its argument `x` is OutputTensor[static_spec=s]",
        ),
        ("    def execute(x: OutputTensor", "its `execute` has a bracket that does not close"),
    ],
)
def test_what_cannot_be_parsed_has_a_reason(execute: str, reason: str) -> None:
    assert _parsed(execute) == Unavailable("k", "m", reason)


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        (Instance.of("tmb_matmul", {"precision": "bf16"}, GEMM), ""),
        (
            Instance.of("tmb_concat", {"axis": 0}, [("int8", 2)] * 5),
            "it takes any number of tensors",
        ),
        (Instance.of("mine", {}, []), "there is no kernel 'mine'"),
        (
            Instance.of("tmb_softmax", {"blind": False}, [("float32", 3)] * 2),
            "its parameter `logarithm` is not given",
        ),
        (Instance.of("tmb_cumsum", {"axis": 1}, CUMSUM.operands), "it has no parameter `axis`"),
        (Instance.of("tmb_cumsum", {}, [("int8", 3)]), "it takes 2 operands, not 1"),
        (
            Instance.of("tmb_cumsum", {}, [("int8", 3), ("int8", 2)]),
            "`x` has to have rank 3, not 2",
        ),
        (
            Instance.of("tmb_cumsum", {}, [("int8", 3), ("int32", 3)]),
            "`x` has to be int8, not int32",
        ),
        (Instance.of("tmb_cumsum", {}, [("a b", 3)] * 2), "`output` cannot be a b of rank 3"),
        (
            Instance.of("tmb_bits", {"kind": "and"}, [("int8", 1), ("int8", 1), ("int8", 0)]),
            "`y` has to have rank 1, not 0",
        ),
    ],
)
def test_reasons_for_no_shell(wanted: Instance, reason: str) -> None:
    assert unavailable(wanted) == reason
    if reason:
        with pytest.raises(LibraryError, match="has no shell"):
            shells_text([wanted])


def test_text_of_a_shell() -> None:
    assert CUMSUM.symbol == Instance.of("tmb_cumsum", (), CUMSUM.operands).symbol
    assert CUMSUM.symbol != DOUBLE.symbol
    assert CUMSUM.symbol.startswith("tmb_cumsum_")
    wanted = Instance.of("tmb_check_info", {"text": 'a "b"\n', "single": True}, [("int32", 1)] * 2)
    text = shells_text([wanted])
    assert f'@export("{wanted.symbol}")' in text
    assert 'single=True, text="a \\"b\\"\\n", target="cpu"' in text
    assert text == shells_text([wanted])


def test_no_library_of_this_package_imports_max() -> None:
    texts = own({module for _, module in kernels().values()})
    texts["shells"] = shells_text([CUMSUM])
    of_max = re.compile(r"^\s*(from|import) (extensibility|layout|max)\b", re.MULTILINE)
    assert [name for name, text in texts.items() if of_max.search(text)] == []


def test_standard_instances_have_shells() -> None:
    found = standard()
    assert {i: unavailable(i) for i in found} == dict.fromkeys(found, "")
    assert Instance.of("tmb_matmul", {}, GEMM) in found
