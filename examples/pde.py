# SPDX-License-Identifier: Apache-2.0
"""Learn how well a material conducts heat, through a solver that runs on all ranks.

    python examples/pde.py                                # alone
    torchrun --nproc-per-node 4 examples/pde.py           # or mpirun -np 4 python ...
    torchrun --nproc-per-node 4 examples/pde.py --plot conductivity.svg

The heat equation, u_t = div(k grad u), on a square whose opposite edges touch.
The square is cut into blocks, one for each rank. A time step needs the edges of
the neighbours' blocks, which a halo exchange brings; its gradient takes the way
back. Known is how some distributions of heat look a little later; wanted is k,
of which every rank learns its own block. docs/guide/mpi-pde.md explains it.
"""

import argparse
import math

import torch
from weft import mpi

POINTS = 48  # along each edge of the square; a multiple of 1, 2, 3, 4, 6 and 8
STEPS = 20  # of the solver
RATIO = 0.1  # time step over squared distance of points; below 0.25 / k it is stable


class Square:
    """This rank's block of the square."""

    def __init__(self, comm):
        rows = max(n for n in range(1, math.isqrt(comm.size) + 1) if comm.size % n == 0)
        self.cart = comm.Create_cart((comm.size // rows, rows), periods=True)
        if any(POINTS % n for n in self.cart.dims):
            raise SystemExit(f"{POINTS} points cannot be dealt to {self.cart.dims} ranks")
        self.shape = [POINTS // n for n in self.cart.dims]
        at = [
            (torch.arange(n, dtype=torch.float64) + n * c) / POINTS
            for n, c in zip(self.shape, self.cart.coords, strict=True)
        ]
        self.x, self.y = torch.meshgrid(*at, indexing="ij")

    def faces(self, k):
        """Conductivity between neighbouring points, along both axes."""
        k = self.cart.halo_exchange(k)
        along_x = (k[1:, 1:-1] + k[:-1, 1:-1]) / 2
        along_y = (k[1:-1, 1:] + k[1:-1, :-1]) / 2
        return along_x, along_y

    def later(self, u, k):
        """The distributions of heat `u`, one after the other in axis 0, after all steps."""
        along_x, along_y = self.faces(k)
        for _ in range(STEPS):
            near = self.cart.halo_exchange(u)
            flow_x = along_x * near[:, :, 1:-1].diff(dim=1)
            flow_y = along_y * near[:, 1:-1, :].diff(dim=2)
            u = u + RATIO * (flow_x.diff(dim=1) + flow_y.diff(dim=2))
        return u

    def whole(self, block):
        """The blocks of all ranks put together, on rank 0."""
        blocks = self.cart.comm.Gather(block.detach()[None], axis=0, root=0)
        if self.cart.comm.rank != 0:
            return None
        rows = blocks.view(*self.cart.dims, *self.shape)
        return rows.permute(0, 2, 1, 3).reshape(POINTS, POINTS)


def true_conductivity(x, y):
    """Better on one side than on the other, with a ring that conducts little; never below 0."""
    distance = torch.sqrt((x - 0.5) ** 2 + (y - 0.5) ** 2)
    ring = torch.exp(-(((distance - 0.25) / 0.06) ** 2))
    return (1.0 + 0.6 * torch.sin(2 * math.pi * x)) * (1.0 - 0.7 * ring)


def heat(x, y):
    """Waves in several directions: each point has to let heat through in some of them."""
    waves = [(3, 0), (0, 3), (4, 4), (4, -4), (6, 1), (1, 6)]
    phases = [2 * math.pi * (a * x + b * y) for a, b in waves]
    return torch.stack([f(p) for p in phases for f in (torch.sin, torch.cos)])


def learn(square, iterations):
    """The conductivity of this rank's block, and the loss of each iteration."""
    comm = square.cart.comm
    true = true_conductivity(square.x, square.y)
    start = heat(square.x, square.y)
    with torch.no_grad():
        seen = square.later(start, true)
    k = torch.ones_like(true).requires_grad_()
    optimiser = torch.optim.Adam([k], lr=0.05)
    losses = []
    for i in range(iterations):
        optimiser.zero_grad()
        # What is differentiated is the sum over all ranks.
        loss = (square.later(start, k) - seen).square().sum() / (len(start) * POINTS**2)
        mpi.backward(loss)
        optimiser.step()
        with torch.no_grad():
            losses.append(float(comm.Allreduce(loss)))
        if comm.rank == 0 and (i % 25 == 0 or i == iterations - 1):
            print(f"iteration {i:3d}: loss {losses[-1]:.6e}", flush=True)
    return k, true, losses


def plot(file, square, true, found, losses):
    """Both fields, with the borders of the blocks, and the way of the loss."""
    try:
        import matplotlib
    except ImportError:
        print("no plot: matplotlib is not installed")
        return
    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(11, 3.4), layout="constrained")
    for ax, field, title in zip(axes, (true, found), ("true k", "learned k"), strict=False):
        image = ax.imshow(field.T, origin="lower", vmin=0.0, vmax=1.7, cmap="viridis")
        for n, line in zip(square.cart.dims, (ax.axvline, ax.axhline), strict=True):
            for border in range(1, n):
                line(border * POINTS / n - 0.5, color="white", linewidth=0.8)
        ax.set(title=title, xticks=[], yticks=[])
    figure.colorbar(image, ax=axes[:2].tolist(), shrink=0.8)
    axes[2].semilogy(losses)
    axes[2].set(title="loss", xlabel="iteration")
    axes[2].grid(alpha=0.3)
    figure.savefig(file)
    print(f"wrote {file}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument("--plot", metavar="FILE")
    args = parser.parse_args()
    torch.set_num_threads(1)
    square = Square(mpi.COMM_WORLD)
    k, true, losses = learn(square, args.iterations)
    found, true = square.whole(k), square.whole(true)
    if found is not None:
        error = float((found - true).norm() / (true - 1).norm())
        print(f"{square.cart.dims} ranks: of what was unknown of k, {error:.1%} remain")
        if args.plot:
            plot(args.plot, square, true, found, losses)


if __name__ == "__main__":
    main()
