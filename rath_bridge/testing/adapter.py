"""What every adapter must do: subclass `AdapterContract`, give it ``adapter`` and ``samples`` fixtures, and run pytest.

Source of the contract: `rath_bridge.plugins.Adapter`, and the laws 1 (home is exact), 2 (away is honest), 8 (no orphan calls) and
12 (one message, once).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rath_bridge.errors import UnsupportedError
from rath_bridge.model.chunk import Draft
from rath_bridge.model.kinds import Body, Message
from rath_bridge.model.parts import TextPart, ToolCallPart, ToolCallResponsePart
from rath_bridge.model.report import LossReport, align, manifest_of
from rath_bridge.plugins import Adapter
from rath_bridge.session import Session, message, open_store
from rath_bridge.testing import strategies
from rath_bridge.testing.strategies import session_of

_relaxed = settings(deadline=None, suppress_health_check=(HealthCheck.too_slow, HealthCheck.differing_executors))


@dataclass(frozen=True, slots=True)
class Sample:
    """A native value of the framework, best from a real run, and the form in which it goes home."""

    native: Any
    as_: str | None = None
    """As in ``encode(session, as_=…)``; the adapter's usual form when absent."""


def _encode(adapter: Adapter, session: Session, as_: str | None) -> tuple[Any, LossReport]:
    return adapter.encode(session) if as_ is None else adapter.encode(session, as_=as_)


def _recorded(drafts: Sequence[Draft], name: str = "decoded") -> Session:
    session = open_store("memory:").create(name)
    return session.append(*drafts) if drafts else session


