"""adapters, doctor, and the verbs that adapters offer."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer

import rath_bridge as rb
from rath_bridge import plugins
from rath_bridge.cli import surroundings
from rath_bridge.cli.face import AsJson, Face, verb
from rath_bridge.cli.versions import satisfies
from rath_bridge.errors import ConflictError
from rath_bridge.verbs.inert import inert, one_line
from tests.cli_store import run


def adapter(**members: Any) -> Any:
    """An adapter with the members that the command line looks at."""
    return SimpleNamespace(**{"name": "demo", "extra": "demo-extra", "SUPPORTED": {"rich": ">=1"}, **members})


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Adapters that are found: one, and what a test adds."""
    found: dict[str, Any] = {"demo": adapter()}
    broken: dict[str, str] = {}
    monkeypatch.setattr(plugins, "_discover", lambda: (found, broken))
    found["broken"] = broken
    return found


def facts(installed: dict[str, Any], **status: Any) -> dict[str, dict[str, Any]]:
    broken = installed.pop("broken")
    broken.update(status)
    result = run("doctor", "--json")
    data = json.loads(result.stdout)
    assert (result.exit_code == 0) == data["healthy"]
    return {fact["what"]: fact for fact in data["facts"]}


def test_what_is_missing_is_named_with_its_line(installed: dict[str, Any]) -> None:
    installed["demo"] = adapter(extra="mcp", SUPPORTED={"no-such-package-at-all": ">=1"})
    found = facts(installed)["no-such-package-at-all"]
    assert found["status"] == "missing"
    assert found["advice"] == 'pip install "rath-bridge[mcp]"'
    text = run("doctor")
    assert text.exit_code == 0
    assert 'pip install "rath-bridge[mcp]"' in text.stdout


def test_an_untried_version_is_a_warning(installed: dict[str, Any]) -> None:
    installed["demo"] = adapter(SUPPORTED={"rich": ">=1,<2"})
    assert facts(installed)["rich"]["status"] == "warning"


@pytest.mark.parametrize("beside", ["<0.0.1", ">=0.0.1"])
def test_a_package_that_breaks_something_of_a_framework_is_a_warning(installed: dict[str, Any], beside: str) -> None:
    installed["demo"] = adapter(BESIDE={"typer": (beside, "its tables are gone: take another"), "no-such-package": ("<1", "")})
    found = facts(installed)
    told = found.get("typer beside demo")
    assert (told and (told["status"], told["advice"])) == (
        ("warning", "its tables are gone: take another") if beside[0] == "<" else None
    )
    assert "no-such-package beside demo" not in found


def test_a_broken_adapter_is_a_finding(installed: dict[str, Any]) -> None:
    found = facts(installed, other="SyntaxError: \x1b[2J")
    assert found["adapter other"]["status"] == "broken"
    text = run("doctor")
    assert text.exit_code == 1
    assert "\x1b" not in text.stdout
    assert "\\x1b[2J" in text.stdout
    assert run("adapters").exit_code == 1


def test_sessions_into_which_nothing_was_recorded_are_named(sqlite_url: str) -> None:
    """Who installed it and sees nothing is told so, and why that may be."""
    with rb.open_store(sqlite_url) as store:
        assert "rath-bridge doctor" in run("ls", store=sqlite_url).stdout
        store.create("full").append(rb.message("user", "hi"))
        assert "nothing but the beginning" not in run("doctor", store=sqlite_url).stdout
        with rb.record(store, "silent"):
            pass
    done = run("doctor", store=sqlite_url)
    assert done.exit_code == 0
    assert "1 session in" in done.stdout
    assert "holds nothing but the beginning (silent)" in done.stdout


def test_a_driver_that_is_not_there_or_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(package: str) -> str:
        if package == "psycopg":
            raise metadata.PackageNotFoundError(package)
        return "1.0"

    monkeypatch.setattr(surroundings.metadata, "version", version)
    text = run("doctor")
    assert 'pip install "rath-bridge[postgres]"' in text.stdout


