//! Differentiation along a record of what ran.
//!
//! candle's backward pass adds every gradient to a tensor of zeros that it makes first, on one thread: for a layer of a
//! language model that is a twentieth of the whole update. While a [`Tape`] records, the operators of this module note
//! what they are applied to; on the way back a first gradient is taken as it is, and further ones are added on the
//! threads of this thread's policy.
//!
//! candle's graph is there all the same. An operator that notes nothing (candle's own, above all) leaves a gap in the
//! record; [`Tape::gradients`] then says so, and candle's backward pass is the way. Gradients are the same up to the
//! order in which those of one tensor are added.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use candle_core::{
    CpuStorage, CustomOp1, CustomOp2, CustomOp3, Layout, Result, Shape, Tensor, TensorId, WithDType,
};

use super::parallel::over_rows;
use super::storage::{self, by_type, refuse};

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

/// `x + y`, on the threads of this thread's policy.
///
/// Any shape, the same for both; one float type. Differentiable in both. Own kernels for `f32` and `f64` on the CPU,
/// else candle's operators.
///
/// # Errors
/// When shapes or types differ.
pub fn sum(x: &Tensor, y: &Tensor) -> Result<Tensor> {
    if x.dims() != y.dims() || x.dtype() != y.dtype() {
        let [x, y] = [x, y].map(|t| format!("{:?} {:?}", t.dtype(), t.dims()));
        return refuse("sum", format!("{x} and {y} must be alike"));
    }
    if storage::is_native(x) { apply2(&x.contiguous()?, &y.contiguous()?, Sum) } else { x + y }
}

struct Sum;

impl Sum {
    fn forward<T: WithDType>(
        (x, layout): (&CpuStorage, &Layout),
        y: (&CpuStorage, &Layout),
    ) -> Result<(CpuStorage, Shape)> {
        let (x, y): (&[T], &[T]) = (storage::slice(x, layout)?, storage::slice(y.0, y.1)?);
        let mut output = vec![T::zero(); x.len()];
        // A value comes from memory, which is what it costs.
        over_rows(&mut output, 1, 16 * x.len(), |first, output| {
            let given = x[first..].iter().zip(&y[first..]);
            output.iter_mut().zip(given).for_each(|(output, (&x, &y))| *output = x + y);
        });
        Ok((T::to_cpu_storage_owned(output), layout.shape().clone()))
    }
}

impl CustomOp2 for Sum {
    fn name(&self) -> &'static str {
        "sum"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        x_layout: &Layout,
        y: &CpuStorage,
        y_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        by_type!(storage::dtype(x), T => Self::forward::<T>((x, x_layout), (y, y_layout)))
    }

    fn bwd(
        &self,
        x: &Tensor,
        y: &Tensor,
        _: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        Ok((x.track_op().then(|| gradient.clone()), y.track_op().then(|| gradient.clone())))
    }
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
    use super::super::testing::{check_gradients, pseudo_random};
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

    #[test]
    fn sums_and_their_gradients_are_right_and_other_shapes_are_refused() {
        let inputs = [1, 2].map(|seed| pseudo_random(&[3, 5], seed, DType::F64));
        check_gradients(&inputs, |t| sum(&t[0], &t[1]));
        let error = sum(&inputs[0], &inputs[1].t().unwrap()).unwrap_err().to_string();
        assert!(error.contains("sum") && error.contains("[5, 3]"), "{error}");
    }
}
