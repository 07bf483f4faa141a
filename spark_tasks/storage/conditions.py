"""Whether a store heeds the condition of a write."""

from spark_tasks.storage.errors import store_errors
from tasks.places.place import Place


def heeds_conditions(place: Place, probe: str) -> bool:
    """Whether the store refuses to write what is there already; a local folder always does.

    `probe` is an empty file in the place, which is written for this. Raises what `store_errors` names.
    """
    if place.is_local:
        return True
    with store_errors(place):
        return not (place.write_new(probe, b"") and place.write_new(probe, b""))
