from __future__ import annotations

from tensorboard_torchexplorer.cache import Cache


def test_a_value_is_valid_for_its_token_only():
    cache: Cache[str] = Cache(100)
    cache.put("a", "1", "value", 10)

    assert cache.get("a", "1") == "value"
    assert cache.get("a", "2") is None
    assert cache.stale("a") == "value"
    assert cache.stale("b") is None


def test_what_was_used_longest_ago_is_forgotten():
    cache: Cache[int] = Cache(100)
    for number in range(4):
        cache.put(number, "", number, 30)
        cache.get(0, "")

    assert [cache.stale(number) for number in range(4)] == [0, None, 2, 3]
    assert cache.used == 90


def test_a_new_value_takes_the_place_of_the_old():
    cache: Cache[str] = Cache(100)
    cache.put("a", "1", "old", 90)
    cache.put("a", "2", "new", 80)

    assert (cache.get("a", "2"), cache.used) == ("new", 80)


def test_what_is_too_large_is_not_kept_nor_what_it_replaces():
    cache: Cache[str] = Cache(100)
    cache.put("a", "1", "old", 10)
    cache.put("b", "1", "other", 10)
    cache.put("a", "2", "huge", 101)

    assert (cache.stale("a"), cache.stale("b"), cache.used) == (None, "other", 10)
