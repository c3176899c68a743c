"""A small certificate authority for mutual TLS: one folder for each party, and the CA's key apart.

certs/ca/      ca.crt  ca.key                       stays with whoever runs the CA
certs/server/  ca.crt  cert.pem  key.pem  clients.json
certs/NAME/    ca.crt  cert.pem  key.pem            one for each client, and `helper` if asked for
"""

from __future__ import annotations

import ipaddress
import json
import os
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from privit.errors import RequestError

CA_YEARS, PARTY_DAYS = 10, 825
ROLES = ("server", "client", "helper")
CLIENTS_FILE = "clients.json"


def make_certs(
    folder: Path,
    server_names: Sequence[str],
    clients: Sequence[str],
    helper_names: Sequence[str] = (),
) -> dict[str, Path]:
    """Writes the folders above and gives the folder of each party.

    A second call in the same folder keeps the CA and the certificates that are there and adds what is
    missing, so that a client can be added later; the server reads clients.json at every connection.

    Args:
        server_names: DNS names or IP addresses under which clients reach the server.
        clients: a name for each client, used as folder name and in the server's log.
        helper_names: names of the third party of aby3, if there is one.
    """
    folder = Path(folder)
    _check_names(server_names, clients)
    authority, authority_key = _authority(folder / "ca")
    parties = {"server": ("server", list(server_names))} | {name: ("client", []) for name in clients}
    if helper_names:
        parties["helper"] = ("helper", list(helper_names))
    for name, (role, names) in parties.items():
        part = folder / name
        if not (part / "cert.pem").is_file():
            _write_party(part, name, role, names, authority, authority_key)
    known = folder / "server" / CLIENTS_FILE
    listed = json.loads(known.read_text()) if known.is_file() else {}
    listed |= {name: fingerprint((folder / name / "cert.pem").read_bytes()) for name in clients}
    # In one step: a server that runs must not find half a list.
    partial = known.with_suffix(".partial")
    partial.write_text(json.dumps(listed, indent=2, sort_keys=True) + "\n")
    partial.replace(known)
    return {name: folder / name for name in ("ca", *parties)}


def fingerprint(certificate: bytes) -> str:
    """sha256 of a certificate, given as PEM or DER."""
    pem = certificate.lstrip().startswith(b"-----")
    loaded = (
        x509.load_pem_x509_certificate(certificate) if pem else x509.load_der_x509_certificate(certificate)
    )
    return loaded.fingerprint(hashes.SHA256()).hex()


def valid_between(certificate: bytes) -> tuple[datetime, datetime]:
    """From when to when a certificate (PEM) is valid."""
    loaded = x509.load_pem_x509_certificate(certificate)
    return loaded.not_valid_before_utc, loaded.not_valid_after_utc


def role_of(certificate: bytes) -> str:
    """The role that our CA wrote into a certificate (DER): server, client or helper; "" for none."""
    units = x509.load_der_x509_certificate(certificate).subject.get_attributes_for_oid(
        NameOID.ORGANIZATIONAL_UNIT_NAME
    )
    value = str(units[0].value) if units else ""
    return value if value in ROLES else ""


def _check_names(server_names: Iterable[str], clients: Sequence[str]) -> None:
    problems = []
    if not list(server_names):
        problems.append("no server name was given")
    for name in clients:
        if (
            not name
            or not name.replace("-", "").replace("_", "").isalnum()
            or name in ("ca", "server", "helper")
        ):
            problems.append(f"{name!r} cannot be a client's name")
    if len(set(clients)) != len(clients):
        problems.append("a client's name occurs twice")
    if problems:
        raise RequestError("; ".join(problems), "names are letters, digits, - and _; such as alice")


def _authority(folder: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    if (folder / "ca.key").is_file():
        key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        return x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes()), key
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "privit CA")])
    certificate = (
        _builder(subject, subject, key.public_key(), timedelta(days=365 * CA_YEARS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    folder.mkdir(parents=True, exist_ok=True)
    _write_private(folder / "ca.key", _private_bytes(key))
    (folder / "ca.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return certificate, key


def _write_party(
    folder: Path,
    name: str,
    role: str,
    names: Sequence[str],
    authority: x509.Certificate,
    authority_key: ec.EllipticCurvePrivateKey,
) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, role),
            x509.NameAttribute(NameOID.COMMON_NAME, name),
        ]
    )
    # A client's certificate may only open connections. The server also opens one, to the helper.
    purposes = [ExtendedKeyUsageOID.CLIENT_AUTH]
    if role != "client":
        purposes.append(ExtendedKeyUsageOID.SERVER_AUTH)
    builder = (
        _builder(subject, authority.subject, key.public_key(), timedelta(days=PARTY_DAYS))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=True)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False
        )
    )
    if names:
        alternative = x509.SubjectAlternativeName([_general_name(n) for n in names])
        builder = builder.add_extension(alternative, critical=False)
    certificate = builder.sign(authority_key, hashes.SHA256())
    folder.mkdir(parents=True, exist_ok=True)
    _write_private(folder / "key.pem", _private_bytes(key))
    (folder / "cert.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / "ca.crt").write_bytes(authority.public_bytes(serialization.Encoding.PEM))


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, lifetime: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + lifetime)
    )


def _usage(signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _private_bytes(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write_private(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
