"""Step logs in every form that engines write, and what is said of those that cannot be used."""

import json

import numpy as np
import pytest

from agentctl.errors import InputError, UsageError
from agentctl.estimators.step_logs import read_step_logs

TWO = [[4096, 1, 0], [0, 512, 1]]  # a decode on 4,096 tokens and a fresh chunk of 512


def steps_file(folder, rows, name="steps.jsonl"):
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def plain_rows(n=40, **changes):
    return [
        {"schema": "agentctl/steps/1", "seconds": 0.03, "prefill_tokens": 512, "n_prefill": 1, "n_decode": 2,
         "decode_context": 6000, "prefill_context": 100, **changes}
        for _ in range(n)
    ]  # fmt: skip


def read(*paths, **settings):
    return read_step_logs(list(paths), **settings)


def test_a_composition_becomes_its_sums(tmp_path):
    rows = [
        {"schema": "agentctl/steps/1", "time_s": 10 + n, "seconds": 0.03, "batch": TWO} for n in range(60)
    ]
    steps = read(steps_file(tmp_path, rows)).steps
    assert len(steps) == 40  # the first 20 of a log in order of time are warm-up
    assert steps.prefill_tokens[0] == 512 and steps.n_prefill[0] == 1
    assert steps.prefill_pairs[0] == 512 * 513 / 2 and steps.prefill_context[0] == 0
    assert steps.n_decode[0] == 1 and steps.decode_context[0] == 4096
    assert steps.sequence_tokens[0] == 4097 + 512


def test_totals_are_the_same_steps_as_their_composition(tmp_path):
    rows = [{"seconds": 0.03, "batch": TWO} for _ in range(40)]
    totals = [
        {"seconds": 0.03, "prefill_tokens": 512, "n_prefill": 1, "prefill_context": 0, "n_decode": 1,
         "decode_context": 4096}
        for _ in range(40)
    ]  # fmt: skip
    whole, sums = (
        read(steps_file(tmp_path, one, f"{n}.jsonl")).steps for n, one in enumerate((rows, totals))
    )
    for name in (
        "prefill_tokens",
        "n_prefill",
        "prefill_pairs",
        "prefill_context",
        "n_decode",
        "decode_context",
    ):
        assert getattr(whole, name).tolist() == getattr(sums, name).tolist()


def test_steps_come_in_order_of_time(tmp_path):
    rows = [{"time_s": 100 - n, "seconds": 0.01 + n * 1e-4, "batch": TWO} for n in range(40)]
    steps = read(steps_file(tmp_path, rows), warm_up=0).steps
    assert (np.diff(steps.time_s) > 0).all() and (np.diff(steps.seconds) < 0).all()


def test_steps_that_waited_for_a_core_are_set_aside_and_counted(tmp_path):
    rows = [{"seconds": 0.01, "wait_s": 0.001 if n < 5 else 0.0, "batch": TWO} for n in range(40)]
    log = read(steps_file(tmp_path, rows))
    assert len(log.steps) == 35 and log.read == 40 and log.set_aside["waited for a core"] == 5
    assert len(read(steps_file(tmp_path, rows), max_wait=0.2).steps) == 40


@pytest.mark.parametrize(
    ("name", "value"),
    [("duration_ms", 30), ("time_us", 30_000), ("ms", 30), ("wall_time", 0.03), ("step_s", 0.03)],
)
def test_a_duration_says_its_unit_in_its_name(tmp_path, name, value):
    rows = [{key: v for key, v in row.items() if key != "seconds"} | {name: value} for row in plain_rows()]
    assert read(steps_file(tmp_path, rows)).steps.seconds == pytest.approx(0.03)


def test_csv_with_named_columns_and_foreign_names(tmp_path):
    path = tmp_path / "steps.csv"
    path.write_text("dur,prefill_tokens,n_decode,decode_context,host\n" + "25,0,3,900,a\n" * 40)
    log = read(path, renamed={"dur": "duration_ms"})
    assert log.steps.seconds == pytest.approx(0.025) and log.steps.decode_context[0] == 900
    assert "one a step is assumed" in log.notes[0]


