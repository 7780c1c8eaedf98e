//! One minibatch: micro-batches forward and backward with the denominators of the whole, then one optimiser step.

use super::{Attempt, Stopped, TokenLearner};
use crate::learner::LearnerError;
use crate::learner::token::applied::Tally;
use crate::learner::token::flat::{Flat, PackRows, spread};
use crate::learner::token::{Aggregation, Denominators, TokenValueClip, token_loss, token_value_loss};
use crate::policy::{ScoreGradients, Scores};
use crate::trajectory::{Group, TokenFate};

impl TokenLearner {
    pub(super) fn minibatch(
        &mut self,
        groups: &[&Group],
        flat: &Flat,
        part: &[usize],
        learning_rate: f64,
        poison: bool,
        abandon: &(dyn Fn() -> bool + Sync),
        tally: &mut Tally,
    ) -> Attempt<()> {
        let own: Vec<&Group> = part.iter().map(|&group| groups[group]).collect();
        let flat = if part.len() == groups.len() { flat.clone() } else { flat.of_groups(part) };
        let denominators = Denominators::new(&self.config.loss, &flat.shape())?;
        let with_values = self.config.has_shared_critic();
        // What counts nowhere does not run through the model; a critic on its layers learns from more than the policy.
        let counts = |group, member| {
            let row = flat.row_of(group, member);
            denominators.weights()[row] > 0.0 || (with_values && flat.is_learned(group, member))
        };
        let packs = self.packing().pack_where(&own, counts)?;
        for (group, held) in own.iter().enumerate() {
            for member in (0..held.members.len()).filter(|&member| !counts(group, member)) {
                let unread = flat.shape().loss_tokens(flat.row_of(group, member)).count();
                tally.leave_out_some(TokenFate::NotChosen, unread);
            }
        }
        // Both sides of a pair are needed at once, and they may stand in different packs.
        let known = if denominators.pairs().is_empty() {
            None
        } else {
            let Some(scores) = self.scores(&self.parameters, &packs, abandon)? else {
                return Ok(Err(Stopped::Abandoned));
            };
            let log_probs = spread(&flat, &packs, &scores, |scores| &scores.log_probs);
            let entropies = spread(&flat, &packs, &scores, |scores| &scores.entropies);
            let batch = flat.batch(&log_probs, &entropies, self.state.version);
            let loss = token_loss(&self.config.loss, &batch, &denominators)?;
            tally.add(&loss, &flat, &log_probs, &entropies);
            Some(loss)
        };
        let value_weights = match &self.config.critic {
            critic if with_values => {
                let shape = flat.shape();
                Some((critic.clone(), Denominators::of_all_rows(Aggregation::TokenMean, None, &shape)?))
            }
            _ => None,
        };
        self.gradients.clear();
        for pack in &packs {
            if abandon() {
                return Ok(Err(Stopped::Abandoned));
            }
            let held = PackRows::new(&flat, pack);
            let small = &held.flat;
            let selected = known.is_none().then(|| denominators.select(&held.rows)).transpose()?;
            let gradient = |scores: &Scores| -> Result<ScoreGradients, LearnerError> {
                let mut wanted = ScoreGradients::default();
                match (&known, &selected) {
                    (Some(loss), _) => {
                        let places = pack.places.iter();
                        wanted.log_probs =
                            places.map(|place| loss.log_prob_gradient[flat.entry(place)]).collect();
                        if let Some(entropies) = &loss.entropy_gradient {
                            let places = pack.places.iter();
                            wanted.entropies = places.map(|place| entropies[flat.entry(place)]).collect();
                        }
                    }
                    (None, selected) => {
                        let (log_probs, entropies) =
                            (held.spread(&scores.log_probs), held.spread(&scores.entropies));
                        let mut batch = small.batch(&log_probs, &entropies, self.state.version);
                        // In a step of one pass over one minibatch the policy at its start is the current one.
                        batch.proximal = batch.proximal.or(Some(&log_probs));
                        let selected = selected.as_ref().unwrap_or(&denominators);
                        let loss = token_loss(&self.config.loss, &batch, selected)?;
                        tally.add(&loss, small, &log_probs, &entropies);
                        wanted.log_probs = held.gather(&loss.log_prob_gradient);
                        if let Some(entropies) = &loss.entropy_gradient {
                            wanted.entropies = held.gather(entropies);
                        }
                    }
                }
                if let Some((critic, weights)) = &value_weights {
                    let values = held.spread(&scores.values);
                    let clip = critic.clip.map(|range| TokenValueClip { old_values: &small.values, range });
                    let weights = weights.select(&held.rows)?;
                    let targets = &small.value_targets;
                    let loss = token_value_loss(&small.shape(), &weights, &values, targets, clip)?;
                    tally.value_loss = Some(tally.value_loss.unwrap_or(0.0) + loss.loss);
                    tally.loss += critic.coefficient * loss.loss;
                    let scale = critic.coefficient as f32;
                    wanted.values =
                        held.gather(&loss.gradient).into_iter().map(|value| scale * value).collect();
                }
                Ok(wanted)
            };
            self.pass().accumulate(&self.parameters, pack, &self.gradients, gradient)?;
        }
        self.descend(tally, learning_rate, poison)
    }
}
