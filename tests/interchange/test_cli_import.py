"""``rath-bridge import`` and ``export``: many files, the same twice, files that grow, files that are broken."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import rath_bridge as rb
from rath_bridge.interchange import importing
from tests.cli_store import run

TALK = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'store.db'}"


def imported(*args: str, url: str, status: int = 0, stdin: bytes | None = None) -> dict[str, str]:
    result = run("import", *args, "--json", store=url, input=stdin)
    assert result.exit_code == status, result.output
    return {one["session"]: one["status"] for one in json.loads(result.stdout)["imported"]}


def test_many_files_and_the_same_twice(tmp_path: Path, url: str) -> None:
    (tmp_path / "a.json").write_text(json.dumps(TALK))
    (tmp_path / "b.jsonl").write_text("".join(json.dumps({"messages": TALK[:n]}) + "\n" for n in (1, 2)))
    (tmp_path / "broken.json").write_text("{broken")
    (tmp_path / "other.json").write_text('{"a": 1}')
    result = run("import", str(tmp_path / "*.json*"), store=url)
    assert result.exit_code == 3
    assert "broken.json" in result.stderr
    assert "other.json" in result.stderr
    assert "3 sessions imported, 0 unchanged, 2 failed" in result.stdout
    with rb.open_store(url) as store:
        before = {s.name: s.head for s in store.sessions()}
        assert list(before) == ["import/a", "import/b-1", "import/b-2"]
        assert all(s.fsck() == [] for s in store.sessions())
        assert imported(str(tmp_path / "a.json"), str(tmp_path / "b.jsonl"), url=url) == dict.fromkeys(before, "unchanged")
        assert {s.name: s.head for s in store.sessions()} == before


def test_a_dry_run_makes_nothing(tmp_path: Path, url: str) -> None:
    (tmp_path / "a.json").write_text(json.dumps(TALK))
    assert imported(str(tmp_path), "--dry-run", url=url) == {"import/a": "new"}
    assert not (tmp_path / "store.db").exists()


def test_stdin_and_a_name(url: str) -> None:
    data = json.dumps(TALK).encode()
    assert imported("-", "--as", "ticket", url=url, stdin=data) == {"ticket": "new"}
    assert imported("-", "--as", "ticket", url=url, stdin=data) == {"ticket": "unchanged"}
    result = run("import", "-", "--as", "ticket", store=url, input=json.dumps(TALK[1:]))
    assert result.exit_code == 2
    assert "exists already" in result.stderr


def test_a_file_that_grows_goes_on_and_one_that_changes_branches(tmp_path: Path, url: str) -> None:
    file = tmp_path / "a.json"
    file.write_text(json.dumps(TALK))
    assert imported(str(file), url=url) == {"import/a": "new"}
    file.write_text(json.dumps([*TALK, {"role": "user", "content": "more"}]))
    assert imported(str(file), url=url) == {"import/a": "grown"}
    file.write_text(json.dumps([*TALK, {"role": "user", "content": "other"}]))
    (changed,) = imported(str(file), url=url).items()
    assert changed[1] == "branched"
    assert imported(str(file), url=url) == {"import/a": "unchanged"}
    with rb.open_store(url) as store:
        assert [m.text for m in store.session("import/a").messages()] == ["hi", "hello", "more"]
        assert [m.text for m in store.session(changed[0]).messages()] == ["hi", "hello", "other"]
        assert store.session("import/a").fsck() == []
    file.write_text(json.dumps([{"role": "user", "content": "another file of this name"}]))
    assert list(imported(str(file), url=url).values()) == ["new"]


def test_a_torn_last_line_is_counted(tmp_path: Path, url: str) -> None:
    file = tmp_path / "t.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in TALK) + '{"role": "us')
    assert imported(str(file), url=url) == {"import/t": "new"}
    file.write_text("".join(json.dumps(one) + "\n" for one in [*TALK, {"role": "user", "content": "more"}]))
    assert imported(str(file), url=url) == {"import/t": "grown"}
    with rb.open_store(url) as store:
        assert [c.kind for c in store.session("import/t").chunks()] == ["session", "message", "message", "gap", "message"]


def test_an_interrupt_is_gone_on_from(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "abc":
        (tmp_path / f"{name}.json").write_text(json.dumps([*TALK, {"role": "user", "content": name}]))
    real = importing._import

    def interrupted(store: rb.Store, document: importing.Document, *args: object, **options: object) -> importing.Imported:
        if document.label == "b.json":
            raise KeyboardInterrupt
        return real(store, document, *args, **options)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(importing, "_import", interrupted)
        assert imported(str(tmp_path), url=url, status=130) == {"import/a": "new"}
    again = imported(str(tmp_path), url=url)
    assert again == {"import/a": "unchanged", "import/b": "new", "import/c": "new"}


def test_export_writes_a_file_and_names_losses(tmp_path: Path, url: str) -> None:
    with rb.open_store(url) as store:
        store.create("s").append(rb.message("user", "hi"), rb.message("narrator", "once"))
    result = run("export", "s", "--to", "openai-messages", store=url)
    assert result.exit_code == 0
    assert json.loads(result.stdout)[0] == {"role": "user", "content": "hi"}
    assert "narrator" in result.stderr
    out = tmp_path / "out.json"
    assert run("export", "s", "--to", "openai_messages", "-o", str(out), "--strict", store=url).exit_code == 1
    assert json.loads(out.read_text())[0]["content"] == "hi"
    assert run("export", "s", "--to", "openai_messages", "-o", str(out), store=url).exit_code == 2
    assert run("export", "s", "--to", "nothing", store=url).exit_code == 2


@pytest.mark.parametrize("to", ["openai_messages", "openai_responses", "markdown", "atif"])
def test_an_erased_message_is_a_loss_that_is_named_once(url: str, to: str) -> None:
    """Found by a newcomer: the message was missing, and all else was said to be there."""
    from rath_bridge.maintenance import redact

    with rb.open_store(url) as store:
        session = store.create("s").append(rb.message("user", "my number is 4711"), rb.message("assistant", "noted"))
        gone = session[1].id
        redact(store, [gone], reason="asked for")
    done = run("export", "s", "--to", to, "--strict", store=url)
    assert done.exit_code == 1
    assert done.stderr.count(gone[:12]) == 1
    assert "erased" in done.stderr
