"""How the HTTP port is set up, apart from its address and bounds."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field

from repobuild_serve.http.access import Access
from repobuild_serve.http.forwarding import HeaderForwarding
from repobuild_serve.logs import LogControl


@dataclass(frozen=True, slots=True)
class FrontOptions:
    """Options of the HTTP port.

    Attributes:
        access: Who may ask for what.
        forwarding: Which headers become request parameters.
        tls: What TLS connections are made with; None for plain ones.
        logs: The log that clients may change the settings of.
    """

    access: Access = field(default_factory=Access)
    forwarding: HeaderForwarding = field(default_factory=HeaderForwarding)
    tls: ssl.SSLContext | None = None
    logs: LogControl = field(default_factory=LogControl)
