//! Counter-based randomness: a draw is a pure function of a key, so no scheduling, batching, thread count or
//! restart can change it.
//!
//! The generator is Philox4x32 with ten rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
//! SC 2011). [`draw`] maps (run seed, stream, four 32-bit counters) to four independent 32-bit words;
//! [`CounterRng`] walks one such sequence for code that wants a generator with a position, and its whole state is
//! two integers that can be saved.

use serde::{Deserialize, Serialize};

/// What a draw is for. Different streams of one run seed never share a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Stream {
    /// Initial network parameters; counters: parameter index, element block.
    Parameters = 1,
    /// The seed of an episode; counters: environment id, episode index.
    Episode = 2,
    /// Action sampling; counters: environment id, episode index, step, block.
    Action = 3,
    /// The seed of an evaluation episode; counters: episode index.
    Evaluation = 4,
    /// Minibatch order; counters: version, epoch.
    Minibatch = 5,
    /// A generator with a position of its own, see [`CounterRng`].
    Sequence = 6,
    /// A token; counters: epoch, prompt index, member and attempt, position.
    Token = 7,
    /// The content of a task's problem; counters: split, index, block.
    Problem = 8,
    /// The order in which a dataset's problems are drawn; counters: epoch, index.
    Shuffle = 9,
    /// The length and the grade of a simulated answer; counters: group (two words), member.
    Length = 10,
}

const MULTIPLIER: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// The Philox4x32-10 block function.
#[inline]
fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let a = u64::from(MULTIPLIER[0]) * u64::from(counter[0]);
        let b = u64::from(MULTIPLIER[1]) * u64::from(counter[2]);
        counter = [
            (b >> 32) as u32 ^ counter[1] ^ key[0],
            b as u32,
            (a >> 32) as u32 ^ counter[3] ^ key[1],
            a as u32,
        ];
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    counter
}

/// Mixes the run seed and the stream into a Philox key (the finaliser of SplitMix64, a bijection for each stream).
#[inline]
pub(crate) fn key(seed: u64, stream: Stream) -> [u32; 2] {
    let mut z = seed.wrapping_add((stream as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^= z >> 31;
    [z as u32, (z >> 32) as u32]
}

/// Four independent uniform 32-bit words for one key.
#[inline]
#[must_use]
pub fn draw(seed: u64, stream: Stream, counter: [u32; 4]) -> [u32; 4] {
    philox(counter, key(seed, stream))
}

/// A 64-bit value for one key, for deriving the seed of something that owns a generator.
#[must_use]
pub fn derive_seed(seed: u64, stream: Stream, counter: [u32; 4]) -> u64 {
    let words = draw(seed, stream, counter);
    u64::from(words[0]) | (u64::from(words[1]) << 32)
}

/// Maps a word to a uniform `f32` in [0, 1): 24 bits, every value exactly representable.
#[inline]
#[must_use]
pub fn unit_f32(word: u32) -> f32 {
    (word >> 8) as f32 * (1.0 / 16_777_216.0)
}

/// Two independent standard normal values from two words (Box–Muller; finite for every input).
#[inline]
#[must_use]
pub fn normal_pair(words: [u32; 2]) -> [f32; 2] {
    let radius = (-2.0 * (1.0 - f64::from(unit_f32(words[0]))).ln()).sqrt();
    let angle = std::f64::consts::TAU * f64::from(unit_f32(words[1]));
    [(radius * angle.cos()) as f32, (radius * angle.sin()) as f32]
}

/// A generator with a position: the `n`-th word depends on `(seed, n)` only, and the state is those two numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CounterRng {
    seed: u64,
    position: u64,
}

impl CounterRng {
    /// A generator at position 0.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { seed, position: 0 }
    }

    fn block(&self, index: u64) -> [u32; 4] {
        draw(self.seed, Stream::Sequence, [index as u32, (index >> 32) as u32, 0, 0])
    }

    /// The next uniform 32-bit word.
    pub fn next_u32(&mut self) -> u32 {
        let position = self.position;
        self.position += 1;
        self.block(position / 4)[(position % 4) as usize]
    }

    /// The next two words; they mostly stand in one block, which is then computed once.
    fn next_pair(&mut self) -> [u32; 2] {
        let lane = (self.position % 4) as usize;
        if lane == 3 {
            return [self.next_u32(), self.next_u32()];
        }
        let block = self.block(self.position / 4);
        self.position += 2;
        [block[lane], block[lane + 1]]
    }

    /// Uniform in [0, 1) with 53 random bits.
    pub fn uniform(&mut self) -> f64 {
        let [high, low] = self.next_pair().map(u64::from);
        (((high << 32) | low) >> 11) as f64 * (1.0 / 9_007_199_254_740_992.0)
    }

    /// Uniform in [low, high).
    pub fn uniform_in(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.uniform()
    }

    /// Uniform over `0..n` (bias below 2^-32 · n). `n` must be positive.
    pub fn below(&mut self, n: usize) -> usize {
        debug_assert!(n > 0, "below(0)");
        ((u64::from(self.next_u32()) * n as u64) >> 32) as usize
    }

    /// A standard normal value.
    pub fn normal(&mut self) -> f64 {
        f64::from(normal_pair(self.next_pair())[0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn philox_matches_the_published_known_answers() {
        assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(
            philox([u32::MAX; 4], [u32::MAX; 2]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        assert_eq!(
            philox([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn a_saved_generator_continues_where_it_stood() {
        let mut rng = CounterRng::new(7);
        for _ in 0..5 {
            rng.next_u32();
        }
        let mut copy: CounterRng = serde_json::from_str(&serde_json::to_string(&rng).unwrap()).unwrap();
        assert_eq!((rng.uniform(), rng.normal()), (copy.uniform(), copy.normal()));
    }

    #[test]
    fn a_pair_is_the_next_two_words_at_every_position() {
        for skipped in 0..8 {
            let mut single = CounterRng::new(9);
            for _ in 0..skipped {
                single.next_u32();
            }
            let mut paired = single.clone();
            assert_eq!(paired.next_pair(), [single.next_u32(), single.next_u32()]);
            assert_eq!(paired, single);
        }
    }

    #[test]
    fn uniform_and_normal_have_their_moments() {
        let mut rng = CounterRng::new(3);
        let n = 20_000;
        let (mut mean, mut square, mut uniform) = (0.0, 0.0, 0.0);
        for _ in 0..n {
            let z = rng.normal();
            mean += z / f64::from(n);
            square += z * z / f64::from(n);
            uniform += rng.uniform() / f64::from(n);
        }
        assert!(mean.abs() < 0.03 && (square - 1.0).abs() < 0.05 && (uniform - 0.5).abs() < 0.01);
    }

    #[test]
    fn streams_and_seeds_do_not_share_values() {
        let base = draw(1, Stream::Action, [0; 4]);
        assert_ne!(base, draw(1, Stream::Episode, [0; 4]));
        assert_ne!(base, draw(2, Stream::Action, [0; 4]));
        assert_ne!(base, draw(1, Stream::Action, [0, 0, 0, 1]));
    }
}
