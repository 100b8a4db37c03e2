"""Weights that `auto` downloads: from a real server on this machine, once, and never again after that."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save

from fscil.encoders.resnet18 import ResNet18
from fscil.learner import Learner
from learner_helpers import Digits


@dataclass
class Server:
    """Serves one file under any path that ends in its name, as the hub does; remembers who asked for what."""

    name: str
    data: bytes
    asked: list[tuple[str, str]] = field(default_factory=list)
    url: str = ""


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    torch.manual_seed(0)
    state = {**ResNet18().state_dict(), "fc.weight": torch.zeros(1000, 512), "fc.bias": torch.zeros(1000)}
    served = Server("model.safetensors", save({name: tensor.contiguous() for name, tensor in state.items()}))

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.answer(with_data=False)

        def do_GET(self) -> None:
            self.answer(with_data=True)

        def answer(self, *, with_data: bool) -> None:
            served.asked.append((self.command, self.path))
            if not self.path.endswith(served.name):
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(served.data)))
            self.send_header("ETag", f'"{hashlib.sha256(served.data).hexdigest()}"')
            self.send_header("X-Repo-Commit", "0" * 40)
            self.end_headers()
            if with_data:
                self.wfile.write(served.data)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        served.url = f"http://127.0.0.1:{http.server_port}"
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        yield served
        http.shutdown()
        thread.join()


@pytest.mark.slow  # three starts of the command line
def test_a_mirror_of_the_hub_is_asked_once(server: Server, digits: Digits, tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub")
    photos = [str(path) for path in digits["digit 1"][:2]]
    environment = {**os.environ, "HF_HOME": str(tmp_path / "hub"), "TORCH_HOME": str(tmp_path / "torch")}
    environment.pop("HF_HUB_OFFLINE", None)

    def fscil(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "fscil", *words]
        return subprocess.run(
            command, env={**environment, **more}, capture_output=True, text=True, cwd=tmp_path, timeout=300
        )

    taught = fscil("teach", "model", *photos, "--name", "one", "--encoder", "auto", HF_ENDPOINT=server.url)
    assert taught.returncode == 0, taught.stderr
    path = "/timm/resnet18.tv_in1k/resolve/main/model.safetensors"
    assert [each for each in server.asked if each[0] == "GET" and each[1] == path] == [("GET", path)]
    again = fscil("teach", "other", *photos, "--name", "one", "--encoder", "auto", HF_HUB_OFFLINE="1")
    assert again.returncode == 0, again.stderr
    (tmp_path / "hub").rename(tmp_path / "gone")  # a saved model has its encoder
    nowhere = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HUB_OFFLINE": "1"}
    answered = fscil("predict", "model", photos[0], **nowhere)
    assert (answered.returncode, "one" in answered.stdout) == (0, True), answered.stderr


def test_published_weights_are_downloaded_once(server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    server.name = f"resnet18-{hashlib.sha256(server.data).hexdigest()[:8]}.safetensors"
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    monkeypatch.setattr(ResNet18, "imagenet", f"{server.url}/models/{server.name}")
    for name in ("HF_ENDPOINT", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    for _ in range(2):
        Learner("auto").teach("a", np.zeros((9, 9, 3), np.uint8))
    assert server.asked == [("GET", f"/models/{server.name}")]
    assert (tmp_path / "checkpoints" / server.name).read_bytes() == server.data
