//! Why an optimiser refuses to be built, to step or to load its state.

/// What can go wrong in an optimiser.
#[derive(Debug, thiserror::Error)]
pub enum OptimizerError {
    /// A setting is outside its range.
    #[error("optimizer setting {name} is {value}; it must be {expected}")]
    Setting {
        /// Name of the setting.
        name: &'static str,
        /// What was given.
        value: f64,
        /// What is allowed.
        expected: &'static str,
    },
    /// A parameter's number type is not supported.
    #[error("parameter {name} has type {dtype:?}; the optimizer updates f32 and f64 parameters only")]
    Type {
        /// Name of the parameter.
        name: String,
        /// Its type.
        dtype: candle_core::DType,
    },
    /// Two parameters have one name.
    #[error("two parameters are named {name}; each needs a name of its own")]
    DuplicateName {
        /// The shared name.
        name: String,
    },
    /// A parameter has no gradient.
    #[error(
        "no gradient reached parameter {name}: the loss does not depend on it, or an operator without a backward \
         stands between"
    )]
    MissingGradient {
        /// Name of the parameter.
        name: String,
    },
    /// A gradient is infinite or NaN, or too large to be squared.
    #[error("the gradient of parameter {name} is not finite; the update was not applied")]
    NonFiniteGradient {
        /// Name of the first such parameter.
        name: String,
    },
    /// A saved state does not belong to this optimiser.
    #[error("optimizer state {name}: {why}; it was saved by another optimizer or for other parameters")]
    State {
        /// Name of the entry.
        name: String,
        /// What is wrong with it.
        why: String,
    },
    /// A tensor operation failed.
    #[error("tensor operation of the optimizer failed: {0}")]
    Tensor(#[from] candle_core::Error),
}
