"""Known secrets are taken out of observed copies, wherever they stand, before anything is hashed."""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rath_bridge as rb
from rath_bridge.errors import RecorderError
from rath_bridge.model.chunk import Native, draft
from rath_bridge.model.digests import digest
from rath_bridge.model.encoding import BlobRef, Encoded, decode, encoded
from rath_bridge.model.kinds import Inference, Message, Note, ToolCall, ToolResult
from rath_bridge.model.parts import TextPart, ToolCallPart
from rath_bridge.model.trees import list_tree
from rath_bridge.redaction import DEFAULT, RULES, Redactor, Rule
from rath_bridge.testing import same, strategies

SAMPLES = {
    "anthropic-key": "sk-ant-api03-" + "a1B2" * 8,
    "openai-key": "sk-proj-" + "a1B2" * 8,
    "aws-key-id": "AKIA" + "A1B2" * 4,
    "github-token": "ghp_" + "a1B2" * 9,
    "slack-token": "xoxb-1234567890-abc",
    "google-key": "AIza" + "a1B2_" * 7,
    "jwt": "eyJhbGciOiJI.eyJzdWIiOiIx.c2lnbmF0dXJl",
    "bearer": "bEaReR abcdefghij0123456789==",
    "private-key": "-----BEGIN RSA PRIVATE KEY-----\nMIIB\n-----END RSA PRIVATE KEY-----",
    "url-password": "://user:pa55@",
}


def test_every_rule_has_a_sample() -> None:
    assert SAMPLES.keys() == RULES.keys()


@pytest.mark.parametrize("name", RULES)
def test_each_rule_alone_and_inside_a_text(name: str) -> None:
    secret = SAMPLES[name]
    for text in (secret, f"before {secret} after", f"é\u2028{secret}\n", f"{secret} and {secret}"):
        clean = DEFAULT.text(text)
        assert f"[redacted:{name}]" in clean
        assert secret not in clean
        assert DEFAULT.text(clean) == clean
    assert DEFAULT.text(f"before {secret} after").startswith("before ")


def test_a_url_keeps_its_host() -> None:
    assert DEFAULT.text("postgresql://u:p@host:5432/db?x=1") == "postgresql://[redacted:url-password]@host:5432/db?x=1"
    assert DEFAULT.text("https://example.org/a:b@c") == "https://example.org/a:b@c"


@given(strategies.values())
def test_values_without_secrets_stay_the_same_objects(value: Any) -> None:
    assert same(DEFAULT.apply(value), value)


@given(st.text(st.characters(exclude_categories=()), min_size=6, max_size=12), strategies.texts(8), strategies.texts(8))
def test_a_literal_secret_is_never_left(secret: str, before: str, after: str) -> None:
    redactor = Redactor.of(secrets=[secret])
    clean = redactor.text(before + secret + after)
    if secret not in "[redacted:secret]":
        assert secret not in clean.replace("[redacted:secret]", "\0\0\0")
    inside = json.dumps({"x": before + secret + after}).encode()
    data = redactor.data(inside)
    assert data is not None
    if secret.isascii() and secret.isalnum() and secret not in before + after + "redacted:secret":
        assert secret.encode() not in data


def test_short_and_odd_secrets() -> None:
    redactor = Redactor.of(secrets=["hunter", 'qu"o\\te', "ΑΣΑΣΑΣ", "pässwörd", "short"])
    assert redactor.text("hunter") == "[redacted:secret]"
    assert redactor.text("short") == "short"  # fewer than 6 characters would hit everything
    assert redactor.text("x ΑΣΑΣΑΣ.") == "x [redacted:secret]."
    for ensure_ascii in (True, False):
        data = json.dumps({"k": ['qu"o\\te', "pässwörd"]}, ensure_ascii=ensure_ascii).encode()
        assert redactor.data(data) == b'{"k": ["[redacted:secret]", "[redacted:secret]"]}'


def test_any_place_in_a_body() -> None:
    key = SAMPLES["openai-key"]
    for body in (
        Message(
            role="user",
            parts=(TextPart(key, {"x": key}), ToolCallPart("1", "f", {"a": [key, {"b": key}]})),
            attributes={"k": key},
        ),
        ToolCall(name="f", arguments=OrderedDict(a=(1, key)), call_id="1"),
        ToolResult(result={key: 1, "bytes": key.encode(), ("t", key): key}, error=key),
        Inference(request={"system": "x" * 600 + key}, output=({"content": key},)),
        Note(text=f"{key}{key}"),
    ):
        item = draft(DEFAULT.apply(body))
        held = b"".join([item.body, *item.objects.values()])
        assert key.encode() not in held
        assert b"[redacted:openai-key]" in held


def test_an_id_that_only_ends_like_a_key_is_left_alone() -> None:
    for innocent in ("task-550e8400-e29b-41d4-a716-446655440000", "disk-0123456789012345678901234567"):
        assert DEFAULT.text(innocent) == innocent
    assert DEFAULT.text("key=sk-" + "a1B2" * 8) == "key=[redacted:openai-key]"


