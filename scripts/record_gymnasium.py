#!/usr/bin/env python3
"""Records what gymnasium's classic control does, and what the rules of Catch are, for the tests to compare with.

Run from the repository's root: python3 scripts/record_gymnasium.py
Needs `gymnasium` and `numpy`. Writes tests/data/gymnasium/*.json; the same versions write the same bytes.

Each file of classic control holds episodes: the first state and observation, then for every step the action and the
state, observation, reward, terminated and truncated that followed. Most episodes start by a seeded reset; some start
from a state set by hand, to reach a bound or an end at once.
"""

import json
import math
import pathlib
import random

import gymnasium
import numpy

FOLDER = pathlib.Path("tests/data/gymnasium")


def single(values):
    """Single-precision values, each as the shortest decimal that reads back as the same one."""
    return [float(str(numpy.float32(value))) for value in numpy.ravel(values)]


def double(values):
    return [float(value) for value in numpy.ravel(values)]


def record(environment, label, policy, steps, seed=None, state=None):
    """One episode of at most `steps` steps, from a reset by `seed` and then, if given, from `state`."""
    inner = environment.unwrapped
    observation, _ = environment.reset(seed=seed or 0)
    if state is not None:
        inner.state = numpy.array(state, dtype=numpy.float64)
        observation = observe(inner)
    episode = {
        "label": label,
        "initial_state": double(inner.state),
        "initial_observation": single(observation),
        "steps": [],
    }
    for index in range(steps):
        action = policy(index, double(inner.state))
        continuous = isinstance(environment.action_space, gymnasium.spaces.Box)
        given = numpy.array([action], dtype=numpy.float32) if continuous else int(action)
        observation, reward, terminated, truncated, _ = environment.step(given)
        episode["steps"].append(
            {
                "action": single(given)[0] if continuous else int(action),
                "state": double(inner.state),
                "observation": single(observation),
                "reward": float(reward),
                "terminated": bool(terminated),
                "truncated": bool(truncated),
            }
        )
        if terminated or truncated:
            break
    return episode


def observe(inner):
    """The observation of the current state; each class has its own way to it."""
    for method in ("_get_ob", "_get_obs"):
        if hasattr(inner, method):
            return getattr(inner, method)()
    return inner.state


def uniform_choice(count, seed):
    generator = random.Random(seed)
    return lambda index, state: generator.randrange(count)


def uniform_torque(limit, seed):
    generator = random.Random(seed)
    return lambda index, state: generator.uniform(-limit, limit)


def constant(action):
    return lambda index, state: action


def write(file, name, make_episodes):
    environment = gymnasium.make(name, disable_env_checker=True)
    trace = {
        "gymnasium": gymnasium.__version__,
        "time_limit": environment.spec.max_episode_steps,
        "episodes": make_episodes(environment),
    }
    write_json(file, trace, trace["episodes"])


def write_json(file, trace, episodes):
    """One episode a line, so that a difference between two recordings can be read."""
    head = {key: value for key, value in trace.items() if key != "episodes"}
    lines = ",\n".join(json.dumps(episode, separators=(",", ":")) for episode in episodes)
    text = json.dumps(head, separators=(",", ":"))[:-1] + ',"episodes":[\n' + lines + "\n]}\n"
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / file).write_text(text)
    steps = sum(len(episode["steps"]) for episode in episodes)
    print(f"{file}: {len(episodes)} episodes, {steps} steps, {len(text)} bytes")


def cart_pole(environment):
    def balance(index, state):
        position, velocity, angle, angular_velocity = state
        return int(angle + 0.3 * angular_velocity + 0.02 * position + 0.05 * velocity > 0)

    def drift(index, state):
        return int(state[2] + 0.3 * state[3] > 0.02)

    episodes = [
        record(environment, f"random {seed}", uniform_choice(2, seed), 100, seed=seed) for seed in range(4)
    ]
    episodes.append(record(environment, "balanced", balance, 150, seed=10))
    episodes.append(record(environment, "drifts off the track", drift, 200, seed=11, state=[1.5, 0.5, 0, 0]))
    # Just inside and just outside each limit: 2.4 metres, 0.2094395 radians.
    for side in (-1, 1):
        for position in (2.3997, 2.3999):
            state = [side * position, side * 0.01, 0.0, 0.0]
            episodes.append(record(environment, f"cart from {state[0]}", constant(0), 1, state=state))
        for angle in (0.2093, 0.20942):
            state = [0.0, 0.0, side * angle, side * 0.002]
            episodes.append(record(environment, f"pole from {state[2]}", constant(1), 1, state=state))
    return episodes


