"""Stands in for kubectl where a client of the router calls it.

Its first argument is the port of what stands in for the router, the others are those of kubectl:
whatever is asked for exists, and a port that is forwarded leads to the stand-in.
"""

from __future__ import annotations

import asyncio
import functools
import sys
from asyncio import StreamReader, StreamWriter

_HOST = "127.0.0.1"


async def _copy(reader: StreamReader, writer: StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()


async def _relay(to: int, reader: StreamReader, writer: StreamWriter) -> None:
    answer, there = await asyncio.open_connection(_HOST, to)
    await asyncio.gather(_copy(reader, there), _copy(answer, writer))


async def _forward(port: int, to: int) -> None:
    server = await asyncio.start_server(functools.partial(_relay, to), _HOST, port)
    await server.serve_forever()


def main(router: str, verb: str, *arguments: str) -> None:
    """Do what kubectl does."""
    if verb == "port-forward":
        asyncio.run(_forward(int(arguments[1].partition(":")[0]), int(router)))


if __name__ == "__main__":
    main(*sys.argv[1:])
