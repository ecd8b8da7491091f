"""From a compiled module to models that run. Needs nothing of what compiles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch_max_backend.engines.max.session import session
from torch_max_backend.errors import CompilationError

if TYPE_CHECKING:
    from max.engine import CompiledModel, Model


def load_models(compiled: CompiledModel) -> list[Model]:
    """The models of a compiled module, in the order of its graphs."""
    models = session().init_all(compiled)
    return [models[name] for name in sorted(models, key=lambda n: int(n[1:]))]


def load_serialized(artifact: bytes) -> list[Model]:
    """The models of an artifact. The caller has verified its checksum: it is native code.

    Raises:
        CompilationError: MAX cannot read it.
    """
    import io

    from max import engine

    try:
        return load_models(engine.read(io.BytesIO(artifact)))
    except Exception as e:
        raise CompilationError(f"MAX could not load a compiled artifact: {e}") from e
