//! Which problems are held out for evaluation.
//!
//! A hash of a problem's content decides its side, without the task's seed: what is held out in one run is held out
//! in every run, so a model trained under one seed may be evaluated under another.

use super::contract::Split;
use crate::random::{CounterRng, Stream, derive_seed};

/// One problem of so many is held out.
const HELD_OUT: u64 = 8;
/// With fewer problems than this, both splits have all of them: a side might have none.
const ENOUGH: f64 = 64.0;
/// How often a problem of the wrong side is drawn again. By then the wanted side holds next to nothing.
const ATTEMPTS: u32 = 4096;

/// A 64-bit hash that is the same on every machine and in every version: FNV-1a, mixed by the finaliser of SplitMix64
/// so that every bit depends on every byte.
pub(super) fn hash(content: &[u8]) -> u64 {
    let mut z = content.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// The side of the problem with this content.
pub(super) fn side(content: &[u8]) -> Split {
    if hash(content).is_multiple_of(HELD_OUT) { Split::Evaluation } else { Split::Train }
}

/// Whether a task with so many problems can keep some for evaluation.
pub(super) fn can_hold_out(problems: f64) -> bool {
    problems >= ENOUGH
}

/// The generator of the problem at `index`.
pub(super) fn generator(seed: u64, split: Split, index: u32) -> CounterRng {
    CounterRng::new(derive_seed(seed, Stream::Problem, [split as u32, index, 0, 0]))
}

/// Draws the problem at `index` of a task that has `problems` different ones: what `draw` gives, drawn again until it
/// lies on the side of `split`. `content` is what makes two problems the same.
pub(super) fn draw<T>(
    seed: u64,
    split: Split,
    index: u32,
    problems: f64,
    mut draw: impl FnMut(&mut CounterRng) -> T,
    content: impl Fn(&T) -> Vec<u8>,
) -> T {
    let mut random = generator(seed, split, index);
    let mut drawn = draw(&mut random);
    if can_hold_out(problems) {
        for _ in 0..ATTEMPTS {
            if side(&content(&drawn)) == split {
                break;
            }
            drawn = draw(&mut random);
        }
    }
    drawn
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn about_one_in_eight_is_held_out() {
        let held_out =
            (0..8000_u32).filter(|number| side(&number.to_le_bytes()) == Split::Evaluation).count();
        assert!((900..1100).contains(&held_out), "{held_out}");
    }

    #[test]
    fn a_problem_lies_on_its_side_unless_there_are_too_few() {
        let number = |problems: usize, split, index| {
            let draw_number = |random: &mut CounterRng| random.below(problems) as u32;
            draw(1, split, index, problems as f64, draw_number, |number| number.to_le_bytes().to_vec())
        };
        for split in [Split::Train, Split::Evaluation] {
            assert!((0..50).all(|index| side(&number(1000, split, index).to_le_bytes()) == split));
        }
        let sides =
            |split| (0..50).map(|index| number(2, split, index)).collect::<std::collections::BTreeSet<_>>();
        assert_eq!(sides(Split::Train), sides(Split::Evaluation));
    }
}
