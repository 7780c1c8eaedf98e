//! Pages wherever they lie: what is written comes back, copies are copies, and what is saved is laid out in one way.

use candle_core::{DType, Device, Tensor};

use super::super::forward::{Holder, Job, PagedRows};
use super::super::pages::{KvShape, PageId, PagePool};
use super::super::saved::SavedKv;
use super::*;
use crate::ops::KEY_TILE;
use crate::policy::Attend;

const SHAPE: KvShape = KvShape { layers: 2, heads: 4, kv_heads: 2, head_size: 6, scale: 0.4 };

/// A pool of each kind that there is in this build.
fn pools(count: usize) -> Vec<PagePool> {
    let host = PagePool::new(count, SHAPE, &Device::Cpu, DType::F32).unwrap();
    #[cfg(feature = "kernel-emulation")]
    return vec![host, PagePool::emulated(count, SHAPE).unwrap()];
    #[cfg(not(feature = "kernel-emulation"))]
    vec![host]
}

fn rows(seed: u64, count: usize, heads: usize) -> Tensor {
    let mut rng = CounterRng::new(seed);
    let values: Vec<f32> = (0..count * heads * SHAPE.head_size).map(|_| rng.normal() as f32).collect();
    Tensor::from_vec(values, (count, heads, SHAPE.head_size), &Device::Cpu).unwrap()
}

/// Positions from `first` on of one sequence in a pass of their own; gives what attention makes of them in the last
/// layer.
fn write(pool: &mut PagePool, pages: &[PageId], first: usize, count: usize, seed: u64) -> Vec<f32> {
    let job = Job { holder: Holder::Sequence(0), first, count, pages: pages.to_vec(), forced: false };
    pool.flush().unwrap();
    let mut attend = PagedRows::new(pool, std::slice::from_ref(&job)).unwrap();
    let mut found = Vec::new();
    for layer in 0..SHAPE.layers {
        let seed = 10 * seed + layer as u64;
        let [queries, keys, values] = [(0, SHAPE.heads), (100, SHAPE.kv_heads), (200, SHAPE.kv_heads)]
            .map(|(kind, heads)| rows(seed + kind, count, heads));
        let result = attend.attend(layer, &queries, &keys, &values).unwrap();
        found = result.flatten_all().unwrap().to_vec1().unwrap();
    }
    found
}

fn saved(pool: &mut PagePool, pages: &[PageId], positions: usize) -> SavedKv {
    SavedKv::copy(pool, pages, positions).unwrap()
}

#[test]
fn what_is_saved_is_the_same_bits_wherever_pages_lie_and_comes_back_in_other_pages() {
    for positions in [1_usize, 63, 64, 65, 130] {
        let mut all = Vec::new();
        for mut pool in pools(8) {
            let pages: Vec<PageId> =
                (0..positions.div_ceil(KEY_TILE)).map(|_| pool.allocate().unwrap()).collect();
            write(&mut pool, &pages, 0, positions, 1);
            let first = saved(&mut pool, &pages, positions);
            let others: Vec<PageId> = pages.iter().map(|_| pool.allocate().unwrap()).collect();
            first.restore(&mut pool, &others);
            assert_eq!(saved(&mut pool, &others, positions), first, "{positions} positions");
            all.push(first);
        }
        assert!(all.iter().all(|saved| saved == &all[0]), "{positions} positions");
        // And into pages of the other kind.
        for mut pool in pools(8) {
            let pages: Vec<PageId> =
                (0..positions.div_ceil(KEY_TILE)).map(|_| pool.allocate().unwrap()).collect();
            all[all.len() - 1].restore(&mut pool, &pages);
            assert_eq!(saved(&mut pool, &pages, positions), all[0], "{positions} positions");
        }
    }
}

#[test]
fn a_copy_is_written_without_its_original() {
    for mut pool in pools(4) {
        let page = pool.allocate().unwrap();
        write(&mut pool, &[page], 0, 30, 1);
        let before = saved(&mut pool, &[page], 30);
        let copy = pool.copy(page).unwrap();
        assert_eq!(saved(&mut pool, &[copy], 30), before);
        write(&mut pool, &[copy], 30, 10, 2);
        assert_eq!(saved(&mut pool, &[page], 30), before);
        assert_ne!(saved(&mut pool, &[copy], 40), before);
    }
}

#[test]
fn planning_may_give_a_page_away_before_its_copy_was_made() {
    for mut pool in pools(3) {
        let page = pool.allocate().unwrap();
        write(&mut pool, &[page], 0, 20, 1);
        let expected = saved(&mut pool, &[page], 20);
        // In one planning: a copy, then the original goes to somebody whose saved values are restored into it.
        let copy = pool.copy(page).unwrap();
        pool.release(page);
        let again = pool.allocate().unwrap();
        assert_eq!(again, page);
        let other = {
            let mut pool = pools(1).remove(0);
            let page = pool.allocate().unwrap();
            write(&mut pool, &[page], 0, 20, 9);
            saved(&mut pool, &[page], 20)
        };
        other.restore(&mut pool, &[again]);
        assert_eq!(saved(&mut pool, &[copy], 20), expected);
        assert_eq!(saved(&mut pool, &[again], 20), other);
    }
}

#[test]
fn pages_whose_memory_was_given_back_have_none_until_it_is_taken_again() {
    for mut pool in pools(3) {
        let page = pool.allocate().unwrap();
        write(&mut pool, &[page], 0, 20, 1);
        let kept = saved(&mut pool, &[page], 20);
        // Work that was noted for a page which is then given up is not done.
        kept.restore(&mut pool, &[page]);
        assert!(pool.bytes() > 0);
        pool.release(page);
        pool.give_back_memory();
        assert_eq!((pool.bytes(), pool.free()), (0, 3));
        pool.take_memory().unwrap();
        let again = pool.allocate().unwrap();
        kept.restore(&mut pool, &[again]);
        pool.flush().unwrap();
        assert_eq!(saved(&mut pool, &[again], 20), kept);
    }
}

#[test]
fn a_page_that_is_used_again_shows_nothing_of_what_it_held() {
    for mut pool in pools(1) {
        let page = pool.allocate().unwrap();
        write(&mut pool, &[page], 0, 64, 1);
        pool.release(page);
        let page = pool.allocate().unwrap();
        let again = write(&mut pool, &[page], 0, 5, 2);
        let kept = saved(&mut pool, &[page], 5);
        let mut fresh = pools(1).remove(0);
        let page = fresh.allocate().unwrap();
        let expected = write(&mut fresh, &[page], 0, 5, 2);
        let difference = again.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(difference < 1e-5, "{difference}");
        assert_eq!(kept, saved(&mut fresh, &[page], 5));
    }
}
