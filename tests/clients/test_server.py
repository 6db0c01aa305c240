import jax.numpy as jnp
import numpy as np

from evenly.clients.optimiser import Optimiser
from evenly.clients.server import AveragingServer, OptimisedServer


def test_the_mean_of_the_iterates_leaves_out_the_first_model():
    server, model = AveragingServer(), {"a": jnp.array([10.0])}
    state = server.init(model)
    assert server.serve(model, state)["a"] == 10, "before the first round there is only the first model"
    for change, last, mean in ((-4.0, 6.0, 6.0), (2.0, 8.0, 7.0), (-7.0, 1.0, 5.0)):
        model, state = server.update({"a": jnp.array([change])}, state, model)
        assert model["a"] == last, "training goes on from the last iterate"
        np.testing.assert_allclose(server.serve(model, state)["a"], mean, rtol=1e-6)


def test_an_inner_optimiser_moves_the_iterates():
    server, model = AveragingServer(inner=OptimisedServer(optimiser=Optimiser(learning_rate=0.5))), {"a": jnp.zeros(1)}
    state = server.init(model)
    for _ in range(2):
        model, state = server.update({"a": jnp.ones(1)}, state, model)
    np.testing.assert_allclose([model["a"][0], server.serve(model, state)["a"][0]], [1.0, 0.75])
