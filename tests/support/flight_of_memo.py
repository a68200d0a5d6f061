"""A member of `tests.support.flights` that asks a memo: ``[URL LEASE_SECONDS] ARGUMENTS``."""

from __future__ import annotations

import sys

from tests.support.flight_member import Member

from trivet import Cache
from trivet.cache.shared import Shared
from trivet.events import Event, EventKind
from trivet.stores.host import HostStore
from trivet.stores.shared import Leases, ValkeyStore
from trivet.values import memo


def main() -> None:
    *server, _, _, _, _, _ = sys.argv[1:]
    member = Member(sys.argv[-5:])

    def sink(event: Event) -> None:
        if event.kind is EventKind.WAITED:
            member.note_wait()

    shared = None
    if server:
        values = ValkeyStore(server[0], timeout=20)
        shared = Shared(values=values, leases=Leases(values, seconds=float(server[1])))
    keep = memo(Cache(HostStore.open(member.host), shared=shared, sink=sink), version="1")
    if member.scope == "tasks":

        @keep
        async def function_of_tasks(x: int) -> int:
            return await member.compute_async(x)

        member.ask(function_of_tasks)
        return

    @keep
    def function(x: int) -> int:
        return member.compute(x)

    member.ask(function)


if __name__ == "__main__":
    main()
