use candle_core::{Device, Error};

use super::super::fixtures::{VOCABULARY, decoder, groups, numbers, packs, parameters, variants};
use super::super::{DecoderInput, Packing};
use super::*;
use crate::ops::with_threads;

const TEMPERATURE: f64 = 0.9;

fn pass(decoder: &Decoder, checkpointing: Checkpointing) -> TrainingPass<'_> {
    TrainingPass { decoder, temperature: TEMPERATURE, checkpointing }
}

/// Derivatives that tell tokens apart wherever they are packed.
fn weights(pack: &Pack, values: bool) -> ScoreGradients {
    let weigh = |scale: f32| -> Vec<f32> {
        let place = |p: &super::super::Place| (p.group * 7 + p.member * 3 + p.token) as f32;
        pack.places.iter().map(|p| scale * (1.0 + place(p)).sin()).collect()
    };
    let values = if values { weigh(0.7) } else { Vec::new() };
    ScoreGradients { log_probs: weigh(1.0), entropies: weigh(0.3), values }
}

/// Gradient of every variable over some packs.
fn gradients(
    decoder: &Decoder,
    parameters: &Parameters,
    packs: &[Pack],
    how: Checkpointing,
) -> Vec<Vec<f32>> {
    let sums = Gradients::new(parameters).unwrap();
    let values = decoder.config().value_head;
    for pack in packs {
        let weigh = |_: &Scores| Ok::<_, Error>(weights(pack, values));
        pass(decoder, how).accumulate(parameters, pack, &sums, weigh).unwrap();
    }
    sums.tensors().unwrap().iter().map(numbers).collect()
}

/// The weighted sum of the scores as one graph of candle's, from end to end.
fn loss(decoder: &Decoder, parameters: &Parameters, pack: &Pack) -> Tensor {
    let scale = decoder.config().attention_scale();
    let mut attention = PackedAttention { sequences: &pack.sequences, scale };
    let input = DecoderInput { tokens: &pack.tokens, positions: &pack.positions, experts: pack.forced() };
    let states = decoder.hidden(parameters, input, &mut attention).unwrap().states;
    let rows = Tensor::new(&pack.rows[..], &Device::Cpu).unwrap();
    let states = states.index_select(&rows, 0).unwrap();
    let both = decoder.log_probs(parameters, &states, &pack.targets, TEMPERATURE).unwrap();
    let values = decoder.values(parameters, &states).unwrap();
    let weights = weights(pack, values.is_some());
    let sum = |scores: &Tensor, weights: &[f32]| {
        let weights = Tensor::new(weights, &Device::Cpu).unwrap().to_dtype(scores.dtype()).unwrap();
        (scores * weights).unwrap().sum_all().unwrap()
    };
    let column = |index| both.narrow(1, index, 1).unwrap().squeeze(1).unwrap();
    let loss = (sum(&column(0), &weights.log_probs) + sum(&column(1), &weights.entropies)).unwrap();
    match values {
        Some(values) => (loss + sum(&values, &weights.values)).unwrap(),
        None => loss,
    }
}

fn close(a: &[Vec<f32>], b: &[Vec<f32>], tolerance: f32) {
    assert_eq!(a.len(), b.len());
    for (a, b) in a.iter().zip(b) {
        let scale = b.iter().fold(1e-3_f32, |most, value| most.max(value.abs()));
        assert_eq!(a.len(), b.len());
        for (a, b) in a.iter().zip(b) {
            assert!((a - b).abs() <= tolerance * scale, "{a} and {b}");
        }
    }
}

#[test]
fn every_parameter_of_every_variant_gets_the_gradient_of_the_whole_graph() {
    for (name, config) in variants() {
        let decoder = Decoder::new(config, &Device::Cpu).unwrap();
        let parameters = parameters(&decoder);
        let packs = packs(1000);
        let own = gradients(&decoder, &parameters, &packs, Checkpointing::None);
        let found = loss(&decoder, &parameters, &packs[0]).backward().unwrap();
        let whole: Vec<Vec<f32>> = parameters
            .iter()
            .map(|(parameter, tensor)| match found.get(tensor) {
                Some(gradient) => numbers(gradient),
                None => panic!("{name}: {parameter} has no gradient"),
            })
            .collect();
        for ((parameter, _), gradient) in parameters.iter().zip(&own) {
            assert!(gradient.iter().any(|&value| value != 0.0), "{name}: {parameter} has a gradient of zero");
            assert!(gradient.iter().all(|value| value.is_finite()), "{name}: {parameter}");
        }
        close(&own, &whole, 1e-5);
    }
}

