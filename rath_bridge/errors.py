"""Every error that this project raises on purpose.

The tree is part of the public contract: names and places are stable, additions are fine::

    RathError
    |-- WrongTypeError         (TypeError)         an argument of another kind; says what to pass instead
    |-- EncodeError            (ValueError)        a value that cannot be kept; names its path
    |-- DecodeError            (ValueError)        bytes that do not say what they should; names place and path
    |-- NotFoundError          (LookupError)
    |   |-- MissingSessionError
    |   |-- MissingChunkError
    |   |-- MissingObjectError
    |   `-- AmbiguousDigestError
    |-- ErasedError            (LookupError)       the content was erased; its digest still stands
    |-- NameInUseError         (ValueError)        a session or branch of that name exists
    |-- InvalidNameError       (ValueError)        not a session or branch name
    |-- ConflictError                              another writer moved the ref first
    |-- MergeConflict                              both sides changed the same thing; lists all
    |-- StoreError
    |   |-- StoreAddressError  (ValueError)        an address that names no kind of store
    |   |-- StoreUnavailableError (ConnectionError) down, locked, full or not writable
    |   |-- NewerFormatError                       written by a newer version; left alone
    |   `-- CorruptStoreError                      what is stored contradicts itself
    |-- PacketError            (ValueError)        an evidence packet that cannot be read or written
    |   `-- PacketExistsError                      something stands where a packet should be written
    |-- RecorderError                              raised only by ``strict=True`` recorders
    `-- AdapterError
        |-- MissingExtraError  (ImportError)       a framework is not installed; names the pip line
        |-- UnknownFormatError (LookupError)       no adapter recognises this object or name
        `-- UnsupportedError   (TypeError)         the adapter cannot do this, and says why

``exit_status`` is what the command line returns for it (design, section 5).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar, Final


class RathError(Exception):
    """Base of all errors of this project. ``str(error)`` says what was asked, found, and what to do."""

    exit_status: ClassVar[int] = 2

    def __str__(self) -> str:
        # LookupError's children would print repr(args); every message here is a sentence.
        return str(self.args[0]) if self.args else self.__class__.__name__

    def __reduce__(self) -> tuple[Any, ...]:
        # Constructors take the facts, not the sentence; workers and executors pickle errors.
        return (_rebuild, (type(self), self.args), self.__dict__)


def _rebuild(kind: type[RathError], args: tuple[Any, ...]) -> RathError:
    error = kind.__new__(kind)
    error.args = args
    return error


class WrongTypeError(RathError, TypeError):
    """An argument of another kind than what is worked on; nothing was done.

    Attributes:
        taker: What it was given to, such as ``wrap``.
        wanted: What that takes.
        given: What was given instead, in words: a text as it is, without a password; anything else by its kind.
    """

    def __init__(self, taker: str, wanted: str, given: object, advice: str) -> None:
        self.taker, self.wanted, self.given = taker, wanted, _shown(given)
        super().__init__(f"{taker} takes {wanted}, not {self.given}: {advice}")


def _shown(given: object) -> str:
    if given is None:
        return "None"
    if isinstance(given, str):
        return f"the text {without_secrets(given)!r}"
    kind: type[Any] = type(given)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__.partition('.')[0]} {kind.__qualname__}"
    return f"an {name}" if name[0] in "aeiou" else f"a {name}"


def in_words(error: BaseException) -> str:
    """What one of Python's own errors says, for a reader who knows no Python."""
    if isinstance(error, KeyError) and error.args:
        return f"it has no {error.args[0]!r}"
    return str(error) or type(error).__name__


class EncodeError(RathError, ValueError):
    """A value that cannot be kept without changing it.

    Attributes:
        path: Where it stands, such as ``body.arguments.x[3]``.
        found: Name of the offending type, or a short description.
    """

    def __init__(self, path: str, found: str, advice: str = "convert it to JSON values, str, bytes or numbers") -> None:
        self.path, self.found = path, found
        super().__init__(f"cannot keep {found} at {path}: {advice}")


