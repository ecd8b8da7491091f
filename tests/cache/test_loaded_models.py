"""Loaded models that equal graphs share."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from torch_max_backend.cache import loaded_models


class Model:
    pass


class User:
    pass


def test_a_model_lives_as_long_as_one_of_its_users() -> None:
    model: Any = Model()
    freed = weakref.ref(model)
    first, second = User(), User()
    loaded_models.keep({"lives": model}, first)
    loaded_models.keep({"lives": model}, second)
    assert loaded_models.get("lives") is model
    del model, first
    gc.collect()
    assert loaded_models.get("lives") is freed()
    del second
    gc.collect()
    assert loaded_models.get("lives") is None
    assert freed() is None


def test_keys_are_apart() -> None:
    one: Any = Model()
    user = User()
    loaded_models.keep({"one": one}, user)
    assert loaded_models.get("another") is None


def test_a_later_model_of_a_key_is_found_and_the_earlier_users_keep_theirs() -> None:
    old: Any = Model()
    new: Any = Model()
    freed = weakref.ref(old)
    first, second = User(), User()
    loaded_models.keep({"key": old}, first)
    loaded_models.keep({"key": new}, second)
    assert loaded_models.get("key") is new
    del old
    gc.collect()
    assert freed() is not None
    del first
    gc.collect()
    assert freed() is None
    assert loaded_models.get("key") is new


def test_threads_work_on_a_key_one_at_a_time() -> None:
    inside: list[int] = []
    most: list[int] = []

    def work(number: int) -> None:
        with loaded_models.alone("busy"):
            inside.append(number)
            most.append(len(inside))
            time.sleep(0.01)
            inside.remove(number)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(24)))
    assert len(most) == 24
    assert max(most) == 1
    assert "busy" not in loaded_models._busy


def test_different_keys_do_not_wait_for_each_other() -> None:
    both = threading.Barrier(2, timeout=600)

    def work(key: str) -> None:
        with loaded_models.alone(key):
            both.wait()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, ["a", "b"]))


def test_a_failure_lets_the_next_one_in() -> None:
    with pytest.raises(ValueError, match="no"), loaded_models.alone("fails"):
        raise ValueError("no")
    with loaded_models.alone("fails"):
        assert "fails" in loaded_models._busy
    assert "fails" not in loaded_models._busy
