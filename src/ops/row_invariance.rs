//! A token's log-probability has the same bits whether it was computed while decoding, in chunks of a prompt's
//! prefill or in a packed training forward pass, whatever the batch, the split and the number of threads.
//!
//! The decoder here is small but whole: embedding, norms, rotary positions, grouped attention over pages or packed
//! sequences with shared prompts, a dense and an expert feed-forward layer, sampling and the vocabulary head.

use super::{
    Activation, KEY_TILE, Page, PagedAttention, PagedRows, Sampling, SamplingScratch, Sequence, attention,
    embedding, linear, mixture, rms_norm, rotary, route, sample_token, swiglu, vocabulary_log_prob,
    with_threads,
};
use crate::random::CounterRng;
use candle_core::{Device, Tensor};

const WIDTH: usize = 24;
const HEADS: usize = 4;
const KV_HEADS: usize = 2;
const HEAD: usize = 6;
const INNER: usize = 40;
const EXPERTS: usize = 4;
/// More than one chunk of the vocabulary head.
const VOCABULARY: usize = 1100;
const LONGEST: usize = 2 * KEY_TILE + 10;
const SCALE: f64 = 0.4;

struct Layer {
    norms: [Tensor; 2],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    /// Of the dense layer `[INNER, WIDTH]`, of the experts `[EXPERTS, INNER, WIDTH]`.
    gate: Tensor,
    up: Tensor,
    down: Tensor,
    router: Option<Tensor>,
}

struct Decoder {
    tokens: Tensor,
    layers: [Layer; 2],
    norm: Tensor,
    cosine: Tensor,
    sine: Tensor,
}

fn draw(rng: &mut CounterRng, shape: &[usize]) -> Tensor {
    let values: Vec<f32> = (0..shape.iter().product()).map(|_| rng.normal() as f32 * 0.4).collect();
    Tensor::from_vec(values, shape, &Device::Cpu).unwrap()
}

fn numbers(tensor: &Tensor) -> Vec<f32> {
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}

impl Decoder {
    fn new(rng: &mut CounterRng) -> Self {
        let mut layer = |experts: &[usize]| {
            let inner = [experts, &[INNER, WIDTH]].concat();
            let outer = [experts, &[WIDTH, INNER]].concat();
            Layer {
                norms: [draw(rng, &[WIDTH]), draw(rng, &[WIDTH])],
                query: draw(rng, &[HEADS * HEAD, WIDTH]),
                key: draw(rng, &[KV_HEADS * HEAD, WIDTH]),
                value: draw(rng, &[KV_HEADS * HEAD, WIDTH]),
                output: draw(rng, &[WIDTH, HEADS * HEAD]),
                gate: draw(rng, &inner),
                up: draw(rng, &inner),
                down: draw(rng, &outer),
                router: experts.first().map(|&experts| draw(rng, &[experts, WIDTH])),
            }
        };
        let layers = [layer(&[]), layer(&[EXPERTS])];
        let angles: Vec<f32> = (0..LONGEST * HEAD / 2)
            .map(|i| (i / (HEAD / 2)) as f32 * 0.3_f32.powi((i % (HEAD / 2)) as i32))
            .collect();
        let angles = Tensor::from_vec(angles, (LONGEST, HEAD / 2), &Device::Cpu).unwrap();
        Self {
            tokens: draw(rng, &[VOCABULARY, WIDTH]),
            layers,
            norm: draw(rng, &[WIDTH]),
            cosine: angles.cos().unwrap(),
            sine: angles.sin().unwrap(),
        }
    }

