#!/usr/bin/env python3
"""Records whole episodes of the reference MinAtar for the replay tests.

    pip install MinAtar==1.0.15
    python scripts/record_minatar.py [GAME]...

Writes tests/data/minatar/GAME.bin, the same bytes on every run; README.md beside the files describes the format.
The reference's generator is replaced by a `Dealer`, which keeps every outcome that it deals. Uniform outcomes are
dealt as odd multiples of 1/512, so that one byte holds one and no outcome lies on a threshold of the rules.
Actions come from a planner that looks a few frames ahead in copies of the game, mixed with random ones: random
play alone would not last long enough to meet the later difficulties.
"""

import copy
import logging
import struct
import sys
from pathlib import Path

import numpy as np

logging.disable(logging.WARNING)  # The reference warns that it cannot draw windows here.
from minatar import Environment  # noqa: E402

OUT = Path(__file__).resolve().parent.parent / "tests" / "data" / "minatar"
STAY, LEFT, UP, RIGHT, DOWN, FIRE = range(6)
FNV_BASIS, FNV_PRIME, MASK = 0xCBF29CE484222325, 0x100000001B3, 0xFFFFFFFFFFFFFFFF


class Dealer:
    """Stands in for numpy's RandomState in the reference and keeps the outcomes in order."""

    def __init__(self, seed):
        self.source = np.random.RandomState(seed)
        self.outcomes = bytearray()

    def rand(self, *shape):
        bytes_ = self.source.randint(256, size=shape or 1)
        self.outcomes += bytes(bytes_.astype(np.uint8).ravel())
        values = (bytes_ + 0.5) / 256
        return values if shape else float(values[0])

    def randint(self, low, high=None, size=None):
        low, high = (0, low) if high is None else (low, high)
        picks = self.source.randint(high - low, size=size or 1)
        for pick in picks:
            self.outcomes += bytes([high - low, pick])
        return picks + low if size else int(picks[0]) + low


def fold(digest, state):
    """The FNV-1a hash of everything seen so far, continued with one observation's bits."""
    for byte in np.packbits(state.ravel()).tobytes():
        digest = (digest ^ byte) * FNV_PRIME & MASK
    return digest


def twin(game, rng):
    """A copy to try things in. Its chances are its own: the planner must not foresee the future."""
    trial = copy.copy(game)
    for name, value in vars(game).items():
        if isinstance(value, np.ndarray):
            setattr(trial, name, value.copy())
        elif isinstance(value, list) and name != "action_map":
            setattr(trial, name, [list(entry) if isinstance(entry, list) else entry for entry in value])
    trial.random = rng
    return trial


def ahead(game, action, depth, choices, rng):
    """Points won, less a penalty for an early end, when `action` and then random ones are played in a copy."""
    trial = twin(game, rng)
    total = 0
    for frame in range(depth):
        reward, over = trial.act(action)
        total += reward
        if over:
            return total - 100 * (depth - frame)
        action = choices[rng.randint(len(choices))]
    return total


def planned(game, preferred, rng, depth, trials, never=None, greedy=True):
    """The best action by trial, of equally good ones the first preferred. Unless greedy, only survival counts."""
    choices = [action for action in game.minimal_action_set() if action != never]
    order = preferred + [a for a in rng.permutation(choices) if a not in preferred]

    def value(action):
        still = [STAY]
        outcomes = [ahead(game, action, depth, still, rng)]
        outcomes += [ahead(game, action, depth, choices, rng) for _ in range(trials)]
        return max(outcomes) if greedy else min(0, max(outcomes))

    return int(max(order, key=value))


def towards(game_x, game_y, x, y):
    steps = []
    if y != game_y:
        steps.append(UP if y < game_y else DOWN)
    if x != game_x:
        steps.append(LEFT if x < game_x else RIGHT)
    return steps