def acrobot(environment):
    def pump(index, state):
        return 2 if state[3] > 0 else 0

    episodes = [record(environment, f"pumped {seed}", pump, 150, seed=seed) for seed in (1, 2)]
    episodes.append(record(environment, "random", uniform_choice(3, 3), 60, seed=3))
    # Angles that wrap and velocities at their bounds.
    bounds = ([3.1, 0.1, 2.0, 0.5], [-3.1, 3.0, -12.0, 28.0], [0.3, -3.1, 12.5, -28.2], [0.1, 0.2, -12.5, 28.2])
    for state in bounds:
        for action in range(3):
            episodes.append(record(environment, f"from {state} by {action}", constant(action), 1, state=state))
    return episodes


def mountain_car(environment):
    def swing(index, state):
        return 2 if state[1] >= 0 else 0

    episodes = [record(environment, f"swung {seed}", swing, 200, seed=seed) for seed in (1, 2)]
    episodes.append(record(environment, "random to the limit", uniform_choice(3, 3), 200, seed=3))
    walls = ([-1.19, -0.05], [-1.2, 0.0])
    goal = ([0.4995, 0.0012], [0.45, 0.07], [0.499, -0.01])
    fastest = ([-0.5, 0.0699], [-0.5, -0.0699])
    for state in walls + goal + fastest:
        for action in range(3):
            episodes.append(record(environment, f"from {state} by {action}", constant(action), 2, state=state))
    return episodes


def pendulum(environment):
    def hold(index, state):
        angle = math.remainder(state[0], 2 * math.pi)
        return -8.0 * angle - 2.0 * state[1]

    episodes = [record(environment, "random to the limit", uniform_torque(2, 1), 200, seed=1)]
    episodes.append(record(environment, "held, torque beyond its limit", hold, 60, seed=2))
    # The fastest, beyond a whole turn either way, exactly down and exactly up.
    for state in ([3.1, 7.9], [-3.1, -7.9], [9.5, 1.0], [-10.0, -1.0], [math.pi, 0.0], [0.0, 0.0]):
        for action in (-3.0, -0.1, 1.7, 2.0):
            episodes.append(record(environment, f"from {state} by {action}", constant(action), 1, state=state))
    return episodes


def catch_episode(label, column, moves):
    """The rules, written down plainly: a ball falls from the top row, a paddle moves in the bottom row."""
    height, width = 10, 5
    ball_row, paddle = 0, width // 2

    def board():
        cells = [["0"] * width for _ in range(height)]
        cells[ball_row][column] = "1"
        cells[height - 1][paddle] = "1"
        return "".join("".join(row) for row in cells)

    episode = {"label": label, "width": width, "column": column, "initial_board": board(), "steps": []}
    for action in moves:
        paddle = min(max(paddle + action - 1, 0), width - 1)
        ball_row += 1
        terminated = ball_row == height - 1
        reward = (1 if paddle == column else -1) if terminated else 0
        episode["steps"].append(
            {"action": action, "board": board(), "reward": reward, "terminated": terminated}
        )
        if terminated:
            return episode
    raise AssertionError("the ball reaches the bottom row within nine moves")


def catch():
    generator = random.Random(1)
    episodes = []
    for column in range(5):
        for label, moves in (
            ("left", [0] * 9),
            ("right", [2] * 9),
            ("random", [generator.randrange(3) for _ in range(9)]),
            ("random again", [generator.randrange(3) for _ in range(9)]),
        ):
            episodes.append(catch_episode(f"column {column}, {label}", column, moves))
    write_json("catch.json", {"rules": "catch"}, episodes)


if __name__ == "__main__":
    write("cart_pole.json", "CartPole-v1", cart_pole)
    write("acrobot.json", "Acrobot-v1", acrobot)
    write("mountain_car.json", "MountainCar-v0", mountain_car)
    write("pendulum.json", "Pendulum-v1", pendulum)
    catch()