def test_a_password_ends_where_its_text_ends() -> None:
    for innocent in (b'{"url":"https://example.com","to":"bob@x.com"}', b"\x83\xa3url\xabhttp://host\xa1k\xa3a:b\xa1m\xa3x@y"):
        assert DEFAULT.data(innocent) is innocent
    assert DEFAULT.data(b"\x81\xa3url\xd9\x20postgres://me:hunter2@db/x") is None
    assert DEFAULT.text('{"url": "postgres://me:hunter2@db"}') == '{"url": "postgres://[redacted:url-password]@db"}'


def test_a_bearer_token_behind_an_escaped_tab() -> None:
    assert DEFAULT.text('{"h": "Bearer\\tabcdefghij0123456789"}') == '{"h": "[redacted:bearer]"}'


def test_bytes_that_are_no_text() -> None:
    key = SAMPLES["aws-key-id"].encode()
    assert DEFAULT.data(b"\xff\0plain") == b"\xff\0plain"
    assert DEFAULT.data(b"\xff " + key) is None
    assert DEFAULT.apply({"a": b"\xff " + key, "b": b" " + key}) == {"a": b"[redacted]", "b": b" [redacted:aws-key-id]"}
    assert DEFAULT.native(Native("f", "1", "msgpack", b"\xff " + key)) is None
    native = Native("f", "1", "json", b'{"k": "v"}')
    assert DEFAULT.native(native) is native
    ref = BlobRef("0" * 64, 1)
    assert DEFAULT.apply(ref) is ref


@given(st.sampled_from(sorted(SAMPLES)), strategies.texts(40), strategies.texts(40))
def test_what_a_rule_takes_out_is_suspected_first(name: str, before: str, after: str) -> None:
    text = before + SAMPLES[name] + after
    item = draft(Note(text=text))
    assert any(map(DEFAULT.suspects, (item.body, *item.objects.values())))
    assert DEFAULT.suspects(text.encode("utf-8", "surrogatepass"))
    assert Redactor.of({name: RULES[name]}).suspects(text.encode("utf-8", "surrogatepass"))


@given(strategies.texts(200))
def test_what_no_rule_wants_is_not_suspected(text: str) -> None:
    if DEFAULT.suspects(data := text.encode("utf-8", "surrogatepass")):
        folded = data.decode("utf-8", "replace").casefold()
        assert any(anchor in folded for rule in DEFAULT.rules for anchor in rule.anchors)


def test_paths_ids_and_words_are_not_suspected() -> None:
    for innocent in (b'{"path":"/usr/lib/x","look-1":"week-2"}', b"light_ high_ xx AIA KIA", b"desk - K ----- y J"):
        assert not DEFAULT.suspects(innocent)
    assert Redactor.of(secrets=["hunter2"]).suspects(b"my hunter2!")
    assert not Redactor.of(secrets=["hunter2"]).suspects(b"my Hunter2!")
    assert Redactor.of({"ticket_no": r"T-\d+"}).suspects(b"nothing")


def test_a_secret_beside_half_of_a_surrogate_pair_is_suspected() -> None:
    item = draft(Note(text="\ud800 " + SAMPLES["aws-key-id"]))
    assert DEFAULT.suspects(item.body)


@given(st.text(st.characters(exclude_categories=()), min_size=6, max_size=12), strategies.texts(8), st.booleans())
def test_what_a_literal_secret_takes_out_is_suspected_first(secret: str, before: str, ensure_ascii: bool) -> None:
    redactor = Redactor.of(secrets=[secret])
    arguments = json.dumps({"password": before + secret}, ensure_ascii=ensure_ascii)  # as calls hold them: JSON in a text
    for text in (before + secret, arguments, json.dumps([arguments], ensure_ascii=ensure_ascii)):
        item = draft(Note(text=text))
        assert any(map(redactor.suspects, (item.body, *item.objects.values())))


def test_a_secret_in_the_arguments_of_a_call_is_taken_out_of_the_call_and_of_its_native_record() -> None:
    for secret in ('pa"ss-word', "pa\\ss-word", "pässwörd"):
        redactor = Redactor.of(secrets=[secret])
        for ensure_ascii in (True, False):
            arguments = json.dumps({"password": secret}, ensure_ascii=ensure_ascii)
            assert redactor.text(arguments) == '{"password": "[redacted:secret]"}'
            assert redactor.suspects(draft(ToolCall(name="f", arguments=arguments)).body)
            data = redactor.data(json.dumps({"arguments": arguments}, ensure_ascii=ensure_ascii).encode())
            assert data is not None
            assert json.loads(data) == {"arguments": '{"password": "[redacted:secret]"}'}


