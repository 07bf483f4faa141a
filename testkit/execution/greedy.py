"""Programs that use much of a machine, each up to a bound of its own, should a limit fail."""

from typing import Final

BOMB: Final = """
import os, time
for _ in range({most}):
    try:
        pid = os.fork()
    except OSError:
        break
    if pid == 0:
        {child}
        time.sleep(60)
        os._exit(0)
time.sleep(60)
"""
"""Starts `most` processes as fast as it can; each does `child`."""

EXPLOSION: Final = """
import os, time
for _ in range({generations}):
    try:
        os.fork()
    except OSError:
        break
time.sleep(60)
"""
"""Every process starts another one, and so on: 2 to the power of `generations` in all."""

THREADS: Final = """
import threading, time
for _ in range({most}):
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
time.sleep(60)
"""
"""One process with `most` threads."""

CHURN: Final = """
import os, time
begun = time.monotonic()
while time.monotonic() < begun + 20:
    if (pid := os.fork()) == 0:
        if os.fork() == 0:
            time.sleep(60)
        os._exit(0)
    os.waitpid(pid, 0)
"""
"""Starts processes by way of others that end at once, so that each loses its parent."""

ZOMBIES: Final = """
import os, time
for _ in range({most}):
    if os.fork() == 0:
        os._exit(0)
time.sleep(60)
"""
"""Starts `most` processes that end at once, and reaps none."""

HOG: Final = """
import time
held = []
while len(held) < {most_mib} // 16:
    held.append(bytearray(b'x' * (16 << 20)))
time.sleep(60)
"""
"""Takes `most_mib` at more than 1 GB/s."""

CREEP: Final = """
import time
held = []
while len(held) < {most_mib}:
    held.append(bytearray(b'x' * (1 << 20)))
    time.sleep(0.005)
time.sleep(60)
"""
"""Takes `most_mib` at less than 0.2 GB/s."""

FAMILY_HOG: Final = """
import os, time
for _ in range(6):
    if os.fork() == 0:
        held = bytearray(b'x' * (60 << 20))
        time.sleep(60)
        os._exit(0)
time.sleep(60)
"""
"""Six processes that hold 60 MiB each."""

SHARED_MEMORY_HOG: Final = """
import mmap, time
held = mmap.mmap(-1, {most_mib} << 20)  # shared with what it forks
for at in range(0, len(held), 1 << 20):
    held[at:at + (1 << 20)] = b'x' * (1 << 20)
time.sleep(60)
"""
"""Takes `most_mib` of memory that is shared between processes."""

SHARES: Final = """
import os
held = bytearray(b'x' * (60 << 20))
read, write = os.pipe()
for _ in range(6):
    if os.fork() == 0:
        os.close(write)
        os.read(read, 1)
        os._exit(0)
import time
time.sleep({for_s})
os.close(write)
for _ in range(6):
    os.wait()
print("all have shared")
"""
"""Seven processes that share 60 MiB for a while: 420 MiB, if they were counted for each of them. Then it is done."""

FILL: Final = """
import time
with open("filled", "wb") as file:
    for _ in range({most_mib}):
        file.write(b'x' * (1 << 20))
time.sleep(60)
"""
"""Writes `most_mib` to its working folder."""
