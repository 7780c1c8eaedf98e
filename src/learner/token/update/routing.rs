//! What a replay of experts makes up for: how many of those that generation used the routers would no longer choose.

use super::TokenLearner;
use crate::learner::LearnerError;
use crate::learner::token::flat::Flat;
use crate::trajectory::Group;

impl TokenLearner {
    /// Share of the recorded experts that the routers would not choose under the parameters as they are, in one
    /// micro-batch of what is learned from; `None` where nothing is replayed. It costs that micro-batch another forward
    /// pass, in which no expert is forced.
    pub(super) fn expert_disagreement(
        &self,
        groups: &[&Group],
        flat: &Flat,
    ) -> Result<Option<f64>, LearnerError> {
        if !self.config.replay_experts {
            return Ok(None);
        }
        let learned = |group, member| flat.is_learned(group, member);
        let packs = self.packing().pack_where(groups, learned)?;
        let Some((pack, recorded)) = packs.iter().find_map(|pack| Some((pack, pack.forced()?))) else {
            return Ok(None);
        };
        let chosen = self.pass().routing(&self.parameters, pack)?;
        Ok(Some(disagreement(recorded, &chosen, self.decoder.experts_per_layer())))
    }
}

/// Share of `recorded` that is not among those `chosen` for the same token and layer, k a token and layer.
fn disagreement(recorded: &[u16], chosen: &[u16], k: usize) -> f64 {
    let layers = recorded.chunks_exact(k.max(1)).zip(chosen.chunks_exact(k.max(1)));
    let missing: usize =
        layers.map(|(recorded, chosen)| recorded.iter().filter(|id| !chosen.contains(id)).count()).sum();
    missing as f64 / recorded.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn experts_are_compared_as_sets_by_token_and_layer() {
        let recorded = [0, 1, 2, 3, 4, 5, 6, 7];
        assert_eq!(disagreement(&recorded, &[1, 0, 3, 2, 5, 4, 7, 6], 2), 0.0);
        assert_eq!(disagreement(&recorded, &[1, 2, 0, 3, 4, 6, 5, 7], 2), 0.5);
        assert_eq!(disagreement(&recorded, &[2, 3, 0, 1, 6, 7, 4, 5], 2), 1.0);
    }
}
