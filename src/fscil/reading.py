"""Images read by threads in the background.

Threads are enough: Pillow decodes and resizes without holding the GIL, and only a tenth of the two milliseconds that a
photo of 224 pixels takes is spent holding it. Threads share memory, die with their process, and their errors can be
raised where they belong.
"""

from __future__ import annotations

import atexit
import os
import time
import weakref
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from threading import Thread

import numpy as np
from numpy.typing import NDArray

from fscil.environment import whole_number

Read = Callable[[int], NDArray[np.uint8]]  # the image of a row, [size, size, 3]; called by several threads at once

MOST_THREADS = 16  # beyond this they would wait for each other
PATIENCE = 1.0  # seconds that a process which ends waits for images that are being decoded


def thread_count() -> int:
    """How many threads read: one per core, divided among the processes that torchrun started on this machine."""
    cores = (os.cpu_count() or 1) // whole_number("LOCAL_WORLD_SIZE", 1, least=1)
    return max(1, min(MOST_THREADS, cores))


class Reading:
    """Images that threads are reading, or have read, by row."""

    def __init__(self, read: Read, rows: Sequence[int], size: int) -> None:
        self.rows = rows
        self.pixels = np.empty((len(rows), 3, size, size), np.uint8)
        self.errors: dict[int, BaseException] = {}  # by place
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
                self.errors[place], self.stopped = error, True

    def result(self) -> NDArray[np.uint8]:
        """uint8 [n, 3, size, size], once all are read; raises the error of the first that could not be."""
        try:
            self._join()
        finally:
            self.stopped = True  # if Ctrl-C cut the wait short, nobody wants the rest
        if self.errors:
            raise self.errors[min(self.errors)]
        return self.pixels

    def stop(self) -> None:
        """Stop reading; the result is no longer needed."""
        self.stopped = True
        self._join()

    def _join(self) -> None:
        for thread in self.threads:
            if thread.is_alive():
                thread.join()


_unfinished: weakref.WeakSet[Reading] = weakref.WeakSet()  # threads keep their own Reading alive


@atexit.register
def _stop_all() -> None:
    """Called before the interpreter shuts down while threads are still at work. A slow image does not hold it up."""
    unfinished, deadline = list(_unfinished), time.monotonic() + PATIENCE
    for reading in unfinished:
        reading.stopped = True
    for thread in (thread for reading in unfinished for thread in reading.threads):
        if thread.is_alive():  # after Ctrl-C, some may not even have been started
            thread.join(max(0.0, deadline - time.monotonic()))
