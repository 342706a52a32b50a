"""Lists and ranges as people write them."""

import pytest

from agentctl.errors import UsageError
from agentctl.recommend.grid import Axis, axis, policy_grid, values_in


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("8", [8]),
        ("4..32", [4, 8, 16, 32]),
        ("4..20", [4, 8, 16, 20]),
        ("1..2+0.25", [1, 1.25, 1.5, 1.75, 2]),
        ("0..1+0.5", [0, 0.5, 1]),
        ("1e6..4e6", [1_000_000, 2_000_000, 4_000_000]),
        ("0.5..0.5", [0.5]),
    ],
)
def test_a_range_doubles_or_steps_and_its_end_is_in_it(text, values):
    assert values_in(text, "--vary x") == values


@pytest.mark.parametrize(
    ("text", "policies"),
    [
        ("lmetric,smetric", ["lmetric", "smetric"]),
        ("smetric:slack=1,2,lmetric", ["smetric:slack=1", "smetric:slack=2", "lmetric"]),
        ("smetric:slack=1..4", ["smetric:slack=1", "smetric:slack=2", "smetric:slack=4"]),
        (
            "smetric:slack=1,2,hit_ratio=0.5,0.7",
            [f"smetric:slack={s},hit_ratio={h}" for s in (1, 2) for h in (0.5, 0.7)],
        ),
        (
            "vllm-router:kv_aware,./mine.py:pick,smetric:slack=2",
            ["vllm-router:kv_aware", "./mine.py:pick", "smetric:slack=2"],
        ),
        ("smetric,smetric", ["smetric"]),
    ],
)
def test_every_value_of_a_parameter_is_a_policy(text, policies):
    assert policy_grid(text) == policies


def test_values_of_a_setting_are_read_as_a_cluster_file_has_them():
    assert axis("max_num_seqs=64,128") == Axis("max_num_seqs", (64, 128))
    assert axis("router.index=precise,approximate").values == ("precise", "approximate")
    assert axis("prefix_caching=true,false").values == (True, False)
    assert axis("kv_tier.host.capacity_tokens=0,1e6..2e6").values == (0, 1_000_000, 2_000_000)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("max_num_seqs", "KEY=VALUE"),
        ("max_num_seqs=", "an empty grid"),
        ("max_num_seqs=1,,2", "an empty value"),
        ("max_num_seqs=8..4", "an empty grid"),
        ("watermark=0..1", "cannot double from 0"),
        ("max_num_seqs=4..", "FIRST..LAST"),
        ("max_num_seqs=1..1e9+1", "too many values"),
        ("watermark=0..1e400+0.1", "not finite"),
    ],
)
def test_what_is_no_grid_says_where_and_what_would_be_one(text, words):
    with pytest.raises(UsageError) as caught:
        axis(text)
    assert caught.value.message.startswith("--vary")
    assert words in caught.value.message
