"""The connection between SuperNodes and their SuperLink, as a process that can be killed.

python -m tests.flower.relay PORT TARGET
"""

import asyncio
import contextlib
import sys

HOST = "127.0.0.1"


async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


async def connect(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
    """A connection; None while nobody listens. A SuperNode whose connection is accepted and closed
    takes that for an error of TLS, and never tries again.
    """
    with contextlib.suppress(OSError):
        return await asyncio.open_connection(HOST, port)
    return None


async def main(port: int, target: int) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not (there := await connect(target)):
            await asyncio.sleep(0.2)
        await asyncio.gather(pass_on(reader, there[1]), pass_on(there[0], writer))

    server = await asyncio.start_server(connected, HOST, port)
    print("ready", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(*map(int, sys.argv[1:])))
