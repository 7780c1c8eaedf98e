//! What the process itself costs: memory and processor time, from Linux' `/proc`.

/// Clock ticks in a second of `/proc/self/stat`: part of Linux' binary interface, whatever the kernel's own rate.
const TICKS_PER_SECOND: f64 = 100.0;

/// Figures of this process; `None` where the system does not tell them.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ProcessUsage {
    /// Memory in RAM (bytes).
    pub resident_bytes: Option<u64>,
    /// Processor time of all threads since the process began (seconds).
    pub cpu_seconds: Option<f64>,
}

/// What this process uses now.
#[must_use]
pub fn process_usage() -> ProcessUsage {
    let read = |path| std::fs::read_to_string(path).ok();
    ProcessUsage {
        resident_bytes: read("/proc/self/status").and_then(|text| resident_bytes(&text)),
        cpu_seconds: read("/proc/self/stat").and_then(|text| cpu_seconds(&text)),
    }
}

fn resident_bytes(status: &str) -> Option<u64> {
    let kibibytes = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?.trim().strip_suffix("kB")?;
    Some(kibibytes.trim().parse::<u64>().ok()? * 1024)
}

fn cpu_seconds(stat: &str) -> Option<f64> {
    // The second field, the program's name, may hold spaces and parentheses; the fields after it may not.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let ticks = fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?;
    Some(ticks as f64 / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_own_words_are_understood() {
        assert_eq!(resident_bytes("Name:\tforebay\nVmRSS:\t   2048 kB\nThreads:\t3\n"), Some(2 << 20));
        let stat = "42 (a (odd) name) S 1 42 42 0 -1 4194304 500 0 0 0 250 50 7 8 20 0 3 0 100 1 1";
        assert_eq!(cpu_seconds(stat), Some(3.0));
        assert_eq!((resident_bytes(""), cpu_seconds("")), (None, None));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_uses_memory() {
        assert!(process_usage().resident_bytes.is_some_and(|bytes| bytes > 1 << 20));
        assert!(process_usage().cpu_seconds.is_some());
    }
}
