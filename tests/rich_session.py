"""A session that has a bit of everything: branches, a merge, nested runs, calls, long texts, native bytes, trees of both forms."""

from __future__ import annotations

import rath_bridge as rb
from rath_bridge.model.chunk import Key, Native
from rath_bridge.model.digests import digest
from rath_bridge.model.kinds import Checkpoint, Compaction, Inference, Message, Run, ToolCall, ToolResult, Usage, Workspace
from rath_bridge.model.parts import TextPart, ToolCallPart, ToolCallResponsePart
from rath_bridge.model.trees import list_tree, map_tree

LONG = "the quarterly report says " + "42 and again " * 60


def items(*texts: str) -> tuple[list[bytes], dict[str, bytes]]:
    """Items of a list tree, and the objects that hold them."""
    data = {digest(text.encode()): text.encode() for text in texts}
    return [bytes.fromhex(digest(text.encode())) for text in texts], data


def rich_session(store: rb.Store, name: str = "ticket", turns: int = 3) -> rb.Session:
    """Build it; ``main`` holds the merge of ``try``, ``side`` stays apart."""
    s = store.create(name)
    s = s.append(
        rb.draft(Run(phase="begin", name="graph", type="graph"), run="r1"),
        rb.draft(Run(phase="begin", name="agent", parent="r1"), run="r2"),
        rb.draft(Message(role="user", parts=(TextPart(LONG),)), run="r1"),
    )
    for turn in range(turns):
        call = f"call-{turn}"
        texts = [f"item {n} of a list that grows" for n in range(turn * 12)]
        digests, objects = items(*texts)
        tree, nodes = list_tree(digests)
        state, state_nodes = map_tree({"messages": bytes.fromhex(tree.ref.digest), "step": bytes.fromhex(digest(b"%d" % turn))})
        asked = Message(role="assistant", parts=(ToolCallPart(call, "search", {"q": f"turn {turn}"}),))
        s = s.append(
            rb.draft(asked, run="r2", native=Native("langgraph", "1.0", "json", b'{"n": %d, "pad": "%s"}' % (turn, b"x" * 40))),
            rb.draft(Inference(model="m", input=tree.ref, usage=Usage(input_tokens=3)), run="r2", objects=objects | nodes),
            rb.draft(ToolCall(name="search", call_id=call, arguments={"q": f"turn {turn}"}), run="r2"),
            rb.draft(ToolResult(call_id=call, result=f"found {turn}"), run="r2"),
            rb.draft(Message(role="tool", parts=(ToolCallResponsePart(call, f"found {turn}"),)), run="r2"),
            rb.draft(
                Checkpoint(state=state, lists={"messages": len(texts)}, step=turn), run="r1", keys=[Key("langgraph", "t-1", "", str(turn))],
                objects=objects | nodes | state_nodes | {digest(b"%d" % turn): b"%d" % turn},
            ),
        )  # fmt: skip
    files, nodes = map_tree({f"src/file{n}.py": bytes.fromhex(digest(b"file %d" % n)) for n in range(9)})
    s = s.append(
        rb.draft(Workspace(files=files), objects=nodes | {digest(b"file %d" % n): b"file %d" % n for n in range(9)}),
        rb.draft(Run(phase="end", name="graph", type="graph", status="ok"), run="r1"),
    )
    side = s.fork("side", at=s[4].id).append(rb.message("user", "another way"))
    edited = s.append(rb.draft(Message(role="user", parts=(TextPart("shorter"),), replaces=s[3].id), run="r1"))
    tried = side.fork("try").append(rb.message("assistant", "tried"), rb.message("assistant", LONG + "!"))
    merged = edited.merge(tried)
    return merged.append(rb.draft(Compaction(dropped=(s[3].id,), reason="removed")), rb.message("user", "thanks"))