#[test]
fn checkpointing_and_threads_change_no_bit_of_a_gradient() {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
    let packs = packs(30);
    assert!(packs.len() > 1);
    for name in ["everything", "dense"] {
        let decoder = decoder(name);
        let parameters = parameters(&decoder);
        let every = Checkpointing::Every(NonZeroUsize::new(2).unwrap());
        let kept = gradients(&decoder, &parameters, &packs, Checkpointing::None);
        for how in [Checkpointing::None, Checkpointing::PerLayer, every] {
            assert_eq!(gradients(&decoder, &parameters, &packs, how), kept, "{name} {how:?}");
            let shared = with_threads(&pool, || gradients(&decoder, &parameters, &packs, how));
            assert_eq!(shared, kept, "{name} {how:?} on two threads");
        }
    }
}

#[test]
fn micro_batches_add_up_to_the_whole_batch() {
    let decoder = decoder("everything");
    let parameters = parameters(&decoder);
    let whole = gradients(&decoder, &parameters, &packs(1000), Checkpointing::PerLayer);
    for rows in [1, 25, 40] {
        close(&gradients(&decoder, &parameters, &packs(rows), Checkpointing::PerLayer), &whole, 1e-5);
    }
}

#[test]
fn a_new_sum_begins_at_zero() {
    let decoder = decoder("dense");
    let parameters = parameters(&decoder);
    let sums = Gradients::new(&parameters).unwrap();
    let pack = &packs(1000)[0];
    let round = || {
        let weigh = |_: &Scores| Ok::<_, Error>(weights(pack, false));
        pass(&decoder, Checkpointing::None).accumulate(&parameters, pack, &sums, weigh).unwrap();
        let numbers: Vec<Vec<f32>> = sums.tensors().unwrap().iter().map(numbers).collect();
        sums.clear();
        numbers
    };
    assert_eq!(round(), round());
    assert!(sums.tensors().unwrap().iter().all(|sum| numbers(sum).iter().all(|&value| value == 0.0)));
}

#[test]
fn gradients_match_finite_differences() {
    let decoder = decoder("everything").to_dtype(DType::F64).unwrap();
    let (variables, parameters) = parameters(&decoder).to_dtype(DType::F64).unwrap().to_variables().unwrap();
    // Forced experts: a small step must not change the router's choice.
    let mut pack = packs(1000).remove(0);
    pack.experts = (0..pack.len() * decoder.experts_per_row())
        .map(|index| [(index / 2 % 3) as u16, ((index / 2 + 1) % 3) as u16][index % 2])
        .collect();
    let sums = Gradients::new(&parameters).unwrap();
    let weigh = |_: &Scores| Ok::<_, Error>(weights(&pack, true));
    pass(&decoder, Checkpointing::PerLayer).accumulate(&parameters, &pack, &sums, weigh).unwrap();
    for ((name, variable), gradient) in variables.iter().zip(sums.tensors().unwrap()) {
        let gradient: Vec<f64> = gradient.flatten_all().unwrap().to_vec1().unwrap();
        let values: Vec<f64> = variable.flatten_all().unwrap().to_vec1().unwrap();
        // A few entries of each, spread over all of it.
        for index in (0..values.len()).step_by(values.len().div_ceil(3)) {
            let step = 1e-5;
            let at = |shift: f64| -> f64 {
                let mut moved = values.clone();
                moved[index] += shift;
                let moved = Tensor::from_vec(moved, variable.shape(), &Device::Cpu).unwrap();
                variable.set(&moved).unwrap();
                loss(&decoder, &parameters, &pack).to_scalar().unwrap()
            };
            let numeric = (at(step) - at(-step)) / (2.0 * step);
            at(0.0);
            let found = gradient[index];
            assert!(
                (found - numeric).abs() <= 1e-6 * numeric.abs().max(1.0),
                "{name}: {found} and {numeric}"
            );
        }
    }
}

