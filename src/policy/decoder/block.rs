//! Which kind of block a parameter of a decoder belongs to, by its name.

use super::{Decoder, EMBEDDING, VALUE_HEAD};

/// A kind of block of a decoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockKind {
    /// The token embedding, which is the head for the vocabulary too where the two are tied.
    Embedding,
    /// Projections of attention.
    Attention,
    /// Feed-forward networks or experts.
    FeedForward,
    /// Routers that choose experts.
    Router,
    /// All norms, those of queries and keys included.
    Norm,
    /// The head for the vocabulary, where it is not tied to the embedding.
    Head,
    /// The value head.
    ValueHead,
}

impl BlockKind {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Embedding,
        Self::Attention,
        Self::FeedForward,
        Self::Router,
        Self::Norm,
        Self::Head,
        Self::ValueHead,
    ];

    /// That of a parameter of this name; an adapter belongs to the block that it stands beside.
    #[must_use]
    pub fn of(name: &str) -> Self {
        match name {
            EMBEDDING => Self::Embedding,
            VALUE_HEAD => Self::ValueHead,
            name if name.contains("norm.") => Self::Norm,
            name if name.contains(".self_attn.") => Self::Attention,
            name if Decoder::is_feed_forward(name) => Self::FeedForward,
            name if name.contains(".mlp.gate.") => Self::Router,
            _ => Self::Head,
        }
    }
}

/// The norm of a gradient by kind of block: the square root of the sum of the squares in it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct BlockNorms([Option<f64>; BlockKind::ALL.len()]);

impl BlockNorms {
    /// From the sum of squares of each parameter's gradient.
    #[must_use]
    pub fn new<'a>(squares: impl IntoIterator<Item = (&'a str, f64)>) -> Self {
        let mut sums = [None; BlockKind::ALL.len()];
        for (name, square) in squares {
            *sums[BlockKind::of(name) as usize].get_or_insert(0.0) += square;
        }
        Self(sums.map(|sum| sum.map(f64::sqrt)))
    }

    /// That of a kind of block; `None` where there is no such block, or it is not trained.
    #[must_use]
    pub fn get(&self, kind: BlockKind) -> Option<f64> {
        self.0[kind as usize]
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::super::{DecoderConfig, ExpertsConfig, LoraConfig};
    use super::*;

    #[test]
    fn every_parameter_of_every_kind_of_decoder_has_its_block() {
        let config = DecoderConfig {
            vocabulary: 5,
            width: 4,
            inner: 4,
            layers: 2,
            heads: 1,
            kv_heads: 1,
            head_size: 4,
            context: 8,
            tied: false,
            value_head: true,
            query_key_norm: true,
            attention_bias: true,
            ..DecoderConfig::default()
        };
        let dense = Decoder::new(config.clone(), &Device::Cpu).unwrap();
        let experts = Some(ExpertsConfig { count: 2, per_token: 1, inner: 4, ..ExpertsConfig::default() });
        let experts = Decoder::new(DecoderConfig { experts, ..config.clone() }, &Device::Cpu).unwrap();
        let adapted = Decoder::with_adapters(config, Some(&LoraConfig::default()), &Device::Cpu).unwrap();
        for (decoder, routers) in [(&dense, false), (&experts, true), (&adapted, false)] {
            for kind in BlockKind::ALL {
                let has = decoder.layout().names().any(|name| BlockKind::of(name) == kind);
                assert_eq!(has, kind != BlockKind::Router || routers, "{kind:?}");
            }
            for name in decoder.layout().names() {
                let expected = match name {
                    "lm_head.weight" => BlockKind::Head,
                    name if name.contains("proj") && name.contains("self_attn") => BlockKind::Attention,
                    name if name.contains("proj") => BlockKind::FeedForward,
                    name if name.contains("norm") => BlockKind::Norm,
                    _ => continue,
                };
                assert_eq!(BlockKind::of(name), expected, "{name}");
            }
        }
    }

    #[test]
    fn squares_of_one_block_are_added_before_the_root() {
        let norms = BlockNorms::new([
            ("model.layers.0.self_attn.q_proj.weight", 9.0),
            ("model.norm.weight", 4.0),
            ("model.layers.1.self_attn.o_proj.weight", 16.0),
        ]);
        assert_eq!(
            [BlockKind::Attention, BlockKind::Norm].map(|kind| norms.get(kind)),
            [Some(5.0), Some(2.0)]
        );
        assert_eq!(norms.get(BlockKind::Router), None);
    }
}
