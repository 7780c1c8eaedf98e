//! Names of tensors in Hugging Face files, where they differ from the decoder's.
//!
//! The decoder stacks a layer's experts (`….mlp.experts.gate_proj.weight`, `[E, F, width]`); files have a tensor for
//! each (`….mlp.experts.7.gate_proj.weight`, `[F, width]`).

const EXPERTS: &str = ".mlp.experts.";

/// Names in files of the tensors that make up a parameter: one, or one for each expert.
pub(super) fn in_file(parameter: &str, shape: &[usize]) -> Vec<String> {
    match parameter.split_once(EXPERTS) {
        Some((layer, projection)) => {
            (0..shape[0]).map(|expert| format!("{layer}{EXPERTS}{expert}.{projection}")).collect()
        }
        None => vec![parameter.to_owned()],
    }
}

/// Whether a parameter is stacked from one tensor for each expert.
pub(super) fn is_stacked(parameter: &str) -> bool {
    parameter.contains(EXPERTS)
}

/// Whether files may hold a tensor that the decoder has no use for: tables that can be computed, and the head of a
/// model whose head is its embedding.
pub(super) fn is_redundant(name: &str, tied: bool) -> bool {
    name.ends_with(".rotary_emb.inv_freq") || (tied && name == "lm_head.weight")
}
