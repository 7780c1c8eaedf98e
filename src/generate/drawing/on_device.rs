//! Draws by `kernels/sampling.cu`: the logits stay where they are, and a token and a log-probability come back.

use candle_core::{Error, Result, Tensor};

use super::{Drawing, Drawn};
use crate::generate::request::Request;
use crate::ops::cuda::lock;
use crate::ops::cuda::sampling::{Draw, NO_TOKEN, sample};
use crate::random::{Stream, key};

impl Drawing {
    /// One token for each request from its row of `logits`, from all tokens at one temperature.
    pub(super) fn by_kernel(
        self,
        logits: &Tensor,
        requests: &[&Request],
        temperature: f32,
    ) -> Result<Vec<Result<Drawn>>> {
        let counters: Vec<u32> = requests
            .iter()
            .flat_map(|request| {
                let trajectory = &request.trajectory;
                trajectory.id.counters(trajectory.len() as u32)
            })
            .collect();
        let logits = logits.contiguous()?;
        let counters = Tensor::from_vec(counters, (requests.len(), 4), logits.device())?;
        let draw = Draw { temperature, top_k: None, top_p: 1.0, key: key(self.seed, Stream::Token) };
        let [tokens, log_probs, _] = {
            let (logits, counters) = (lock(&logits), lock(&counters));
            sample(&logits.view()?, &counters.view()?, draw)?
        };
        let tokens: Vec<u32> = tokens.into_tensor().to_vec1()?;
        let log_probs: Vec<f32> = log_probs.into_tensor().to_vec1()?;
        let drawn = tokens.into_iter().zip(log_probs).zip(requests).map(|((token, log_prob), request)| {
            if token == NO_TOKEN {
                let why = "sample_tokens: a logit is NaN or infinite, or no token is allowed";
                return Err(Error::Msg(why.into()));
            }
            let error = self.error(self.words(request));
            Ok(Drawn { token, log_prob: log_prob + error, candidates: Vec::new() })
        });
        Ok(drawn.collect())
    }
}
