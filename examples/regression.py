# SPDX-License-Identifier: Apache-2.0
"""Linear regression over ranks, with two communications in the loss function.

    python examples/regression.py                        # alone
    torchrun --nproc-per-node 2 examples/regression.py   # or mpirun -np 2 python ...

Every rank has its own share of the points. The parameters are averaged at the
beginning of the loss function and the losses are added at its end, so that any
optimiser, here LBFGS, sees one function on all ranks.
"""

import torch
from weft import mpi

comm = mpi.COMM_WORLD
TRUE = torch.tensor([0.1, 1.0, -2.0], dtype=torch.float64)


def polynomial(x, params):
    return params[2] * x**2 + params[1] * x + params[0]


def main():
    source = torch.Generator().manual_seed(comm.rank)
    x = 2.0 * torch.rand(1000, dtype=torch.float64, generator=source)
    y = polynomial(x, TRUE)
    params = torch.arange(3, dtype=torch.float64).requires_grad_()
    optimiser = torch.optim.LBFGS([params], lr=1.0)

    def loss_function():
        # The average brings all ranks on the same page.
        together = comm.Allreduce(params, mpi.AVG)
        local = torch.sum(torch.square(y - polynomial(x, together)))
        return comm.Allreduce(local, mpi.SUM) / (comm.size * x.numel())

    def closure():
        optimiser.zero_grad()
        loss = loss_function()
        mpi.backward(loss)
        return loss

    for _ in range(10):
        loss = optimiser.step(closure)
    if comm.rank == 0:
        print(f"loss {loss.item():.3e}, parameters {params.detach().tolist()}")
    assert torch.allclose(params.detach(), TRUE, atol=1e-4), params


if __name__ == "__main__":
    main()
