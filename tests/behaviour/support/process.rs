//! The `forebay` binary as a child process.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use forebay::telemetry::Summary;
use tempfile::TempDir;

use super::{SETTINGS, checkpoints};

/// Nothing here takes this long; what does hangs.
const PATIENCE: Duration = Duration::from_mins(2);

/// A folder for run directories, and the configuration file of all runs in it.
pub struct Scratch {
    folder: TempDir,
    config: PathBuf,
}

/// How a process ended.
#[derive(Debug)]
pub struct Ended {
    /// Exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    /// Fails with what it said unless it exited with 0.
    pub fn success(self) -> Self {
        assert_eq!(self.code, Some(0), "{self:#?}");
        self
    }

    /// Its one error, after checking that it failed with an exit code of 1.
    pub fn error(&self) -> &str {
        assert_eq!(self.code, Some(1), "{self:#?}");
        let mut errors = self.stderr.lines().filter_map(|line| line.strip_prefix("error: "));
        let (first, second) = (errors.next(), errors.next());
        assert!(second.is_none(), "{}", self.stderr);
        first.unwrap_or_else(|| panic!("no error in {}", self.stderr))
    }
}

impl Scratch {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("run.toml");
        std::fs::write(&config, SETTINGS).unwrap();
        Self { folder, config }
    }

    /// Runs of a configuration file that is there.
    pub fn of(config: PathBuf) -> Self {
        Self { folder: tempfile::tempdir().unwrap(), config }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// `forebay train` in the run directory `name`; `arguments` are settings, and flags that begin with `--`.
    pub fn start(&self, name: &str, arguments: &[&str]) -> Running {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
        command.arg("train").arg(&self.config).arg("--run-dir").arg(self.path(name));
        for argument in arguments {
            if !argument.starts_with("--") {
                command.arg("--set");
            }
            command.arg(argument);
        }
        Running::new(command, self.path(name))
    }

    /// The same, up to its end.
    pub fn train(&self, name: &str, arguments: &[&str]) -> Ended {
        self.start(name, arguments).wait()
    }

    /// The same for a run that must end well.
    pub fn complete(&self, name: &str, arguments: &[&str]) -> Summary {
        self.train(name, arguments).success();
        self.summary(name)
    }

    pub fn summary(&self, name: &str) -> Summary {
        Summary::read(&self.path(name)).unwrap()
    }
}

/// A process that was started; killed when dropped.
pub struct Running {
    child: Child,
    run_dir: PathBuf,
    stdout: Option<JoinHandle<String>>,
    stderr: flume::Receiver<String>,
    heard: String,
}

impl Running {
    fn new(mut command: Command, run_dir: PathBuf) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdout = child.stdout.take().unwrap();
        let stdout = std::thread::spawn(move || {
            let mut text = String::new();
            stdout.read_to_string(&mut text).unwrap();
            text
        });
        let (sender, lines) = flume::bounded(10_000);
        let stderr = BufReader::new(child.stderr.take().unwrap());
        std::thread::spawn(move || {
            stderr.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Self { child, run_dir, stdout: Some(stdout), stderr: lines, heard: String::new() }
    }

    /// Waits until the process says something on standard error.
    pub fn wait_for_words(&mut self, words: &str) {
        while !self.heard.contains(words) {
            let line = self.stderr.recv_timeout(PATIENCE);
            let line = line.unwrap_or_else(|_| panic!("`{words}` never came after: {}", self.heard));
            self.heard.push_str(&line);
            self.heard.push('\n');
        }
    }

    /// Waits until the checkpoint after an update is there.
    pub fn wait_for_checkpoint(&mut self, update: u64) {
        let path = checkpoints::folder(&self.run_dir, update);
        self.wait_until(&format!("{}", path.display()), |_| path.exists());
    }

    /// Waits until `metrics.jsonl` has that many lines.
    pub fn wait_for_metrics(&mut self, lines: usize) {
        let path = self.run_dir.join("metrics.jsonl");
        let count = || std::fs::read_to_string(&path).unwrap_or_default().lines().count();
        self.wait_until(&format!("line {lines} of metrics"), |_| count() >= lines);
    }

    /// Waits until a metric that is served at `address`, summed over its labels, has such a value.
    pub fn wait_for_metric(&mut self, address: &SocketAddr, name: &str, fits: impl Fn(f64) -> bool) {
        self.wait_until(name, |_| served(address, name).is_some_and(&fits));
    }

    fn wait_until(&mut self, what: &str, condition: impl Fn(&Path) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !condition(&self.run_dir) {
            assert!(Instant::now() < deadline, "{what} never came");
            if let Some(status) = self.child.try_wait().unwrap() {
                assert!(condition(&self.run_dir), "it ended ({status}) before {what} came");
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    pub fn signal(&self, signal: i32) {
        let process = libc::pid_t::try_from(self.child.id()).unwrap();
        // SAFETY: `kill` touches no memory; the child was not waited for yet, so its id is still its own.
        assert_eq!(unsafe { libc::kill(process, signal) }, 0);
    }

    /// Waits for the end.
    pub fn wait(mut self) -> Ended {
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(
                Instant::now() < deadline,
                "it never ended; so far: {:?}",
                self.stderr.drain().collect::<Vec<_>>()
            );
            std::thread::sleep(Duration::from_millis(2));
        };
        for line in &self.stderr {
            self.heard.push_str(&line);
            self.heard.push('\n');
        }
        let stdout = self.stdout.take().unwrap().join().unwrap();
        let stderr = std::mem::take(&mut self.heard);
        Ended { code: status.code(), signal: status.signal(), stdout, stderr }
    }
}

/// A metric's sum over its labels, if it is served.
fn served(address: &SocketAddr, name: &str) -> Option<f64> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: run\r\nConnection: close\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let start = format!("{name}{{");
    let values = text.lines().filter(|line| line.starts_with(&start));
    values.map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has usually ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
