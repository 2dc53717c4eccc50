"""The compression dictionary of store format 1: a promise. Never edit it; add a second one beside it and a flag in `rows`."""

from __future__ import annotations

# ruff: noqa: E501
from typing import Final

_MSGPACK: Final = b"".join(
    (
        b"\xc7\x85\x05\x94\xbelangchain_core.messages.function\xaeFunctionMessage",
        b"\x94\xbalangchain_core.messages.tool\xabToolMessage\x8a\xa7content\xb1additional_kwargs\x80\xb1response_metadata\x80\xa4type\xa4tool"
        b"\xa4name\xa2id\xactool_call_id\xa8artifact\xc0\xa6status\xa7success",
        b"\x94\xbclangchain_core.messages.system\xadSystemMessage\x86\xa7content\xb1additional_kwargs\x80\xb1response_metadata\x80\xa4type\xa6system",
        b"\x94\xd9\x20langgraph.types\xa4Send\xa9Interrupt\xa5value\xa2id\xa7Command",
        b"\x94\xb8langchain_core.messages.ai\xa9AIMessage\x88\xa7content\xb1additional_kwargs\x80\xb1response_metadata\x80\xa4type\xa2ai\xa4name\xc0\xa2id"
        b"\xaatool_calls\x90\xb2invalid_tool_calls\x90\xaeusage_metadata\xc0\xb4model_validate_json",
        b"\x94\xbalangchain_core.messages.human\xacHumanMessage\x87\xa7content\xb1additional_kwargs\x80\xb1response_metadata\x80\xa4type\xa5human\xa4name\xc0\xa2id"
        b"\xd9$\xb4model_validate_json",
    )
)

_JSON: Final = b"".join(
    (
        b'{"arguments":{},"call_id":"call_","effect":"","name":"transfer_to_","nonce":"","server":"","type":"function"}',
        b'{"call_id":"call_","duration":0.0,"name":"","nonce":"","result":"","status":"error","error":"","reason":""}',
        b'{"finish_reasons":["stop"],"input":{"$rath":"tree","count":1,"digest":"","form":"list"},"model":"gpt-","observer":"model","output":['
        b'{"content":[{"annotations":[],"logprobs":[],"text":"","type":"output_text"}],"id":"msg_","role":"assistant","status":"completed","type":"message"}],'
        b'"request":{"handoffs":[],"params":{},"system":"","tools":[]},"response_id":"resp_","streamed":false,"usage":{"input_tokens":1,"output_tokens":1}}',
        b'{"attributes":{},"manifest":[[0,"',
        b'{"name":"","native_id":"","nonce":"","parent":"","phase":"begin","type":"agent"}{"name":"","nonce":"","phase":"end","status":"ok"}',
        b'{"branch":"main","name":"langgraph/","nonce":"","of":"","op":"fork"}{"branch":"main","name":"","nonce":"","op":"create"}',
        b'{"checkpoint_id":"1f0","namespace":"","nonce":"","path":"~__pregel_pull, ","task_id":"","writes":[[0,"messages","msgpack",{"$rath":"blob","digest":"',
        b'{"checkpoint_id":"1f0","envelope":{"channel_versions":{"__start__":1,"branch:to:":2,"messages":3},"id":"1f0","metadata":{"parents":{},"source":"loop","step":1},'
        b'"ts":"2026-11-29T17:32:48.123456+00:00","updated_channels":["messages"],"v":4,"versions_seen":{"__input__":{},"__start__":{"__start__":1}}},'
        b'"lists":{"messages":1},"namespace":"","nonce":"","parent_checkpoint_id":"1f0","source":"loop","state":{"$rath":"tree","count":1,"digest":"","form":"map"},"step":1}',
        b'{"id":"","native":{"$rath":"native","codec":"msgpack","digest":"","framework":"langgraph","size":1,"version":"1.2.24"},"nonce":"",'
        b'"parts":[{"content":{"$rath":"text","digest":"","size":1024},"type":"text"}],"role":"assistant"}',
        b'{"native":{"$rath":"native","codec":"json","digest":"","framework":"openai_agents","size":1,"version":"0.24.0"},"nonce":"",'
        b'"parts":[{"arguments":{},"id":"call_","name":"","type":"tool_call"},{"id":"call_","response":"","type":"tool_call_response"}],"role":"tool"}',
        b'"nonce":"","parts":[{"content":"","type":"text"}],"role":"user"}',
    )
)

DICTIONARY_1: Final = _MSGPACK + _JSON
