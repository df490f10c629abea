"""Loops over time: differential equations, control, dynamic programs, fixed points."""

import math

import numpy as np
import torch
import torch.nn.functional as F

__all__ = [
    "cart_pole", "complex_phase", "dynamic_time_warping", "echo_state", "fourier_loss",
    "heat_equation", "inverse_kinematics", "iterative_inverse", "lotka_volterra",
    "optimal_transport", "pendulum_hamiltonian", "spectral_filter", "spring_chain",
    "stochastic_volatility", "unrolled_attention",
]


def drawn(seed, *shape):
    return torch.from_numpy(np.random.RandomState(seed).randn(*shape))


def lotka_volterra():
    theta = torch.tensor([1.0, 0.4, 0.3, 0.8], dtype=torch.float64, requires_grad=True)

    def f(y):
        a, b, c, d = theta
        return torch.stack([a * y[0] - b * y[0] * y[1], c * y[0] * y[1] - d * y[1]])

    y = torch.tensor([1.0, 0.5], dtype=torch.float64)
    h, trajectory = 0.1, []
    for _ in range(20):
        k1 = f(y)
        k2 = f(y + h / 2 * k1)
        k3 = f(y + h / 2 * k2)
        k4 = f(y + h * k3)
        y = y + h / 6 * (k1 + 2 * (k2 + k3) + k4)
        trajectory.append(y)
    trajectory = torch.stack(trajectory)
    loss = (trajectory - 1).abs().mean()
    loss.backward()
    return {"loss": loss, "grad": theta.grad, "end": trajectory[-1]}


def pendulum_hamiltonian():
    def hamiltonian(state):
        q, p = state[..., 0], state[..., 1]
        return 0.5 * p ** 2 + (1 - torch.cos(q))

    start = torch.tensor([1.0, 0.0], dtype=torch.float64, requires_grad=True)
    state = start
    J = torch.tensor([[0.0, 1.0], [-1.0, 0.0]], dtype=torch.float64)
    for _ in range(10):
        dH, = torch.autograd.grad(hamiltonian(state), state, create_graph=True)
        half = state + 0.05 * J @ dH
        dH2, = torch.autograd.grad(hamiltonian(half), half, create_graph=True)
        state = state + 0.1 * J @ dH2
    g, = torch.autograd.grad(state[0], start)
    return {"state": state, "energy": hamiltonian(state), "sensitivity": g}


def heat_equation():
    kappa = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    u = torch.exp(-10 * torch.linspace(-1, 1, 11, dtype=torch.float64) ** 2)
    for _ in range(15):
        padded = F.pad(u.view(1, 1, -1), (1, 1), mode="replicate").view(-1)
        u = u + kappa * (padded[2:] - 2 * u + padded[:-2])
    grid = torch.outer(u, u)
    laplace = (torch.roll(grid, 1, 0) + torch.roll(grid, -1, 0) + torch.roll(grid, 1, 1)
               + torch.roll(grid, shifts=(-1,), dims=(1,)) - 4 * grid)
    loss = u.max() + laplace.square().mean() + torch.trapezoid(u, dx=0.2)
    loss.backward()
    return {"u": u, "kappa": kappa.grad, "loss": loss,
            "diff": torch.diff(u, n=2).abs().sum(), "gradient": torch.gradient(u)[0]}


def spring_chain():
    n = 5
    k = torch.ones(n + 1, dtype=torch.float64, requires_grad=True)
    K = torch.diag(k[:-1] + k[1:]) - torch.diag(k[1:-1], 1) - torch.diag(k[1:-1], -1)
    f = torch.linspace(0, 1, n, dtype=torch.float64)
    x = torch.linalg.solve(K, f)
    compliance = f @ x
    compliance.backward()
    w = torch.linalg.eigvalsh(K.detach())
    b = torch.block_diag(K[:2, :2].detach(), torch.tensor([[7.0]]))
    return {"x": x, "grad": k.grad, "w": w, "det": torch.det(K), "b": b}


