//! One vector register of `f32` or `f64`, whatever its width: the vocabulary in which the operators' inner loops
//! are written once.
//!
//! The binary is built for the baseline processor, so the loops choose their instruction set when they run
//! ([`on_this_processor`]). Two invariants keep results independent of where a value sits in a batch:
//! every element, the ragged end of a slice included, goes through the same vector instructions (missing lanes are
//! filled with zeros and not stored), and nothing here combines lanes. On one machine a value alone and the same
//! value in a batch therefore give the same bits.
//!
//! Everything that touches a register must be `#[inline(always)]`, so that it is compiled for the instruction set of
//! the kernel that calls it; a closure cannot be, so kernels use none on registers.

use std::ops::{Add, Div, Mul, Neg, Sub};

use pulp::{Arch, Simd, WithSimd};

use super::elementary;
use super::prepared::PreparedWeight;
use super::product::PackedWeight;

/// Runs a kernel with the widest instruction set of this processor.
#[inline]
pub(super) fn on_this_processor<K: WithSimd>(kernel: K) -> K::Output {
    architecture().dispatch(kernel)
}

#[cfg(not(test))]
#[inline]
fn architecture() -> Arch {
    Arch::new()
}

/// Tests may ask for a narrower instruction set than the processor's.
#[cfg(test)]
fn architecture() -> Arch {
    super::testing::ARCHITECTURE.get().unwrap_or_default()
}

/// The element types of the CPU operators: `f32` to compute with, `f64` to check gradients with.
pub(super) trait Element: candle_core::WithDType {
    /// The nearest value of this type; unlike candle's conversion sure to be a constant in inner loops.
    fn constant(value: f64) -> Self;
    /// A vector register of this element.
    type Vector<S: Simd>: Copy;
    /// Elements in a register.
    fn width<S: Simd>() -> usize;
    /// The same value in every lane.
    fn splat<S: Simd>(simd: S, value: Self) -> Self::Vector<S>;
    /// The first elements of a slice; lanes beyond its end are zero.
    fn load<S: Simd>(simd: S, from: &[Self]) -> Self::Vector<S>;
    /// Stores as many lanes as the slice has room for.
    fn store<S: Simd>(simd: S, to: &mut [Self], value: Self::Vector<S>);
    /// `a + b`.
    fn add<S: Simd>(simd: S, a: Self::Vector<S>, b: Self::Vector<S>) -> Self::Vector<S>;
    /// `a - b`.
    fn subtract<S: Simd>(simd: S, a: Self::Vector<S>, b: Self::Vector<S>) -> Self::Vector<S>;
    /// `a * b`.
    fn multiply<S: Simd>(simd: S, a: Self::Vector<S>, b: Self::Vector<S>) -> Self::Vector<S>;
    /// `a / b`.
    fn divide<S: Simd>(simd: S, a: Self::Vector<S>, b: Self::Vector<S>) -> Self::Vector<S>;
    /// `a * b + c`, rounded once where the processor can.
    fn multiply_add<S: Simd>(
        simd: S,
        a: Self::Vector<S>,
        b: Self::Vector<S>,
        c: Self::Vector<S>,
    ) -> Self::Vector<S>;
    /// `yes` where `a < b`, else `no` (so a NaN in `a` or `b` gives `no`).
    fn where_less<S: Simd>(
        simd: S,
        a: Self::Vector<S>,
        b: Self::Vector<S>,
        yes: Self::Vector<S>,
        no: Self::Vector<S>,
    ) -> Self::Vector<S>;
    /// The laid out form, where it is of this element.
    fn prepared(weight: &PreparedWeight) -> Option<&PackedWeight<Self>>;
    /// Transposes a weight `[O, inputs]` into `panel` `[inputs, width]` where the processor has registers for it; else
    /// gives back false and does nothing.
    fn transpose_in_registers(weight: &[Self], inputs: usize, panel: &mut [Self], width: usize) -> bool;
    /// See [`Lanes::exp`].
    fn exp<S: Simd>(value: Lanes<S, Self>) -> Lanes<S, Self>;
    /// See [`Lanes::tanh`].
    fn tanh<S: Simd>(value: Lanes<S, Self>) -> Lanes<S, Self>;
    /// See [`Lanes::ln_1p_of_unit`].
    fn ln_1p_of_unit<S: Simd>(value: Lanes<S, Self>) -> Lanes<S, Self>;
}

