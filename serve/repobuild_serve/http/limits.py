"""How much a client may ask of the server before memory is taken or time is spent."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of the HTTP front end.

    Attributes:
        input_size: Largest JSON part, raw-binary body or decompressed body, in bytes.
        binary_size: Largest binary tail of one request, in bytes.
        header_size: Largest request line and header fields together, in bytes.
        chunks: Largest number of chunks of a chunked body.
        held_size: Largest sum of all bodies that are received or wait for their answer, in bytes.
        pipelined: Requests of one connection that may be in flight.
        connections: Connections open at a time.
        queued_requests: Inference requests of the whole server that may be unanswered.
        read_seconds: How long a request may stall while it is received, and its header take altogether.
        write_seconds: How long a client may leave its answers unread.
        idle_seconds: How long a connection without requests stays open.
        stream_held: Bytes of one streamed answer that may be held back for a client that reads slowly.
        write_buffer: Bytes of unread answers of one connection at which no more is read from it.
    """

    input_size: int = 64 * MIB
    binary_size: int = 256 * MIB
    header_size: int = 64 << 10
    chunks: int = 65_536
    held_size: int = 1024 * MIB
    pipelined: int = 128
    connections: int = 4096
    queued_requests: int = 65_536
    read_seconds: int = 30
    write_seconds: int = 60
    idle_seconds: int = 600
    stream_held: int = 64 * MIB
    write_buffer: int = 1 * MIB
