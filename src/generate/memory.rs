//! The memory of the KV cache: given back while nothing is generated, taken again by the next step.

use super::GenerateError;
use super::engine::Engine;

impl Engine {
    /// Gives the memory of the KV cache back. All trajectories stay where they are: with `save_kv` those that were
    /// sampled from keep their keys and values in host memory; everything else is computed again when they go on.
    pub fn give_back_memory(&mut self, save_kv: bool) {
        let Self { running, paused, waiting, held, pool, .. } = self;
        for sequence in running.iter_mut().chain(paused).chain(waiting).chain(held) {
            if save_kv {
                sequence.saved = sequence.take_saved(pool);
            }
            sequence.drop_pages(pool);
        }
        self.prompts.drop_pages(&mut self.pool);
        self.expect_prompts();
        self.pool.give_back_memory();
    }

    /// Takes memory for the KV cache, unless it has it.
    pub(super) fn take_memory(&mut self) -> Result<(), GenerateError> {
        let tokens = self.config.positions();
        self.pool.take_memory().map_err(|source| GenerateError::Cache { tokens, source })
    }
}