def test_what_was_encoded_before_is_redacted_as_values_not_as_their_bytes() -> None:
    tools = [{"default": "http://host", "to": "a@b"}, {"description": "token: abc"}, {"d": "a\nsecret", "n": 1234, "k": None}]
    redactor = Redactor.of({**RULES, "ticket_no": r"\d{4}", "token": "token: .*", "lines": "a\nsecret"})
    before = encoded(tools)
    assert isinstance(before, Encoded)
    clean: dict[str, Any] = redactor.apply({"tools": before})
    assert decode(draft(Inference(request=clean)).body)["request"] == redactor.apply({"tools": tools})
    assert clean["tools"][1:] == [{"description": "[redacted:token]"}, {"d": "[redacted:lines]", "n": 1234, "k": None}]
    held = {"tools": encoded([{"description": "no secret"}])}
    assert DEFAULT.apply(held) is held


def test_a_native_record_that_is_json_stays_json() -> None:
    redactor = Redactor.of({**RULES, "ticket_no": r"\b\d{5}\b", "token": "token: .*", "lines": "a\nsecret"}, ["hunter22"])
    told = {
        "url": "http://host",
        "to": "a@b",
        "é": ["token: x", -12345, 1.5, None, True],
        "k": "a\nsecret hunter22",
        "hunter22": "\ud800",
    }
    clean = json.loads(json.dumps(redactor.apply(told)))
    for data in (json.dumps(told), json.dumps(told, indent=1), json.dumps(told, separators=(",", ":"))):
        kept = redactor.native(Native("f", "1", "json", data.encode()))
        assert kept is not None
        found = json.loads(kept.data)
        assert found["é"].pop(1) == "-[redacted:ticket_no]"
        assert found == {**clean, "é": [one for one in clean["é"] if one != -12345]}
    lines = b'{"a":"token: x"}\n{"b": 1}\n'
    kept = redactor.native(Native("f", "1", "frames", lines))
    assert kept is not None
    assert kept.data == b'{"a":"[redacted:token]"}\n{"b": 1}\n'
    same_one = Native("f", "1", "json", b'{"url":"http://host","to":"a@b"}')
    assert DEFAULT.native(same_one) is same_one
    assert redactor.native(Native("f", "1", "text", b"{token: x")) == Native("f", "1", "text", b"{[redacted:token]")


JSON_TEXTS = st.builds(
    "".join,
    st.lists(
        st.one_of(strategies.texts(12), st.sampled_from([*SAMPLES.values(), "hunter22", "://a", ":b@", "\\", '"'])), max_size=4
    ),
)


@given(st.recursive(JSON_TEXTS, lambda inner: st.lists(inner) | st.dictionaries(JSON_TEXTS, inner), max_leaves=8), st.booleans())
def test_json_is_redacted_as_its_values_are(value: Any, ensure_ascii: bool) -> None:
    redactor = Redactor.of(secrets=["hunter22"])
    with suppress(UnicodeEncodeError):
        said = json.dumps(value, ensure_ascii=ensure_ascii).encode()
        data = redactor.data(said)
        assert data is not None
        assert json.loads(data) == redactor.apply(json.loads(said))


def test_json_is_read_however_it_is_escaped() -> None:
    data = DEFAULT.data(rb'{"a":"postgres:\/\/u:pa55@h","b":"sk\u002dproj-' + b"a1B2" * 8 + rb'","c":"\/"}')
    assert data == rb'{"a":"postgres://[redacted:url-password]@h","b":"[redacted:openai-key]","c":"\/"}'


def test_an_item_of_a_tree_in_which_no_text_holds_a_secret_is_kept() -> None:
    item = b'{"url":"http://host","to":"a@b"}'
    tree, nodes = list_tree([bytes.fromhex(digest(item))])
    with rb.open_store("memory:") as store, rb.record(store, "s", strict=True) as recorder:
        recorder.emit(Inference(input=tree.ref), objects={**nodes, digest(item): item})
        secret = b'{"key":"' + SAMPLES["aws-key-id"].encode() + b'"}'
        tree, nodes = list_tree([bytes.fromhex(digest(secret))])
        with pytest.raises(RecorderError, match="a known secret"):
            recorder.emit(Inference(input=tree.ref), objects={**nodes, digest(secret): secret})
        assert [chunk.kind for chunk in recorder.session] == ["session", "inference"]


def test_a_rule_that_only_looks_like_ours_is_always_run() -> None:
    rule = Rule("openai-key", ("sk-",), re.compile(RULES["openai-key"], re.IGNORECASE))
    text = "SK-" + "A1B2" * 8
    assert Redactor((rule,)).text(text) == "[redacted:openai-key]"
    assert Redactor((rule,)).suspects(text.encode())


def test_rules_of_ones_own() -> None:
    redactor = Redactor.of({"ticket_no": r"T-\d+", "kept": r"(?P<keep>id=)(\d)\d+"})
    assert redactor.text("T-42 id=77 AKIA" + "A" * 16) == "[redacted:ticket_no] id=[redacted:kept] AKIA" + "A" * 16
    assert Redactor.of({}).text("sk-" + "a" * 40) == "sk-" + "a" * 40
