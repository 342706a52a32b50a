"""Sessions from block chains by the definition: paths as lists, every earlier request tried at every node."""

from __future__ import annotations

from collections.abc import Sequence


def path(node: int, parent: Sequence[int]) -> list[int]:
    """Nodes from the first block to `node`."""
    nodes = []
    while node:
        nodes.append(node)
        node = int(parent[node])
    return nodes[::-1]


def block_chain_parents(
    prompt: Sequence[int],
    output: Sequence[int],
    tip: Sequence[int | None],
    parent: Sequence[int],
    block_tokens: int,
    max_fanout: int | None,
    slack: int = 8,
) -> list[int]:
    """Parent of every request, -1; unknown counts are -1, an unknown chain is None."""
    successors = [
        sum(1 for other in range(1, len(parent)) if parent[other] == node) for node in range(len(parent))
    ]
    parents: list[int] = []
    paths = []
    for row in range(len(prompt)):
        known = tip[row] is not None and prompt[row] >= 0
        nodes = path(tip[row], parent)[: prompt[row] // block_tokens] if known else []
        best = -1
        for place in range(len(nodes) - 1, -1, -1):
            if max_fanout is not None and successors[nodes[place]] > max_fanout:
                break
            fitting = [
                (earlier not in parents, prompt[earlier] + max(output[earlier], 0), earlier)
                for earlier in range(row)
                if paths[earlier]
                and paths[earlier][-1] == nodes[place]
                and prompt[earlier] + max(output[earlier], 0) <= prompt[row] + slack
            ]
            if fitting:
                best = max(fitting)[2]
                break
        parents.append(best)
        paths.append(nodes)
    return parents


def b_cubed(found: Sequence[int], truth: Sequence[int]) -> tuple[float, float]:
    """B-cubed precision and recall of one grouping against another (Bagga and Baldwin 1998)."""
    precision = recall = 0.0
    for i in range(len(found)):
        mine = {j for j in range(len(found)) if found[j] == found[i]}
        right = {j for j in range(len(found)) if truth[j] == truth[i]}
        precision += len(mine & right) / len(mine)
        recall += len(mine & right) / len(right)
    return precision / len(found), recall / len(found)
