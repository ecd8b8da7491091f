"""Errors of linear algebra, from LAPACK's `info`."""

from ..core.memory import Address



def failure(text: StaticString, place: Int, single: Bool, info: Int) -> Error:
    """The error of one matrix. In `text`, "@" stands for its place in a batch (nothing for a
    `single` one), "#" for its `info`."""
    var where = String("") if single else String(": (Batch element ", place, ")")
    var said = String(text).replace("@", where).replace("#", String(info))
    return Error("LinAlgError<", said, ">")


def check(
    info: Address[DType.int32], count: Int, text: StaticString, single: Bool
) raises:
    """Raises for the first `info` that is not 0."""
    for i in range(count):
        if info[unsafe_offset=i] != 0:
            raise failure(text, i, single, Int(info[unsafe_offset=i]))
