"""Live OpenRath sessions into a store and back, by one call each."""

from __future__ import annotations

from typing import Any

from rath_bridge import interchange
from rath_bridge.errors import UnknownFormatError
from rath_bridge.given import check_session, check_store
from rath_bridge.interchange.importing import import_document
from rath_bridge.interchange.reading import Document
from rath_bridge.session import Session, Store
from rath_openrath.decode import recognises
from rath_openrath.encode import encode
from rath_openrath.records import is_live


def import_session(store: Store, session: Any, *, name: str | None = None) -> Session:
    """Bring a live ``rath.Session`` into a store: from here on it has integrity, replay, diff and evidence packets.

    The same session again changes nothing; one that has grown is gone on with.

    Args:
        store: Where to.
        session: The live session; work that is pending is waited for.
        name: Its name in the store; ``openrath/<id>``, when absent.

    Raises:
        UnknownFormatError: It is no OpenRath session.
        DecodeError: A payload holds what is no JSON.
    """
    check_store(store, "import_session")
    if not recognises(session):
        raise UnknownFormatError(f"a {type(session).__module__}.{type(session).__qualname__}", ["openrath"])
    ((native_id, obj),) = interchange.documents(interchange.format_named("openrath"), session)
    label = f"rath.Session {native_id}" if is_live(session) else f"OpenRath session {native_id}"
    done = import_document(store, Document(label, interchange.format_named("openrath"), native_id, obj), name=name)
    return store.session(done.session)


def export_session(session: Session) -> Any:
    """Return a session as a live ``rath.Session``; what came from OpenRath has its id, parents, kind and usage again.

    What OpenRath cannot hold is told by ``rb.encode(session, "openrath", as_="session")``.

    Raises:
        MissingExtraError: openrath is not installed.
    """
    check_session(session, "export_session")
    return encode(session, as_="session")[0]
