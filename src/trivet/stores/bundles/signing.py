"""Who made a bundle: ed25519 signatures, by keys that OpenSSH or OpenSSL made."""

from __future__ import annotations

import base64
import hashlib
import os
import secrets
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from trivet.entries.bundle import signed_bytes
from trivet.errors import CorruptEntry, MissingExtra, TrivetError, UnsafeFolder

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


class BadKey(TrivetError):
    """A file is not the key, or the list of keys, that it should be."""


class Untrusted(TrivetError):
    """Nobody who is trusted has signed a bundle."""


class Signature(msgspec.Struct, frozen=True, array_like=True):
    """The last part of a signed bundle: ``"ed25519"``, the writer's public key, the signature."""

    kind: str
    writer: bytes
    value: bytes

    def encode(self) -> bytes:
        """MessagePack."""
        return msgspec.msgpack.encode(self)

    @classmethod
    def decode(cls, raw: bytes) -> Signature:
        """Raises `CorruptEntry`."""
        try:
            found = _decode(raw)
        except ValueError as error:
            raise CorruptEntry(f"the signature can't be read: {error}") from error
        if found.kind != "ed25519" or len(found.writer) != 32 or found.encode() != raw:
            raise CorruptEntry("the signature is of no known kind")
        return found

    def check(self, id_: bytes) -> None:
        """Raises `CorruptEntry` unless the writer signed the bundle with this id."""
        _require()
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        try:
            Ed25519PublicKey.from_public_bytes(self.writer).verify(self.value, signed_bytes(id_))
        except InvalidSignature as error:
            raise CorruptEntry("the signature is not of this bundle") from error


_decode = msgspec.msgpack.Decoder(Signature).decode


class SigningKey:
    """A private key. Make one with `read`."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key

    @classmethod
    def read(cls, path: Path) -> SigningKey:
        """The key in a file of ``ssh-keygen -t ed25519`` or ``openssl genpkey``.

        Raises:
            BadKey: it is none, of another kind, protected by a passphrase, or readable by others.
            MissingExtra: cryptography is not installed.
        """
        _require()
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        raw = path.read_bytes()
        if path.stat().st_mode & 0o077:
            raise BadKey(f"others can read the key {path}", hint=f"chmod 600 {path}")
        ssh = b"OPENSSH PRIVATE KEY" in raw.partition(b"\n")[0]
        load: Any = (
            serialization.load_ssh_private_key if ssh else serialization.load_pem_private_key
        )
        try:
            key = load(raw, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise BadKey(
                f"{path} can't be read as a private key without a passphrase: {error}",
                hint="'trivet bundle keygen FILE' makes one",
            ) from error
        if not isinstance(key, Ed25519PrivateKey):
            raise BadKey(
                f"{path} does not hold an ed25519 key", hint="'trivet bundle keygen FILE' makes one"
            )
        return cls(key)

    @property
    def public(self) -> bytes:
        """The public key, 32 bytes."""
        return self._key.public_key().public_bytes_raw()

    def sign(self, id_: bytes) -> Signature:
        """The signature of the bundle with this id. Signing again gives the same bytes."""
        return Signature("ed25519", self.public, self._key.sign(signed_bytes(id_)))


def make_key(path: Path, name: str) -> str:
    """Write a new private key to ``path``, the public one to ``path.pub``; returns its fingerprint.

    Raises `BadKey` when one of the two is there already: a key is never replaced. Who is killed in
    between leaves the private key whole, or none.
    """
    _require()
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    public = path.with_name(f"{path.name}.pub")
    for each in (path, public):
        if os.path.lexists(each):
            raise _already(each)
    key = Ed25519PrivateKey.generate()
    raw = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )
    line = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    _create(path, raw, 0o600)
    try:
        _create(public, line + b" " + name.encode() + b"\n", 0o644)
    except BaseException:
        os.unlink(path)  # made a moment ago, and nobody knows of it
        raise
    return fingerprint(key.public_key().public_bytes_raw())


def _create(path: Path, content: bytes, mode: int) -> None:
    """Write a file whole or not at all, where there is none."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.link(part, path)  # a rename would replace what somebody has put there meanwhile
    except FileExistsError as error:
        raise _already(path) from error
    finally:
        os.unlink(part)


def _already(path: Path) -> BadKey:
    return BadKey(
        f"{path} is there already, and a key is never replaced",
        hint="choose another name, or move it away first",
    )


def read_writers(paths: Iterable[Path]) -> dict[bytes, str]:
    """Public keys to names, from lists in the form of OpenSSH's ``authorized_keys``.

    A line is ``ssh-ed25519 AAAA... name``; empty lines and those that begin with ``#`` don't count.

    Raises:
        BadKey: a line is no such key.
        UnsafeFolder: others than this user and root can write to a file.
        MissingExtra: cryptography is not installed.
    """
    found: dict[bytes, str] = {}
    for path in paths:
        _require_ours(path)
        try:
            text = path.read_text("utf-8")
        except UnicodeDecodeError as error:
            raise BadKey(f"{path} is not a list of public keys: {error}") from error
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip() and not line.lstrip().startswith("#"):
                key = _public_key(line, f"{path}, line {number}")
                found[key] = (line.split(maxsplit=2)[2:] or [""])[0].strip()
    return found


def fingerprint(public: bytes) -> str:
    """As ``ssh-keygen -l`` shows it: ``SHA256:...``."""
    kind = b"ssh-ed25519"
    blob = len(kind).to_bytes(4, "big") + kind + len(public).to_bytes(4, "big") + public
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def require_trusted(
    signature: Signature | None,
    writers: Mapping[bytes, str],
    *,
    allow_unsigned: bool = False,
) -> None:
    """Raises `Untrusted` unless what the bundle holds may be installed.

    Frameworks run what is in artifacts, and programs believe what is in values.
    """
    if signature is None:
        if not allow_unsigned:
            raise Untrusted(
                "the bundle is not signed",
                hint="sign it with 'trivet bundle create --sign KEY'; --allow-unsigned installs it "
                "all the same, if you know where it comes from",
            )
    elif signature.writer not in writers:
        raise Untrusted(
            f"the bundle is signed by {fingerprint(signature.writer)}, which is not trusted here",
            hint="if you know this writer, name the public key with --trust FILE.pub",
        )


def _public_key(line: str, where: str) -> bytes:
    _require()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        key = serialization.load_ssh_public_key(line.strip().encode())
    except (ValueError, UnsupportedAlgorithm) as error:
        raise BadKey(f"{where} is not a public key: {error}") from error
    if not isinstance(key, Ed25519PublicKey):
        raise BadKey(f"{where} is not an ed25519 key", hint="'trivet bundle keygen FILE' makes one")
    return key.public_bytes_raw()


def _require_ours(path: Path) -> None:
    facts = path.stat()
    if facts.st_uid not in (os.geteuid(), 0) or stat.S_IMODE(facts.st_mode) & 0o022:
        raise UnsafeFolder(
            f"others can write to {path}, which says who is trusted", hint=f"chmod go-w {path}"
        )


def _require() -> None:
    try:
        import cryptography  # noqa: F401
    except ImportError as error:
        raise MissingExtra(
            "signatures need the package cryptography", hint="pip install 'trivet[bundle]'"
        ) from error