def test_forward_pass_metrics_and_their_heartbeats(tmp_path):
    scheduled = {
        "num_prefill_requests": 1, "sum_prefill_tokens": 512, "var_prefill_length": 0.0,
        "sum_prefill_kv_tokens": 1024, "num_decode_requests": 3, "sum_decode_kv_tokens": 9000,
        "var_decode_kv_tokens": 1.0,
    }  # fmt: skip
    common = {"version": 1, "worker_id": "w", "dp_rank": 0, "queued_requests": {}}
    rows = [
        {**common, "counter_id": n, "wall_time": 0.04, "scheduled_requests": scheduled} for n in range(40)
    ]
    idle = {**common, "wall_time": 0.0, "scheduled_requests": dict.fromkeys(scheduled, 0)}
    log = read(steps_file(tmp_path, [*rows, idle]))
    assert len(log.steps) == 40 and log.formats == ("ForwardPassMetrics",)
    assert log.steps.prefill_pairs[0] == 512 * 1024 + 512 * 513 / 2
    assert log.notes == ("1 idle heartbeats are no steps",)
    with pytest.raises(InputError, match=r"version 2; expected version 1"):
        read(steps_file(tmp_path, [{**row, "version": 2} for row in rows]))


def test_the_routing_papers_step_rows_give_exact_pairs(tmp_path):
    """prefill_x_ctx = sum p*c and prefill_sq_sum = sum p^2, here of chunks 3 after 10 and 5 after 0."""
    row = {"duration_ms": 20, "prefill": 8, "decode": 1, "prefill_sq_sum": 34,
           "prefill_x_processed_ctx_sum": 30, "sum_tokens": 19, "sum_sq_tokens": 200}  # fmt: skip
    steps = read(steps_file(tmp_path, [row] * 40)).steps
    assert steps.prefill_pairs[0] == (3 * 10 + 6) + 15
    assert steps.sequence_squares[0] == 200


def test_kv_in_use_stands_for_contexts_and_is_called_rough(tmp_path):
    row = {"seconds": 0.03, "prefill_tokens": 0, "n_prefill": 0, "n_decode": 4, "kv_tokens": 1004}
    log = read(steps_file(tmp_path, [row] * 40))
    assert log.steps.decode_context[0] == 1000 and "rough" in log.notes[0]


def sglang_line(second, text):
    return f"[2026-11-12 09:{second // 60:02d}:{second % 60:02d} TP0] {text}\n"


def test_sglangs_lines_tell_means_of_decodes_and_prefills_in_a_row(tmp_path):
    prefill = (
        "Prefill batch, #new-seq: 2, #new-token: 8000, #cached-token: 1000, token usage: 0.31, "
        "#running-req: 0, #queue-req: {queue}, input throughput (token/s): 16000.00"
    )
    decode = (
        "Decode batch, #running-req: 4, #token: 5000, token usage: 0.42, gen throughput (token/s): 200.00"
    )
    texts = [prefill.format(queue=3), prefill.format(queue=0), decode]
    lines = [sglang_line(n, texts[n % 3]) for n in range(60)]
    path = tmp_path / "server.log"
    path.write_text("".join(lines))
    log = read(path, warm_up=0)
    assert log.formats == ("SGLang batch lines",) and len(log.steps) == 40  # the second prefill tells nothing
    decodes = log.steps.at(log.steps.n_prefill == 0)
    assert decodes.seconds == pytest.approx(4 / 200) and decodes.decode_context[0] == 5000
    assert log.steps.at(log.steps.n_prefill > 0).seconds == pytest.approx(0.5)
    assert "20 of 60 batch lines do not tell" in log.notes[0]


