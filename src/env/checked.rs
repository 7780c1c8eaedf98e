//! Steps an environment and verifies its contract on every call.
//!
//! What a broken environment hands out stops here: a value that is not finite, an observation or mask of the wrong
//! length, or a mask that allows nothing never reaches a policy or a learner. The caller is held to the contract
//! too: an episode starts with a reset, ends at most once, and takes only actions of the action space that the mask
//! allows. The checks cost one pass over each observation and mask, so they are always on.

use super::environment::{EnvError, Environment, Step};
use super::space::{Action, ActionSpace, EnvSpec};
use super::state;

/// What this wrapper's own bytes are saved under.
const LABEL: &str = "checked";

/// The exponent bits of an `f32`; all set in infinities and in what is not a number, and only there.
const EXPONENT: u32 = 0x7f80_0000;

/// An environment whose every call is verified.
pub struct Checked {
    inner: Box<dyn Environment>,
    /// Whether a step may be taken: there was a reset, and the episode has not ended since.
    running: bool,
    /// The current action mask, kept to reuse its memory.
    mask: Vec<bool>,
}

impl Checked {
    /// Verifies what `inner` announces, and from then on each of its calls.
    ///
    /// # Errors
    /// When the specification contradicts itself.
    pub fn new(inner: Box<dyn Environment>) -> Result<Self, EnvError> {
        match specification_problem(inner.spec()) {
            Some(why) => Err(contract(inner.spec(), "spec", why)),
            None => Ok(Self { inner, running: false, mask: Vec::new() }),
        }
    }

    /// What the environment shows and accepts.
    #[must_use]
    pub fn spec(&self) -> &EnvSpec {
        self.inner.spec()
    }

    /// Starts a new episode, whose randomness derives from `seed`.
    ///
    /// # Errors
    /// When the environment cannot start an episode.
    pub fn reset(&mut self, seed: u64) -> Result<(), EnvError> {
        self.running = false;
        self.inner.reset(seed)?;
        self.running = true;
        Ok(())
    }

    /// Takes one action.
    ///
    /// # Errors
    /// When no episode is running, the action is outside the space or masked, the environment fails, or its reward
    /// is not finite.
    pub fn step(&mut self, action: Action<'_>) -> Result<Step, EnvError> {
        if !self.running {
            return Err(self.broken("step", "no episode is running; reset first".into()));
        }
        if let Some(why) = action_problem(&self.spec().action_space, action) {
            return Err(self.broken("step", why));
        }
        if self.spec().masks_actions {
            let mut mask = std::mem::take(&mut self.mask);
            mask.clear();
            let read = self.action_mask(&mut mask);
            self.mask = mask;
            read?;
            if let Some(why) = masked_choice(&self.spec().action_space, action, &self.mask) {
                return Err(self.broken("step", why));
            }
        }
        let step = self.inner.step(action)?;
        if !step.reward.is_finite() {
            return Err(self.broken("step", format!("the reward is {}, which is not finite", step.reward)));
        }
        self.running = !step.done();
        Ok(step)
    }

    /// Appends the current observation to `out`, which is unchanged on an error.
    ///
    /// # Errors
    /// When it does not have exactly `spec().observation_len()` finite values.
    pub fn observe(&self, out: &mut Vec<f32>) -> Result<(), EnvError> {
        let start = out.len();
        self.inner.observe(out);
        let problem =
            observation_problem(self.spec().observation_len(), out.get(start..).unwrap_or_default());
        self.reject(problem, "observe", out, start)
    }

    /// Appends which choices are allowed now to `out`, which is unchanged on an error. Appends nothing when the
    /// environment masks no actions.
    ///
    /// # Errors
    /// When it does not have exactly `spec().mask_len()` flags, or allows no choice of some component.
    pub fn action_mask(&self, out: &mut Vec<bool>) -> Result<(), EnvError> {
        if !self.spec().masks_actions {
            return Ok(());
        }
        let start = out.len();
        self.inner.action_mask(out);
        let problem = mask_problem(&self.spec().action_space, out.get(start..).unwrap_or_default());
        self.reject(problem, "action_mask", out, start)
    }

    /// The whole state of the episode as bytes, or `None` when the environment cannot be saved.
    #[must_use]
    pub fn save(&self) -> Option<Vec<u8>> {
        state::save(LABEL, &(self.running, self.inner.save()?))
    }

    /// Continues from bytes that `save` returned.
    ///
    /// # Errors
    /// When the bytes do not belong to this environment.
    pub fn restore(&mut self, bytes: &[u8]) -> Result<(), EnvError> {
        let (running, inner): (bool, Vec<u8>) = state::restore(&self.spec().name, LABEL, bytes)?;
        self.inner.restore(&inner)?;
        self.running = running;
        Ok(())
    }