class DecodeError(RathError, ValueError):
    """Bytes that do not say what they should.

    Attributes:
        place: File, line, chunk or row.
        path: Path inside the value, where known.
    """

    exit_status = 3

    def __init__(self, place: str, problem: str, path: str = "") -> None:
        self.place, self.problem, self.path = place, problem, path
        super().__init__(f"cannot read {place}{f' at {path}' if path else ''}: {problem}")


class NotFoundError(RathError, LookupError):
    """Something that was named does not exist."""


class MissingSessionError(NotFoundError):
    """No session (or branch) of that name.

    Attributes:
        name: What was asked for.
        known: Some names that exist.
    """

    def __init__(self, name: str, known: Sequence[str] = ()) -> None:
        self.name, self.known = name, tuple(known)
        hint = f"; the store has {', '.join(map(repr, self.known[:5]))}" if known else "; the store has no sessions"
        super().__init__(f"no session {name!r}{hint}. List them with: rath-bridge ls")


class MissingChunkError(NotFoundError):
    """A chunk is named that the store does not hold."""

    def __init__(self, digest: str, context: str = "") -> None:
        self.digest = digest
        where = f" ({context})" if context else ""
        super().__init__(f"no chunk {digest[:16]}{where}. Check the store with: rath-bridge fsck")


class MissingObjectError(NotFoundError):
    """A blob, native record or tree node is named that the store does not hold."""

    exit_status = 3

    def __init__(self, digest: str, context: str = "") -> None:
        self.digest = digest
        where = f" ({context})" if context else ""
        super().__init__(f"no object {digest[:16]}{where}. Check the store with: rath-bridge fsck")


class AmbiguousDigestError(NotFoundError):
    """A digest prefix that fits several chunks."""

    def __init__(self, prefix: str, found: Sequence[str]) -> None:
        self.prefix, self.found = prefix, tuple(found)
        super().__init__(f"{prefix!r} fits {', '.join(d[:12] for d in found[:4])}: give more digits")


class ErasedError(RathError, LookupError):
    """The content was erased; the chain still holds its digest."""

    exit_status = 1

    def __init__(self, digest: str) -> None:
        self.digest = digest
        super().__init__(
            f"the content of {digest[:16]} was erased; only its digest and size are left. The redaction chunks of its session tell why; "
            "a framework whose state stands on it goes on from an earlier one after: rath-bridge redact --object DIGEST --forget"
        )