@pytest.mark.parametrize("bad", [-0.01, 0.0, float("nan")])
def test_a_duration_that_is_none_is_an_error_with_its_place(tmp_path, bad):
    path = tmp_path / "steps.csv"
    rows = ["0.03,512,1"] * 40
    rows[6] = f"{bad},512,1"
    path.write_text("seconds,prefill_tokens,n_decode\n" + "\n".join(rows) + "\n")
    with pytest.raises(InputError, match=r"steps.csv: 1 of 40 steps last NaN, zero or negative .* step 7"):
        read(path)


def test_a_unit_of_time_that_cannot_be_is_called_one(tmp_path):
    with pytest.raises(InputError, match=r"median step lasts 300 s; expected between") as caught:
        read(steps_file(tmp_path, plain_rows(seconds=300)))  # nanoseconds, milliseconds, who knows
    assert "duration_ms" in caught.value.hint or "time_ms" in caught.value.hint


@pytest.mark.parametrize(("column", "value"), [("seconds", 11.5), ("duration_ms", 0.0115), ("time_us", 115)])
def test_milliseconds_in_another_units_column_are_found_out(tmp_path, column, value):
    rows = [{**row, column: value} for row in plain_rows()]
    for row in rows:
        row.pop("seconds") if column != "seconds" else None
    with pytest.raises(InputError, match="the median step lasts"):
        read(steps_file(tmp_path, rows))


def test_steps_that_last_longer_than_the_time_they_span_are_in_another_unit(tmp_path):
    rows = [{**row, "time_s": 0.03 * n, "seconds": 0.3} for n, row in enumerate(plain_rows())]
    with pytest.raises(InputError, match=r"last 12 s together and span 1.47 s; expected steps of one engine"):
        read(steps_file(tmp_path, rows))


def test_a_log_that_was_cut_off_says_where(tmp_path):
    path = steps_file(tmp_path, plain_rows())
    path.write_text(path.read_text()[:-30])
    with pytest.raises(InputError, match=r"steps.jsonl:40: is no JSON object") as caught:
        read(path)
    assert "cut off" in caught.value.hint


def test_a_csv_that_was_cut_off_says_so(tmp_path):
    path = tmp_path / "steps.csv"
    path.write_text("seconds,prefill_tokens,n_decode\n" + "0.03,512,1\n" * 40 + "0.0")
    with pytest.raises(InputError):
        read(path)


def test_a_cell_that_is_no_number_says_its_line(tmp_path):
    path = tmp_path / "steps.csv"
    path.write_text("seconds,prefill_tokens,n_decode\n" + "0.03,512,1\n" * 40 + "oops,512,1\n")
    with pytest.raises(InputError, match=r"steps.csv: column seconds, line 42: is no number"):
        read(path)


def test_a_batch_line_of_sglang_without_a_possible_time_says_where(tmp_path):
    path = tmp_path / "server.log"
    line = (
        "[2026-11-30 10:00:{}] Decode batch, #running-req: 8, #token: 900, gen throughput (token/s): 400.0\n"
    )
    path.write_text(line.format("01") + line.format("71"))
    with pytest.raises(InputError, match=r"server.log:2: its time is none"):
        read(path)


def test_too_few_steps_ask_for_more(tmp_path):
    with pytest.raises(InputError, match=r"holds 12 steps; expected at least 30"):
        read(steps_file(tmp_path, plain_rows(12)))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"prefill_tokens": 1, "n_decode": 1}] * 40, "does not say how long a step took"),
        ([{"seconds": 0.1, "n_decode": 1}] * 40, "does not say prefill_tokens of every step"),
        ([{"seconds": 0.1, "prefill_tokens": 1}] * 40, "does not say n_decode of every step"),
        ([{"seconds": "0.1", "prefill_tokens": 1, "n_decode": 1}] * 40, "seconds is of type str"),
        ([{"seconds": 0.1, "batch": []}] * 40, "steps.jsonl:1: a step does not name its requests"),
        ([{"seconds": 0.1, "batch": [[1, -2, 0]]}] * 40, "in whole numbers >= 0"),
        ([{"seconds": 0.1, "batch": [[1, 2]]}] * 40, "does not name its requests"),
        ([{"seconds": 0.1, "batch": [[1, 2, 0], [1]]}] * 40, "does not name its requests"),
        ([{"seconds": 0.1, "batch": [[1, 2, "x"]]}] * 40, "does not name its requests"),
        ([{"seconds": 0.1, "batch": [[1, 2, 7]]}] * 40, "does not name its requests"),
        (plain_rows(n_decode=-1), "n_decode is negative"),
        ([*plain_rows(engine=0), *plain_rows(engine=1)], "steps of 2 engines"),
    ],
)
def test_rows_that_cannot_be_used_say_why(tmp_path, rows, message):
    with pytest.raises(InputError, match=message):
        read(steps_file(tmp_path, rows))