    /// The last hidden state of some tokens at their positions; `attend` is one layer's attention over q, k and v.
    fn hidden(
        &self,
        tokens: &[u32],
        positions: &[u32],
        mut attend: impl FnMut(usize, &Tensor, &Tensor, &Tensor) -> Tensor,
    ) -> Tensor {
        let rows = tokens.len();
        let ids = |values: &[u32]| Tensor::from_slice(values, rows, &Device::Cpu).unwrap();
        let positions = ids(positions);
        let project = |x: &Tensor, weight: &Tensor| linear(x, weight, None, Activation::Identity).unwrap();
        let mut x = embedding(&self.tokens, &ids(tokens)).unwrap();
        for (index, layer) in self.layers.iter().enumerate() {
            let h = rms_norm(&x, &layer.norms[0], 1e-5).unwrap();
            let heads = |weight, count| project(&h, weight).reshape((rows, count, HEAD)).unwrap();
            let turned =
                |weight, count| rotary(&heads(weight, count), &self.cosine, &self.sine, &positions).unwrap();
            let (q, k) = (turned(&layer.query, HEADS), turned(&layer.key, KV_HEADS));
            let mixed = attend(index, &q, &k, &heads(&layer.value, KV_HEADS));
            x = (x + project(&mixed.reshape((rows, HEADS * HEAD)).unwrap(), &layer.output)).unwrap();
            let h = rms_norm(&x, &layer.norms[1], 1e-5).unwrap();
            let inner = if let Some(router) = &layer.router {
                let (ids, weights) = route(&project(&h, router), 2, true, None).unwrap();
                mixture(&h, &ids, &weights, &layer.gate, &layer.up, &layer.down).unwrap()
            } else {
                let inner = swiglu(&project(&h, &layer.gate), &project(&h, &layer.up)).unwrap();
                project(&inner, &layer.down)
            };
            x = (x + inner).unwrap();
        }
        rms_norm(&x, &self.norm, 1e-5).unwrap()
    }
}

/// A sequence while it is generated.
struct Stream {
    tokens: Vec<u32>,
    prompt: usize,
    /// Tokens whose keys and values are in the pages.
    seen: usize,
    /// Pages of each layer.
    pages: [Vec<Vec<f32>>; 2],
    /// Recorded at sampling, of the tokens after the prompt.
    log_probs: Vec<f32>,
}

impl Decoder {
    /// One step of a batch: for each stream (by index) as many of its unseen tokens as it says.
    fn step(&self, streams: &mut [Stream], batch: &[(usize, usize)], rng: &mut CounterRng) {
        let paged = PagedAttention::new(HEADS, KV_HEADS, HEAD, SCALE).unwrap();
        let (mut tokens, mut positions) = (Vec::new(), Vec::new());
        for &(index, count) in batch {
            let stream = &streams[index];
            tokens.extend_from_slice(&stream.tokens[stream.seen..][..count]);
            positions.extend((stream.seen..stream.seen + count).map(|position| position as u32));
        }
        let hidden = self.hidden(&tokens, &positions, |layer, q, k, v| {
            let (q, k, v) = (numbers(q), numbers(k), numbers(v));
            let mut output = vec![0.0; q.len()];
            let (mut rest, mut start) = (&mut output[..], 0);
            let mut requests = Vec::new();
            // Each stream at most once in a batch, so that all pages may be borrowed at a time.
            let mut pages: Vec<_> =
                streams.iter_mut().map(|stream| Some((stream.seen, &mut stream.pages[layer]))).collect();
            for &(index, count) in batch {
                let (seen, pages) = pages[index].take().expect("one part of each stream");
                pages.resize((seen + count).div_ceil(KEY_TILE), vec![f32::NAN; paged.page_len()]);
                let (output, after) = rest.split_at_mut(count * HEADS * HEAD);
                requests.push(PagedRows {
                    queries: &q[start * HEADS * HEAD..][..count * HEADS * HEAD],
                    keys: &k[start * KV_HEADS * HEAD..][..count * KV_HEADS * HEAD],
                    values: &v[start * KV_HEADS * HEAD..][..count * KV_HEADS * HEAD],
                    first_position: seen,
                    pages: pages.iter_mut().map(|page| Page::Own(page)).collect(),
                    output,
                });
                (rest, start) = (after, start + count);
            }
            paged.attend(requests).unwrap();
            Tensor::from_vec(output, (tokens.len(), HEADS * HEAD), &Device::Cpu).unwrap()
        });
        let logits = linear(&hidden, &self.tokens, None, Activation::Identity).unwrap();
        let mut row = 0;
        for &(index, count) in batch {
            let stream = &mut streams[index];
            stream.seen += count;
            row += count;
            if stream.seen == stream.tokens.len() {
                let logits: Vec<f32> = logits.get(row - 1).unwrap().to_vec1().unwrap();
                let sampling = Sampling::default();
                let random = u64::from(rng.next_u32()) << 32 | u64::from(rng.next_u32());
                let drawn =
                    sample_token(&logits, &sampling, random, &mut SamplingScratch::default()).unwrap();
                stream.tokens.push(drawn.token);
                stream.log_probs.push(drawn.log_prob);
            }
        }
    }
}