def cart_pole():
    gains = torch.tensor([0.5, 1.0, 20.0, 3.0], dtype=torch.float64, requires_grad=True)
    state = torch.tensor([0.0, 0.0, 0.1, 0.0], dtype=torch.float64)
    cost = 0
    for _ in range(15):
        _, v, a, w = state.unbind()
        force = torch.clamp(gains.dot(state), -10, 10)
        temp = (force + 0.05 * w ** 2 * torch.sin(a)) / 1.1
        acc = (9.8 * a.sin() - a.cos() * temp) / (0.5 * (4 / 3 - 0.1 * a.cos() ** 2 / 1.1))
        xacc = temp - 0.05 * acc * a.cos() / 1.1
        state = state + 0.02 * torch.stack((v, xacc, w, acc))
        cost += state.pow(2).sum() + 1e-3 * force ** 2
    cost.backward()
    return {"cost": cost, "gains": gains.grad, "state": state}


def inverse_kinematics():
    lengths = torch.tensor([1.0, 0.7, 0.4])
    angles = torch.full((3,), 0.3, requires_grad=True)
    goal = torch.tensor([0.5, 1.2])
    for _ in range(30):
        total = torch.cumsum(angles, dim=0)
        tip = torch.stack([(lengths * torch.cos(total)).sum(), (lengths * total.sin()).sum()])
        loss = torch.dist(tip, goal)
        if angles.grad is not None:
            angles.grad.zero_()
        loss.backward()
        angles.data -= 0.05 * angles.grad
    return {"angles": angles, "distance": loss, "wrapped": torch.remainder(angles, 2 * math.pi)}


def dynamic_time_warping():
    x, y = drawn(0, 5).requires_grad_(), drawn(1, 6)
    D = (x[:, None] - y[None, :]) ** 2
    gamma, inf = 0.5, torch.tensor(1e8, dtype=torch.float64)
    R = [[inf] * 7 for _ in range(6)]
    R[0][0] = torch.zeros((), dtype=torch.float64)
    for i in range(1, 6):
        for j in range(1, 7):
            soft = -gamma * torch.logsumexp(
                torch.stack([R[i - 1][j - 1], R[i - 1][j], R[i][j - 1]]) / -gamma, 0)
            R[i][j] = D[i - 1, j - 1] + soft
    R[-1][-1].backward()
    return {"value": R[-1][-1], "grad": x.grad}


def optimal_transport():
    x, y = drawn(2, 5, 2).requires_grad_(), drawn(3, 6, 2)
    C = torch.cdist(x, y) ** 2
    eps, n, m = 0.5, 5, 6
    mu = torch.full((n,), 1 / n, dtype=torch.float64).log()
    nu = torch.full((m,), 1 / m, dtype=torch.float64).log()
    f, g = torch.zeros_like(mu), torch.zeros_like(nu)
    for _ in range(20):
        f = eps * (mu - torch.logsumexp((g - C) / eps, dim=1))
        g = eps * (nu - torch.logsumexp((f[:, None] - C) / eps, dim=0))
    plan = torch.exp((f.unsqueeze(1) + g.unsqueeze(0) - C) / eps)
    cost = torch.sum(plan * C)
    cost.backward()
    return {"cost": cost, "grad": x.grad, "rows": plan.sum(1)}


def echo_state():
    W = drawn(4, 6, 6)
    W = W / torch.linalg.eigvals(W).abs().max() * 0.9
    u, y = torch.sin(torch.arange(20, dtype=torch.float64) / 3), drawn(5, 20)
    scale = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    h, states = torch.zeros(6, dtype=torch.float64), []
    for value in u:
        h = torch.tanh(W @ h + scale * value)
        states.append(h)
    X = torch.vstack(states)
    ridge = X.T @ X + 0.1 * torch.eye(6)
    w = torch.linalg.solve(ridge, X.T @ y)
    loss = (X @ w - y).var(unbiased=False)
    loss.backward()
    return {"loss": loss, "w": w, "scale": scale.grad}


