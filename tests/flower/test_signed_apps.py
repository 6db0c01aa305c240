"""A SuperNode with trusted signers runs a signed app and refuses one that is not: on a real
SuperLink, whose hub of apps is a small server in this process.
"""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519

from evenly.flower.app import write_synthetic_app
from evenly.flower.clients.egress import read_egress
from evenly.flower.deploy.loopback import Loopback, read_app
from tests.flower.loopback import finished
from tests.flower.signing import Hub, bundle, serving, signed, trust

pytestmark = pytest.mark.slow


def test_an_unsigned_app_is_refused_and_a_signed_one_runs(tmp_path: Path):
    folder = tmp_path / "ward"
    write_synthetic_app(folder, method="fedavg", rounds=1)
    app, key = read_app(folder), ed25519.Ed25519PrivateKey.generate()
    trusted = trust(key, tmp_path / "trusted.yaml")
    Hub.fab, forger = bundle(folder), ed25519.Ed25519PrivateKey.generate()
    told = {"clients": 1, "least": 1, "timeout": 120.0, "folder": str(tmp_path / "results")}
    name, config = next(iter(app.nodes.items()))
    with (
        serving() as hub,
        Loopback(tmp_path / "here", env={"FLWR_SUPERGRID_API_URL": hub}) as loopback,
    ):
        node = loopback.start_node(name, loopback.register(name), config, trusted=trusted)
        loopback.wait_connected(name)
        log = Path(config["policy"]).with_name("egress.jsonl")

        for number, given in enumerate(([], [signed(Hub.fab, forger)])):
            Hub.verifications = given
            run = loopback.run(Path("@local/ward"), told, name=f"refused-{number}")
            ((status, details),) = finished(loopback, run)
            assert status == "finished:failed"
            assert "The FAB could not be verified" in details + run.text()
        plain = loopback.run(folder, told, name="plain")
        assert finished(loopback, plain)[0][0] == "finished:failed"
        assert "could not be verified" in node.text()
        assert not log.exists()  # the app was never started

        Hub.verifications = [signed(Hub.fab, key)]
        run = loopback.run(Path("@local/ward"), told, name="signed")
        assert finished(loopback, run)[0][0] == "finished:completed", run.text()
        assert {one.kind for one in read_egress(log)} >= {"census", "train", "evaluate"}
