//! SIGINT and SIGTERM: the first asks the run to stop, the second ends the process at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

/// Exit code of a process ended by a second signal.
const ABORTED: i32 = 130;

/// Which signal came, if any. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Interrupt(Arc<AtomicI32>);

impl Interrupt {
    /// Starts listening on a thread of its own, for the rest of the process.
    #[must_use]
    pub fn listen() -> Self {
        let interrupt = Self::default();
        let shared = interrupt.clone();
        let spawned = std::thread::Builder::new().name("signals".into()).spawn(move || shared.watch());
        if let Err(error) = spawned {
            tracing::warn!("signals cannot be handled: {error}");
        }
        interrupt
    }

    fn watch(&self) {
        use tokio::signal::unix::{SignalKind, signal};

        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let Ok(runtime) = runtime else { return };
        let listening = runtime.block_on(async {
            let mut interrupt = signal(SignalKind::interrupt())?;
            let mut terminate = signal(SignalKind::terminate())?;
            loop {
                let number = tokio::select! {
                    _ = interrupt.recv() => libc::SIGINT,
                    _ = terminate.recv() => libc::SIGTERM,
                };
                if self.0.swap(number, Ordering::Release) != 0 {
                    std::process::exit(ABORTED);
                }
                let name = self.signal().unwrap_or_default();
                eprintln!("{name}: saving a checkpoint and stopping; a second signal exits at once");
            }
            #[expect(unreachable_code, reason = "gives the block its error type")]
            Ok::<(), std::io::Error>(())
        });
        if let Err(error) = listening {
            tracing::warn!("signals cannot be handled: {error}");
        }
    }

    /// The name of the signal that came.
    #[must_use]
    pub fn signal(&self) -> Option<&'static str> {
        match self.0.load(Ordering::Acquire) {
            0 => None,
            libc::SIGTERM => Some("SIGTERM"),
            _ => Some("SIGINT"),
        }
    }
}
