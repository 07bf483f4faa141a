"""What goes wrong in a cluster: networks that are cut, clocks that jump, disks that fill up, machines that are busy."""