class NameInUseError(RathError, ValueError):
    """A session or branch of that name exists already."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"{name!r} exists already: choose another name, or open it with store.session({name!r})")


class InvalidNameError(RathError, ValueError):
    """Not a name that a session or branch may have."""

    def __init__(self, name: object, why: str) -> None:
        self.name, self.why = name, why
        super().__init__(f"{name!r} is not a usable name: {why}")


class ConflictError(RathError):
    """Another writer moved the ref first; nothing was written.

    Attributes:
        ref: The ref, such as ``ticket-4711@main``.
        expected: Head that the writer had seen.
        found: Head that stands there now.
    """

    exit_status = 1

    def __init__(self, ref: str, expected: str | None, found: str | None) -> None:
        self.ref, self.expected, self.found = ref, expected, found
        super().__init__(
            f"{ref} moved from {(expected or 'nothing')[:12]} to {(found or 'nothing')[:12]} meanwhile and nothing was "
            f"written: open the session again and repeat, or append with on_conflict='branch'"
        )


class MergeConflict(RathError):  # noqa: N818 - a public name fixed by the design
    """Both sides changed the same thing; nothing was written.

    Attributes:
        conflicts: One line each, all of them.
    """

    exit_status = 1

    def __init__(self, conflicts: Sequence[str]) -> None:
        self.conflicts = tuple(conflicts)
        listing = "; ".join(self.conflicts)
        super().__init__(
            f"{len(self.conflicts)} conflict(s), nothing was written: {listing}. "
            f"Choose strategy='ours' or 'theirs', or pass a function"
        )


class StoreError(RathError):
    """The store could not do it."""

    exit_status = 4


def without_secrets(url: str) -> str:
    """An address that nobody can read says nobody where its password ends: all that may be one is left out."""
    scheme, mark, rest = url.partition("://")
    if not mark:
        return re.sub(r"(password\s*=\s*)('[^']*'?|\S+)", r"\1…", url, flags=re.IGNORECASE)
    if scheme == "sqlite":
        return url
    _, at, where = rest.rpartition("@")
    return f"{scheme}://{'…@' if at else ''}{where.partition('?')[0]}"


class StoreAddressError(StoreError, ValueError):
    """An address that names no kind of store."""

    exit_status = 2

    def __init__(self, url: str, why: str = "") -> None:
        self.url = url = without_secrets(url)
        super().__init__(
            f"{url!r} is not a store address{f' ({why})' if why else ''}: use sqlite:///runs.db, postgresql://host/db or memory:"
        )


class StoreUnavailableError(StoreError, ConnectionError):
    """The store is down, locked, full or not writable. Nothing was half-written."""

    def __init__(self, url: str, problem: str) -> None:
        self.url, self.problem = url, problem
        super().__init__(f"the store {url} could not do it ({problem}): check that it runs, has space and may be written")


class NewerFormatError(StoreError):
    """Written by a newer version of rath_bridge; it was left alone."""

    def __init__(self, url: str, found: int, known: int) -> None:
        self.url, self.found, self.known = url, found, known
        super().__init__(
            f"{url} has format {found}, this version reads up to {known}; it was left as it is. "
            f"Upgrade with: pip install -U rath-bridge"
        )


class CorruptStoreError(StoreError):
    """What is stored contradicts itself."""

    exit_status = 3

    def __init__(self, what: str, problem: str) -> None:
        self.what, self.problem = what, problem
        super().__init__(f"{what}: {problem}. List every fault with: rath-bridge fsck")


class PacketError(RathError, ValueError):
    """An evidence packet that cannot be read or written."""

    exit_status = 3


WITH_OVERWRITE: Final = "pass overwrite=True"


class PacketExistsError(PacketError):
    """Something stands where a packet should be written; it was left alone."""

    exit_status = 2

    def __init__(self, path: str, why: str = f"{WITH_OVERWRITE}, or choose another path") -> None:
        self.path, self.why = path, why
        super().__init__(f"cannot write a packet to {path}, something is there already: {why}")


class RecorderError(RathError):
    """Recording failed and the recorder was asked to be strict."""

    exit_status = 4


class AdapterError(RathError):
    """An adapter could not do what was asked."""


def pip_line(extra: str) -> str:
    """Return what installs an adapter's framework: one of our own extras, or, for a third party's adapter, any requirement."""
    from importlib import metadata

    try:
        ours = metadata.metadata("rath-bridge").get_all("Provides-Extra") or ()
    except metadata.PackageNotFoundError:
        ours = (extra,)
    return f'pip install "rath-bridge[{extra}]"' if extra.replace("_", "-") in ours else f'pip install "{extra}"'


class MissingExtraError(AdapterError, ImportError):
    """A framework is not installed.

    Attributes:
        extra: Name of the extra, as in ``pip install "rath-bridge[extra]"``; a third party's adapter names a requirement of its own.
    """

    def __init__(self, feature: str, extra: str) -> None:
        self.feature, self.extra = feature, extra
        super().__init__(f"{feature} needs a package that is not installed: {pip_line(extra)}")


class UnknownFormatError(AdapterError, LookupError):
    """No adapter recognises this object or name."""

    def __init__(self, what: str, known: Sequence[str]) -> None:
        self.what, self.known = what, tuple(known)
        super().__init__(f"no adapter for {what}; there are {', '.join(known) or 'none'}. See: rath-bridge adapters")


class UnsupportedError(AdapterError, TypeError):
    """The adapter cannot do this, and says why."""
