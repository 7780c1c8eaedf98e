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

#[cfg(test)]
mod tests {
    use super::*;

    fn stretched(rope_scaling: Option<RopeScaling>, head_size: usize) -> (Vec<f64>, f64) {
        frequencies(&DecoderConfig { head_size, rope_scaling, ..DecoderConfig::default() })
    }

    fn close(found: &[f64], expected: &[f64]) {
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() <= 1e-14 * expected.abs(), "{found} and {expected}");
        }
    }

    #[test]
    fn plain_and_linear_frequencies_are_powers_of_the_base() {
        let (plain, factor) = stretched(None, 8);
        close(&plain, &[1.0, 0.1, 0.01, 0.001]);
        assert_eq!(factor, 1.0);
        let (linear, factor) = stretched(Some(RopeScaling::Linear { factor: 4.0 }), 8);
        close(&linear, &[0.25, 0.025, 0.0025, 0.00025]);
        assert_eq!(factor, 1.0);
    }

    #[test]
    fn llama3_keeps_short_wavelengths_blends_those_between_and_divides_long_ones() {
        // With a context of 64, wavelengths under 16 are kept and those over 64 divided; the second is 2 pi / 0.1 =
        // 62.8, of which (64 / 62.8 - 1) / 3 = 0.0062 is kept.
        let scaling = RopeScaling::Llama3 {
            factor: 8.0,
            low_frequency_factor: 1.0,
            high_frequency_factor: 4.0,
            original_context: 64,
        };
        let (frequencies, factor) = stretched(Some(scaling), 8);
        close(&frequencies, &[1.0, 0.013_042_256_043_820_465, 0.00125, 0.000_125]);
        assert_eq!(factor, 1.0);
    }

    #[test]
    fn yarn_blends_by_turns_and_raises_the_temperature() {
        // 16 ln(2048 / (2 pi 32)) / (2 ln 10000) = 2.02 rounds down to 2, with one turn 5.03 rounds up to 6: the
        // share that is divided climbs 0, 1/4, 1/2, 3/4, 1 from the third pair to the seventh.
        let scaling = |attention_factor| RopeScaling::Yarn {
            factor: 4.0,
            original_context: 2048,
            beta_fast: 32.0,
            beta_slow: 1.0,
            attention_factor,
        };
        let (frequencies, factor) = stretched(Some(scaling(None)), 16);
        let root = 10_f64.powf(-0.5);
        let expected = [
            1.0,
            root,
            0.1,
            0.1 * root * (0.75 + 0.25 / 4.0),
            0.01 * (0.5 + 0.5 / 4.0),
            0.01 * root * (0.25 + 0.75 / 4.0),
            0.001 / 4.0,
            0.001 * root / 4.0,
        ];
        close(&frequencies, &expected);
        assert!((factor - 1.138_629_436_111_989).abs() < 1e-15);
        assert_eq!(stretched(Some(scaling(Some(1.5))), 16).1, 1.5);
    }

    #[test]
    fn tables_hold_the_scaled_sine_and_cosine_of_every_position() {
        let scaling = RopeScaling::Yarn {
            factor: 1.0,
            original_context: 64,
            beta_fast: 32.0,
            beta_slow: 1.0,
            attention_factor: Some(2.0),
        };
        let config = DecoderConfig {
            rope_scaling: Some(scaling),
            head_size: 4,
            context: 5,
            ..DecoderConfig::default()
        };
        let (cosine, sine) = tables(&config, &Device::Cpu).unwrap();
        let (cosine, sine) = (cosine.to_vec2::<f32>().unwrap(), sine.to_vec2::<f32>().unwrap());
        assert_eq!((cosine.len(), cosine[0].len()), (5, 2));
        for (position, (cosine, sine)) in cosine.iter().zip(&sine).enumerate() {
            for (index, frequency) in [1.0, 0.01].into_iter().enumerate() {
                let angle = position as f64 * frequency;
                assert_eq!(cosine[index], (2.0 * angle.cos()) as f32);
                assert_eq!(sine[index], (2.0 * angle.sin()) as f32);
            }
        }
    }
}
