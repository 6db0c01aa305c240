"""Replies as they come: pulled one by one, each under the name of the node that was asked.

Flower's `send_and_receive` holds all replies before anybody looks at one, believes what a reply says of its sender, and ends the run
where one of them cannot be decoded. Here a reply is looked at before the next one is pulled, so that those which are too large are
let go one by one. A reply counts only if it answers the message that was sent to its node, and whatever its decoding raises is handed
on as an error of that node.
"""

import time
from collections.abc import Iterable, Iterator

from flwr.app import Error, Message
from flwr.serverapp import Grid

from evenly.flower.expecting import printable

UNREADABLE = 900  # a code beside Flower's own, for a reply that cannot be decoded or is not the node's
SHORTEST_PAUSE, LONGEST_PAUSE = 0.1, 3.0  # seconds between two looks at who has answered; the longest is Flower's own


def replies_to(grid: Grid, messages: Iterable[Message], timeout: float) -> Iterator[Message]:
    """Send messages now, and yield what comes back within so many seconds, at most one reply for each message."""
    sent = list(messages)
    stored = set(grid.push_messages(sent)) if sent else set()
    return _pulled(grid, {key: message for message in sent if (key := message.metadata.message_id) in stored}, timeout)


def _pulled(grid: Grid, waiting: dict[str, Message], timeout: float) -> Iterator[Message]:
    end, pause = time.monotonic() + timeout, SHORTEST_PAUSE
    while waiting:
        for key in list(waiting):
            if time.monotonic() >= end:
                return
            reply = _pull(grid, key, waiting[key])
            if reply is not None:
                del waiting[key]
                yield reply
        if waiting:
            time.sleep(max(0.0, min(pause, end - time.monotonic())))
            pause = min(2 * pause, LONGEST_PAUSE)


def _pull(grid: Grid, key: str, asked: Message) -> Message | None:
    """The reply to one message; None: there is none yet."""
    try:
        found = next((reply for reply in grid.pull_messages([key]) if reply.metadata.reply_to_message_id == key), None)
    except Exception as error:  # whoever wrote the reply chooses how its decoding fails
        return _unreadable(asked, f"sent a reply that could not be fetched and decoded ({type(error).__name__}: {printable(str(error))})")
    if found is None:
        return None
    if found.has_error():  # of the node, or of the SuperLink about it
        error = found.error
        return Message(Error(0, error.reason) if error.code == UNREADABLE else error, reply_to=asked)
    if found.metadata.src_node_id != asked.metadata.dst_node_id:
        return _unreadable(asked, f"replied in the name of node {found.metadata.src_node_id}")
    return found


def _unreadable(asked: Message, reason: str) -> Message:
    return Message(Error(UNREADABLE, reason), reply_to=asked)