#[test]
fn a_token_scores_the_same_bits_in_any_pack_and_in_both_passes() {
    for name in ["everything", "dense"] {
        let decoder = decoder(name);
        let parameters = parameters(&decoder);
        let pass = pass(&decoder, Checkpointing::PerLayer);
        let sums = Gradients::new(&parameters).unwrap();
        let mut all: Vec<Vec<(super::super::Place, Scores)>> = Vec::new();
        for rows in [1000, 30, 1] {
            let mut tokens = Vec::new();
            for pack in packs(rows) {
                let scores = pass.evaluate(&parameters, &pack).unwrap();
                let nothing = |_: &Scores| Ok::<_, Error>(ScoreGradients::default());
                assert_eq!(pass.accumulate(&parameters, &pack, &sums, nothing).unwrap(), scores);
                for (index, &place) in pack.places.iter().enumerate() {
                    let values = scores.values.get(index).copied().into_iter().collect();
                    let (log_probs, entropies) =
                        (vec![scores.log_probs[index]], vec![scores.entropies[index]]);
                    tokens.push((place, Scores { log_probs, entropies, values }));
                }
            }
            tokens.sort_by_key(|(place, _)| *place);
            all.push(tokens);
        }
        assert_eq!(all[0], all[1]);
        assert_eq!(all[0], all[2]);
        assert!(sums.tensors().unwrap().iter().all(|sum| numbers(sum).iter().all(|&value| value == 0.0)));
    }
}

#[test]
fn frozen_parameters_get_no_gradient_and_do_not_change_that_of_others() {
    let decoder = decoder("everything");
    let parameters = parameters(&decoder);
    let all = gradients(&decoder, &parameters, &packs(1000), Checkpointing::PerLayer);
    for pattern in ["layers.1.", "layers.2.", "norm", "embed_tokens", "mlp.experts", "value_head"] {
        let (variables, some) = parameters.to_variables_where(|name| name.contains(pattern)).unwrap();
        let expected: Vec<Vec<f32>> = parameters
            .iter()
            .zip(&all)
            .filter(|((name, _), _)| name.contains(pattern))
            .map(|(_, gradient)| gradient.clone())
            .collect();
        assert_eq!(variables.len(), expected.len());
        for checkpointing in [
            Checkpointing::None,
            Checkpointing::PerLayer,
            Checkpointing::Every(NonZeroUsize::new(2).unwrap()),
        ] {
            let found = gradients(&decoder, &some, &packs(1000), checkpointing);
            assert_eq!(found, expected, "{pattern}, {checkpointing:?}");
        }
    }
}

#[test]
fn forced_experts_run_and_their_gradients_are_those_of_the_recorded_choice() {
    let decoder = decoder("experts");
    let parameters = parameters(&decoder);
    let mut pack = packs(1000).remove(0);
    let scale = decoder.config().attention_scale();
    let run = |pack: &Pack| {
        let input = DecoderInput { tokens: &pack.tokens, positions: &pack.positions, experts: pack.forced() };
        let mut attention = PackedAttention { sequences: &pack.sequences, scale };
        decoder.hidden(&parameters, input, &mut attention).unwrap().experts
    };
    let free = pass(&decoder, Checkpointing::None).evaluate(&parameters, &pack).unwrap();
    let chosen = run(&pack);
    pack.experts.clone_from(&chosen);
    let replayed = pass(&decoder, Checkpointing::None).evaluate(&parameters, &pack).unwrap();
    assert_eq!(replayed, free);
    // Others than the router's choice.
    pack.experts = chosen.chunks(2).flat_map(|pair| [(pair[0] + 1) % 3, pair[0]]).collect();
    assert_eq!(run(&pack).iter().map(|&id| u32::from(id)).sum::<u32>(), {
        pack.experts.iter().map(|&id| u32::from(id)).sum::<u32>()
    });
    assert_ne!(pass(&decoder, Checkpointing::None).evaluate(&parameters, &pack).unwrap(), free);
}

