"""Images read by threads in the background.

Threads are enough: Pillow decodes and resizes without holding the GIL, and only a tenth of the two milliseconds that a
photo of 224 pixels takes is spent holding it. Threads share memory, die with their process, and their errors can be
raised where they belong.
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

from fscil.environment import whole_number

Read = Callable[[int], NDArray[np.uint8]]  # the image of a row, [size, size, 3]; called by several threads at once

MOST_THREADS = 16  # beyond this they would wait for each other


def thread_count() -> int:
    """How many threads read: one per core, divided among the processes that torchrun started on this machine."""
    cores = (os.cpu_count() or 1) // whole_number("LOCAL_WORLD_SIZE", 1, least=1)
    return max(1, min(MOST_THREADS, cores))


class Reading:
    """Images that threads are reading, or have read, by row."""

    def __init__(self, read: Read, rows: Sequence[int], size: int) -> None:
        self.rows = rows
        self.pixels = np.empty((len(rows), 3, size, size), np.uint8)
        self.error: BaseException | None = None
        self.stopped = False
        self.left: SimpleQueue[tuple[int, int]] = SimpleQueue()
        for place, row in enumerate(rows):
            self.left.put((place, row))
        # daemons, so that a process that exits for another reason does not first read everything that is left
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
            except BaseException as error:  # raised where the images are requested
                self.error, self.stopped = error, True

    def result(self) -> NDArray[np.uint8]:
        """uint8 [n, 3, size, size], once all are read; raises the error of one that could not be."""
        self._join()
        if self.error is not None:
            raise self.error
        return self.pixels

    def stop(self) -> None:
        """Stop reading; the result is no longer needed."""
        self.stopped = True
        self._join()

    def _join(self) -> None:
        for thread in self.threads:
            thread.join()


_unfinished: weakref.WeakSet[Reading] = weakref.WeakSet()  # threads keep their own Reading alive


@atexit.register
def _stop_all() -> None:
    """Called before the interpreter shuts down while threads are still at work."""
    for reading in list(_unfinished):
        reading.stop()