def spectral_filter():
    signal = drawn(6, 16)
    response = torch.linspace(1, 0, 9, dtype=torch.float64).requires_grad_()
    filtered = torch.fft.irfft(torch.fft.rfft(signal) * response, n=16)
    power = torch.fft.fft(filtered).abs() ** 2
    loss = (filtered - signal).pow(2).sum() + power[8]
    loss.backward()
    image = torch.fft.fft2(drawn(7, 4, 4))
    return {"filtered": filtered, "grad": response.grad, "freq": torch.fft.rfftfreq(16),
            "shift": torch.fft.fftshift(image).real, "power": power[:4]}


def fourier_loss():
    x = drawn(8, 2, 6).requires_grad_()
    spectrum = torch.fft.fft(x, norm="ortho")
    magnitude, phase = spectrum.abs(), spectrum.angle()
    loss = magnitude.log1p().sum() + torch.cos(phase).mean()
    loss.backward()
    as_real = torch.view_as_real(spectrum.detach())
    back = torch.view_as_complex(as_real).real
    return {"loss": loss, "grad": x.grad, "real": as_real[0, 1], "back": back[1]}


def complex_phase():
    z = torch.tensor([1 + 2j, -0.5 + 0.3j, 2 - 1j], dtype=torch.complex128, requires_grad=True)
    target = torch.polar(torch.ones(3, dtype=torch.float64), torch.arange(3.0).double())
    for _ in range(3):
        loss = (z * z.conj()).real.sum() + (z - target).abs().pow(2).mean()
        g, = torch.autograd.grad(loss, z)
        with torch.no_grad():
            z -= 0.1 * g
    w = torch.exp(1j * z).imag.sum()
    h, = torch.autograd.grad(w, z)
    return {"z": torch.view_as_real(z.detach()), "loss": loss, "h": [h.real, h.imag]}


def iterative_inverse():
    A = (drawn(9, 3, 3) * 0.2 + torch.eye(3)).requires_grad_()
    X = A.detach().t() / (A.detach().norm(1) * A.detach().norm(float("inf")))
    for _ in range(8):
        X = X @ (2 * torch.eye(3, dtype=torch.float64) - A @ X)
    X.trace().backward()
    exact, = torch.autograd.grad(torch.inverse(A).trace(), A)
    P = torch.matrix_exp(A)
    g, = torch.autograd.grad(P.sum(), A)
    return {"X": X, "grad": A.grad, "exact": exact, "P": P, "g": g}


def stochastic_volatility():
    mu, phi, sigma = [torch.tensor(v, dtype=torch.float64, requires_grad=True)
                      for v in (-1.0, 0.9, 0.3)]
    noise, returns = drawn(10, 12), drawn(11, 12) * 0.5
    h = mu + sigma / torch.sqrt(1 - phi ** 2) * noise[0]
    nll = torch.tensor(0.0, dtype=torch.float64)
    for t in range(12):
        nll = nll + 0.5 * (h + returns[t].square() * torch.exp(-h))
        h = mu + phi * (h - mu) + sigma * noise[t]
    g = torch.autograd.grad(nll, [mu, phi, sigma], create_graph=True)
    H = [[x.item() for x in torch.autograd.grad(v, [mu, phi, sigma], retain_graph=True)]
         for v in g]
    return {"nll": nll, "g": g, "H": H}


def unrolled_attention():
    keys, query = drawn(12, 6, 3).requires_grad_(), drawn(13, 3).requires_grad_()
    position = torch.zeros(6, dtype=torch.float64)
    position[0] = 1.0
    reads = []
    for _ in range(4):
        content = F.softmax(F.cosine_similarity(keys, query[None], dim=1) * 3, dim=0)
        position = 0.5 * content + 0.5 * torch.roll(position, 1)
        sharp = position ** 2 / (position ** 2).sum()
        reads.append(sharp @ keys)
        query = torch.tanh(query + reads[-1])
    out = torch.cat(reads).norm()
    out.backward()
    return {"out": out, "keys": keys.grad, "position": position}
