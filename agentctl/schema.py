"""The columns of a trace dataset: one row per request attempt, one row per node of the prefix tree.

Times are float seconds from the dataset's `time_origin_ns`; counts are tokens. Unknown is null, never 0.
`prompt_tokens` is the whole prompt, cached part included (logs call it input or context tokens).
"""

from __future__ import annotations

import pyarrow as pa

TRACE_SCHEMA = "agentctl/trace/1"

_name = pa.dictionary(pa.int32(), pa.string())

SESSION_SOURCES = (
    "explicit", "header", "parent_link", "response_chain", "message_chain", "block_chain", "single",
)  # fmt: skip
ORIGINS = ("new", "resumed", "compacted", "orphan")
GAP_KINDS = ("tool", "user", "retry", "subagent", "overlap", "unknown")
STATUSES = ("ok", "error", "aborted", "timeout", "rejected", "proxy_cache")
TOKEN_SOURCES = ("reported", "tokenizer", "estimated")

REQUESTS = pa.schema(
    [
        pa.field("request_id", pa.string(), nullable=False),  # the source's id, or file:row
        pa.field("source_format", _name, nullable=False),
        pa.field("source_file", _name, nullable=False),  # base name
        pa.field("source_row", pa.int64(), nullable=False),  # line (or record) of the file, from 1
        pa.field("tenant", _name),
        pa.field("model", _name),
        pa.field("instance", _name),  # engine or upstream that served it
        pa.field("session_id", pa.string(), nullable=False),
        pa.field("session_source", _name, nullable=False),  # SESSION_SOURCES
        pa.field("session_conf", pa.float32(), nullable=False),  # 0..1
        pa.field("parent_request_id", pa.string()),  # the earlier turn that this prompt extends
        pa.field("after_request_id", pa.string()),  # the latest request of the session that had ended
        pa.field("turn_index", pa.int32(), nullable=False),  # in its agent line, from 0; retries keep it
        pa.field("attempt", pa.int16(), nullable=False),
        pa.field("agent_path", pa.string()),  # sub-agent inside the session; null: the main line
        pa.field("origin", _name, nullable=False),  # ORIGINS
        pa.field("arrival_s", pa.float64(), nullable=False),
        pa.field("ttft_s", pa.float64()),
        pa.field("e2e_s", pa.float64()),
        pa.field("queue_s", pa.float64()),
        pa.field("prefill_s", pa.float64()),
        pa.field("decode_s", pa.float64()),
        pa.field("end_s", pa.float64()),
        pa.field("gap_s", pa.float64()),  # arrival minus the end of after_request_id
        pa.field("gap_kind", _name),  # GAP_KINDS
        pa.field("prompt_tokens", pa.int64()),
        pa.field("output_tokens", pa.int64()),
        pa.field("cached_tokens", pa.int64()),  # as the engine or provider reported
        pa.field("cache_write_tokens", pa.int64()),
        pa.field("cached_external_tokens", pa.int64()),
        pa.field("reasoning_tokens", pa.int64()),  # part of output_tokens
        pa.field("max_tokens", pa.int64()),
        pa.field("token_source", _name, nullable=False),  # TOKEN_SOURCES
        pa.field("status", _name, nullable=False),  # STATUSES
        pa.field("http_status", pa.int16()),
        pa.field("finish_reason", _name),
        pa.field("stream", pa.bool_()),
        pa.field("n_messages", pa.int32()),
        pa.field("n_assistant", pa.int32()),
        pa.field("n_tools", pa.int32()),
        pa.field("n_tool_calls_out", pa.int32()),
        pa.field("block_tokens", pa.int32()),
        pa.field("tip_node", pa.uint32()),  # last node of its block chain; 0: no block; null: unknown
        pa.field("n_blocks", pa.int32()),  # blocks in the chain = depth of tip_node
        pa.field("tail_tokens", pa.int32()),  # prompt_tokens mod block_tokens
        pa.field("hash_scope", _name),  # global | session
        pa.field("hash_kind", _name),  # engine | token | bytes | message
        pa.field("cache_group", pa.uint64()),  # different groups never share KV
        pa.field("priority", pa.int32()),
        pa.field("slo_ttft_s", pa.float64()),
        pa.field("slo_e2e_s", pa.float64()),
    ]
)

# Node 0 is the root and has no row. A parent's number is smaller than its children's.
PREFIX_NODES = pa.schema(
    [
        pa.field("node_id", pa.uint32(), nullable=False),
        pa.field("parent_id", pa.uint32(), nullable=False),
        pa.field("depth", pa.int32(), nullable=False),  # blocks from the root, from 1
        # hash: the source's id, mixed with the session in session scope; first_row: first request with it
        pa.field("hash", pa.uint64(), nullable=False),
        pa.field("first_row", pa.int64(), nullable=False),
    ]
)

EVENT_KINDS = ("gauge", "prefill", "decode")  # seen at an instant; one prefill or decode batch (SGLang)

# What engines said of themselves, in events.parquet where there is any. In order of time.
EVENTS = pa.schema(
    [
        pa.field("ts_s", pa.float64(), nullable=False),  # from time_origin_ns, as arrival_s; may be negative
        pa.field("kind", _name, nullable=False),  # EVENT_KINDS
        pa.field("instance", _name),  # engine
        pa.field("source_file", _name, nullable=False),
        pa.field("source_row", pa.int64(), nullable=False),
        pa.field("running", pa.int64()),  # requests
        pa.field("waiting", pa.int64()),  # requests
        pa.field("swapped", pa.int64()),  # requests
        pa.field("preemptions", pa.int64()),  # since the event before
        pa.field("kv_usage", pa.float64()),  # share of the KV cache, 0..1
        pa.field("hit_rate", pa.float64()),  # of recent prompt tokens, 0..1, as the engine averages it
        pa.field("external_hit_rate", pa.float64()),  # of caches outside the engine
        pa.field("prompt_tokens_per_s", pa.float64()),
        pa.field("generation_tokens_per_s", pa.float64()),
        pa.field("new_requests", pa.int64()),  # in this batch
        pa.field("new_tokens", pa.int64()),  # computed in this batch
        pa.field("cached_tokens", pa.int64()),  # found in the cache by this batch
        pa.field("pending_tokens", pa.int64()),  # of admitted prompts, not computed yet
        pa.field("kv_tokens", pa.int64()),  # held in the KV cache
    ]
)