    /// Takes back what was appended to `out` since `start` if there is a problem with it.
    fn reject<T>(
        &self,
        problem: Option<String>,
        call: &'static str,
        out: &mut Vec<T>,
        start: usize,
    ) -> Result<(), EnvError> {
        problem.map_or(Ok(()), |why| {
            out.truncate(start);
            Err(self.broken(call, why))
        })
    }

    fn broken(&self, call: &'static str, why: String) -> EnvError {
        contract(self.spec(), call, why)
    }
}

fn contract(spec: &EnvSpec, call: &'static str, why: String) -> EnvError {
    EnvError::Contract { env: spec.name.clone(), call, why }
}

fn specification_problem(spec: &EnvSpec) -> Option<String> {
    let shape = &spec.observation_shape;
    if shape.contains(&0) {
        return Some(format!("the observation shape {shape:?} has an empty axis"));
    }
    match &spec.action_space {
        ActionSpace::Discrete { n: 0 } => Some("the action space has no choice".into()),
        ActionSpace::MultiDiscrete { sizes } if sizes.is_empty() || sizes.contains(&0) => {
            Some(format!("the action space {sizes:?} has no component or one without a choice"))
        }
        ActionSpace::Box { low, high } => box_problem(low, high, spec.masks_actions),
        ActionSpace::Discrete { .. } | ActionSpace::MultiDiscrete { .. } => None,
    }
}

fn box_problem(low: &[f32], high: &[f32], masks_actions: bool) -> Option<String> {
    if low.is_empty() || low.len() != high.len() {
        return Some(format!(
            "the action space has {} lower and {} upper bounds; give one of each for every component",
            low.len(),
            high.len()
        ));
    }
    // Written so that a bound that is not a number is a problem, too.
    if !low.iter().zip(high).all(|(low, high)| low < high) {
        return Some(format!("the lower bounds {low:?} are not all below the upper bounds {high:?}"));
    }
    masks_actions.then(|| "a continuous action space cannot be masked".into())
}

fn observation_problem(expected: usize, observation: &[f32]) -> Option<String> {
    if observation.len() != expected {
        return Some(format!("it has {} values, the shape says {expected}", observation.len()));
    }
    // The whole pass in integers, without an early exit, so that it compiles to vector instructions.
    let all_finite = observation.iter().fold(true, |fine, v| fine & (v.to_bits() & EXPONENT != EXPONENT));
    if all_finite {
        return None;
    }
    let index = observation.iter().position(|v| !v.is_finite())?;
    Some(format!("value {index} is {}, which is not finite", observation[index]))
}

fn action_problem(space: &ActionSpace, action: Action<'_>) -> Option<String> {
    let row = action.values();
    if row.len() != space.width() {
        return Some(format!("the action has {} values, the action space {}", row.len(), space.width()));
    }
    // A value that is not a number lies in no range, so it fails both comparisons below.
    let no_choice = |value: f32, size: usize| !(value >= 0.0 && value < size as f32 && value.fract() == 0.0);
    let outside = match space {
        ActionSpace::Discrete { n } => no_choice(row[0], *n).then_some(0),
        ActionSpace::MultiDiscrete { sizes } => {
            row.iter().zip(sizes).position(|(&value, &size)| no_choice(value, size))
        }
        ActionSpace::Box { low, high } => (0..row.len())
            .find(|&index| !(row[index].is_finite() && (low[index]..=high[index]).contains(&row[index]))),
    };
    outside.map(|index| format!("component {index} of the action is {}, outside its range", row[index]))
}

/// The flags of each component, in order. `mask` has the space's length.
fn components<'a>(space: &'a ActionSpace, mask: &'a [bool]) -> impl Iterator<Item = &'a [bool]> {
    let sizes = match space {
        ActionSpace::Discrete { n } => std::slice::from_ref(n),
        ActionSpace::MultiDiscrete { sizes } => sizes,
        ActionSpace::Box { .. } => &[],
    };
    let mut rest = mask;
    sizes.iter().map(move |&size| {
        let (component, tail) = rest.split_at(size);
        rest = tail;
        component
    })
}

fn mask_problem(space: &ActionSpace, mask: &[bool]) -> Option<String> {
    if mask.len() != space.choices() {
        return Some(format!("it has {} flags, the action space {} choices", mask.len(), space.choices()));
    }
    components(space, mask)
        .position(|component| !component.contains(&true))
        .map(|index| format!("no choice of component {index} is allowed"))
}

fn masked_choice(space: &ActionSpace, action: Action<'_>, mask: &[bool]) -> Option<String> {
    components(space, mask)
        .zip(action.indices())
        .position(|(component, choice)| !component[choice])
        .map(|index| format!("choice {} of component {index} is masked", action.values()[index]))
}

#[cfg(test)]
#[path = "checked_tests.rs"]
mod tests;