def test_what_is_no_step_log_says_what_is_expected(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("nothing here\n")
    with pytest.raises(InputError, match=r"notes.txt: holds no steps; expected JSON lines, CSV"):
        read(path)
    with pytest.raises(InputError, match=r"is a folder without attention.csv"):
        read(tmp_path)


def kernel_folder(folder, *, cut=0):
    attention = "prefill_chunk,kv_prefill,n_decode,kv_decode,time_us\n"
    attention += "".join(f"{p},{k},{n},{c},{10 + n}\n" for p in (0, 64) for k in (0, 32) for n in range(1, 6)
                         for c in (16, 32, 64))  # fmt: skip
    (folder / "attention.csv").write_text(attention[: len(attention) - cut])
    (folder / "dense.csv").write_text(
        "layer,tokens,time_us\nqkv_proj,1,10\nqkv_proj,101,110\nlayernorm,1,1\nlayernorm,101,1\n"
        "embedding,1,5\nembedding,101,5\n"
    )
    (folder / "per_sequence.csv").write_text("layer,sequences,time_us\nlm_head,1,100\nlm_head,9,100\n")
    return folder


def test_kernels_are_put_together_layer_by_layer(tmp_path):
    """The first row, 1 decode: 20 layers of (attention 11 + qkv 10 + 2 norms of 1), embedding 5, head 100."""
    log = read(kernel_folder(tmp_path), n_layers=20)
    assert log.steps.seconds[0] * 1e6 == pytest.approx(20 * (11 + 10 + 2) + 5 + 100)
    assert set(log.inputs) == {"attention.csv", "dense.csv", "per_sequence.csv"}


def test_kernels_need_the_number_of_layers(tmp_path):
    with pytest.raises(UsageError, match="kernel tables hold one layer"):
        read(kernel_folder(tmp_path))


def test_a_kernel_table_that_was_cut_off_says_so(tmp_path):
    with pytest.raises(InputError, match=r"attention.csv: its last line has no end; expected a newline"):
        read(kernel_folder(tmp_path, cut=4), n_layers=2)


@pytest.mark.parametrize(
    ("table", "old", "new", "message"),
    [
        ("attention.csv", "\n", "\n0,0,1,16,-5\n", "attention.csv:2: a number is negative"),
        ("attention.csv", "\n", "\n0,0,1,16,nan\n", "attention.csv:2: a number is negative or none"),
        ("attention.csv", "\n", "\n0,0,1,16,x\n", "attention.csv:2: a cell is no number"),
        ("dense.csv", "embedding,101,5\n", "", "embedding is measured at 1 numbers of tokens"),
        ("dense.csv", ",101,", ",40,", "qkv_proj: is measured up to 40 tokens"),
    ],
)
def test_a_kernel_table_that_cannot_be_says_where(tmp_path, table, old, new, message):
    folder = kernel_folder(tmp_path)
    text = (folder / table).read_text()
    (folder / table).write_text(text.replace(old, new, 1 if old == "\n" else -1))
    with pytest.raises(InputError) as found:
        read(folder, n_layers=2)
    assert message in found.value.message and found.value.hint


def test_kernels_somewhat_beyond_their_table_go_on_as_in_its_upper_half(tmp_path):
    folder = kernel_folder(tmp_path)
    whole = read(folder, n_layers=2).steps.seconds
    text = (folder / "dense.csv").read_text().replace("101,110", "91,100").replace(",101,", ",91,")
    (folder / "dense.csv").write_text(text)
    assert read(folder, n_layers=2).steps.seconds == pytest.approx(whole, rel=1e-3)  # 10 + a token each


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": [2]}, "another version"),
        ({"scheduled_requests": 5}, "has no scheduled_requests"),
        ({"scheduled_requests": None}, "has no scheduled_requests"),
        ({"wall_time": 0}, "all 40 lines are idle heartbeats"),
    ],
)
def test_forward_pass_metrics_that_cannot_be_say_where(tmp_path, changes, message):
    row = {"version": 1, "wall_time": 0.02, "scheduled_requests": {"num_decode_requests": 1}}
    with pytest.raises(InputError, match=message):
        read(steps_file(tmp_path, [row | changes] * 40))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_prefill": 0}, "step 1 has prefill_tokens and n_prefill is 0"),
        ({"prefill_pairs": -5}, "prefill_pairs is negative in step 1"),
        ({"prefill_tokens": 1e300}, "prefill_tokens is above 1e+09 in step 1"),
        ({"seconds": 10**400}, "40 of 40 steps last NaN, zero or negative seconds"),
    ],
)
def test_sums_that_no_batch_has_are_refused_with_their_step(tmp_path, changes, message):
    with pytest.raises(InputError) as found:
        read(steps_file(tmp_path, plain_rows(**changes)))
    assert message in found.value.message and found.value.hint


