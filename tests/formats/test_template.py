"""Rendered prompts back to messages: the marks of chat templates, and prefixes that stay prefixes."""

import json

import pytest

from agentctl.formats._template import messages_of


def roles(prompt: str) -> list[tuple[str, str]]:
    return [(message["role"], message["content"].strip()) for message in map(json.loads, messages_of(prompt))]


@pytest.mark.parametrize(
    "turn",
    [
        "<|im_start|>{role}\n{text}<|im_end|>\n",
        "<|start_header_id|>{role}<|end_header_id|>\n\n{text}<|eot_id|>",
        "<|start|>{role}<|message|>{text}<|end|>",
        "<|{role}|>\n{text}",
    ],
)
def test_the_marks_of_several_models_are_known(turn):
    said = [("system", "be kind"), ("user", "hi"), ("assistant", "hello"), ("user", "bye")]
    prompt = "".join(turn.format(role=role, text=text) for role, text in said)
    found = roles(prompt)
    assert [role for role, _ in found] == [role for role, _ in said]
    assert all(text in content for (_, text), (_, content) in zip(said, found, strict=True))


def test_other_names_of_roles_are_the_usual_ones():
    gemma = "<bos><start_of_turn>user\nhi<end_of_turn>\n<start_of_turn>model\nyo<end_of_turn>\n"
    assert [role for role, _ in roles(gemma)] == ["system", "user", "assistant"]
    assert [role for role, _ in roles("<｜User｜>hi<｜Assistant｜>yo")] == ["user", "assistant"]
    assert [role for role, _ in roles("<|user|>hi<|observation|>x")] == ["user", "tool"]


@pytest.mark.parametrize(
    "opened", ["<|im_start|>assistant\n", "<|im_start|>assistant\n<think>\n\n</think>\n\n"]
)
def test_an_answer_that_is_only_opened_is_left_out_so_that_the_prompt_is_a_prefix_of_the_next(opened):
    first = "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n"
    answer = "<|im_start|>assistant\nyo<|im_end|>\n<|im_start|>user\nbye<|im_end|>\n"
    before, after = messages_of(first + opened), messages_of(first + answer + opened)
    assert len(before) == 2 and after[:2] == before and len(after) == 4


def test_a_text_without_marks_is_one_message():
    assert roles("once upon a time") == [("user", "once upon a time")]
