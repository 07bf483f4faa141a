"""Which connections are admitted, refused and evicted."""

from node.http.door.connection_limits import THIS_MACHINE, ConnectionLimits, origin_of


def _filled(clients: int, *origins: str) -> ConnectionLimits[str]:
    limits: ConnectionLimits[str] = ConnectionLimits(clients)
    for number, origin in enumerate(origins):
        assert limits.admit(origin).admitted
        limits.add(f"{origin} {number}", origin, number)
    return limits


def test_the_longest_idle_connection_is_evicted() -> None:
    limits = _filled(2, THIS_MACHINE, THIS_MACHINE)
    admission = limits.admit(THIS_MACHINE)
    assert (admission.admitted, admission.evicted) == (True, f"{THIS_MACHINE} 0")
    assert len(limits) == 1
    assert limits.evicted == 1


def test_a_busy_connection_is_not_evicted() -> None:
    limits = _filled(2, THIS_MACHINE, THIS_MACHINE)
    limits.mark_busy(f"{THIS_MACHINE} 0")
    assert limits.admit(THIS_MACHINE).evicted == f"{THIS_MACHINE} 1"
    limits = _filled(2, THIS_MACHINE, THIS_MACHINE)
    for number in range(2):
        limits.mark_busy(f"{THIS_MACHINE} {number}")
    assert not limits.admit(THIS_MACHINE).admitted
    assert limits.refused == 1
    limits.mark_idle(f"{THIS_MACHINE} 1", 9)
    assert limits.admit(THIS_MACHINE).evicted == f"{THIS_MACHINE} 1"


def test_one_address_may_use_half_of_the_room_and_evicts_its_own_connections() -> None:
    limits = _filled(6, "10.0.0.1", "10.0.0.9", "10.0.0.9", "10.0.0.9")
    assert limits.admit("10.0.0.9").evicted == "10.0.0.9 1"
    assert limits.admit("10.0.0.2").evicted is None


def test_the_address_with_most_idle_connections_loses_one() -> None:
    limits = _filled(4, "10.0.0.1", "10.0.0.9", "10.0.0.9", "10.0.0.2")
    assert limits.admit("10.0.0.3").evicted == "10.0.0.9 1"


def test_connections_that_are_idle_for_too_long_are_listed_and_an_answer_restarts_the_time() -> None:
    limits = _filled(9, "10.0.0.1", "10.0.0.1", "10.0.0.2")
    assert list(limits.idle_since(1)) == ["10.0.0.1 0", "10.0.0.1 1"]
    limits.mark_busy("10.0.0.1 0")
    limits.mark_idle("10.0.0.1 0", 5)
    assert list(limits.idle_since(1)) == ["10.0.0.1 1"]
    limits.remove("10.0.0.1 1")
    assert list(limits.idle_since(9)) == ["10.0.0.1 0", "10.0.0.2 2"]
    assert len(limits) == 2


def test_an_evicted_connection_leaves_no_trace() -> None:
    limits = _filled(1, THIS_MACHINE)
    gone = limits.admit(THIS_MACHINE).evicted
    assert gone is not None
    limits.mark_idle(gone, 3)
    limits.remove(gone)
    assert (len(limits), list(limits), list(limits.idle_since(9))) == (0, [], [])


def test_origins_are_addresses_networks_and_this_machine() -> None:
    assert origin_of("2001:db8::1") == origin_of("2001:db8::2%eth0") != origin_of("2001:db8:0:1::1")
    assert origin_of("::1") == origin_of("127.8.9.1") == origin_of("::ffff:127.0.0.1") == THIS_MACHINE
