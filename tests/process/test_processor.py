from __future__ import annotations

import pytest

from torch_max_backend.process import processor


@pytest.mark.parametrize(
    ("flags", "name"),
    [
        ("fma avx2", "AMD EPYC (AVX2)"),
        ("fma avx2 avx512f", "AMD EPYC"),
        ("sse2", "AMD EPYC"),
    ],
)
def test_a_processor_is_named_with_what_sets_it_apart(
    flags: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processor, "cpu_info", lambda: {"model name": "AMD EPYC", "flags": flags})
    assert processor.processor_name() == name