def breakout(game, rng):
    if game.ball_dir < 2:
        return towards(game.pos, 0, 4, 0)[0] if game.pos != 4 else STAY
    # Where the ball will cross the row above the paddle, and its next column: both return it, to other bricks.
    column, step = game.ball_x, 1 if game.ball_dir == 2 else -1
    for _ in range(8 - game.ball_y):
        column, step = (column + step, step) if 0 <= column + step <= 9 else (column, -step)
    if rng.rand() < 0.5 and 0 <= column + step <= 9:
        column += step
    return (towards(game.pos, 0, column, 0) or [STAY])[0]


def asterix(game, rng):
    """Goes for treasure along cells from which the enemies now on the board can be evaded longest."""
    enemies = [list(e) for e in game.entities if e is not None and not e[3]]
    timer, deadly = game.move_timer, []
    for _ in range(12):
        cells = {(e[0], e[1]) for e in enemies}
        if timer == 0:
            timer = game.move_speed
            for e in enemies:
                e[0] += 1 if e[2] else -1
            cells |= {(e[0], e[1]) for e in enemies}
        timer -= 1
        deadly.append(cells)

    def after(x, y, action):
        x += (action == RIGHT) - (action == LEFT)
        y += (action == DOWN) - (action == UP)
        return min(9, max(0, x)), min(8, max(1, y))

    actions = [STAY, LEFT, UP, RIGHT, DOWN]
    board = [(x, y) for x in range(10) for y in range(1, 9)]
    life = dict.fromkeys(board, 0)
    for cells in reversed(deadly):
        life = {c: 0 if c in cells else 1 + max(life[after(*c, a)] for a in actions) for c in board}
    gold = [(e[0], e[1]) for e in game.entities if e is not None and e[3] and 1 < e[0] < 8]
    here = (game.player_x, game.player_y)
    gold.sort(key=lambda c: abs(c[0] - here[0]) + abs(c[1] - here[1]))
    goal = gold[0] if gold else (5, 5)

    def value(action):
        cell = after(*here, action)
        escapes = sum(life[after(*cell, a)] for a in actions)
        return life[cell], -abs(cell[0] - goal[0]) - abs(cell[1] - goal[1]), escapes, rng.rand()

    return max(actions, key=value)


def freeway(game, rng):
    if game.move_timer:
        return STAY
    return planned(game, [UP], rng, depth=3, trials=0) if rng.rand() < 0.9 else DOWN


def seaquest(game, rng):
    x, y = game.sub_x, game.sub_y
    foes = game.e_fish + game.e_subs
    if game.diver_count < 0 and game.move_speed + game.e_spawn_speed > 3:
        # Surfacing is free now, which is the quickest way to the hardest level.
        wish = [DOWN] if y == 0 else [UP]
    elif game.diver_count == 6 or (game.oxygen < 40 and game.diver_count):
        wish = [UP]
    elif any(e[1] == y and (e[0] > x) == bool(game.sub_or) for e in foes):
        wish = [FIRE]
    else:
        near = min(game.divers, key=lambda d: abs(d[0] - x) + abs(d[1] - y), default=[5, 4])
        wish = towards(x, y, near[0], near[1])
        wish = [a for a in wish if a != UP or y > 1] or [STAY]
    return planned(game, wish, rng, depth=7, trials=4)


def space_invaders(game, rng):
    columns = np.flatnonzero(game.alien_map.any(axis=0))
    if game.shot_timer == 0 and game.pos in columns:
        wish = [FIRE]
    else:
        wish = towards(game.pos, 0, int(min(columns, key=lambda c: abs(c - game.pos))), 0) or [STAY]
    return planned(game, wish, rng, depth=11, trials=6)


def sinking(game, rng):
    """Seaquest without ever surfacing: the oxygen ends."""
    return planned(game, [DOWN] if game.sub_y < 3 else [FIRE], rng, depth=7, trials=4, never=UP)


def pacifist(game, rng):
    """Space Invaders without a shot: the aliens come down."""
    return planned(game, [STAY], rng, depth=11, trials=6, never=FIRE)


