"""TLS for the HTTP port."""

from __future__ import annotations

import ssl
from pathlib import Path

from repobuild_serve.errors import StartError


def server_context(certificate: Path | None, key: Path | None) -> ssl.SSLContext | None:
    """What TLS connections are made with; None if neither file is given.

    Args:
        certificate: PEM file of the server's certificate and those that lead from it to the root.
        key: PEM file of its private key, not encrypted.

    Raises:
        StartError: Only one is given, or they cannot be used.
    """
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise StartError(
            "tls-incomplete",
            "TLS needs both a certificate and its key",
            hint="give both --http-ssl-cert and --http-ssl-key, or neither",
            exit_code=2,
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except (OSError, ValueError) as exc:
        raise StartError(
            "tls-files-unusable",
            "the TLS certificate or key cannot be used",
            evidence=(f"certificate: {certificate}", f"key: {key}", str(exc)),
            hint="give PEM files that belong together and that this user may read, the key not encrypted",
            exit_code=7,
        ) from exc
    return context


def _no_password() -> str:
    raise ValueError("the key is encrypted")
