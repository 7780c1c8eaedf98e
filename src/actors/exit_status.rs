//! How a role's thread ended.

use super::role::RoleError;

/// The end of one life of a role.
#[derive(Debug, thiserror::Error)]
pub enum ExitStatus {
    /// It had nothing left to do. Like exit code 0.
    #[error("completed")]
    Completed,
    /// It was told to stop. Like SIGTERM, handled.
    #[error("stopped")]
    Stopped,
    /// It reported an error. Like a non-zero exit code.
    #[error("{0}")]
    Failed(#[from] RoleError),
    /// It panicked; the unwinding was caught. Like SIGABRT.
    #[error("panicked: {0}")]
    Panicked(String),
}

impl ExitStatus {
    /// Whether a supervisor should consider another life.
    #[must_use]
    pub fn is_failure(&self) -> bool {
        matches!(self, Self::Failed(_) | Self::Panicked(_))
    }
}
