"""Prompts to trees of hashes: what is equal, what is not, and that remembering text changes nothing."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import chained

from agentctl.ingest.hashing import BLOCK, GROUP, MESSAGE, HashOptions
from agentctl.ingest.prompts import Prompt
from agentctl.ingest.texts import Texts

SALT = b"s" * 32
TOOLS = b'[{"name": "a"}, {"name": "b"}]'

content = st.sampled_from(["", "hi", "}", '"}', "x" * 64, "y" * 200, "\\", "é \U0001f600", "[1, 2]"])
message = st.builds(
    lambda role, text: {"role": role, "content": text}, st.sampled_from(["user", "assistant"]), content
)
conversation = st.lists(message, max_size=7)


def raw(messages, **style) -> list[bytes]:
    return [json.dumps(message, **style).encode() for message in messages]


def options(**changes) -> HashOptions:
    return HashOptions(**{"salt": SALT, "is_ephemeral": False, **changes})


def units(texts: Texts, tip: int) -> list[int]:
    """Hashes of the pieces of a prompt."""
    found = []
    while tip:
        found.append(int(texts.units.hash[tip]))
        tip = int(texts.units.parent[tip])
    return found[::-1]


def add(texts: Texts, *prompts: Prompt) -> tuple[list[int], list[list[int]]]:
    """(message node, pieces) of each prompt."""
    placed = texts.add(prompts)
    return placed.message_node.tolist(), [units(texts, tip) for tip in placed.unit_node.tolist()]


@settings(max_examples=100)
@given(st.lists(st.tuples(conversation, st.sampled_from([b"", TOOLS])), max_size=8), st.booleans())
def test_hashes_are_those_of_hashlib_over_the_pieces(prompts, tools_first):
    texts = Texts(options(tools_first=tools_first))
    start = chained.digest(SALT, GROUP, b"")
    for messages, tools in prompts:
        sent = raw(messages)
        nodes, (pieces,) = add(texts, Prompt(sent, tools))
        if not messages:
            assert nodes == [-1]
            continue
        cut = chained.cut([tools, *sent], 64)
        expected, parent = [], start
        for piece in cut:
            parent = chained.digest(SALT, BLOCK, parent.to_bytes(8, "little") + piece)
            expected.append(parent)
        assert pieces == expected
        parent = start
        for text in (tools, *sent):
            parent = chained.digest(SALT, MESSAGE, parent.to_bytes(8, "little") + text)
        assert int(texts.messages.hash[nodes[0]]) == parent


ALIKE = [{"role": "user", "content": text} for text in ("a", "a" * 99, "a" * 99 + "}", 'a"}, {"')]
alike = st.lists(st.sampled_from(ALIKE), max_size=8)  # conversations that part late and meet again


@settings(max_examples=200)
@given(
    st.lists(conversation | alike, max_size=25), st.sampled_from([(", ", ": "), (",", ":"), (" ,\n ", ":")])
)
def test_an_array_gives_what_its_messages_one_by_one_give(prompts, separators):
    one_by_one, arrays = Texts(options()), Texts(options())
    for messages in prompts:
        texts = raw(messages, separators=separators)
        array = b"[ " + separators[0].encode().join(texts) + b"\n]"
        a, b = one_by_one.add([Prompt(texts)]), arrays.add([Prompt(array)])
        for name in a._fields:
            assert getattr(a, name).tolist() == getattr(b, name).tolist(), name
    assert one_by_one.sizes.tolist() == arrays.sizes.tolist()


@given(st.lists(conversation.filter(len), max_size=10))
def test_a_prompt_is_a_proper_prefix_exactly_where_its_node_is_an_ancestor(prompts):
    texts = Texts(options())
    nodes = texts.add([Prompt(raw(messages)) for messages in prompts]).message_node.tolist()
    for one, node in zip(prompts, nodes, strict=True):
        above = set()
        while node:
            node = int(texts.messages.parent[node])
            above.add(node)
        for other, its in zip(prompts, nodes, strict=True):
            assert (its in above) == (len(other) < len(one) and one[: len(other)] == other)


def test_one_changed_byte_changes_exactly_the_pieces_from_there_on():
    text = b"m" * 640
    for at in (0, 63, 64, 300, 639):
        changed = text[:at] + b"n" + text[at + 1 :]
        _, (before, after) = add(Texts(options()), Prompt([text, b"end"]), Prompt([changed, b"end"]))
        same = [a == b for a, b in zip(before, after, strict=True)]
        assert same == [True] * (at // 64) + [False] * (len(same) - at // 64)


def test_groups_tools_and_salts_share_nothing():
    prompt = [b"m" * 200, b"n"]
    texts = Texts(options())
    nodes, found = add(
        texts,
        Prompt(prompt),
        Prompt(prompt, TOOLS),
        Prompt(prompt, b"", "lora"),
        Prompt(prompt, b"", "other"),
    )
    found += add(Texts(options(salt=b"t" * 32)), Prompt(prompt))[1]
    assert len(set(nodes)) == 4
    hashes = [value for pieces in found for value in pieces]
    assert len(set(hashes)) == len(hashes)


def test_tools_that_are_empty_are_none():
    nodes, _ = add(Texts(options()), *(Prompt([b"m"], tools) for tools in (b"", b"null", b"[]")))
    assert len(set(nodes)) == 1


def test_behind_the_system_message_tools_leave_it_shared():
    system, user = b'{"role": "system", "content": "' + b"s" * 100 + b'"}', b'{"role": "user"}'
    other = b'[{"name": "c"}]'
    for first, n_shared in ((True, 0), (False, 3)):
        _, (one, two) = add(
            Texts(options(tools_first=first)), Prompt([system, user], TOOLS), Prompt([system, user], other)
        )
        assert sum(a == b for a, b in zip(one, two, strict=False)) == n_shared


def test_counts_of_messages_answers_and_tools():
    roles = ("system", "user", "assistant", "tool")
    sent = [*raw([{"role": role} for role in roles]), b"plain"]
    placed = Texts(options()).add([Prompt(sent, TOOLS), None, Prompt([], TOOLS), Prompt(sent[:2], group="g")])
    assert placed.n_messages.tolist() == [5, -1, -1, 2]
    assert placed.n_assistant.tolist() == [1, -1, -1, 0]
    assert placed.n_tools.tolist() == [2, -1, -1, 0]
    assert [value >= 0 for value in placed.cache_group.tolist()] == [False, False, False, True]


@pytest.mark.parametrize(("level", "n"), [("bytes", 6), ("message", 2)])
def test_a_level_decides_how_fine_the_pieces_are(level, n):
    texts = Texts(options(level=level))
    _, (pieces,) = add(texts, Prompt([b"m" * 200, b"n" * 90]))
    assert len(pieces) == n
    assert sum(texts.sizes) == 290


def test_trees_of_two_processes_become_one(tmp_path):
    prompts = [Prompt([b"a" * 100, b"b"]), Prompt([b"a" * 100, b"c" * 70]), Prompt([b"d"])]
    one, other, both = Texts(options()), Texts(options()), Texts(options())
    whole = both.add(prompts)
    left = one.add(prompts[:1])
    right = other.add(prompts[1:])
    other.save(tmp_path / "x.arrow")
    numbers = one.merge(tmp_path / "x.arrow")
    for name in ("message_node", "unit_node"):
        merged = [*getattr(left, name), *numbers[name][getattr(right, name)]]
        assert merged == getattr(whole, name).tolist()
    assert np.array_equal(one.sizes, both.sizes)
    assert one.units.hash.tolist() == both.units.hash.tolist()
