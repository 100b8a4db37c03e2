"""Images read by threads in the background.

Threads are enough: Pillow decodes and resizes outside the interpreter's lock, and of the two milliseconds that a photo
of 224 pixels takes, a tenth is spent inside it. Threads share memory, die with their process, and raise their errors
where they belong.
"""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from threading import Thread

import numpy as np
from numpy.typing import NDArray

Read = Callable[[int], NDArray[np.uint8]]  # the image of a row, [size, size, 3]; called by several threads at once

MOST_THREADS = 16  # beyond that they would wait for each other


def thread_count() -> int:
    """How many threads read: one for each core, which the processes that torchrun started on this machine share."""
    cores = (os.cpu_count() or 1) // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return max(1, min(MOST_THREADS, cores))


class Reading:
    """Images of some rows, from the moment when threads begin to read them."""

    def __init__(self, read: Read, rows: Sequence[int], size: int) -> None:
        self.rows = rows
        self.pixels = np.empty((len(rows), 3, size, size), np.uint8)
        self.error: BaseException | None = None
        self.stopped = False
        self.left: SimpleQueue[tuple[int, int]] = SimpleQueue()
        for place, row in enumerate(rows):
            self.left.put((place, row))
        # daemons, so that a process that ends for another reason does not first read all that is left
        count = min(len(rows), thread_count())
        self.threads = [Thread(target=self._work, args=(read,), daemon=True) for _ in range(count)]
        _unfinished.add(self)
        for thread in self.threads:
            thread.start()

    def _work(self, read: Read) -> None:
        while not self.stopped:
            try:
                place, row = self.left.get_nowait()
            except Empty:
                return
            try:
                self.pixels[place] = read(row).transpose(2, 0, 1)
            except BaseException as error:  # belongs to whoever asks for the images
                self.error, self.stopped = error, True

    def result(self) -> NDArray[np.uint8]:
        """uint8 [n, 3, size, size], when all are read; or the error of the one that could not be."""
        self._join()
        if self.error is not None:
            raise self.error
        return self.pixels

    def stop(self) -> None:
        """Nobody will ask for the result."""
        self.stopped = True
        self._join()

    def _join(self) -> None:
        for thread in self.threads:
            thread.join()


_unfinished: weakref.WeakSet[Reading] = weakref.WeakSet()  # threads keep theirs alive


@atexit.register
def _stop_all() -> None:
    """Before the interpreter is taken down around threads that are still at work."""
    for reading in list(_unfinished):
        reading.stop()
