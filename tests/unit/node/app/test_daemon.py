"""What a node checks before it starts."""

import logging
from pathlib import Path

import pytest

from node.app.config import load_config
from node.app.daemon import CannotStart, run_node


@pytest.mark.parametrize(("secret", "short"), [("s", True), ("s" * 15, True), ("s" * 16, False)])
def test_a_short_secret_is_taken_and_warned_about(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, secret: str, short: bool
) -> None:
    """A node that listens on loopback needs a secret, of any length."""
    (tmp_path / "file").touch()
    config = load_config(
        {
            "ROTA_NODE": "a",
            "ROTA_MEMBERS": "a=127.0.0.1:7001:8101",
            "ROTA_DATA": str(tmp_path / "file"),
            "ROTA_SECRET": secret,
        }
    )
    with caplog.at_level(logging.WARNING, "rota"), pytest.raises(CannotStart, match="as ROTA_DATA"):
        run_node(config)
    assert ["openssl rand -hex 32" in said for said in caplog.messages] == [True] * short
