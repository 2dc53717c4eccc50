"""What callers hand in as a store, a session or a program: looked at where it is taken, since an observer's error comes late or never."""

from __future__ import annotations

import inspect
import os
from typing import Any

from rath_bridge.errors import WrongTypeError, without_secrets
from rath_bridge.session import Session, Store, split_name


def check_store(given: object, taker: str, session: object = None, *, optional: bool = False) -> None:
    """Raise unless a `Store` was given, and a name where a session is named.

    Args:
        given: What was handed in.
        taker: Who takes it, as the caller wrote it: ``wrap``.
        session: The session's name that was handed in beside it; None names none.
        optional: None is taken, too.

    Raises:
        WrongTypeError: It is something else.
        InvalidNameError: The name is no name.
    """
    if not (isinstance(given, Store) or (optional and given is None)):
        raise WrongTypeError(taker, "a Store", given, _store_instead(given))
    if session is None:
        return
    if isinstance(session, Session):
        raise WrongTypeError(taker, "a session's name", session, f"pass session={session.name!r}")
    split_name(session)  # pyright: ignore[reportArgumentType]


def check_session(given: object, taker: str) -> None:
    """Raise unless a `Session` was given.

    Raises:
        WrongTypeError: It is something else.
    """
    if isinstance(given, Session):
        return
    name = repr(given) if isinstance(given, str) else "NAME"
    raise WrongTypeError(taker, "a Session", given, f"open it with store.session({name}), where store is rb.open_store(URL)")


def check_program(given: object, taker: str) -> None:
    """Raise unless something was given that can be called with a `Session`, or with nothing.

    Raises:
        WrongTypeError: It is something else.
    """
    call: Any = given if callable(given) else getattr(given, "acall", None)
    wanted = "a function without arguments, or of a Session"
    if call is None:
        raise WrongTypeError(taker, wanted, given, "pass the function itself, or what an adapter's wrap returned")
    try:
        signature = inspect.signature(call)
    except (TypeError, ValueError):  # a builtin says nothing about its arguments
        return
    needed = [one.name for one in signature.parameters.values() if one.default is one.empty and one.kind not in _REST]
    named = [one for one in needed if signature.parameters[one].kind is inspect.Parameter.KEYWORD_ONLY]
    if len(needed) > 1 or named:
        raise WrongTypeError(taker, wanted, given, f"this one needs {', '.join(needed)}, so pass a lambda that gives them")


_REST = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _store_instead(given: object) -> str:
    if isinstance(given, str) and (":" in given):
        return f"pass rb.open_store({without_secrets(given)!r})"
    if isinstance(given, str | os.PathLike):
        return f"pass rb.open_store('sqlite:///{os.fspath(given)}')"  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(given, Session):
        return f"pass the session's store, and session={given.name!r} where it can be named"
    return "pass what rb.open_store('sqlite:///runs.db') returns"
