"""Packages that are damaged, for other machines, or not what ``export`` writes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.groups import compile_group
from torch_max_backend import PackageError, load
from torch_max_backend.ahead_of_time import loading, manifest

pytestmark = compile_group("package")

CODE, WEIGHTS, GRAPH, MANIFEST = (
    manifest.CODE,
    manifest.WEIGHTS,
    manifest.GRAPH,
    manifest.MANIFEST,
)


@pytest.fixture(autouse=True)
def nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """No native code of a bad package is loaded."""

    def loads(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("its code is loaded")

    monkeypatch.setattr(loading, "load_graph", loads)


def _flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("name", [CODE, WEIGHTS, GRAPH, MANIFEST])
@pytest.mark.parametrize("damage", ["missing", "cut", "longer", "first byte", "last byte"])
def test_each_file_is_checked(copied: Path, name: str, damage: str) -> None:
    path = copied / name
    if damage == "missing":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[:-1])
    elif damage == "longer":
        path.write_bytes(path.read_bytes() + b"x")
    else:
        _flip(path, 0 if damage == "first byte" else -3)
    words = "cannot be read" if damage == "missing" else "damaged one|has format"
    with pytest.raises(PackageError, match=words):
        load(copied, verify=True)


def test_the_content_of_weights_is_checked_on_demand(copied: Path) -> None:
    _flip(copied / WEIGHTS, -1)
    with pytest.raises(AssertionError, match="code is loaded"):
        load(copied)
    with pytest.raises(PackageError, match=f"the checksum of {WEIGHTS} is wrong"):
        load(copied, verify=True)


def _forge(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change a manifest, and its checksum with it."""
    path = folder / MANIFEST
    found = json.loads(path.read_text())
    del found["sha256"]
    change(found)
    path.write_bytes(manifest.encoded(found))


OTHERS = [
    ("torch", "2.0.0", r"torch 2\.0\.0 != "),
    ("max", "1.0", r"max 1\.0 != "),
    ("mojo", "0.1\x1b[2J", "mojo of another kind != "),
    ("target", "0" * 64, "another CPU or accelerator"),
    ("package", "0" * 64, "another version of torch_max_backend"),
    ("kernels", "0" * 64, "other Mojo kernels"),
    ("bank", "nobody 1.0 abi 1: ", "another library of matrix products"),
]


@pytest.mark.parametrize(("component", "value", "words"), OTHERS)
def test_what_is_for_another_machine_is_refused(
    copied: Path, component: str, value: str, words: str
) -> None:
    _forge(copied, lambda m: m["components"].update({component: value}))
    with pytest.raises(PackageError, match=f"not for this machine and installation: .*{words}"):
        load(copied)


EVIL = "__import__('os').abort()"


def _set(*path: Any) -> Callable[[dict[str, Any]], None]:
    """Sets the item at all but the last of ``path`` to the last."""
    *places, last, value = path

    def change(found: dict[str, Any]) -> None:
        for place in places:
            found = found[place]
        found[last] = value

    return change


FORGED = [
    (_set("format", 99), "has format 99; this torch_max_backend reads 1"),
    (_set("key", "0" * 64), "key"),
    (_set("inputs", 0, "sizes", 0, EVIL), "not allowed in an expression"),
    (_set("inputs", 0, "sizes", 0, "d9"), "not allowed in an expression"),
    (_set("inputs", 0, "kind", "tensors"), "kind"),
    (_set("conditions", [[EVIL, "x"]]), "not allowed in an expression"),
    (_set("signature", "outputs", 0,
          {"kind": "scalar", "index": -1, "source": EVIL, "layout": None, "views": []}),
     "not allowed in an expression"),
    (_set("signature", "outputs", 0,
          {"kind": "input", "index": 0, "source": "", "layout": None,
           "views": [["set_", []]]}),
     "a view cannot be"),
    (_set("signature", "checks", [[EVIL, "x"]]), "not allowed in an expression"),
    (_set("signature", "layouts", 0,
          {"order": None, "narrowed": [], "sizes": [EVIL], "strides": []}),
     "not allowed in an expression"),
    (_set("signature", "inputs", 0,
          {"kind": "scalar", "index": 0, "source": EVIL, "dtype": "int64", "mutated": False,
           "order": None}),
     "not allowed in an expression"),
    (_set("signature", "symbols", {"d0, _=exit()": [0, 0]}), "symbol"),
    (_set("symbols", "d0", "source", [99, 0]), "source of a symbol"),
    (_set("symbols", "d0", "factor", 0), "factor"),
    (_set("signature", "arguments", 1), "number of arguments"),
    (_set("state", 0, "tensor", "dtype", "os.path"), "dtype"),
    (_set("state", 0, "tensor", "device", "meta"), "device"),
    (_set("state", 0, "tensor", "shape", [1 << 40]), WEIGHTS),
    (_set("state", 0, "tensor", "member", "nothing"), WEIGHTS),
    (_set("results", 0, "index", 999), "results"),
    (_set("members", "../other", {"size": 1, "sha256": "0" * 64}), "list of its files"),
    (_set("members", CODE, "sha256", ""), "checksum"),
    (_set("graphs", []), "key"),
    (_set("state", {}), "manifest is wrong"),
    (_set("more", 1), "other fields"),
    (_set("arguments_tree", 1, "type", "no.such.Type"), "hold 'no.such.Type'.*Import the module"),
    (_set("results_tree", 1, "context",
          json.dumps([{"__enum__": True, "fqn": "antigravity:x", "name": "y"}])),
     "hold 'antigravity'.*Import the module"),
    (_set("results_tree", 1, "context", r'[{"\u005f_enum__": 1, "fqn": "antigravity:x"}]'),
     "hold 'antigravity'.*Import the module"),
    (_set("results_tree", 1,
          {"type": "collections.defaultdict", "children_spec": [],
           "context": {"default_factory_module": "antigravity", "default_factory_name": "x",
                       "dict_context": []}}),
     "hold 'antigravity'.*Import the module"),
    (_set("arguments_tree", 7), "structure"),
    (_set("arguments_tree", [1, {"type": None, "context": None, "children_spec": []}]),
     "structure"),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(FORGED)))
def test_a_manifest_is_not_trusted(copied: Path, case: int) -> None:
    change, words = FORGED[case]
    _forge(copied, change)
    with pytest.raises(PackageError, match=f"(?s){words}"):
        load(copied)


@pytest.mark.parametrize(
    "text",
    [b"", b"{}", b"[]", b"\xff", b"[" * 100_000, b'{"format": 1}'],
    ids=["empty", "object", "list", "no text", "deep", "only a format"],
)
def test_any_bytes_are_refused(copied: Path, text: bytes) -> None:
    (copied / MANIFEST).write_bytes(text)
    with pytest.raises(PackageError, match="no package of torch_max_backend"):
        load(copied)


def test_nothing_is_no_package(tmp_path: Path) -> None:
    with pytest.raises(PackageError, match="cannot be read"):
        load(tmp_path / "nothing")
