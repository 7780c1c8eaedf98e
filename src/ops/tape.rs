//! Differentiation along a record of what ran.
//!
//! candle's backward pass adds every gradient to a tensor of zeros that it makes first, on one thread: of the training of
//! a language model that is 3 % to 7 %. While a [`Tape`] records, the operators of this module note
//! what they are applied to; on the way back a first gradient is taken as it is, and further ones are added on the
//! threads of this thread's policy.
//!
//! candle's graph is there all the same. An operator that notes nothing (candle's own, above all) leaves a gap in the
//! record; [`Tape::gradients`] then says so, and candle's backward pass is the way. Gradients are the same up to the
//! order in which those of one tensor are added.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use candle_core::{CustomOp1, CustomOp2, CustomOp3, Result, Shape, Tensor, TensorId};

use super::sum;

type Op<C> = Arc<Box<C>>;

/// What was applied.
enum Function {
    One(Op<dyn CustomOp1 + Send + Sync>),
    Two(Op<dyn CustomOp2 + Send + Sync>),
    Three(Op<dyn CustomOp3 + Send + Sync>),
    Reshape,
}

struct Entry {
    function: Function,
    inputs: Vec<Tensor>,
    result: Tensor,
}

impl Entry {
    /// The gradients of the inputs from that of the result.
    fn backward(&self, gradient: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let (inputs, result) = (&self.inputs, &self.result);
        Ok(match &self.function {
            Function::One(op) => vec![op.bwd(&inputs[0], result, gradient)?],
            Function::Two(op) => {
                let (first, second) = op.bwd(&inputs[0], &inputs[1], result, gradient)?;
                vec![first, second]
            }
            Function::Three(op) => {
                let (first, second, third) = op.bwd(&inputs[0], &inputs[1], &inputs[2], result, gradient)?;
                vec![first, second, third]
            }
            Function::Reshape => vec![Some(gradient.reshape(inputs[0].shape())?)],
        })
    }
}

thread_local! {
    /// The record that operators called on this thread add to.
    static RECORD: RefCell<Option<Vec<Entry>>> = const { RefCell::new(None) };
}

fn note(function: Function, inputs: &[&Tensor], result: &Tensor) {
    if result.track_op() {
        RECORD.with_borrow_mut(|record| {
            if let Some(record) = record {
                let inputs = inputs.iter().map(|&input| input.clone()).collect();
                record.push(Entry { function, inputs, result: result.clone() });
            }
        });
    }
}

/// `x.apply_op1(op)`, noted.
pub(super) fn apply1(x: &Tensor, op: impl CustomOp1 + Send + Sync + 'static) -> Result<Tensor> {
    let op: Op<dyn CustomOp1 + Send + Sync> = Arc::new(Box::new(op));
    let result = x.apply_op1_arc(op.clone())?;
    note(Function::One(op), &[x], &result);
    Ok(result)
}

/// `x.apply_op2(y, op)`, noted.
pub(super) fn apply2(x: &Tensor, y: &Tensor, op: impl CustomOp2 + Send + Sync + 'static) -> Result<Tensor> {
    let op: Op<dyn CustomOp2 + Send + Sync> = Arc::new(Box::new(op));
    let result = x.apply_op2_arc(y, op.clone())?;
    note(Function::Two(op), &[x, y], &result);
    Ok(result)
}

/// `x.apply_op3(y, z, op)`, noted.
pub(super) fn apply3(
    x: &Tensor,
    y: &Tensor,
    z: &Tensor,
    op: impl CustomOp3 + Send + Sync + 'static,
) -> Result<Tensor> {
    let op: Op<dyn CustomOp3 + Send + Sync> = Arc::new(Box::new(op));
    let result = x.apply_op3_arc(y, z, op.clone())?;
    note(Function::Three(op), &[x, y, z], &result);
    Ok(result)
}

/// The same values in another shape, of as many entries.
///
/// # Errors
/// When the shape has another number of entries.
pub fn reshape(x: &Tensor, shape: impl Into<Shape>) -> Result<Tensor> {
    let result = x.reshape(shape.into())?;
    // A strided tensor is copied, which candle alone knows how to differentiate.
    if x.is_contiguous() {
        note(Function::Reshape, &[x], &result);
    }
    Ok(result)
}

/// What ran, in order.
#[must_use]
pub struct Tape(Vec<Entry>);

/// The record that there was before, put back when this goes, also when the work panics.
struct Before(Option<Vec<Entry>>);

impl Drop for Before {
    fn drop(&mut self) {
        RECORD.set(self.0.take());
    }
}

impl Tape {
    /// Runs `work` and records what its operators do on this thread.
    ///
    /// # Errors
    /// When `work` fails.
    pub fn record(work: impl FnOnce() -> Result<Tensor>) -> Result<(Tensor, Self)> {
        let _before = Before(RECORD.replace(Some(Vec::new())));
        let result = work()?;
        Ok((result, Self(RECORD.take().unwrap_or_default())))
    }

