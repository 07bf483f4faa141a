"""Who is let in where there is little room, and who goes for it."""

from node.http.connection_limits import THIS_MACHINE, Doors, origin_of


def _filled(clients: int, *origins: str) -> Doors[str]:
    doors: Doors[str] = Doors(clients)
    for number, origin in enumerate(origins):
        assert doors.admit(origin).admitted
        doors.enter(f"{origin} {number}", origin, number)
    return doors


def test_who_has_waited_longest_goes_where_there_is_no_room() -> None:
    doors = _filled(2, THIS_MACHINE, THIS_MACHINE)
    admission = doors.admit(THIS_MACHINE)
    assert (admission.admitted, admission.leaves) == (True, f"{THIS_MACHINE} 0")
    assert len(doors) == 1
    assert doors.pushed_out == 1


def test_a_request_that_is_being_answered_is_not_pushed_out() -> None:
    doors = _filled(2, THIS_MACHINE, THIS_MACHINE)
    doors.asks(f"{THIS_MACHINE} 0")
    assert doors.admit(THIS_MACHINE).leaves == f"{THIS_MACHINE} 1"
    doors = _filled(2, THIS_MACHINE, THIS_MACHINE)
    for number in range(2):
        doors.asks(f"{THIS_MACHINE} {number}")
    assert not doors.admit(THIS_MACHINE).admitted
    assert doors.refused == 1
    doors.waits(f"{THIS_MACHINE} 1", 9)
    assert doors.admit(THIS_MACHINE).leaves == f"{THIS_MACHINE} 1"


def test_one_address_has_half_of_the_room_and_pushes_out_its_own() -> None:
    doors = _filled(6, "10.0.0.1", "10.0.0.9", "10.0.0.9", "10.0.0.9")
    assert doors.admit("10.0.0.9").leaves == "10.0.0.9 1"
    assert doors.admit("10.0.0.2").leaves is None


def test_the_address_that_waits_most_makes_room_for_others() -> None:
    doors = _filled(4, "10.0.0.1", "10.0.0.9", "10.0.0.9", "10.0.0.2")
    assert doors.admit("10.0.0.3").leaves == "10.0.0.9 1"


def test_who_waits_for_too_long_is_named_and_an_answer_begins_the_time_anew() -> None:
    doors = _filled(9, "10.0.0.1", "10.0.0.1", "10.0.0.2")
    assert list(doors.overdue(1)) == ["10.0.0.1 0", "10.0.0.1 1"]
    doors.asks("10.0.0.1 0")
    doors.waits("10.0.0.1 0", 5)
    assert list(doors.overdue(1)) == ["10.0.0.1 1"]
    doors.leave("10.0.0.1 1")
    assert list(doors.overdue(9)) == ["10.0.0.1 0", "10.0.0.2 2"]
    assert len(doors) == 2


def test_a_connection_that_was_struck_off_leaves_no_trace() -> None:
    doors = _filled(1, THIS_MACHINE)
    gone = doors.admit(THIS_MACHINE).leaves
    assert gone is not None
    doors.waits(gone, 3)
    doors.leave(gone)
    assert (len(doors), list(doors), list(doors.overdue(9))) == (0, [], [])


def test_origins_are_addresses_networks_and_this_machine() -> None:
    assert origin_of("2001:db8::1") == origin_of("2001:db8::2%eth0") != origin_of("2001:db8:0:1::1")
    assert origin_of("::1") == origin_of("127.8.9.1") == origin_of("::ffff:127.0.0.1") == THIS_MACHINE