macro_rules! vector_operations {
    ($element:ident, $vector:ident, $lanes:ident, $splat:ident, $view:ident, $view_mut:ident, $load:ident,
     $store:ident, $add:ident, $sub:ident, $mul:ident, $div:ident, $fma:ident, $less:ident, $select:ident) => {
        type Vector<S: Simd> = S::$vector;

        #[inline(always)]
        fn constant(value: f64) -> Self {
            value as Self
        }
        #[inline(always)]
        fn width<S: Simd>() -> usize {
            S::$lanes
        }
        #[inline(always)]
        fn splat<S: Simd>(simd: S, value: Self) -> S::$vector {
            simd.$splat(value)
        }
        #[inline(always)]
        fn load<S: Simd>(simd: S, from: &[Self]) -> S::$vector {
            match S::$view(from).0.first() {
                Some(full) => *full,
                None => simd.$load(from),
            }
        }
        #[inline(always)]
        fn store<S: Simd>(simd: S, to: &mut [Self], value: S::$vector) {
            if let Some(full) = S::$view_mut(to).0.first_mut() {
                *full = value;
            } else {
                simd.$store(to, value);
            }
        }
        #[inline(always)]
        fn add<S: Simd>(simd: S, a: S::$vector, b: S::$vector) -> S::$vector {
            simd.$add(a, b)
        }
        #[inline(always)]
        fn subtract<S: Simd>(simd: S, a: S::$vector, b: S::$vector) -> S::$vector {
            simd.$sub(a, b)
        }
        #[inline(always)]
        fn multiply<S: Simd>(simd: S, a: S::$vector, b: S::$vector) -> S::$vector {
            simd.$mul(a, b)
        }
        #[inline(always)]
        fn divide<S: Simd>(simd: S, a: S::$vector, b: S::$vector) -> S::$vector {
            simd.$div(a, b)
        }
        #[inline(always)]
        fn multiply_add<S: Simd>(simd: S, a: S::$vector, b: S::$vector, c: S::$vector) -> S::$vector {
            simd.$fma(a, b, c)
        }
        #[inline(always)]
        fn where_less<S: Simd>(
            simd: S,
            a: S::$vector,
            b: S::$vector,
            yes: S::$vector,
            no: S::$vector,
        ) -> S::$vector {
            simd.$select(simd.$less(a, b), yes, no)
        }
    };
}

impl Element for f32 {
    vector_operations!(
        f32,
        f32s,
        F32_LANES,
        splat_f32s,
        as_simd_f32s,
        as_mut_simd_f32s,
        partial_load_f32s,
        partial_store_f32s,
        add_f32s,
        sub_f32s,
        mul_f32s,
        div_f32s,
        mul_add_e_f32s,
        less_than_f32s,
        select_f32s
    );

    fn prepared(weight: &PreparedWeight) -> Option<&PackedWeight<f32>> {
        Some(weight.packed())
    }

    #[cfg(target_arch = "x86_64")]
    fn transpose_in_registers(weight: &[f32], inputs: usize, panel: &mut [f32], width: usize) -> bool {
        // Panels of narrow processors are narrower than a tile.
        let possible = width >= 8 && pulp::x86::V3::is_available();
        if possible {
            // SAFETY: the processor has AVX, as just checked.
            unsafe { super::product::transpose_avx(weight, inputs, panel, width) };
        }
        possible
    }
    #[cfg(not(target_arch = "x86_64"))]
    fn transpose_in_registers(_: &[f32], _: usize, _: &mut [f32], _: usize) -> bool {
        false
    }

    #[inline(always)]
    fn exp<S: Simd>(value: Lanes<S, f32>) -> Lanes<S, f32> {
        elementary::exp(value)
    }
    #[inline(always)]
    fn tanh<S: Simd>(value: Lanes<S, f32>) -> Lanes<S, f32> {
        elementary::tanh(value)
    }
    #[inline(always)]
    fn ln_1p_of_unit<S: Simd>(value: Lanes<S, f32>) -> Lanes<S, f32> {
        elementary::ln_1p_of_unit(value)
    }
}

impl Element for f64 {
    vector_operations!(
        f64,
        f64s,
        F64_LANES,
        splat_f64s,
        as_simd_f64s,
        as_mut_simd_f64s,
        partial_load_f64s,
        partial_store_f64s,
        add_f64s,
        sub_f64s,
        mul_f64s,
        div_f64s,
        mul_add_e_f64s,
        less_than_f64s,
        select_f64s
    );

    fn prepared(_: &PreparedWeight) -> Option<&PackedWeight<f64>> {
        None
    }

    fn transpose_in_registers(_: &[f64], _: usize, _: &mut [f64], _: usize) -> bool {
        false
    }

