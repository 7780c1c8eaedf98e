//! Where the gradients of one parameter are summed up in place, over operators and passes.
//!
//! Automatic differentiation gives every use of a weight a gradient of its own, adds it to zeros, and leaves the
//! adding up over micro-batches to the caller: for a large weight that is several passes over memory beside the
//! product itself. An operator that is given a [`GradientSum`] beside the weight ([`super::WeightRef`]) adds to it
//! directly, and gives automatic differentiation nothing for the weight.
//!
//! Sums are made in the order of the calls, so they do not depend on the number of threads.

use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use candle_core::{CpuStorage, DType, InplaceOp1, Layout, Result, Tensor, WithDType};

use super::parallel::over_rows;
use super::storage::{self, by_type, refuse, values};

/// The sum of the gradients of one parameter, shared by all its clones.
#[derive(Debug, Clone)]
pub struct GradientSum(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// Shared with nobody who writes.
    sum: Tensor,
    /// Whether `sum` counts; else the next gradient replaces what it holds, which saves clearing it.
    begun: bool,
}

impl GradientSum {
    /// The empty sum for a parameter like `parameter`; in f32 for one of bf16, which could not hold the small terms of
    /// a long sum.
    ///
    /// # Errors
    /// When a device has no memory for it.
    pub fn new(parameter: &Tensor) -> Result<Self> {
        let dtype = if parameter.dtype() == DType::BF16 { DType::F32 } else { parameter.dtype() };
        let sum = Tensor::zeros(parameter.shape(), dtype, parameter.device())?;
        Ok(Self(Arc::new(Mutex::new(State { sum, begun: false }))))
    }

    /// Begins a new sum, without touching the memory.
    pub fn clear(&self) {
        self.lock().begun = false;
    }

    /// Adds a gradient of the parameter's shape.
    ///
    /// # Errors
    /// When the shape is another one.
    pub fn add(&self, gradient: &Tensor) -> Result<()> {
        let mut state = self.lock();
        if gradient.shape() != state.sum.shape() {
            let (gradient, own) = (gradient.dims(), state.sum.dims());
            return refuse(
                "gradient sum",
                format!("gradient {gradient:?} and parameter {own:?} must be alike"),
            );
        }
        let gradient = gradient.to_dtype(state.sum.dtype())?;
        if storage::is_native(&gradient) && state.sum.device().is_cpu() {
            let gradient = gradient.contiguous()?;
            return by_type!(gradient.dtype(), T => {
                let gradient = values::<T>(&gradient)?;
                let gradient = gradient.slice()?;
                state.update::<T>(|sum, accumulate| {
                    over_rows(sum, 1, gradient.len(), |first, sum| {
                        let gradient = &gradient[first..first + sum.len()];
                        if accumulate {
                            sum.iter_mut().zip(gradient).for_each(|(sum, gradient)| *sum += gradient);
                        } else {
                            sum.copy_from_slice(gradient);
                        }
                    });
                })
            });
        }
        state.sum = if state.begun { (&state.sum + &gradient)? } else { gradient.copy()? };
        state.begun = true;
        Ok(())
    }

    /// The sum. The tensor shares the memory that later gradients are added to: use it before them.
    ///
    /// # Errors
    /// When a device fails.
    pub fn tensor(&self) -> Result<Tensor> {
        let mut state = self.lock();
        if !state.begun {
            state.sum = state.sum.zeros_like()?;
            state.begun = true;
        }
        Ok(state.sum.clone())
    }

    /// Lets `work` add to the values in place (or, when it is told `false`, write all of them): a sum on the CPU.
    pub(super) fn update<T: WithDType>(&self, work: impl FnOnce(&mut [T], bool)) -> Result<()> {
        self.lock().update(work)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic inside an operator leaves numbers behind that are as good as any.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn update<T: WithDType>(&mut self, work: impl FnOnce(&mut [T], bool)) -> Result<()> {
        let work = Mutex::new(Some((work, self.begun)));
        self.sum.inplace_op1(&InPlace { work, values: std::marker::PhantomData::<T> })?;
        self.begun = true;
        Ok(())
    }
}

/// Hands the values of a tensor out for writing, once.
struct InPlace<W, T> {
    work: Mutex<Option<(W, bool)>>,
    values: std::marker::PhantomData<T>,
}

impl<T: WithDType, W: FnOnce(&mut [T], bool)> InplaceOp1 for InPlace<W, T> {
    fn name(&self) -> &'static str {
        "gradient-sum"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> Result<()> {
        let range = storage::contiguous_range(layout)?;
        let values: &mut dyn Any = match storage {
            CpuStorage::F32(values) => values,
            CpuStorage::F64(values) => values,
            _ => return refuse("gradient sum", "on the CPU it is of f32 or f64"),
        };
        let Some(values) = values.downcast_mut::<Vec<T>>() else {
            return refuse("gradient sum", "a gradient of another type than the parameter");
        };
        let values = &mut values[range];
        if let Some((work, begun)) = self.work.lock().unwrap_or_else(PoisonError::into_inner).take() {
            work(values, begun);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::parallel::with_threads;
    use super::super::testing::pseudo_random;
    use super::*;

    #[test]
    fn gradients_add_up_in_place_and_a_new_sum_begins_at_zero() {
        let parameter = pseudo_random(&[40, 30], 1, DType::F32);
        let sum = GradientSum::new(&parameter).unwrap();
        let numbers = |t: &Tensor| t.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        let gradients = [2, 3].map(|seed| pseudo_random(&[40, 30], seed, DType::F32));
        let expected = numbers(&(&gradients[0] + &gradients[1]).unwrap());
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        for _ in 0..2 {
            with_threads(&pool, || gradients.iter().for_each(|gradient| sum.add(gradient).unwrap()));
            assert_eq!(numbers(&sum.tensor().unwrap()), expected);
            sum.clear();
        }
        assert_eq!(numbers(&sum.tensor().unwrap()), [0.0; 1200]);
    }

    #[test]
    fn gradients_of_a_bf16_parameter_add_up_in_f32() {
        let parameter = pseudo_random(&[3], 1, DType::BF16);
        let sum = GradientSum::new(&parameter).unwrap();
        let gradient = Tensor::new(&[1.0_f32, 1.0, 0.5], parameter.device()).unwrap();
        let gradient = gradient.to_dtype(DType::BF16).unwrap();
        // In bf16 a sum would stop at 256.
        (0..300).for_each(|_| sum.add(&gradient).unwrap());
        assert_eq!(sum.tensor().unwrap().to_vec1::<f32>().unwrap(), [300.0, 300.0, 150.0]);
    }

    #[test]
    fn another_shape_is_refused_by_name() {
        let sum = GradientSum::new(&pseudo_random(&[2, 3], 1, DType::F32)).unwrap();
        let error = sum.add(&pseudo_random(&[3, 2], 1, DType::F32)).unwrap_err().to_string();
        assert!(error.contains("gradient sum") && error.contains("[3, 2]"), "{error}");
    }
}
