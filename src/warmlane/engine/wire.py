"""How messages are framed between the server and a worker: msgpack over two ipc sockets in one private directory.

The worker binds `commands`, the server binds `reports`; several threads of the worker may connect to the latter.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import zmq

from warmlane.engine.messages import Command, Report

_encoder = msgspec.msgpack.Encoder()
_command_decoder = msgspec.msgpack.Decoder(Command)
_report_decoder = msgspec.msgpack.Decoder(Report)

RECONNECT_MS = 10
"""How soon the server tries again to reach a worker that has not bound its socket yet."""


def commands_address(directory: Path) -> str:
    return f"ipc://{directory / 'commands'}"


def reports_address(directory: Path) -> str:
    return f"ipc://{directory / 'reports'}"


def encode(message: Command | Report) -> bytes:
    return _encoder.encode(message)


def decode_command(data: bytes) -> Command:
    return _command_decoder.decode(data)


def decode_report(data: bytes) -> Report:
    return _report_decoder.decode(data)


def unlimited(socket: zmq.Socket[bytes]) -> None:
    """Never drop and never block on a full queue: what is queued is bounded by the turns that are admitted."""
    socket.set(zmq.SNDHWM, 0)
    socket.set(zmq.RCVHWM, 0)
