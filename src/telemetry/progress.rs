//! The progress of a run on standard error: a live line on a terminal, plain lines elsewhere.

use std::io::{self, IsTerminal, Write};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::config::ProgressMode;
use super::format::duration;

/// Seconds between two plain lines.
const PLAIN_INTERVAL: f64 = 5.0;

/// Where a run stands, in the few numbers that fit on a line.
pub trait Snapshot {
    /// Time since the run began, earlier sessions included (seconds).
    fn wall_seconds(&self) -> f64;

    /// How far the nearest stop condition is, from 0 to 1; `None` when it cannot be told.
    fn fraction_done(&self) -> Option<f64>;

    /// The figures in the order of their importance, each with its name; those that do not exist yet are left out.
    fn figures(&self) -> Vec<String>;
}

/// Shows snapshots; how is fixed when it is made. Cleared from the terminal when dropped.
#[derive(Debug)]
pub struct Progress {
    display: Display,
    /// `wall_seconds` and `fraction_done` of the first snapshot that had one: the remaining time is told from this
    /// session's own speed.
    origin: Option<(f64, f64)>,
}

#[derive(Debug)]
enum Display {
    Live(ProgressBar),
    /// The value is the `wall_seconds` from which on the next line is due.
    Plain(f64),
    Off,
}

impl Progress {
    /// Steps of the bar, fine enough for any terminal.
    const BAR_STEPS: u64 = 1_000;

    /// A display on standard error.
    #[must_use]
    pub fn new(mode: ProgressMode) -> Self {
        let display = match mode {
            ProgressMode::Off => Display::Off,
            ProgressMode::Auto if io::stderr().is_terminal() => Display::Live(live_bar()),
            ProgressMode::Auto | ProgressMode::Plain => Display::Plain(f64::NEG_INFINITY),
        };
        Self { display, origin: None }
    }

    /// Shows where the run stands. Cheap enough to be called several times a second.
    pub fn update(&mut self, snapshot: &impl Snapshot) {
        if let Some(line) = self.line(snapshot) {
            // Nothing is lost when standard error is closed.
            let _ = writeln!(io::stderr(), "{line}");
        }
    }

    /// Brings a live display up to date, or returns the plain line when one is due.
    fn line(&mut self, snapshot: &impl Snapshot) -> Option<String> {
        self.origin =
            self.origin.or(snapshot.fraction_done().map(|fraction| (snapshot.wall_seconds(), fraction)));
        let remaining = self.remaining_seconds(snapshot);
        match &mut self.display {
            Display::Live(bar) => {
                let fraction = snapshot.fraction_done().unwrap_or_default().clamp(0.0, 1.0);
                bar.set_message(describe(snapshot, remaining));
                bar.set_position((fraction * Self::BAR_STEPS as f64) as u64);
                None
            }
            Display::Plain(due) if snapshot.wall_seconds() >= *due => {
                *due = snapshot.wall_seconds() + PLAIN_INTERVAL;
                let percent =
                    snapshot.fraction_done().map(|f| format!("{:3.0} %  ", 100.0 * f.clamp(0.0, 1.0)));
                Some(format!("{}{}", percent.unwrap_or_default(), describe(snapshot, remaining)))
            }
            Display::Plain(_) | Display::Off => None,
        }
    }

    /// Time to the nearest stop condition at the mean speed of this process.
    fn remaining_seconds(&self, snapshot: &impl Snapshot) -> Option<f64> {
        let (then, fraction_then) = self.origin?;
        let fraction = snapshot.fraction_done()?;
        let gained = fraction - fraction_then;
        (gained > 0.0).then(|| (snapshot.wall_seconds() - then) * (1.0 - fraction).max(0.0) / gained)
    }

    /// A writer to standard error for log lines, which a live display makes room for.
    #[must_use]
    pub fn writer(&self) -> ProgressWriter {
        match &self.display {
            Display::Live(bar) => ProgressWriter(Some(bar.clone())),
            Display::Plain(_) | Display::Off => ProgressWriter(None),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Display::Live(bar) = &self.display {
            bar.finish_and_clear();
        }
    }
}

fn live_bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:20.cyan/dim} {percent:>3} %  {wide_msg}")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("━╸─");
    ProgressBar::with_draw_target(Some(Progress::BAR_STEPS), ProgressDrawTarget::stderr()).with_style(style)
}

fn describe(snapshot: &impl Snapshot, remaining_seconds: Option<f64>) -> String {
    let remaining = remaining_seconds.map(|seconds| format!("{} left", duration(seconds)));
    snapshot.figures().into_iter().chain(remaining).collect::<Vec<_>>().join("  ")
}

/// Standard error, shared with a live display.
#[derive(Debug, Clone)]
pub struct ProgressWriter(Option<ProgressBar>);

impl Write for ProgressWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Whole, so that the display is drawn between lines and not within one.
        let write = || io::stderr().write_all(bytes);
        self.0.as_ref().map_or_else(write, |bar| bar.suspend(write))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::ProgressSnapshot;

    fn snapshot(wall_seconds: f64, fraction_done: Option<f64>) -> ProgressSnapshot {
        ProgressSnapshot {
            env_steps: 12_345,
            updates: 96,
            wall_seconds,
            steps_per_second: 4_560.0,
            lag_mean: Some(1.25),
            queue_depth: 3,
            queue_capacity: 8,
            fraction_done,
            ..Default::default()
        }
    }

    #[test]
    fn a_plain_line_shows_what_there_is_and_nothing_else() {
        let mut progress = Progress::new(ProgressMode::Plain);
        assert_eq!(
            progress.line(&snapshot(0.0, None)).unwrap(),
            "12.3k steps  4.56k steps/s  lag 1.25  queue 3/8  96 updates"
        );
    }

    #[test]
    fn plain_lines_come_every_five_seconds() {
        let mut progress = Progress::new(ProgressMode::Plain);
        let shown =
            (0..=100).filter(|&tenth| progress.line(&snapshot(f64::from(tenth) / 10.0, None)).is_some());
        assert_eq!(shown.collect::<Vec<_>>(), [0, 50, 100]);
    }

    #[test]
    fn the_remaining_time_of_a_resumed_run_is_told_from_its_own_speed() {
        let mut progress = Progress::new(ProgressMode::Plain);
        assert!(!progress.line(&snapshot(1_000.0, Some(0.5))).unwrap().contains("left"));
        let line = progress.line(&snapshot(1_010.0, Some(0.6))).unwrap();
        assert!(line.starts_with(" 60 %") && line.ends_with("40 s left"), "{line}");
    }

    #[test]
    fn off_is_silent() {
        assert_eq!(Progress::new(ProgressMode::Off).line(&snapshot(0.0, None)), None);
    }
}
