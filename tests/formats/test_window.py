"""Requests that wait for their end: order, bounds, and what is still known of those that left."""

from dataclasses import dataclass

from agentctl.formats._window import Window


@dataclass
class Begun:
    key: str
    size: int = 1
    has_ended: bool = False


def left(window: Window[Begun], is_last: bool = False) -> list[str]:
    return [request.key for request in window.leaving(is_last)]


def test_requests_leave_in_the_order_of_their_beginnings_once_they_have_ended():
    window: Window[Begun] = Window()
    for key in "abc":
        window.begin(Begun(key))
    window.find("b").has_ended = True
    assert left(window) == []
    window.find("a").has_ended = True
    assert left(window) == ["a", "b"] and left(window) == []
    assert left(window, is_last=True) == ["c"]


def test_the_oldest_leaves_when_too_many_wait():
    window: Window[Begun] = Window(max_open=2)
    for key in "abcd":
        window.begin(Begun(key))
    assert left(window) == ["a", "b"]
    assert window.find("a") is None and window.find("c") is not None


def test_the_oldest_leaves_when_too_large_ones_wait():
    window: Window[Begun] = Window(max_bytes=10)
    for key, size in (("a", 6), ("b", 3), ("c", 4), ("huge", 50)):
        window.begin(Begun(key, size))
        if key == "c":
            assert left(window) == ["a"]
    assert left(window) == ["b", "c", "huge"]


def test_a_key_used_again_means_the_later_request():
    window: Window[Begun] = Window()
    window.begin(Begun("a", has_ended=True))
    window.begin(Begun("a"))
    assert not window.find("a").has_ended
    assert left(window) == ["a"] and window.find("a") is not None
    assert left(window, is_last=True) == ["a"] and window.find("a") is None
    assert window.knows("a") and not window.knows("b")