#[test]
fn bad_packs_and_derivatives_are_refused() {
    let decoder = decoder("dense");
    let parameters = parameters(&decoder);
    let good = packs(1000).remove(0);
    let evaluate = |change: &dyn Fn(&mut Pack)| {
        let mut pack = good.clone();
        change(&mut pack);
        pass(&decoder, Checkpointing::None).evaluate(&parameters, &pack).unwrap_err().to_string()
    };
    assert!(evaluate(&|pack| pack.tokens[2] = VOCABULARY as u32).contains("19 at position 2"));
    assert!(evaluate(&|pack| pack.targets[1] = 100).contains("target 100"));
    assert!(evaluate(&|pack| pack.positions[3] = 40).contains("position 40"));
    assert!(evaluate(&|pack| pack.experts = vec![0]).contains("forces 1 experts"));
    let accumulate = |wanted: ScoreGradients| {
        let sums = Gradients::new(&parameters).unwrap();
        let pass = pass(&decoder, Checkpointing::None);
        pass.accumulate(&parameters, &good, &sums, |_| Ok::<_, Error>(wanted)).unwrap_err().to_string()
    };
    let short = ScoreGradients { log_probs: vec![1.0], ..ScoreGradients::default() };
    assert!(accumulate(short).contains("the lengths [1, 0, 0]"));
    let values = vec![1.0; good.places.len()];
    let values = ScoreGradients { values, ..ScoreGradients::default() };
    assert!(accumulate(values).contains("no value head"));
    let sums = Gradients::new(&parameters).unwrap();
    let failing = |_: &Scores| Err(Error::Msg("the objective says no".into()));
    let error = pass(&decoder, Checkpointing::None).accumulate(&parameters, &good, &sums, failing);
    assert!(error.unwrap_err().to_string().contains("says no"));
}

#[test]
fn recorded_experts_travel_from_trajectories_into_packs() {
    let decoder = decoder("experts");
    let width = decoder.experts_per_row();
    let mut groups = groups();
    for trajectory in groups.iter_mut().flat_map(|group| &mut group.members) {
        let rows = trajectory.len() - 1;
        trajectory.experts = (0..rows * width).map(|index| [2, 0][index % 2]).collect();
    }
    let packs = Packing { rows: 50, experts_per_row: width }.pack(&groups).unwrap();
    let parameters = parameters(&decoder);
    for pack in &packs {
        assert_eq!(pack.experts.len(), pack.len() * width);
        pass(&decoder, Checkpointing::None).evaluate(&parameters, pack).unwrap();
    }
}

#[test]
fn settings_read_as_they_are_written() {
    let read = |text| serde_json::from_str::<Checkpointing>(text);
    assert_eq!(read("\"none\"").unwrap(), Checkpointing::None);
    assert_eq!(read("\"per_layer\"").unwrap(), Checkpointing::PerLayer);
    assert_eq!(read("{\"every\": 4}").unwrap(), Checkpointing::Every(NonZeroUsize::new(4).unwrap()));
    assert!(read("{\"every\": 0}").is_err());
}

#[test]
fn dense_layers_leave_no_gap_in_the_tape_and_experts_do() {
    for (name, whole) in [("dense", true), ("biases", true), ("head norms", true), ("experts", false)] {
        let decoder = decoder(name);
        let (parameters, packs) = (parameters(&decoder), packs(1000));
        let pass = pass(&decoder, Checkpointing::None);
        let rows = Rows::new(&pass, &packs[0]).unwrap();
        let input = Var::from_tensor(&decoder.embed(&parameters, &packs[0].tokens).unwrap()).unwrap();
        let (output, tape) = Tape::record(|| rows.layers(&parameters, 0..2, &input)).unwrap();
        let found = tape.gradients(&output, &output.ones_like().unwrap()).unwrap();
        assert_eq!(found.is_some_and(|found| found.contains_key(&input.id())), whole, "{name}");
    }
}