def test_a_store_that_is_down_is_a_warning(tmp_path: Path) -> None:
    found = run("doctor", "--json", store=f"sqlite:///{tmp_path}")
    assert found.exit_code == 0
    assert json.loads(found.stdout)["facts"][-1]["status"] == "warning"
    assert "made when" in run("doctor", store=f"sqlite:///{tmp_path / 'new.db'}").stdout
    hidden = run("doctor", store="postgresql://ann:secret@127.0.0.1:1/db?connect_timeout=2").output
    assert "secret" not in hidden


def test_adapters_lists_ours() -> None:
    found = json.loads(run("adapters", "--json").stdout)
    assert {"autogen", "langgraph", "mcp", "openai_agents"} <= {row["name"] for row in found["adapters"]} | set(found["broken"])
    assert "ADAPTER" in run("adapters").stdout


def commands() -> typer.Typer:
    """What an adapter offers: plain typer, or our `verb`."""
    app = typer.Typer()

    @app.command()
    def plain(status: int) -> None:
        """End with a status, as a proxy does."""
        raise typer.Exit(status)

    def ours(face: Face, text: str, as_json: AsJson = False) -> int | None:
        """Print something."""
        if text == "conflict":
            raise ConflictError("s@main", None, None)
        if as_json:
            face.json({"text": text, "url": face.url})
        face.line(inert(text))
        return 7 if text == "seven" else None

    verb(app)(ours)
    return app


def test_adapters_bring_their_own_verbs(installed: dict[str, Any]) -> None:
    installed.pop("broken")
    assert run("demo", "plain", "3").exit_code == 2
    installed["demo"] = adapter(commands=commands)
    installed["ls"] = adapter(commands=commands)
    assert "demo" in run("--help").stdout
    assert run("demo", "plain", "3").exit_code == 3
    assert run("demo", "ours", "hi").stdout == "hi\n"
    assert run("demo", "ours", "seven").exit_code == 7
    conflict = run("demo", "ours", "conflict")
    assert conflict.exit_code == 1
    assert conflict.stderr.startswith("rath-bridge: s@main moved")
    assert json.loads(run("demo", "ours", "x", "--json", store="memory:").stdout.splitlines()[0])["url"] == "memory:"
    assert run("demo", "nothing").exit_code == 2
    assert "rath-bridge demo" in run("adapters").stdout


def test_versions() -> None:
    for version, specifier, holds in [
        ("1.0", ">=1.0,<2", True), ("1.9.9", ">=1.0,<2", True), ("2.0rc1", ">=1.0,<2", False), ("0.9", ">=1", False),
        ("1.4.7", "==1.4.*", True), ("1.5", "==1.4.*", False), ("1.5", "!=1.4.*", True), ("0.7.5", "~=0.7.1", True),
        ("0.8", "~=0.7.1", False), ("1.2.3", "!=1.2.3", False), ("1.0.0", "==1", True), ("3", ">3", False), ("3.1", "<=3.1", True),
        ("3", "", True), ("1!x", ">=0", True),
    ]:  # fmt: skip
        assert satisfies(version, specifier) is holds, (version, specifier)
    with pytest.raises(ValueError, match="specifier"):
        satisfies("1", "about 3")


def test_inert() -> None:
    assert inert("plain é 漢字 👩‍👩‍👧 نامه‌ای") == "plain é 漢字 👩‍👩‍👧 نامه‌ای"
    assert inert("a\x1b[0m\x7f\x9b\r\n\t\0") == "a\\x1b[0m\\x7f\\x9b\\r\\n\\t\\0"
    assert inert("\u202e\u2028\ufeff\ud800\U000e0041\U000e0100") == "\\u202e\\u2028\\ufeff\\ud800\\U000e0041\\U000e0100"
    assert inert("a\nb\x07", keep="\n") == "a\nb\\x07"
    assert one_line("  a \n\n b\t c ") == "a b c"
    assert one_line("x" * 400, 10) == "x" * 10 + "…"
