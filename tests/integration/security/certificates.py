"""A small certificate authority for one test: EC keys, a day long, PEM files in a folder."""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY = dt.timedelta(days=1)


@dataclass(frozen=True)
class Files:
    """PEM files of one certificate. `both`: key and chain in one file, as Kafka's PEM store."""

    certificate: Path
    key: Path
    both: Path


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


class Authority:
    """Signs certificates. `file`: its own certificate, for those who trust it."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        self._certificate = self._sign(
            self._name,
            self._key.public_key(),
            [
                (x509.BasicConstraints(ca=True, path_length=0), True),
                (x509.KeyUsage(False, False, False, False, False, True, True, False, False), True),
            ],
        )
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(_pem(self._certificate))

    def issue(self, name: str, *hosts: str, password: str = "") -> Files:
        """A certificate for these names and addresses, its key under a password if one is given."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = [x509.SubjectAlternativeName([_alternative(host) for host in hosts])]
        certificate = self._sign(_name(name), key.public_key(), [(each, False) for each in names])
        chain = _pem(certificate) + _pem(self._certificate)
        files = Files(*(self._folder / f"{name}{end}" for end in (".crt", ".key", ".both")))
        files.certificate.write_bytes(chain)
        files.key.write_bytes(_private(key, password))
        files.both.write_bytes(_private(key, "") + chain)
        return files

    def _sign(
        self,
        subject: x509.Name,
        public: ec.EllipticCurvePublicKey,
        extensions: list[tuple[x509.ExtensionType, bool]],
    ) -> x509.Certificate:
        now = dt.datetime.now(dt.UTC)
        identifier = x509.SubjectKeyIdentifier.from_public_key
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _DAY)
            .not_valid_after(now + _DAY)
            .add_extension(identifier(public), critical=False)
            .add_extension(authority, critical=False)
        )
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical=critical)
        return builder.sign(self._key, hashes.SHA256())


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _private(key: ec.EllipticCurvePrivateKey, password: str) -> bytes:
    lock: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password:
        lock = serialization.BestAvailableEncryption(password.encode())
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, lock)