class AdapterContract:
    """Subclass it with the fixtures ``adapter`` (the module or object) and ``samples`` (a list of `Sample`)."""

    forms: ClassVar[Sequence[str | None]] = (None,)
    """The forms in which a foreign session is handed over."""
    odd_text: ClassVar[bool] = True
    """Hand over texts with lone surrogates as well."""

    def serialised(self, native: Any) -> Any:
        """The framework's own serialised form of a native value, in which law 1 compares; the value itself by default."""
        return native

    @pytest.fixture
    def continued(self) -> Callable[[Session], Session] | None:
        """A function that lets the real framework go on with a session and returns it as it stands then; None skips that test."""
        return None

    # ---------------------------------------------------------------- what it is

    def test_it_has_what_an_adapter_has(self, adapter: Adapter) -> None:
        assert isinstance(adapter, Adapter)
        assert adapter.name == adapter.name.lower().replace("-", "_")
        assert adapter.name.replace("_", "").isalnum()
        assert isinstance(adapter.extra, str)
        assert all(isinstance(spec, str) for spec in adapter.SUPPORTED.values())

    def test_it_recognises_its_own_and_nothing_else(self, adapter: Adapter, samples: Sequence[Sample]) -> None:
        assert samples, "give at least one sample"
        for sample in samples:
            assert adapter.recognises(sample.native)
        for foreign in (None, 5, "text", b"bytes", object(), 1.5, Adapter):
            assert not adapter.recognises(foreign)

    def test_a_form_that_it_does_not_have_is_refused_by_name(self, adapter: Adapter) -> None:
        with pytest.raises(UnsupportedError) as caught:
            adapter.encode(session_of([]), as_="no such form")
        assert "no such form" in str(caught.value)

    # ---------------------------------------------------------------- law 1

    def test_home_is_exact(self, adapter: Adapter, samples: Sequence[Sample]) -> None:
        for sample in samples:
            before = self.serialised(sample.native)
            session = _recorded(adapter.decode(sample.native))
            assert self.serialised(sample.native) == before, "decode changed what it was given"
            for line in (session, session.fork("elsewhere"), session.detach("copy")):
                native, report = _encode(adapter, line, sample.as_)
                assert self.serialised(native) == before
                assert not report.losses, str(report)

    def test_what_was_decoded_is_readable_and_clean(self, adapter: Adapter, samples: Sequence[Sample]) -> None:
        for sample in samples:
            session = _recorded(adapter.decode(sample.native))
            assert session.fsck() == []
            for chunk in session.chunks():
                assert chunk.body is not None

    def test_home_twice_is_the_same(self, adapter: Adapter, samples: Sequence[Sample]) -> None:
        for sample in samples:
            native, _ = _encode(adapter, _recorded(adapter.decode(sample.native)), sample.as_)
            if not adapter.recognises(native):
                continue
            again, report = _encode(adapter, _recorded(adapter.decode(native)), sample.as_)
            assert self.serialised(again) == self.serialised(native)
            assert not report.losses, str(report)

    # ---------------------------------------------------------------- law 2

    def test_away_is_honest(self, adapter: Adapter) -> None:
        @_relaxed
        @given(strategies.transcripts(odd_text=self.odd_text), st.sampled_from(list(self.forms)))
        def check(bodies: tuple[Body, ...], form: str | None) -> None:
            session = session_of(bodies)
            try:
                native, report = _encode(adapter, session, form)
            except UnsupportedError:
                return
            known = {chunk.id for chunk in session.chunks()}
            handed = {entry.chunk for entry in report.manifest}
            named = {loss.chunk for loss in report.losses}
            assert handed <= known
            assert named <= known | {None}
            assert all(loss.path and loss.what for loss in report.losses)
            silent = [one for one in session.messages() if one.id not in handed | named]
            assert not silent, f"neither handed over nor named as lost: {silent}"
            positions = [entry.position for entry in report.manifest]
            assert positions == sorted(set(positions))
            again, second = _encode(adapter, session, form)  # pure: the same again, and nothing was written
            assert self.serialised(again) == self.serialised(native)
            assert second == report
            assert session.latest() == session

        check()

    def test_no_orphan_call_goes_out(self, adapter: Adapter) -> None:
        @_relaxed
        @given(strategies.transcripts(odd_text=False), st.sampled_from(list(self.forms)))
        def check(bodies: tuple[Body, ...], form: str | None) -> None:
            session = session_of(bodies)
            try:
                native, report = _encode(adapter, session, form)
            except UnsupportedError:
                return
            for call in session.pending():
                assert any(loss.chunk == call.asked for loss in report.losses), f"call {call.call_id} is closed without a word"
            if not adapter.recognises(native):
                return
            there = _recorded(adapter.decode(native))
            assert not there.pending()
            asked: set[str | None] = set()
            for one in there.messages():
                asked |= {part.id for part in one.parts if isinstance(part, ToolCallPart)}
                answered = {part.id for part in one.parts if isinstance(part, ToolCallResponsePart)}
                assert answered <= asked

        check()

    # ---------------------------------------------------------------- law 12

    def test_the_manifest_finds_every_message_again(self, adapter: Adapter) -> None:
        @_relaxed
        @given(strategies.transcripts(odd_text=False), st.sampled_from(list(self.forms)))
        def check(bodies: tuple[Body, ...], form: str | None) -> None:
            try:
                _, report = _encode(adapter, session_of(bodies), form)
            except UnsupportedError:
                return
            manifest = manifest_of(report.rows())
            assert manifest == report.manifest
            back = [entry.digest for entry in manifest]
            assert align(manifest, back) == [entry.chunk for entry in manifest]
            assert align(manifest, [*back, *back[-1:]])[len(back) :] == [None] * len(back[-1:])  # said once more is a new message

        check()

    def test_one_message_once_when_the_framework_goes_on(
        self, adapter: Adapter, continued: Callable[[Session], Session] | None
    ) -> None:
        if continued is None:
            pytest.skip("no `continued` fixture")
        said = [("user", "yes"), ("assistant", "no"), ("user", "yes"), ("assistant", "no"), ("user", "yes")]
        session = session_of([Message(role=role, parts=(TextPart(text),)) for role, text in said])
        for _ in range(2):
            before = [one.id for one in session.messages()]
            session = continued(session)
            after = [one.id for one in session.messages()]
            assert after[: len(before)] == before
            assert len(after) > len(before)
            assert session.fsck() == []
            session = session.append(message("user", "yes"))
