//! What the forward product makes of a processor: products of a laid out weight with few rows and many.
//!
//! For few rows the weights, together larger than a second-level cache, have to be read; for many, multiply-adds count.

use std::hint::black_box;
use std::time::Instant;

use candle_core::{Device, Result, Tensor};
use forebay::ops::{Activation, PreparedWeight, WeightRef, linear, with_threads};

/// `[outputs, inputs]` of each weight, as in a small language model.
const SHAPE: (usize, usize) = (1536, 576);
const WEIGHTS: usize = 24;
const ROWS: [usize; 16] = [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32, 64, 192, 512];

/// Prints microseconds of a product and GFLOP/s for each number of rows.
pub(super) fn print(threads: usize) -> anyhow::Result<()> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build()?;
    let values = |count: usize| -> Vec<f32> { (0..count).map(|i| (i % 97) as f32 * 1e-3).collect() };
    let (outputs, inputs) = SHAPE;
    let tensors = (0..WEIGHTS).map(|_| Tensor::from_vec(values(outputs * inputs), SHAPE, &Device::Cpu));
    let tensors = tensors.collect::<Result<Vec<_>>>()?;
    let prepared = tensors.iter().map(PreparedWeight::new).collect::<Result<Vec<_>>>()?;
    for rows in ROWS {
        let x = Tensor::from_vec(values(rows * inputs), (rows, inputs), &Device::Cpu)?;
        let best = with_threads(&pool, || -> Result<f64> {
            let mut best = f64::MAX;
            for _ in 0..(4000 / (rows + 8)).max(10) {
                let start = Instant::now();
                for (tensor, prepared) in tensors.iter().zip(&prepared) {
                    let weight = WeightRef { tensor, prepared: prepared.as_ref(), gradients: None };
                    black_box(linear(&x, weight, None, Activation::Identity)?);
                }
                best = best.min(start.elapsed().as_secs_f64() / WEIGHTS as f64);
            }
            Ok(best)
        })?;
        let operations = 2.0 * (rows * outputs * inputs) as f64;
        println!("{rows} rows: {:.1} µs, {:.1} GFLOP/s", 1e6 * best, operations / best / 1e9);
    }
    Ok(())
}