def cornered(game, rng):
    """Space Invaders with the lower left aliens shot: the rest lands beside the cannon, which stands in the gap."""
    left = int(np.flatnonzero(game.alien_map.any(axis=0))[0])
    standing = [c for c in (left, left + 1) if game.alien_map[:, c].sum() > 1 and game.alien_map.sum() > 18]
    target = standing[0] if standing else 0
    shoots = standing and target == game.pos and game.shot_timer == 0 and not game.f_bullet_map.any()
    wish = [FIRE] if shoots else towards(game.pos, 0, target, 0) or [STAY]
    never = None if shoots else FIRE
    return planned(game, wish, rng, depth=11, trials=6, never=never, greedy=False)


# For each game: player, number of episodes, sticky action probability in percent, ramping, share of random actions in
# percent, frames after which all actions are random so that the episode ends.
EPISODES = {
    "asterix": [
        (asterix, 10, 10, True, 100, 0),
        (asterix, 10, 10, True, 1, 2000),
        (asterix, 5, 0, True, 0, 2500),
        (asterix, 2, 0, False, 0, 1000),
    ],
    "breakout": [
        (breakout, 10, 10, True, 100, 0),
        (breakout, 10, 10, True, 1, 3000),
        (breakout, 3, 0, True, 0, 3000),
        (breakout, 2, 25, False, 1, 3000),
    ],
    "freeway": [
        (freeway, 2, 10, True, 100, 0),
        (freeway, 5, 10, True, 5, 9999),
        (freeway, 1, 0, False, 0, 9999),
    ],
    "seaquest": [
        (seaquest, 8, 10, True, 100, 0),
        (seaquest, 8, 10, True, 2, 9999),
        (seaquest, 5, 0, True, 0, 9999),
        (seaquest, 2, 0, False, 2, 1000),
        (sinking, 3, 10, True, 0, 9999),
    ],
    "space_invaders": [
        (space_invaders, 8, 10, True, 100, 0),
        (space_invaders, 6, 10, True, 0, 9999),
        (space_invaders, 5, 0, True, 0, 4000),
        (space_invaders, 1, 0, False, 0, 1000),
        (pacifist, 1, 0, True, 0, 9999),
        (cornered, 1, 0, True, 0, 9999),
        (cornered, 3, 10, True, 0, 9999),
    ],
}


def record(name, player, seed, sticky_percent, ramping, random_percent, horizon):
    """One whole episode as bytes."""
    env = Environment(name, sticky_percent / 100, ramping)
    dealer = Dealer(seed)
    env.random = env.env.random = dealer
    rng = np.random.RandomState(seed + 1_000_000)
    env.reset()
    digest = fold(FNV_BASIS, env.state())
    frames = bytearray()
    count, over = 0, False
    while not over:
        if count >= horizon or rng.randint(100) < random_percent:
            action = int(rng.randint(6))
        else:
            action = player(env.env, rng)
        reward, over = env.act(action)
        over = bool(over)
        assert 0 <= reward < 16
        digest = fold(digest, env.state())
        frames += struct.pack("<BH", action | over << 3 | int(reward) << 4, digest >> 48)
        count += 1
    ramp = env.env.difficulty_ramp()
    print(f"  seed {seed}: {count} frames, ramp {ramp}", flush=True)
    header = struct.pack("<BBII", sticky_percent, ramping, count, len(dealer.outcomes))
    return header + bytes(frames) + bytes(dealer.outcomes)


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[1:] or EPISODES:
        print(name)
        game = Environment(name)
        moves = game.minimal_action_set()
        data = bytes([game.n_channels, len(moves), *moves])
        seed = 1
        for player, episodes, *settings in EPISODES[name]:
            for _ in range(episodes):
                data += record(name, player, seed, *settings)
                seed += 1
        (OUT / f"{name}.bin").write_bytes(data)
        print(f"  {len(data)} bytes")


if __name__ == "__main__":
    main()