    /// The gradients of the variables that `output` was made of, by tensor, from that of `output`; `None` when the
    /// record has a gap.
    ///
    /// # Errors
    /// When an operator fails.
    pub fn gradients(self, output: &Tensor, gradient: &Tensor) -> Result<Option<HashMap<TensorId, Tensor>>> {
        if !self.is_whole(output) {
            return Ok(None);
        }
        let mut found = HashMap::from([(output.id(), gradient.clone())]);
        for entry in self.0.into_iter().rev() {
            let Some(gradient) = found.remove(&entry.result.id()) else { continue };
            for (input, gradient) in entry.inputs.iter().zip(entry.backward(&gradient)?) {
                let Some(gradient) = gradient.filter(|_| input.track_op()) else { continue };
                let gradient = match found.remove(&input.id()) {
                    Some(before) => sum(&before, &gradient)?,
                    None => gradient,
                };
                found.insert(input.id(), gradient.detach());
            }
        }
        Ok(Some(found))
    }

    /// Whether all that is tracked was noted or is a variable.
    fn is_whole(&self, output: &Tensor) -> bool {
        let mut known = HashSet::new();
        for entry in &self.0 {
            let mut tracked = entry.inputs.iter().filter(|input| input.track_op());
            if !tracked.all(|input| input.is_variable() || known.contains(&input.id())) {
                return false;
            }
            known.insert(entry.result.id());
        }
        known.contains(&output.id())
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Var};

    use super::super::parallel::with_threads;
    use super::super::testing::pseudo_random;
    use super::super::{Activation, linear, rms_norm, swiglu};
    use super::*;

    fn variable(shape: &[usize], seed: u64) -> Var {
        Var::from_tensor(&pseudo_random(shape, seed, DType::F64)).unwrap()
    }

    fn numbers(tensor: &Tensor) -> Vec<f64> {
        tensor.flatten_all().unwrap().to_vec1().unwrap()
    }

    /// A residual block in which inputs are used several times.
    fn block(variables: &[Var]) -> Result<Tensor> {
        let [x, norm, gate, up, down] = variables else { unreachable!("five") };
        let h = rms_norm(x, norm, 1e-5)?;
        let part = |weight: &Var| linear(&h, weight, None, Activation::Identity);
        let inner = reshape(&swiglu(&part(gate)?, &part(up)?)?, (9, 7))?;
        sum(x, &linear(&inner, down, None, Activation::Identity)?)
    }

    fn variables() -> Vec<Var> {
        let shapes: [&[usize]; 5] = [&[9, 6], &[6], &[7, 6], &[7, 6], &[6, 7]];
        shapes.iter().zip(1..).map(|(shape, seed)| variable(shape, seed)).collect()
    }

    #[test]
    fn gradients_are_those_of_candle_on_any_threads() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        let variables = variables();
        let seed = pseudo_random(&[9, 6], 9, DType::F64);
        let expected = (block(&variables).unwrap() * &seed).unwrap().sum_all().unwrap().backward().unwrap();
        let run = || {
            let (output, tape) = Tape::record(|| block(&variables)).unwrap();
            tape.gradients(&output, &seed).unwrap().unwrap()
        };
        let (alone, shared) = (run(), with_threads(&pool, run));
        for variable in &variables {
            let found = numbers(&alone[&variable.id()]);
            assert_eq!(found, numbers(&shared[&variable.id()]));
            for (found, expected) in found.iter().zip(numbers(expected.get(variable).unwrap())) {
                assert!((found - expected).abs() < 1e-12);
            }
        }
    }

    #[test]
    fn an_operator_that_is_not_recorded_is_noticed() {
        let x = variable(&[4, 3], 1);
        let tape = |work: &dyn Fn() -> Result<Tensor>| {
            let (output, tape) = Tape::record(work).unwrap();
            tape.gradients(&output, &output.ones_like().unwrap()).unwrap()
        };
        assert!(tape(&|| sum(&x, &x)).is_some());
        assert!(tape(&|| x.sqr()).is_none());
        assert!(tape(&|| sum(&x.sqr()?, &x)).is_none());
        assert!(tape(&|| sum(&x, &x)?.sqr()).is_none());
        assert!(tape(&|| reshape(&x.t()?, (4, 3))).is_none());
    }

    #[test]
    fn nothing_is_recorded_beside_a_tape_or_without_a_graph() {
        let x = variable(&[2, 2], 1);
        sum(&x, &x).unwrap();
        let (_, tape) = Tape::record(|| {
            let (_, inner) = Tape::record(|| sum(&x, &x))?;
            assert_eq!(inner.0.len(), 1);
            sum(&x.detach(), &x.detach())
        })
        .unwrap();
        assert!(tape.0.is_empty());
        assert!(Tape::record(|| sum(&x, &variable(&[3], 1))).is_err());
        RECORD.with_borrow(|record| assert!(record.is_none()));
    }
}