/// Log-probabilities of the sampled tokens of all streams from one packed pass, prompts of a group packed once.
fn packed_log_probs(
    decoder: &Decoder,
    streams: &[Stream],
    groups: &[std::ops::Range<usize>],
) -> Vec<Vec<f32>> {
    let (mut tokens, mut positions, mut sequences) = (Vec::new(), Vec::new(), Vec::new());
    let mut answers = Vec::new();
    for group in groups {
        // The last token of the prompt is each answer's own first row, since it predicts that answer's first token.
        let prompt = streams[group.start].prompt - 1;
        let prefix = tokens.len()..tokens.len() + prompt;
        tokens.extend_from_slice(&streams[group.start].tokens[..prompt]);
        positions.extend(0..prompt as u32);
        if prompt > 0 {
            sequences.push(Sequence::alone(prefix.clone()));
        }
        for stream in &streams[group.clone()] {
            let own = &stream.tokens[prompt..stream.tokens.len() - 1];
            let rows = tokens.len()..tokens.len() + own.len();
            sequences.push(Sequence { prefix: prefix.clone(), rows: rows.clone() });
            answers.push(rows);
            positions.extend((prompt..prompt + own.len()).map(|position| position as u32));
            tokens.extend_from_slice(own);
        }
    }
    let hidden =
        decoder.hidden(&tokens, &positions, |_, q, k, v| attention(q, k, v, &sequences, SCALE).unwrap());
    // What each row predicts; the rows of a prompt predict nothing that is asked for.
    let mut targets = vec![0_u32; tokens.len()];
    for (stream, rows) in streams.iter().zip(&answers) {
        targets[rows.clone()].copy_from_slice(&stream.tokens[stream.tokens.len() - rows.len()..]);
    }
    let targets = Tensor::from_vec(targets, tokens.len(), &Device::Cpu).unwrap();
    let both = vocabulary_log_prob(&hidden, &decoder.tokens, &targets, 1.0).unwrap();
    let log_probs: Vec<f32> = both.narrow(1, 0, 1).unwrap().flatten_all().unwrap().to_vec1().unwrap();
    answers.into_iter().map(|rows| log_probs[rows].to_vec()).collect()
}

#[test]
fn decoding_prefill_in_chunks_and_packed_training_give_the_same_bits() {
    let pools = [1, 2].map(|count| rayon::ThreadPoolBuilder::new().num_threads(count).build().unwrap());
    let mut rng = CounterRng::new(7);
    let decoder = Decoder::new(&mut rng);
    for _ in 0..6 {
        let mut streams = Vec::new();
        let mut groups = Vec::new();
        for _ in 0..2 {
            let prompt: Vec<u32> =
                (0..=rng.below(KEY_TILE + 20)).map(|_| rng.below(VOCABULARY) as u32).collect();
            let first = streams.len();
            for _ in 0..=rng.below(3) {
                streams.push(Stream {
                    tokens: prompt.clone(),
                    prompt: prompt.len(),
                    seen: 0,
                    pages: Default::default(),
                    log_probs: Vec::new(),
                });
            }
            groups.push(first..streams.len());
        }
        let ends: Vec<usize> = streams.iter().map(|s| s.prompt + 1 + rng.below(KEY_TILE / 2)).collect();
        loop {
            let going: Vec<usize> =
                (0..streams.len()).filter(|&i| streams[i].tokens.len() < ends[i]).collect();
            if going.is_empty() {
                break;
            }
            let mut batch = Vec::new();
            for index in going {
                let unseen = streams[index].tokens.len() - streams[index].seen;
                let count = 1 + rng.below(unseen);
                if rng.below(3) > 0 {
                    batch.push((index, count));
                }
            }
            if batch.is_empty() {
                continue;
            }
            let pool = &pools[rng.below(2)];
            with_threads(pool, || decoder.step(&mut streams, &batch, &mut rng));
        }
        for pool in &pools {
            let packed = with_threads(pool, || packed_log_probs(&decoder, &streams, &groups));
            for (stream, packed) in streams.iter().zip(packed) {
                assert_eq!(stream.log_probs, packed);
            }
        }
    }
}