    fn exp<S: Simd>(value: Lanes<S, f64>) -> Lanes<S, f64> {
        value.each(f64::exp)
    }
    fn tanh<S: Simd>(value: Lanes<S, f64>) -> Lanes<S, f64> {
        value.each(f64::tanh)
    }
    fn ln_1p_of_unit<S: Simd>(value: Lanes<S, f64>) -> Lanes<S, f64> {
        value.each(f64::ln_1p)
    }
}

/// A register and the instruction set it belongs to, with the operators of arithmetic.
#[derive(Clone, Copy)]
pub(super) struct Lanes<S: Simd, T: Element> {
    /// Proof that the instruction set is there; takes no space.
    pub(super) simd: S,
    /// The register.
    pub(super) vector: T::Vector<S>,
}

impl<S: Simd, T: Element> Lanes<S, T> {
    /// Elements in a register.
    #[inline(always)]
    pub(super) fn width() -> usize {
        T::width::<S>()
    }

    /// The same value in every lane.
    #[inline(always)]
    pub(super) fn splat(simd: S, value: T) -> Self {
        Self { simd, vector: T::splat(simd, value) }
    }

    /// The first elements of a slice; lanes beyond its end are zero.
    #[inline(always)]
    pub(super) fn load(simd: S, from: &[T]) -> Self {
        Self { simd, vector: T::load(simd, from) }
    }

    /// Stores as many lanes as the slice has room for.
    #[inline(always)]
    pub(super) fn store(self, to: &mut [T]) {
        T::store(self.simd, to, self.vector);
    }

    /// A constant, in every lane.
    #[inline(always)]
    pub(super) fn constant(self, value: f64) -> Self {
        Self::splat(self.simd, T::constant(value))
    }

    /// `self * factor + term`, rounded once where the processor can.
    #[inline(always)]
    pub(super) fn multiply_add(self, factor: Self, term: Self) -> Self {
        Self { simd: self.simd, vector: T::multiply_add(self.simd, self.vector, factor.vector, term.vector) }
    }

    /// `yes` where `self < bound`, else `no`; a NaN gives `no`.
    #[inline(always)]
    pub(super) fn where_less(self, bound: Self, yes: Self, no: Self) -> Self {
        let vector = T::where_less(self.simd, self.vector, bound.vector, yes.vector, no.vector);
        Self { simd: self.simd, vector }
    }

    /// The absolute value; a NaN stays.
    #[inline(always)]
    pub(super) fn absolute(self) -> Self {
        self.where_less(self.constant(0.0), -self, self)
    }

    /// `e^self`: exactly 0 far below zero, infinite far above, a NaN stays.
    #[inline(always)]
    pub(super) fn exp(self) -> Self {
        T::exp(self)
    }

    /// The hyperbolic tangent; a NaN stays.
    #[inline(always)]
    pub(super) fn tanh(self) -> Self {
        T::tanh(self)
    }

    /// `ln(1 + self)` for values in [0, 1]; a NaN stays.
    #[inline(always)]
    pub(super) fn ln_1p_of_unit(self) -> Self {
        T::ln_1p_of_unit(self)
    }

    /// The logistic function `1 / (1 + e^-self)`.
    #[inline(always)]
    pub(super) fn sigmoid(self) -> Self {
        let one = self.constant(1.0);
        one / (one + (-self).exp())
    }

    /// Applies a scalar function to each lane.
    fn each(self, function: impl Fn(T) -> T) -> Self {
        let mut lanes = [T::zero(); 64];
        let lanes = &mut lanes[..Self::width()];
        self.store(lanes);
        for lane in lanes.iter_mut() {
            *lane = function(*lane);
        }
        Self::load(self.simd, lanes)
    }
}

macro_rules! operator {
    ($trait:ident, $method:ident, $function:ident) => {
        impl<S: Simd, T: Element> $trait for Lanes<S, T> {
            type Output = Self;
            #[inline(always)]
            fn $method(self, other: Self) -> Self {
                Self {
                    simd: self.simd,
                    vector: <T as Element>::$function(self.simd, self.vector, other.vector),
                }
            }
        }
    };
}
operator!(Add, add, add);
operator!(Sub, sub, subtract);
operator!(Mul, mul, multiply);
operator!(Div, div, divide);

impl<S: Simd, T: Element> Neg for Lanes<S, T> {
    type Output = Self;
    #[inline(always)]
    fn neg(self) -> Self {
        self.constant(-0.0) - self
    }
}