def test_steps_that_compute_nothing_are_set_aside(tmp_path):
    nothing = {"prefill_tokens": 0, "n_prefill": 0, "n_decode": 0, "decode_context": 0, "prefill_context": 0}
    log = read(steps_file(tmp_path, plain_rows() + plain_rows(3, **nothing)))
    assert len(log.steps) == 40 and log.set_aside["computed nothing"] == 3


def test_logs_of_one_name_in_two_folders_both_stay_in_the_provenance(tmp_path):
    paths = []
    for folder, seconds in ("a", 0.03), ("b", 0.04):
        (tmp_path / folder).mkdir()
        paths.append(steps_file(tmp_path / folder, plain_rows(seconds=seconds)))
    assert len(read(*paths).inputs) == 2


def test_the_loop_between_steps_is_told_where_the_engine_had_work(tmp_path):
    """A step with decodes follows the one before at once; one of a fresh prompt may have been waited for."""
    rows, at = [], 100.0
    for i in range(80):
        batch = [[64, 1, 0]] if i % 4 else [[0, 32, 1]]
        rows.append({"time_s": at, "seconds": 0.01, "wait_s": 0.0, "batch": batch})
        at += 0.0115 if (i + 1) % 4 else 3.0
    path = tmp_path / "steps.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert read_step_logs([path]).loop_s == pytest.approx(0.0015, abs=1e-6)
    path.write_text("".join(json.dumps({**row, "scene": "decode-1x64"}) + "\n" for row in rows))
    assert read_step_logs([path]).loop_s is None  # what led to these steps is not in the log


def test_a_log_of_waiting_steps_says_so_and_how_to_take_them(tmp_path):
    path = tmp_path / "steps.jsonl"
    row = {"seconds": 0.01, "batch": [[64, 1, 0]]}
    rows = [{**row, "time_s": 100 + i, "wait_s": 0.004 if i % 4 else 0.0} for i in range(80)]
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    with pytest.raises(InputError, match="45 of 80 steps waited for a core for more than 5 %") as caught:
        read_step_logs([path])
    assert "--max-wait" in caught.value.hint
    assert len(read_step_logs([path], max_wait=0.5).steps) == 60
