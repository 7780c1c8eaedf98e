//! Plays recorded episodes of the reference again, with its random outcomes, and compares every frame.
//!
//! `tests/data/minatar/README.md` describes the files.

use super::asterix::Asterix;
use super::breakout::Breakout;
use super::freeway::Freeway;
use super::seaquest::Seaquest;
use super::space_invaders::SpaceInvaders;
use super::{Game, Move, Options, Rules};
use crate::env::Chance;

/// Deals recorded outcomes, and fails when the game asks for another kind of outcome than was recorded.
struct Recorded<'a> {
    outcomes: Reader<'a>,
}

impl Chance for Recorded<'_> {
    fn uniform(&mut self) -> f64 {
        (f64::from(self.outcomes.byte()) + 0.5) / 256.0
    }

    fn below(&mut self, n: usize) -> usize {
        assert_eq!(self.outcomes.byte() as usize, n, "the reference chose among another number of things");
        self.outcomes.byte() as usize
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> &'a [u8] {
        let (head, rest) = self.0.split_at(count);
        self.0 = rest;
        head
    }

    fn byte(&mut self) -> u8 {
        self.take(1)[0]
    }

    fn number(&mut self) -> usize {
        u32::from_le_bytes(self.take(4).try_into().unwrap()) as usize
    }
}

/// FNV-1a over the bits of all observations of an episode so far, eight cells a byte, the first cell highest.
struct Digest(u64);

impl Digest {
    fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn fold(&mut self, observation: &[f32]) {
        for cells in observation.chunks(8) {
            let mut byte = 0u8;
            for (place, &cell) in cells.iter().enumerate() {
                assert!(cell == 0.0 || cell == 1.0, "{cell} in an observation");
                byte |= u8::from(cell == 1.0) << (7 - place);
            }
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn tag(&self) -> u16 {
        (self.0 >> 48) as u16
    }
}

/// Replays a file and counts the frames for which `counts` holds, so that a test can say how deep it went.
fn replay<R: Rules>(file: &[u8], counts: impl Fn(&R) -> bool) -> usize {
    let mut file = Reader(file);
    assert_eq!(file.byte() as usize, R::CHANNELS);
    let minimal_moves = file.byte() as usize;
    let minimal_moves: Vec<u8> = file.take(minimal_moves).to_vec();
    assert_eq!(R::MINIMAL_MOVES.iter().map(|&player| player as u8).collect::<Vec<_>>(), minimal_moves);

    let mut counted = 0;
    let mut episode = 0;
    let mut observation = Vec::new();
    while !file.0.is_empty() {
        episode += 1;
        let options = Options {
            sticky_action_prob: f64::from(file.byte()) / 100.0,
            difficulty_ramping: file.byte() == 1,
            minimal_actions: false,
        };
        let (frames, outcomes) = (file.number(), file.number());
        let mut frames_left = Reader(file.take(3 * frames));
        let outcomes = Reader(file.take(outcomes));
        let mut game: Game<R, _> = Game::with_chance(&options, Recorded { outcomes });
        let mut digest = Digest::new();
        game.paint(&mut observation);
        digest.fold(&observation);
        for frame in 1..=frames {
            let played = frames_left.byte();
            let tag = u16::from_le_bytes(frames_left.take(2).try_into().unwrap());
            let step = game.advance(Move::ALL[usize::from(played & 7)]);
            observation.clear();
            game.paint(&mut observation);
            digest.fold(&observation);
            let place = format!("{}, episode {episode}, frame {frame}", R::NAME);
            assert_eq!(step.reward, f32::from(played >> 4), "reward of {place}");
            assert_eq!(step.terminated, played >> 3 & 1 == 1, "end of {place}");
            assert_eq!(step.terminated, frame == frames, "end of {place}");
            assert!(!step.truncated);
            assert_eq!(digest.tag(), tag, "observation of {place}");
            counted += usize::from(counts(game.rules()));
        }
        assert!(game.chance().outcomes.0.is_empty(), "outcomes are left of {}, episode {episode}", R::NAME);
        observation.clear();
    }
    counted
}

/// The recorded episodes of one game.
macro_rules! recorded {
    ($game:literal) => {
        include_bytes!(concat!("../../../tests/data/minatar/", $game, ".bin"))
    };
}

#[test]
fn asterix_plays_like_the_reference_up_to_its_greatest_difficulty() {
    let hardest = |rules: &Asterix| rules.intervals() == (1, 1);
    assert!(replay(recorded!("asterix"), hardest) > 1000);
    assert!(replay(recorded!("asterix"), Asterix::is_full) > 100, "no board without a free row was met");
}

#[test]
fn breakout_plays_like_the_reference_over_several_walls() {
    let cleared = |rules: &Breakout| rules.bricks_left() == 0;
    assert!(replay(recorded!("breakout"), cleared) > 10);
}

#[test]
fn freeway_plays_like_the_reference_to_the_last_frame() {
    assert_eq!(replay(recorded!("freeway"), |_: &Freeway| true), 8 * 2501);
}

#[test]
fn seaquest_plays_like_the_reference_up_to_its_greatest_difficulty() {
    let hardest = |rules: &Seaquest| rules.intervals() == (1, 2);
    assert!(replay(recorded!("seaquest"), hardest) > 1000);
    assert!(replay(recorded!("seaquest"), |rules: &Seaquest| rules.divers_on_board() < -1) > 500);
    assert!(replay(recorded!("seaquest"), Seaquest::is_out_of_oxygen) > 0);
}

#[test]
fn space_invaders_plays_like_the_reference_up_to_its_greatest_difficulty() {
    let hardest = |rules: &SpaceInvaders| rules.move_interval() == 6;
    assert!(replay(recorded!("space_invaders"), hardest) > 1000);
    assert!(replay(recorded!("space_invaders"), SpaceInvaders::has_landed) > 0);
}
