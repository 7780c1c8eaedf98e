//! Rotary tables: the cosine and sine of every position and frequency.

use candle_core::{Device, Result, Tensor};

use super::config::{DecoderConfig, RopeScaling};

/// Cosine and sine tables, `[context, head_size / 2]` each.
pub(super) fn tables(config: &DecoderConfig, device: &Device) -> Result<(Tensor, Tensor)> {
    let half = config.head_size / 2;
    let (frequencies, factor) = frequencies(config);
    let angles = |position: usize| frequencies.iter().map(move |frequency| position as f64 * frequency);
    let table = |function: fn(f64) -> f64| {
        let values = (0..config.context).flat_map(angles).map(|angle| (factor * function(angle)) as f32);
        Tensor::from_vec(values.collect::<Vec<f32>>(), (config.context, half), device)
    };
    Ok((table(f64::cos)?, table(f64::sin)?))
}

/// Frequency of each pair of coordinates (radians a position), and the factor on sines and cosines.
fn frequencies(config: &DecoderConfig) -> (Vec<f64>, f64) {
    let (half, theta) = (config.head_size / 2, config.rope_theta);
    let plain: Vec<f64> = (0..half).map(|i| theta.powf(-2.0 * i as f64 / config.head_size as f64)).collect();
    match &config.rope_scaling {
        None => (plain, 1.0),
        Some(RopeScaling::Linear { factor }) => (plain.iter().map(|f| f / factor).collect(), 1.0),
        Some(RopeScaling::Llama3 {
            factor,
            low_frequency_factor,
            high_frequency_factor,
            original_context,
        }) => {
            let stretch = |frequency: &f64| {
                let turns = *original_context as f64 * frequency / std::f64::consts::TAU;
                let kept = ((turns - low_frequency_factor) / (high_frequency_factor - low_frequency_factor))
                    .clamp(0.0, 1.0);
                kept * frequency + (1.0 - kept) * frequency / factor
            };
            (plain.iter().map(stretch).collect(), 1.0)
        }
        Some(RopeScaling::Yarn { factor, original_context, beta_fast, beta_slow, attention_factor }) => {
            // Index of the pair of coordinates that turns `turns` times within the pretrained context.
            let index = |turns: f64| {
                let ratio = *original_context as f64 / (turns * std::f64::consts::TAU);
                config.head_size as f64 * ratio.ln() / (2.0 * theta.ln())
            };
            let low = index(*beta_fast).floor().max(0.0);
            let high = index(*beta_slow).ceil().min(config.head_size as f64 - 1.0);
            let width = if high > low { high - low } else { 0.001 };
            let stretch = |(i, frequency): (usize, &f64)| {
                let divided = ((i as f64 - low) / width).clamp(0.0, 1.0);
                (1.0 - divided) * frequency + divided * frequency / factor
            };
            let temperature = attention_factor.unwrap_or_else(|| 0.1 * factor.ln() + 1.0);
            (plain.iter().enumerate().map(stretch).collect(), temperature)
        }
    }
}
